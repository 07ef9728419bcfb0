"""The local engine: trials in processes of this machine, each on one thread.

Processes are spawned, so that they share nothing, and a trial's numbers are the same with any number of them. One that
dies is replaced; its trial is tried once more, then recorded as failed. They end with the caller, however that ends.

Since processes are spawned, a script that calls this must do so under ``if __name__ == "__main__":``.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from time import perf_counter

from situs.lab.comparing.engines.worker import READY, CorpusSource, EngineError, failed, serve
from situs.lab.comparing.records import Progress, Trial, TrialRecord
from situs.lab.comparing.trial import longest_first

DEATHS = 2  # of workers, that a trial may cause before it is given up
FALSE_STARTS = 3  # in a row, before it is clear that no worker will start

context = multiprocessing.get_context("spawn")


def run(
    trials: Iterable[Trial],
    source: CorpusSource,
    *,
    workers: int | None = None,
    tell: Callable[[int, Trial, Progress], None] = lambda worker, trial, progress: None,
    done: Callable[[TrialRecord], None],
    claim: Callable[[Trial], bool] = lambda trial: True,
) -> None:
    """Run trials, the longest first, and hand over each record as soon as it is there.

    workers: how many processes; as many as there are cores by default.
    tell: called in this process with a worker's number, its trial and where it is.
    done: called in this process with each record.
    claim: asked in this process before a trial is begun; one that it denies is left out.
    """
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be 1 or more, since they run the trials; got {workers}.")
    waiting = longest_first(trials)
    with _stopping_at_sigterm():
        team = _Team(waiting, source, tell, done, claim)
        try:
            team.work(min(workers or cores(), len(waiting)))
        finally:
            team.stop()


def cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Worker:
    """Hold a process, the line to it, and what it is doing."""

    def __init__(self, number: int, source: CorpusSource) -> None:
        self.number = number
        self.line, end = context.Pipe()
        self.process = context.Process(target=serve, args=(number, end, source), daemon=True, name=f"situs {number}")
        self.ready = False
        self.trial: Trial | None = None
        self.began = 0.0
        with _environment(OMP_NUM_THREADS="1"):
            self.process.start()
        end.close()  # so that the line ends when the process does

    def give(self, trial: Trial) -> None:
        self.trial, self.began = trial, perf_counter()
        with contextlib.suppress(OSError):  # it died just now: its line says so when it is read next
            self.line.send(trial)

    def stop(self) -> None:
        """Kill the process at once: a worker holds nothing that could be lost."""
        self.process.kill()
        self.process.join()
        self.line.close()


class _Team:
    def __init__(
        self,
        waiting: list[Trial],
        source: CorpusSource,
        tell: Callable[[int, Trial, Progress], None],
        done: Callable[[TrialRecord], None],
        claim: Callable[[Trial], bool],
    ) -> None:
        self.waiting, self.source = waiting, source
        self.tell, self.done, self.claim = tell, done, claim
        self.members: dict[int, _Worker] = {}
        self.deaths: dict[str, int] = {}
        self.false_starts = 0

    def work(self, size: int) -> None:
        for number in range(size):
            self._hire(number)
        while self.members:
            lines = {member.line: member for member in self.members.values()}
            for line in wait(list(lines)):
                self._hear(lines[line])  # type: ignore[index]

    def stop(self) -> None:
        for member in self.members.values():
            member.process.kill()
        for number in list(self.members):
            self._dismiss(number)

    def _hire(self, number: int) -> None:
        with _holding_signals():  # none is started and then forgotten
            self.members[number] = _Worker(number, self.source)

    def _dismiss(self, number: int) -> None:
        self.members[number].stop()
        del self.members[number]

    def _hear(self, member: _Worker) -> None:
        try:
            message = member.line.recv()
        except (EOFError, OSError):
            self._died(member)
            return
        if isinstance(message, Progress):
            assert member.trial is not None
            self.tell(member.number, member.trial, message)
            return
        if message == READY:
            member.ready = True
            self.false_starts = 0
        else:
            member.trial = None
            self.done(message)
        self._give_next(member)

    def _give_next(self, member: _Worker) -> None:
        while self.waiting:
            trial = self.waiting.pop(0)
            if trial.key in self.deaths or self.claim(trial):
                member.give(trial)
                return
        self._dismiss(member.number)

    def _died(self, member: _Worker) -> None:
        """Replace a worker that died, and try its trial once more."""
        member.process.join()
        code = member.process.exitcode
        if not member.ready:
            self.false_starts += 1
            if self.false_starts == FALSE_STARTS:
                raise EngineError(
                    f"workers must start, since they run the trials; got {_ending(code)} {FALSE_STARTS} times. A "
                    'script must call this under `if __name__ == "__main__":`.'
                )
        elif (trial := member.trial) is not None:
            self.deaths[trial.key] = self.deaths.get(trial.key, 0) + 1
            if self.deaths[trial.key] < DEATHS:
                self.waiting.insert(0, trial)
            else:
                self.done(failed(trial, _death(code), perf_counter() - member.began))
        self._dismiss(member.number)
        if self.waiting:
            self._hire(member.number)


def _death(code: int | None) -> ChildProcessError:
    return ChildProcessError(
        f"the worker must live to the end of a trial; got {_ending(code)} in the middle of it, {DEATHS} times. If "
        "memory ran out, use fewer workers or a smaller model."
    )


def _ending(code: int | None) -> str:
    """Say in words how a process ended."""
    if code is None or code >= 0:
        return f"exit status {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


@contextlib.contextmanager
def _environment(**variables: str) -> Iterator[None]:
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
def _holding_signals() -> Iterator[None]:
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
def _stopping_at_sigterm() -> Iterator[None]:
    """Make SIGTERM end the program as Ctrl-C does, by an exception, unless the program handles it itself."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
