"""Make a folder whole or not at all.

It is made beside the target under a hidden name, and gets the target's name when everything is written: whatever
happens before leaves no target, and what others put there meanwhile stays as it is.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def require_new(target: Path) -> None:
    """Raise unless a folder of this name can be made."""
    if target.exists():
        raise ValueError(f"target must be a new folder, since {str(target)!r} would be lost. Choose another name.")
    if target.is_symlink():
        raise ValueError(
            f"target must be a new folder, since nothing is written through links; got {str(target)!r}, which is a "
            f"link to nothing. Remove it, or choose another name."
        )
    if not target.parent.is_dir() or not os.access(target.parent, os.W_OK):
        raise ValueError(f"target must be in a folder that exists and can be written to; got {str(target)!r}.")


def require_room(target: Path, files: Iterable[Path]) -> None:
    """Raise unless the disk has room for copies of files."""
    needed, free = sum(each.stat().st_size for each in files), shutil.disk_usage(target.parent).free
    if needed > free:
        raise ValueError(
            f"target must lie on a disk with {needed:,} bytes free, since the checkpoint has as many; got {free:,}."
        )


@contextmanager
def made(target: Path) -> Iterator[Path]:
    """A folder that becomes the target at the end, and nothing where anything goes wrong."""
    for stale in target.parent.glob(f".{target.name}.partial-*"):
        if not _runs(stale.name.rpartition("-")[2]):
            shutil.rmtree(stale, ignore_errors=True)  # of a conversion that was killed
    folder = target.parent / f".{target.name}.partial-{os.getpid()}"
    with telling_failures():
        folder.mkdir()
    try:
        yield folder
        with telling_failures():
            _settle(folder)
            _rename(folder, target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def telling_failures() -> Iterator[None]:
    """Say in a sentence what the system refuses, such as writing to a full disk."""
    try:
        yield
    except OSError as problem:
        reason = problem.strerror or str(problem)
        full = problem.errno in FULL
        where = f" for {str(problem.filename)!r}" if problem.filename and not full else ""
        raise ValueError(
            f"target must be written whole, since a part of a checkpoint is of no use; got {reason!r}{where}, and "
            f"removed what was written.{' Make room, or choose a target on another disk.' * full}"
        ) from problem


def _rename(folder: Path, target: Path) -> None:
    """Give a folder the target's name, unless somebody else has taken it."""
    taken = ValueError(
        f"target must be a new folder, since nothing is written over; got {str(target)!r}, which somebody else made "
        f"during the conversion. Choose another name."
    )
    try:
        target.mkdir()  # a rename alone would replace an empty folder, whoever made it
    except FileExistsError:
        raise taken from None
    try:
        folder.rename(target)
    except OSError as problem:
        try:
            target.rmdir()
        except OSError:  # it is not empty: somebody has begun to use it
            raise taken from None
        raise problem from None


def _settle(folder: Path) -> None:
    """Wait until files are on the disk, before the folder gets its name."""
    for file in folder.rglob("*"):
        if file.is_file():
            with file.open("rb") as opened:
                os.fsync(opened.fileno())


def _runs(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:
        return True
    return True
