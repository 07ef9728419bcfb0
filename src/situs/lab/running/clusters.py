"""Jobs as tasks of a Ray cluster, one core each, wherever there is one.

A task whose worker or machine dies is run again by Ray, up to ``RETRIES`` times; one that takes longer than the time
limit is cancelled. What was answered before is kept. What all jobs need travels once, through the object store; Situs,
and any encoding of one's own, must be installed on all machines. Answers come back as JSON, lest reading them import
code of one's own.

Where no cluster is given or running, Ray starts one on this machine, which sends no usage statistics unless
RAY_USAGE_STATS_ENABLED asks for them, and ends with the call.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from time import monotonic
from typing import Any, Generic, TypeVar

from situs.lab.plain import UnreadableError, from_json, to_json
from situs.lab.problems import Problem
from situs.lab.records import Progress
from situs.lab.running.completion import Keyed
from situs.lab.running.serving import EngineError
from situs.lab.running.team import TIMEOUT, timed_out
from situs.lab.running.work import Held, Work

RETRIES = 3
LOOKED = 0.5  # seconds between looks at the progress

J = TypeVar("J", bound=Keyed)
A = TypeVar("A")


def run(
    jobs: Iterable[J],
    work: Callable[[], Work[J, A]],
    *,
    address: str | None = None,
    gpus_per_trial: float = 0.0,
    timeout: float = TIMEOUT,
    tell: Callable[[int, J, Progress], None] = lambda worker, job, progress: None,
    done: Callable[[J, A], None],
    claim: Callable[[J], bool] = lambda job: True,
) -> None:
    """Do jobs, and hand over each answer as soon as it is there.

    work: asked once how they are done, after the cluster was found.
    address: of the cluster, such as "auto" or "ray://head:10001"; by default the one that RAY_ADDRESS names or this
        program is connected to, else a new one on this machine.
    gpus_per_trial: a share of a GPU that each job takes, for jobs on "cuda".
    timeout: seconds that a job may take, from when it begins on the cluster.
    tell: called in this process with a number, the same for a job from its start to its end, the job and where it is.
    done: called in this process with each job and its answer.
    claim: asked in this process before a job is queued; one that it denies is left out.
    """
    ray = import_ray()
    chosen = [job for job in jobs if claim(job)]
    if not chosen:
        return
    with connected(ray, address):
        made = work()
        shared = ray.put(made)
        board = ray.remote(num_cpus=0, max_restarts=-1)(_Board).remote()
        pending = {_start(ray, job, made, shared, board, gpus_per_trial): job for job in chosen}
        watch = _Watch(made, tell, {job.key: job for job in chosen}, timeout)

        def end(reference: Any, answer: A) -> None:
            job = pending.pop(reference)
            watch.leave(job)
            done(job, answer)

        try:
            while pending:
                ready, _ = ray.wait(list(pending), timeout=LOOKED)
                watch.show(_news(ray, board))
                for reference in ready:
                    end(reference, _result(ray, reference, pending[reference], watch))
                for reference, job in list(pending.items()):
                    if watch.over(job):
                        ray.cancel(reference, force=True)
                        end(reference, made.failed(job, timed_out(timeout), timeout, watch.so_far.get(job.key)))
        finally:
            with contextlib.suppress(ray.exceptions.RayError):
                for reference in pending:
                    ray.cancel(reference, force=True)
                ray.kill(board)


def _start(ray: Any, job: J, work: Work[J, A], shared: Any, board: Any, gpus: float) -> Any:
    """Queue a job. A process that ran code of one's own runs nothing else, since that may change torch itself."""
    calls = 1 if work.own_code(job) else 0
    task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=RETRIES, max_calls=calls)(_work)
    return task.remote(job, shared, board)


_HELD: Held = {}
"""What this process of the cluster holds between its jobs."""


def _work(job: Any, work: Work[Any, Any], board: Any) -> str:
    """Do a job in a process of the cluster. Ray shows it only the GPUs it may use."""
    post = partial(_post, board, job.key)
    try:
        work.prepare(job, _HELD, 0)
    except Exception as error:
        return to_json(work.failed(job, work.problem(job, error)))
    post("begun", None)
    return to_json(work.answer(job, _HELD, partial(post, "progress"), partial(post, "so_far")))


