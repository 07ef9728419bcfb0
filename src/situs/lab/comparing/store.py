"""The folder where a comparison stores what is finished, so that it can be stopped at any moment and goes on later.

    folder/trials/<key>.json            a finished trial
    folder/trials/<key>.json.damaged    what could not be read; its trial is run again
    folder/trials/<key>.claim           who runs a trial now: see situs.lab.comparing.engines.claims
    folder/...                          other outputs

Every file is written whole or not at all: beside where it shall stand, flushed to the disk, then moved there. A process
that is killed in between leaves at most a file named ``.<random>.part``, which is never read.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from types import GenericAlias
from typing import TypeVar, final

from situs.lab.comparing.records import FORMAT, TrialRecord
from situs.lab.plain import UnreadableError, from_json, to_json

T = TypeVar("T")


class StoreError(ValueError):
    """Raised where the folder cannot be used."""


@final
class Store:
    """Store finished trials and other outputs in a folder, which is made where there is none."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.damaged: list[str] = []
        """The records that the last ``load`` moved aside, by file name."""
        with speaking_of(self.folder):
            self.trials.mkdir(parents=True, exist_ok=True)
            _probe(self.trials)

    @property
    def trials(self) -> Path:
        """The folder of records and claims."""
        return self.folder / "trials"

    def load(self) -> dict[str, TrialRecord]:
        """Read all records, by their trial's key. Damaged ones are moved aside and named in ``damaged``."""
        self.damaged = []
        with speaking_of(self.folder):
            keys = sorted(path.stem for path in self.trials.glob("*.json"))
        found = {key: self.find(key) for key in keys}
        return {key: record for key, record in found.items() if record is not None}

    def find(self, key: str) -> TrialRecord | None:
        """Read the record of one trial; None where there is none, or it was damaged and is now moved aside."""
        path = self._path(key)
        try:
            record = from_json(TrialRecord, path.read_text(encoding="utf-8"))
            _require_sound(record, key)
            return record
        except FileNotFoundError:
            return None
        except (UnicodeDecodeError, UnreadableError, IsADirectoryError):
            pass
        except OSError as error:
            raise _spoken(self.folder, error) from error
        with speaking_of(self.folder), contextlib.suppress(FileNotFoundError):  # another process was faster
            os.replace(path, path.with_name(f"{path.name}.damaged"))
        self.damaged.append(path.name)
        return None

    def save(self, record: TrialRecord) -> None:
        """Store a finished trial."""
        _require_sound(record, record.key)
        self._write(self._path(record.key), to_json(record).encode())

    def write(self, name: str, content: str | bytes) -> Path:
        """Write another file of the folder, such as ``report.html``; returns where it is."""
        path = self.folder / name
        with speaking_of(self.folder):
            path.parent.mkdir(parents=True, exist_ok=True)
        self._write(path, content.encode() if isinstance(content, str) else content)
        return path

    def read(self, kind: type[T] | GenericAlias, name: str) -> T | None:
        """Read a record of one kind from a file of the folder; None where there is none that can be read."""
        try:
            return from_json(kind, (self.folder / name).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        except OSError as error:
            raise _spoken(self.folder, error) from error

    def _path(self, key: str) -> Path:
        return self.trials / f"{key}.json"

    def _write(self, path: Path, content: bytes) -> None:
        with speaking_of(self.folder):
            write_whole(path, content)
            _sync(path.parent)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all, whatever happens meanwhile."""
    part = path.with_name(f".{secrets.token_hex(8)}.part")  # short, so that it may stand wherever the file may
    try:
        with part.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _require_sound(record: TrialRecord, key: str) -> None:
    """Raise unless this is the record of a trial, in the format of today, with all that was tested."""
    untested = {method.name for method in record.trial.tested} - record.methods.keys()
    if record.format != FORMAT:
        problem = f"format {record.format}"
    elif record.key != key:
        problem = f"key {record.key}"
    elif untested and record.status == "done":
        problem = f"no {min(untested)}"
    else:
        return
    raise UnreadableError(f"record must be one of a trial, since it is to be read again; got one with {problem}.")


@contextlib.contextmanager
def speaking_of(folder: Path) -> Iterator[None]:
    """Turn what the system says about files into one sentence about the folder."""
    try:
        yield
    except OSError as error:
        raise _spoken(folder, error) from error


def _spoken(folder: Path, error: OSError) -> StoreError:
    reason = "since each trial is stored there as a file"
    said = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreError(
            f"folder must have room, {reason}; got {folder}: {said}. Make room and run again: what is finished is kept."
        )
    if isinstance(error, FileExistsError | NotADirectoryError):
        return StoreError(f"folder must be a folder, {reason}; got {folder}, where a file stands. Choose another.")
    return StoreError(f"folder must be readable and writable, {reason}; got {folder}: {said}. Choose another.")


def _probe(folder: Path) -> None:
    """Try to write: permissions alone do not tell, and an hour of training is a bad time to learn it."""
    path = folder / f".{secrets.token_hex(4)}.part"
    path.touch(exist_ok=False)
    path.unlink()


def _sync(folder: Path) -> None:
    """Flush the folder's list of names too, where the system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
