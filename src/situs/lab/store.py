"""Where a comparison keeps what is finished, so that it can be stopped at any moment and goes on later.

    folder/trials/<key>.json            a finished trial
    folder/trials/<key>.json.damaged    what could not be read; its trial is run again
    folder/trials/<key>.claim           who runs a trial now: see situs.lab.engines.claims
    folder/...                          other outputs

Every file is written whole or not at all: beside its place, flushed to the disk, then moved there. A process that is
killed in between leaves at most a file named ``.<random>.part``, which is never read.

JSON has no word for some numbers: they are kept as the strings "NaN", "Infinity" and "-Infinity" wherever they occur,
as Protocol Buffers do, and ``from_json`` makes them numbers again. All others come back bit for bit.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, final

from situs.lab.trial import FORMAT

Record = dict[str, Any]
FIELDS = ("format", "key", "trial", "status", "curve", "methods", "parameters", "seconds")
STATUSES = ("done", "diverged", "failed")
NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class StoreError(ValueError):
    """The folder cannot be used."""


@final
class Store:
    """A folder of finished trials and other outputs; made where there is none."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.damaged: list[str] = []
        """The records that the last ``load`` moved aside, by file name."""
        with speaking_of(self.folder):
            self.trials.mkdir(parents=True, exist_ok=True)
            _probe(self.trials)

    @property
    def trials(self) -> Path:
        """Where records and claims are."""
        return self.folder / "trials"

    def load(self) -> dict[str, Record]:
        """All records by their trial's key. Damaged ones are moved aside and named in ``damaged``."""
        self.damaged = []
        with speaking_of(self.folder):
            keys = sorted(path.stem for path in self.trials.glob("*.json"))
        found = {key: self.find(key) for key in keys}
        return {key: record for key, record in found.items() if record is not None}

    def find(self, key: str) -> Record | None:
        """The record of one trial; None where there is none, or it was damaged and is now moved aside."""
        path = self._path(key)
        try:
            record = from_json(path.read_text(encoding="utf-8"))
            problem = _problem(record, key)
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError, IsADirectoryError):  # not UTF-8 and not JSON are ValueErrors
            record, problem = {}, "not JSON"
        except OSError as error:
            raise _spoken(self.folder, error) from error
        if problem is None:
            found: Record = record
            return found
        with speaking_of(self.folder), contextlib.suppress(FileNotFoundError):  # another process was faster
            os.replace(path, path.with_name(f"{path.name}.damaged"))
        self.damaged.append(path.name)
        return None

    def save(self, record: Mapping[str, Any]) -> None:
        """Keep a finished trial."""
        problem = _problem(record, record.get("key"))
        if problem is not None:
            raise ValueError(f"record must be one of a trial, since it is to be read again; got one with {problem}.")
        self._write(self._path(record["key"]), to_json(record).encode())

    def write(self, name: str, content: str | bytes) -> Path:
        """Write another file of the folder, such as ``report.html``; returns where it is."""
        path = self.folder / name
        with speaking_of(self.folder):
            path.parent.mkdir(parents=True, exist_ok=True)
        self._write(path, content.encode() if isinstance(content, str) else content)
        return path

    def read(self, name: str) -> Any:
        """What a JSON file of the folder holds; None where there is none that can be read."""
        try:
            return from_json((self.folder / name).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError, RecursionError):
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


def to_json(value: Any, *, indent: int | None = None) -> str:
    """Plain data as JSON."""
    return json.dumps(_worded(value), indent=indent, allow_nan=False)


def from_json(text: str) -> Any:
    """Plain data from JSON."""
    return _numbered(json.loads(text))


def _worded(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {name: _worded(each) for name, each in value.items()}
    return [_worded(each) for each in value] if isinstance(value, list | tuple) else value


def _numbered(value: Any) -> Any:
    if isinstance(value, str):
        return NOT_FINITE.get(value, value)
    if isinstance(value, dict):
        return {name: _numbered(each) for name, each in value.items()}
    return [_numbered(each) for each in value] if isinstance(value, list) else value


def _problem(record: Any, key: object) -> str | None:
    """What keeps this from being the record of a trial, if anything does."""
    if not isinstance(record, Mapping):
        return "no fields"
    missing = [name for name in FIELDS if name not in record]
    if missing:
        return f"no {missing[0]}"
    if record["format"] != FORMAT:
        return f"format {record['format']}"
    if record["key"] != key or not isinstance(key, str):
        return f"key {record['key']}"
    if record["status"] not in STATUSES:
        return f"status {record['status']}"
    if not all(isinstance(record[name], Mapping) for name in ("trial", "methods", "parameters", "seconds")):
        return "a field of the wrong kind"
    untested = set(record["trial"].get("tested", ())) - set(record["methods"])
    return f"no {min(untested)}" if untested and record["status"] == "done" else None


@contextlib.contextmanager
def speaking_of(folder: Path) -> Iterator[None]:
    """What the system has to say about files, as one sentence about the folder."""
    try:
        yield
    except OSError as error:
        raise _spoken(folder, error) from error


def _spoken(folder: Path, error: OSError) -> StoreError:
    reason = "since each trial is kept there as a file"
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