def _post(board: Any, key: str, kind: str, content: Any) -> None:
    board.put.remote(key, kind, to_json(content))


class _Board:
    """Hold the latest news of each job, as an actor, until they are asked for."""

    def __init__(self) -> None:
        self.latest: dict[str, dict[str, str]] = {}

    def put(self, key: str, kind: str, content: str) -> None:
        self.latest.setdefault(key, {})[kind] = content

    def take(self) -> dict[str, dict[str, str]]:
        latest, self.latest = self.latest, {}
        return latest


class _Watch(Generic[J, A]):
    """Follow jobs that run: since when, how far, and with what results so far.

    A job is numbered by the smallest number that is free, from the first progress to the answer.
    """

    def __init__(
        self, work: Work[J, A], tell: Callable[[int, J, Progress], None], jobs: dict[str, J], timeout: float
    ) -> None:
        self.work, self.tell, self.jobs, self.timeout = work, tell, jobs, timeout
        self.numbers: dict[str, int] = {}
        self.began: dict[str, float] = {}
        self.so_far: dict[str, A] = {}

    def show(self, news: dict[str, dict[str, str]]) -> None:
        """Take what is new; a job that begins anew, after its machine died, has its whole time again."""
        for key, each in news.items():
            if key not in self.jobs:
                continue  # it has ended meanwhile
            if "begun" in each or key not in self.began:
                self.began[key] = monotonic()
            if "so_far" in each:
                self.so_far[key] = self.work.read(self.jobs[key], each["so_far"])
            if "progress" in each:
                taken = self.numbers.values()
                number = self.numbers.setdefault(key, next(each for each in range(len(taken) + 1) if each not in taken))
                self.tell(number, self.jobs[key], from_json(Progress, each["progress"]))

    def over(self, job: J) -> bool:
        """Tell whether a job has used its time."""
        return job.key in self.began and self.seconds(job) > self.timeout

    def seconds(self, job: J) -> float:
        """Tell how long a job has been running."""
        return monotonic() - self.began.get(job.key, monotonic())

    def leave(self, job: J) -> None:
        """Forget a job that has ended."""
        del self.jobs[job.key]
        self.numbers.pop(job.key, None)


def _news(ray: Any, board: Any) -> dict[str, dict[str, str]]:
    """Ask for progress; where the machine that holds it is gone, there is none until it is back."""
    try:
        news: dict[str, dict[str, str]] = ray.get(board.take.remote(), timeout=LOOKED)
        return news
    except ray.exceptions.RayError:
        return {}


def _result(ray: Any, reference: Any, job: J, watch: _Watch[J, A]) -> A:
    try:
        return watch.work.read(job, ray.get(reference))
    except (ray.exceptions.RayError, UnreadableError) as error:  # given up by Ray, after its retries
        problem = Problem(f"{type(error).__name__}: {error}", "")
        return watch.work.failed(job, problem, watch.seconds(job), watch.so_far.get(job.key))


def import_ray() -> Any:
    """Import Ray, or say how to install it."""
    try:
        return importlib.import_module("ray")
    except ModuleNotFoundError as problem:
        raise EngineError(
            f"ray must be installed, since the trials are to run on a Ray cluster; got {problem}. Use "
            "pip install 'situs[ray]'."
        ) from problem


@contextlib.contextmanager
def connected(ray: Any, address: str | None) -> Iterator[None]:
    """Connect to a cluster; who was connected before stays so."""
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        _knock(address)
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, ValueError, RuntimeError) as problem:
        raise EngineError(
            f"address must be that of a Ray cluster, since the trials are to run there; got {address!r}: {problem}"
        ) from problem
    try:
        yield
    finally:
        ray.shutdown()


def _knock(address: str | None) -> None:
    """Raise at once if nobody listens: Ray would try for minutes."""
    host, colon, port = (address or "").rpartition("://")[2].rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
