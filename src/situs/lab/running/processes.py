"""Worker processes: how one is started, spoken to, watched and ended."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from pathlib import Path
from time import sleep
from typing import Any, NoReturn, TypeVar

from situs.lab.running.serving import serve
from situs.lab.running.work import Work
from situs.registry.origins import first_own_place

DUMPED = 0.2  # seconds that a worker has to write down where it hangs

context = multiprocessing.get_context("spawn")
J = TypeVar("J")


class Worker:
    """Hold a process, the line to it, and what it is doing."""

    def __init__(self, number: int, threads: int | None = 1) -> None:
        """
        threads: of the process; as many as it would have by itself where this is None.
        """
        self.number = number
        self.line, end = context.Pipe()
        descriptor, self.dump = tempfile.mkstemp(prefix="situs-worker-")
        os.close(descriptor)
        arguments = (number, end, self.dump)
        self.process = context.Process(target=serve, args=arguments, daemon=True, name=f"situs {number}")
        self.ready = False
        self.begun = False
        """Whether its job is prepared, so that the time of the job counts."""
        self.job: Any = None
        self.so_far: Any = None
        """The part of the answer that was sent on the way."""
        self.seconds = 0.0
        """How long it has been at its job, or at preparing it, or has been starting."""
        self.own: frozenset[str] = frozenset()
        """Modules of one's own that were imported there."""
        with environment(**({} if threads is None else {"OMP_NUM_THREADS": str(threads)})):
            self.process.start()
        end.close()  # so that the line ends when the process does

    def give(self, job: J, work: Work[J, Any]) -> None:
        """Hand over a job, and how it is done."""
        self.job, self.so_far, self.seconds, self.begun = job, None, 0.0, False
        self.own |= work.own_code(job)
        with contextlib.suppress(OSError):  # it died just now: its line says so when it is read next
            self.line.send((work, job))

    def suits(self, job: J, work: Work[J, Any]) -> bool:
        """Tell whether it may do a job: code of one's own may change torch itself, which others must not notice."""
        return not self.own or self.own == work.own_code(job)

    def where(self) -> str:
        """Tell which line of one's own code it crashed in or is at, if it could write that down."""
        if self.process.is_alive() and hasattr(signal, "SIGUSR1"):
            with contextlib.suppress(OSError, TypeError):
                os.kill(self.process.pid, signal.SIGUSR1)  # type: ignore[arg-type]
                sleep(DUMPED)
        with contextlib.suppress(OSError):
            said = Path(self.dump).read_text(encoding="utf-8", errors="replace")
            return first_own_place(re.findall(r'File "(.+)", line (\d+)', said))
        return ""

    def stop(self) -> None:
        """Kill the process at once: a worker holds nothing that could be lost."""
        self.process.kill()
        self.process.join()
        self.line.close()
        with contextlib.suppress(OSError):
            os.unlink(self.dump)


def ending(code: int | None) -> str:
    """Say in words how a process ended."""
    if code is None or code >= 0:
        return f"exit status {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


@contextlib.contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Set variables that processes started here inherit."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def holding_signals() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait, so that processes started here never see the Ctrl-C of a terminal."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # or multiprocessing would, and unblock them
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def stopping_at_sigterm(exception: Callable[[int], BaseException] = SystemExit) -> Iterator[None]:
    """Make SIGTERM end the program as Ctrl-C does, by an exception, unless the program handles it itself.

    exception: made of the status that the program ends with.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def stop(number: int, _: object) -> NoReturn:
        raise exception(128 + number)

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
