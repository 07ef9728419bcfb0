"""The Ray engine: trials as tasks of a Ray cluster, one core each, wherever there is one.

A task whose worker or machine dies is run again by Ray, up to ``RETRIES`` times; one that takes longer than the time
limit is cancelled. What was tested before is kept. The text travels once, through the object store, so no other machine
needs the path; Situs, and any encoding of one's own, must be installed on all. Records come back as JSON, lest reading
them import code of one's own.

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
from typing import Any

from situs.lab.comparing.corpus import Corpus
from situs.lab.comparing.engines.team import TIMEOUT, timed_out
from situs.lab.comparing.engines.worker import CorpusSource, EngineError, choose_gpu
from situs.lab.comparing.jobs import answer, failed_trial, own_code, prepare
from situs.lab.comparing.records import Progress, Trial, TrialRecord
from situs.lab.comparing.trial import longest_first
from situs.lab.plain import from_json, to_json
from situs.lab.problems import Problem

RETRIES = 3
LOOKED = 0.5  # seconds between looks at the progress


def run(
    trials: Iterable[Trial],
    source: CorpusSource,
    *,
    address: str | None = None,
    gpus_per_trial: float = 0.0,
    timeout: float = TIMEOUT,
    tell: Callable[[int, Trial, Progress], None] = lambda worker, trial, progress: None,
    done: Callable[[TrialRecord], None],
    claim: Callable[[Trial], bool] = lambda trial: True,
) -> None:
    """Run trials, the longest first, and hand over each record as soon as it is there.

    address: of the cluster, such as "auto" or "ray://head:10001"; by default the one that RAY_ADDRESS names or this
        program is connected to, else a new one on this machine.
    gpus_per_trial: a share of a GPU that each trial takes, for trials on "cuda".
    timeout: seconds that a trial may take, from when it begins on the cluster.
    tell: called in this process with a number, the same for a trial from its start to its end, the trial and where it
        is.
    done: called in this process with each record.
    claim: asked in this process before a trial is queued; one that it denies is left out.
    """
    ray = import_ray()
    chosen = [trial for trial in longest_first(trials) if claim(trial)]
    if not chosen:
        return
    with connected(ray, address):
        corpus = ray.put(source.load()) if any(trial.corpus for trial in chosen) else None
        board = ray.remote(num_cpus=0, max_restarts=-1)(_Board).remote()
        pending = {_start(ray, trial, corpus, board, gpus_per_trial): trial for trial in chosen}
        watch = _Watch(tell, {trial.key: trial for trial in chosen}, timeout)

        def end(reference: Any, record: TrialRecord) -> None:
            watch.leave(pending.pop(reference))
            done(record)

        try:
            while pending:
                ready, _ = ray.wait(list(pending), timeout=LOOKED)
                watch.show(_news(ray, board))
                for reference in ready:
                    end(reference, _result(ray, reference, pending[reference], watch))
                for reference, trial in list(pending.items()):
                    if watch.over(trial):
                        ray.cancel(reference, force=True)
                        end(reference, failed_trial(trial, timed_out(timeout), timeout, watch.so_far.get(trial.key)))
        finally:
            with contextlib.suppress(ray.exceptions.RayError):
                for reference in pending:
                    ray.cancel(reference, force=True)
                ray.kill(board)


def _start(ray: Any, trial: Trial, corpus: Any, board: Any, gpus: float) -> Any:
    """Queue a trial. A process that ran code of one's own runs nothing else, since that may change torch itself."""
    calls = 1 if own_code(trial) else 0
    task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=RETRIES, max_calls=calls)(_work)
    return task.remote(trial, corpus if trial.corpus else None, board)


def _work(trial: Trial, corpus: Corpus | None, board: Any) -> str:
    """Run a trial in a process of the cluster. Ray shows it only the GPUs it may use."""
    post = partial(_post, board, trial.key)
    choose_gpu(0, trial.settings.device)
    prepare(trial)
    post("begun", None)
    return to_json(answer(trial, corpus, partial(post, "progress"), partial(post, "so_far")))


def _post(board: Any, key: str, kind: str, content: Any) -> None:
    board.put.remote(key, kind, to_json(content))


class _Board:
    """Hold the latest news of each trial, as an actor, until they are asked for."""

    def __init__(self) -> None:
        self.latest: dict[str, dict[str, str]] = {}

    def put(self, key: str, kind: str, content: str) -> None:
        self.latest.setdefault(key, {})[kind] = content

    def take(self) -> dict[str, dict[str, str]]:
        latest, self.latest = self.latest, {}
        return latest


class _Watch:
    """Follow trials that run: since when, how far, and with what results so far.

    A trial is numbered by the smallest number that is free, from the first progress to the record.
    """

    def __init__(self, tell: Callable[[int, Trial, Progress], None], trials: dict[str, Trial], timeout: float) -> None:
        self.tell, self.trials, self.timeout = tell, trials, timeout
        self.numbers: dict[str, int] = {}
        self.began: dict[str, float] = {}
        self.so_far: dict[str, TrialRecord] = {}

    def show(self, news: dict[str, dict[str, str]]) -> None:
        """Take what is new; a trial that begins anew, after its machine died, has its whole time again."""
        for key, each in news.items():
            if key not in self.trials:
                continue  # it has ended meanwhile
            if "begun" in each or key not in self.began:
                self.began[key] = monotonic()
            if "so_far" in each:
                self.so_far[key] = from_json(TrialRecord, each["so_far"])
            if "progress" in each:
                taken = self.numbers.values()
                number = self.numbers.setdefault(key, next(each for each in range(len(taken) + 1) if each not in taken))
                self.tell(number, self.trials[key], from_json(Progress, each["progress"]))

    def over(self, trial: Trial) -> bool:
        """Tell whether a trial has used its time."""
        return trial.key in self.began and self.seconds(trial) > self.timeout

    def seconds(self, trial: Trial) -> float:
        """Tell how long a trial has been running."""
        return monotonic() - self.began.get(trial.key, monotonic())

    def leave(self, trial: Trial) -> None:
        """Forget a trial that has ended."""
        del self.trials[trial.key]
        self.numbers.pop(trial.key, None)


def _news(ray: Any, board: Any) -> dict[str, dict[str, str]]:
    """Ask for progress; where the machine that holds it is gone, there is none until it is back."""
    try:
        news: dict[str, dict[str, str]] = ray.get(board.take.remote(), timeout=LOOKED)
        return news
    except ray.exceptions.RayError:
        return {}


def _result(ray: Any, reference: Any, trial: Trial, watch: _Watch) -> TrialRecord:
    try:
        return from_json(TrialRecord, ray.get(reference))
    except ray.exceptions.RayError as error:  # given up by Ray, after its retries
        problem = Problem(f"{type(error).__name__}: {error}", "")
        return failed_trial(trial, problem, watch.seconds(trial), watch.so_far.get(trial.key))


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
