"""The Ray engine: trials as tasks of a Ray cluster, one core each, wherever there is one.

A task whose worker or machine dies is run again by Ray, up to ``RETRIES`` times. The text travels once, through the
object store, so no other machine needs the path; Situs, and any encoding of one's own, must be installed on all.

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
from time import perf_counter
from typing import Any

from situs.lab.comparing.corpus import Corpus
from situs.lab.comparing.engines.worker import CorpusSource, EngineError, attempt, choose_gpu, failed
from situs.lab.comparing.records import Progress, Trial, TrialRecord
from situs.lab.comparing.trial import longest_first

RETRIES = 3
LOOKED = 0.5  # seconds between looks at the progress


def run(
    trials: Iterable[Trial],
    source: CorpusSource,
    *,
    address: str | None = None,
    gpus_per_trial: float = 0.0,
    tell: Callable[[int, Trial, Progress], None] = lambda worker, trial, progress: None,
    done: Callable[[TrialRecord], None],
    claim: Callable[[Trial], bool] = lambda trial: True,
) -> None:
    """Run trials, the longest first, and hand over each record as soon as it is there.

    address: of the cluster, such as "auto" or "ray://head:10001"; by default the one that RAY_ADDRESS names or this
        program is connected to, else a new one on this machine.
    gpus_per_trial: a share of a GPU that each trial takes, for trials on "cuda".
    tell: called in this process with a number, the same for a trial from its start to its end, the trial and where it
        is.
    done: called in this process with each record.
    claim: asked in this process before a trial is queued; one that it denies is left out.
    """
    ray = _ray()
    chosen = [trial for trial in longest_first(trials) if claim(trial)]
    if not chosen:
        return
    with _connected(ray, address):
        corpus = ray.put(source.load()) if any(trial.corpus for trial in chosen) else None
        board = ray.remote(num_cpus=0, max_restarts=-1)(_Board).remote()
        task = ray.remote(num_cpus=1, num_gpus=gpus_per_trial, max_retries=RETRIES, max_calls=0)(_work)
        began = perf_counter()
        pending = {task.remote(trial, corpus if trial.corpus else None, board): trial for trial in chosen}
        numbering = _Numbering(tell, {trial.key: trial for trial in chosen})
        try:
            while pending:
                ready, _ = ray.wait(list(pending), timeout=LOOKED)
                numbering.show(_news(ray, board))
                for reference in ready:
                    trial = pending.pop(reference)
                    numbering.leave(trial)
                    done(_result(ray, reference, trial, perf_counter() - began))
        finally:
            with contextlib.suppress(ray.exceptions.RayError):
                for reference in pending:
                    ray.cancel(reference, force=True)
                ray.kill(board)


def _work(trial: Trial, corpus: Corpus | None, board: Any) -> TrialRecord:
    """Run a trial in a process of the cluster. Ray shows it only the GPUs it may use."""
    choose_gpu(0, trial.settings.device)
    return attempt(trial, corpus, lambda progress: board.put.remote(trial.key, progress))


class _Board:
    """Hold the latest progress of each trial, as an actor, until it is asked for."""

    def __init__(self) -> None:
        self.latest: dict[str, Progress] = {}

    def put(self, key: str, progress: Progress) -> None:
        self.latest[key] = progress

    def take(self) -> dict[str, Progress]:
        latest, self.latest = self.latest, {}
        return latest


class _Numbering:
    """Number trials that run: by the smallest number that is free, from the first progress to the record."""

    def __init__(self, tell: Callable[[int, Trial, Progress], None], trials: dict[str, Trial]) -> None:
        self.tell, self.trials = tell, trials
        self.numbers: dict[str, int] = {}

    def show(self, news: dict[str, Progress]) -> None:
        for key, progress in news.items():
            if key not in self.trials:
                continue  # it has ended meanwhile
            taken = self.numbers.values()
            number = self.numbers.setdefault(key, next(each for each in range(len(taken) + 1) if each not in taken))
            self.tell(number, self.trials[key], progress)

    def leave(self, trial: Trial) -> None:
        del self.trials[trial.key]
        self.numbers.pop(trial.key, None)


def _news(ray: Any, board: Any) -> dict[str, Progress]:
    """Ask for progress; where the machine that holds it is gone, there is none until it is back."""
    try:
        news: dict[str, Progress] = ray.get(board.take.remote(), timeout=LOOKED)
        return news
    except ray.exceptions.RayError:
        return {}


def _result(ray: Any, reference: Any, trial: Trial, seconds: float) -> TrialRecord:
    try:
        record: TrialRecord = ray.get(reference)
        return record
    except ray.exceptions.RayError as error:  # given up by Ray, after its retries
        return failed(trial, error, seconds)


def _ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ModuleNotFoundError as problem:
        raise EngineError(
            f"ray must be installed, since the trials are to run on a Ray cluster; got {problem}. Use "
            "pip install 'situs[ray]'."
        ) from problem


@contextlib.contextmanager
def _connected(ray: Any, address: str | None) -> Iterator[None]:
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
