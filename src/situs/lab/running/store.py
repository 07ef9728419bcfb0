"""The folder that keeps what is finished, so that a run can be stopped at any moment and goes on later.

    folder/trials/<key>.json            a finished trial
    folder/trials/<key>.claim           who runs a trial now: see situs.lab.running.claims
    folder/measured/<key>.json          costs and properties of a method
    folder/plan.json                    which trials there shall be, until all of them and all measurements are there
    folder/records.json                 all that came of it, once it has ended
    folder/<any of these>.damaged       what could not be read, or does not hold what it must; it is made again
    folder/...                          other outputs

Every file is written whole or not at all: beside where it shall stand, flushed to the disk, then moved there. A process
that is killed in between leaves at most a file named ``.<random>.part``, which is never read.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, cast, final, runtime_checkable

from situs.lab.plain import UnreadableError, from_json, to_json
from situs.lab.records import UnsoundError

PLAN = "plan.json"
RECORDS = "records.json"


@runtime_checkable
class Sound(Protocol):
    """Be a record that knows whether its fields fit each other."""

    def require_sound(self) -> None:
        """Raise `UnsoundError` unless they do."""


@runtime_checkable
class Finished(Sound, Protocol):
    """Be the record of a finished trial."""

    @property
    def key(self) -> str:
        """What tells its trial from every other."""


S = TypeVar("S", bound=Sound)
# Of classes, only methods can be asked for when types are checked at run time: that records have keys, and whole ones
# what is planned, is known of their instances.
R = TypeVar("R", bound=Sound)
W = TypeVar("W", bound=Sound)


class StoreError(ValueError):
    """Raised where the folder cannot be used."""


@final
class Store(Generic[R]):
    """Store finished trials and other outputs in a folder, which is made where there is none."""

    def __init__(self, folder: str | os.PathLike[str], kind: type[R], *, for_trials: bool = True) -> None:
        """
        kind: of the records of trials.
        for_trials: whether trials are stored, too; without, there is no folder for them.
        """
        self.folder, self.kind = Path(folder), kind
        self.damaged: dict[str, str] = {}
        """The records that were moved aside since the last ``load``, by file name, and what is wrong with each."""
        with speaking_of(self.folder):
            within = self.trials if for_trials else self.folder
            within.mkdir(parents=True, exist_ok=True)
            _probe(within)

    @property
    def trials(self) -> Path:
        """The folder of records and claims."""
        return self.folder / "trials"

    def load(self) -> dict[str, R]:
        """Read all records, by their trial's key. Damaged ones are moved aside and named in ``damaged``."""
        self.damaged = {}
        with speaking_of(self.folder):
            keys = sorted(path.stem for path in self.trials.glob("*.json"))
        found = {key: self.find(key) for key in keys}
        return {key: record for key, record in found.items() if record is not None}

    def find(self, key: str) -> R | None:
        """Read the record of one trial; None where there is none, or it was damaged and is now moved aside."""
        return self.read(self.kind, f"trials/{key}.json", key=key)

    def save(self, record: R) -> None:
        """Store a finished trial."""
        record.require_sound()
        assert isinstance(record, Finished)
        self._write(self.trials / f"{record.key}.json", to_json(record).encode())

    def tell_damaged(self, tell: Callable[[str], None]) -> None:
        """Say of each record that was moved aside what is wrong with it, once."""
        for name, reason in self.damaged.items():
            tell(f"{name} is damaged: {reason}. It is set aside as {name}.damaged, and made again where needed.")
        self.damaged = {}

    def write(self, name: str, content: str | bytes) -> Path:
        """Write another file of the folder, such as ``report.html``; returns where it is."""
        path = self.folder / name
        with speaking_of(self.folder):
            path.parent.mkdir(parents=True, exist_ok=True)
        self._write(path, content.encode() if isinstance(content, str) else content)
        return path

    def remove(self, name: str) -> None:
        """Remove a file of the folder, if it is there."""
        with speaking_of(self.folder):
            (self.folder / name).unlink(missing_ok=True)

    def read(self, kind: type[S], name: str, *, key: str | None = None) -> S | None:
        """Read a record of one kind from a file of the folder; None where there is none, or it was damaged and is now
        moved aside. Where a ``key`` is given, the record must have it."""
        path = self.folder / name
        try:
            return read_record(kind, path, key=key)
        except FileNotFoundError:
            return None
        except DamagedError as problem:
            self.damaged[name] = problem.reason
        except OSError as error:
            raise _spoken(self.folder, error) from error
        with speaking_of(self.folder), contextlib.suppress(FileNotFoundError):  # another process was faster
            os.replace(path, path.with_name(f"{path.name}.damaged"))
        return None

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


class DamagedError(ValueError):
    """Raised for a file that holds no sound record."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} cannot be read: {reason}.")
        self.reason = reason


def read_record(kind: type[S], path: Path, *, key: str | None = None) -> S:
    """Read a record from a file; raises `DamagedError` with the reason if there is none in it, and changes nothing."""
    try:
        record = from_json(kind, path.read_text(encoding="utf-8"))
        record.require_sound()
    except UnicodeDecodeError as problem:
        raise DamagedError(path, "it is no text") from problem
    except IsADirectoryError as problem:
        raise DamagedError(path, "it is a folder") from problem
    except (UnreadableError, UnsoundError) as problem:
        raise DamagedError(path, str(problem)) from problem
    if key is not None and (found := getattr(record, "key", None)) != key:
        raise DamagedError(path, f"key must be {key}, as its file is called; got {found}")
    return record


@dataclass(frozen=True)
class Written(Generic[W]):
    """Hold what was found in a folder, and by file name why something in it could not be read."""

    records: W | None
    unread: dict[str, str] = field(default_factory=dict)


def read_stopped(folder: Path, whole: type[W], kind: type[Sound]) -> Written[W]:
    """Read a run that has not ended, with the trials that are finished; without records where there is none. Changes
    nothing: what cannot be read is left out, and named.

    whole: the kind of ``plan.json``.
    kind: of the records of trials.
    """
    unread: dict[str, str] = {}

    def read(name: str, kind: type[S], key: str | None = None) -> S | None:
        try:
            return read_record(kind, folder / name, key=key)
        except DamagedError as problem:
            unread[name] = problem.reason
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as problem:
            unread[name] = problem.strerror or str(problem)
        return None

    plan = read(PLAN, whole)
    if plan is None:
        return Written(None, unread)
    found = [read(f"trials/{key}.json", kind, key) for key in cast(Any, plan).planned]
    there = [record for record in found if record is not None]
    return Written(cast(W, replace(cast(Any, plan), trials=there)), unread)


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
