"""A team of worker processes on this machine, which do jobs of any kind and stay between them.

Processes are spawned, so that they share nothing, and a job's numbers are the same with any number of them. One that
dies is replaced; its job is tried once more, then answered as failed. One that is at a job for longer than the time
limit is killed and replaced. They end with the caller, however that ends.

Since processes are spawned, a script that calls this must do so under ``if __name__ == "__main__":``.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from time import monotonic
from typing import Any, Generic, TypeVar, final

from situs.lab.plain import UnreadableError, from_json
from situs.lab.problems import Problem
from situs.lab.records import Progress
from situs.lab.running.processes import Worker, ending, holding_signals, stopping_at_sigterm
from situs.lab.running.serving import ANSWER, BEGUN, PROGRESS, READY, SO_FAR, EngineError
from situs.lab.running.work import Work

DEATHS = 2  # of workers, that a job may cause before it is given up
FALSE_STARTS = 3  # in a row, before it is clear that no worker will start
STARTED = 300.0  # seconds that a worker may take to start, or to prepare a job where the job itself may take less
LOOKED = 0.5  # seconds between looks at the time
TIMEOUT = 3600.0
"""Seconds that a trial or a measurement may take, unless told otherwise."""

J = TypeVar("J")
A = TypeVar("A")


@dataclass
class _Round(Generic[J, A]):
    """Hold what one call of ``run`` asks for."""

    waiting: list[J]
    work: Work[J, A]
    tell: Callable[[int, J, Progress], None]
    done: Callable[[J, A], None]
    claim: Callable[[J], bool]
    timeout: float
    deaths: Counter[J] = field(default_factory=Counter)
    active: set[int] = field(default_factory=set)
    """The numbers of the workers that take part."""


@final
class Team:
    """Hold worker processes; a context that ends them."""

    def __init__(self, workers: int | None = None, *, threads: int | None = 1) -> None:
        """
        workers: how many processes at most; as many as there are cores by default.
        threads: of each process; None for as many as there are cores.
        """
        if workers is not None and workers < 1:
            raise ValueError(f"workers must be 1 or more, since they run the trials; got {workers}.")
        self.workers, self.threads = workers or cores(), threads
        self.members: dict[int, Worker] = {}
        self.false_starts = 0
        self._stack = ExitStack()

    def __enter__(self) -> Team:
        self._stack.enter_context(stopping_at_sigterm())
        self._stack.callback(self.stop)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def stop(self) -> None:
        """Kill all workers."""
        for member in self.members.values():
            member.process.kill()
        for number in list(self.members):
            self._dismiss(number)

    def run(
        self,
        jobs: Iterable[J],
        work: Work[J, A],
        *,
        tell: Callable[[int, J, Progress], None] = lambda worker, job, progress: None,
        done: Callable[[J, A], None],
        claim: Callable[[J], bool] = lambda job: True,
        timeout: float = TIMEOUT,
        at_most: int | None = None,
    ) -> None:
        """Do jobs in their order, and hand over each answer as soon as it is there.

        work: how they are done.
        tell: called in this process with a worker's number, its job and where it is.
        done: called in this process with each job and its answer.
        claim: asked in this process before a job is begun; one that it denies is left out.
        timeout: seconds that each job may take.
        at_most: how many workers take part; all by default.
        """
        this = _Round(list(jobs), work, tell, done, claim, timeout)
        for number in range(min(at_most or self.workers, self.workers, len(this.waiting))):
            this.active.add(number)
            if number not in self.members:
                self._hire(number)
            elif self.members[number].ready:
                self._give_next(self.members[number], this)
        looked = monotonic()
        while this.active:
            lines = {self.members[number].line: number for number in this.active}
            for line in wait(list(lines), timeout=LOOKED):
                self._hear(self.members[lines[line]], this)  # type: ignore[index]
            now = monotonic()
            # a program that was suspended comes back late, and nobody has used that time
            self._count(min(now - looked, 2 * LOOKED), this)
            looked = now

    def _hire(self, number: int) -> None:
        with holding_signals():  # none is started and then forgotten
            self.members[number] = Worker(number, self.threads)

    def _dismiss(self, number: int) -> None:
        self.members[number].stop()
        del self.members[number]

    def _hear(self, member: Worker, this: _Round[Any, Any]) -> None:
        try:
            kind, _, text = member.line.recv_bytes().decode().partition("\n")
        except (EOFError, OSError):
            self._died(member, this)
            return
        if kind == READY:
            member.ready = True
            self.false_starts = 0
            self._give_next(member, this)
            return
        job = member.job
        assert job is not None
        if kind == BEGUN:
            member.begun, member.seconds = True, 0.0
        elif kind == PROGRESS:
            this.tell(member.number, job, from_json(Progress, text))
        elif kind == SO_FAR:
            member.so_far = this.work.read(job, text)
        elif kind == ANSWER:
            member.job = None
            this.done(job, _read(this.work, job, text))
            self._give_next(member, this)

    def _give_next(self, member: Worker, this: _Round[Any, Any]) -> None:
        """Give a worker the first job that it may do; replace it if there are only others, or let it rest."""
        for job in list(this.waiting):
            if not member.suits(job, this.work):
                continue
            this.waiting.remove(job)
            if job in this.deaths or this.claim(job):
                member.give(job, this.work)
                return
        if this.waiting:
            self._replace(member, this)
        else:
            this.active.discard(member.number)

    def _replace(self, member: Worker, this: _Round[Any, Any]) -> None:
        self._dismiss(member.number)
        if this.waiting:
            self._hire(member.number)
        else:
            this.active.discard(member.number)

    def _died(self, member: Worker, this: _Round[Any, Any]) -> None:
        """Replace a worker that died, and try its job once more."""
        member.process.join()
        code = member.process.exitcode
        if not member.ready:
            self._started_falsely(code)
        elif (job := member.job) is not None:
            this.deaths[job] += 1
            if this.deaths[job] < DEATHS:
                this.waiting.insert(0, job)
            else:
                problem = death(code, this.work, member.where())
                this.done(job, this.work.failed(job, problem, member.seconds, member.so_far))
        self._replace(member, this)

    def _count(self, seconds: float, this: _Round[Any, Any]) -> None:
        """Add to the time that each worker has used, and stop those that are over the limit."""
        for member in [self.members[number] for number in this.active]:
            member.seconds += seconds
            if not member.ready and member.seconds > STARTED:
                self._started_falsely(None)
                self._replace(member, this)
            elif (job := member.job) is not None and member.seconds > _limit(member, this.timeout):
                problem = timed_out(_limit(member, this.timeout), member.where())
                this.done(job, this.work.failed(job, problem, member.seconds, member.so_far))
                self._replace(member, this)

    def _started_falsely(self, code: int | None) -> None:
        self.false_starts += 1
        if self.false_starts == FALSE_STARTS:
            raise EngineError(
                f"workers must start, since they run the trials; got {ending(code)} {FALSE_STARTS} times. A "
                'script must call this under `if __name__ == "__main__":`.'
            )


def cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def death(code: int | None, work: Work[Any, Any], place: str = "") -> Problem:
    """Say that workers ended in the middle of a job."""
    cure = work.killed if code is not None and code < 0 else work.left
    return Problem(
        f"ChildProcessError: the worker must live to the end of its job; got {ending(code)} in the middle of it, "
        f"{DEATHS} times{f', at {place}' if place else ''}. {cure}",
        "",
    )


def timed_out(seconds: float, place: str = "") -> Problem:
    """Say that a job was stopped at its time limit."""
    at = f", at {place}" if place else ""
    return Problem(f"TimeoutError: timed out after {seconds:,g} s{at}. Allow more with --trial-timeout.", "")


def _limit(member: Worker, timeout: float) -> float:
    """Tell how long a worker may be at its job; to prepare it, such as to load a model, it may take longer."""
    return timeout if member.begun else max(timeout, STARTED)


def _read(work: Work[J, A], job: J, text: str) -> A:
    try:
        return work.read(job, text)
    except UnreadableError as problem:
        return work.failed(job, Problem(f"{type(problem).__name__}: {problem}", ""))
