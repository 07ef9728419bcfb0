"""Claims: who runs a trial now, so that two comparisons into one folder share the work instead of doing it twice.

A claim is a file ``<key>.claim`` that only one process can create. It names that process by host, number and start, so
that a claim left by one that was killed can be told and taken over at once. Where nobody can say whether a process
lives (another host, or a system without /proc), its claim counts while it is renewed: the owner touches it every
``RENEWED`` seconds, and one that stayed untouched for ``FORSAKEN`` seconds is taken over. Seconds are counted by who
waits, since clocks of hosts differ.

Should two run one trial nevertheless, the second record replaces the first by the same numbers.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any, final

from situs.lab.running.store import speaking_of

if sys.platform != "win32":
    import fcntl

RENEWED = 20.0
FORSAKEN = 180.0


@final
class Claims:
    """Hold the claims of this process on the trials of one folder; a context that gives all of them up at its end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.own: set[str] = set()
        self._seen: dict[str, tuple[int, float]] = {}  # when others' claims were touched, and when that was noticed
        self._closed = threading.Event()

    def __enter__(self) -> Claims:
        threading.Thread(target=self._renew, name="situs claims", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        for key in list(self.own):
            self.release(key)

    def take(self, key: str) -> bool:
        """Claim a trial; tells whether it is now this process's to run."""
        if key in self.own:
            return True
        with speaking_of(self.folder), _alone(self.folder):
            if self._held(key):
                return False
            self._path(key).unlink(missing_ok=True)
            self._create(key)
        return key in self.own

    def held(self, key: str) -> bool:
        """Tell whether another process, which lives as far as one can tell, runs the trial."""
        with speaking_of(self.folder):
            return key not in self.own and self._held(key)

    def awaited(self, keys: Iterable[str]) -> str:
        """Say who runs these trials, and how long one is waited for that cannot be asked whether it lives."""
        owners = []
        for key in keys:
            with contextlib.suppress(OSError):  # it was released just now
                owners.append(_read(self._path(key)))
        unsure = [owner for owner in owners if _lives(owner) is None]
        if not unsure:
            return "another process; waiting for it"
        hosts = {str(owner.get("host")).partition(" ")[0] for owner in unsure if isinstance(owner, dict)}
        return (
            f"another process, on {' and '.join(sorted(hosts)) or 'an unknown host'}; waiting for it. If it gives no "
            f"sign of life for {FORSAKEN:.0f} s, they are run here"
        )

    def release(self, key: str) -> None:
        """Leave the trial to others; its record tells them that there is nothing left to do."""
        self.own.discard(key)
        with contextlib.suppress(OSError):  # at worst it is found to be stale
            if _read(self._path(key)) == _myself():
                self._path(key).unlink(missing_ok=True)

    def tidy(self) -> None:
        """Remove what processes left that are gone: one may be killed between storing a record and giving up its claim,
        and nobody claims a finished trial again."""
        with speaking_of(self.folder), _alone(self.folder):
            for path in self.folder.glob("*.claim"):
                with contextlib.suppress(FileNotFoundError):  # it was released just now
                    if _lives(_read(path)) is False:
                        path.unlink(missing_ok=True)

    def _create(self, key: str) -> None:
        try:
            descriptor = os.open(self._path(key), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        except FileExistsError:  # another host was faster
            return
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(_myself(), file)
        except BaseException:
            self._path(key).unlink(missing_ok=True)
            raise
        self.own.add(key)

    def _held(self, key: str) -> bool:
        try:
            touched = self._path(key).stat().st_mtime_ns
            lives = _lives(_read(self._path(key)))
        except FileNotFoundError:
            return False
        if lives is not None:
            return lives
        seen, since = self._seen.get(key, (0, 0.0))
        if seen != touched:
            self._seen[key] = (touched, monotonic())
            return True
        return monotonic() - since < FORSAKEN

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.claim"

    def _renew(self) -> None:
        while not self._closed.wait(RENEWED):
            for key in list(self.own):
                with contextlib.suppress(OSError):
                    os.utime(self._path(key))


def _read(path: Path) -> Any:
    """Read the owner of a claim; None while, or because, it was never written to the end."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return None


def _myself() -> dict[str, Any]:
    return {"host": _host(), "pid": os.getpid(), "started": _started(os.getpid())}


def _lives(owner: Any) -> bool | None:
    """Tell whether the owner of a claim lives; None where one cannot tell."""
    if not isinstance(owner, dict) or owner.get("host") != _host() or owner.get("started") is None:
        return None
    return bool(_started(owner.get("pid")) == owner["started"])


def _host() -> str:
    """Name where process numbers mean the same: containers of one machine may count for themselves."""
    try:
        return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def _started(pid: object) -> str | None:
    """Tell when a process began, and after which boot; None if it is gone, or this is not Linux."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return None
    return None if status[0] in "ZX" else f"{boot} {status[19]}"


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let one process of this host in at a time, where the system can lock; the lock ends with the process."""
    if sys.platform == "win32":
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some network folders cannot
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
