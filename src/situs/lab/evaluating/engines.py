"""Engines of an evaluation: one worker process of this machine that holds the model, or tasks of a Ray cluster.

Both are called alike, by `situs.lab.running.completion.complete`, and give the same numbers. One model fills a machine:
two workers at once would share its memory and its cores. On a cluster, every machine reads the model from its folder,
which all must have under the same path, and holds it for the next trial; tokens travel through the object store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from situs.lab.evaluating.jobs import Answer, EvaluateWork, Job
from situs.lab.evaluating.records import Trial, TrialRecord
from situs.lab.evaluating.source import Source
from situs.lab.records import Progress
from situs.lab.running import clusters
from situs.lab.running.team import Team

TIMEOUT = 14400.0
"""Seconds that a trial may take, unless told otherwise: long texts on a few cores take hours."""


def run_here(
    trials: Iterable[Trial],
    source: Source,
    *,
    team: Team,
    timeout: float = TIMEOUT,
    tell: Callable[[int, Trial, Progress], None] = lambda worker, trial, progress: None,
    done: Callable[[TrialRecord], None],
    claim: Callable[[Trial], bool] = lambda trial: True,
) -> None:
    """Run trials one after another in a worker, on all cores, and hand over each record as soon as it is there.

    team: of which one worker takes part.
    """

    def hand_over(job: Job, answer: Answer) -> None:
        done(cast(TrialRecord, answer))

    team.run(
        list(trials),
        EvaluateWork(source),
        tell=cast(Callable[[int, Job, Progress], None], tell),
        done=hand_over,
        claim=cast(Callable[[Job], bool], claim),
        timeout=timeout,
        at_most=1,
    )


def run_on_ray(
    trials: Iterable[Trial],
    source: Source,
    *,
    done: Callable[[TrialRecord], None],
    timeout: float = TIMEOUT,
    **options: Any,
) -> None:
    """Run trials on a cluster, and hand over each record as soon as it is there.

    options: those of `situs.lab.running.clusters.run`.
    """
    chosen = list(trials)
    there = replace(source, folder=str(Path(source.folder).resolve()))

    def work() -> Any:
        texts = [trial for trial in chosen if trial.task == "text"]
        return EvaluateWork(there.with_tokens(texts[0]) if texts else there)

    clusters.run(chosen, work, done=lambda trial, record: done(record), timeout=timeout, **options)
