"""The Ray engine: trials as tasks of a Ray cluster. See `situs.lab.running.clusters`.

The text travels once, through the object store, so no other machine needs the path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from situs.lab.comparing.jobs import CompareWork, CorpusSource
from situs.lab.comparing.records import Trial, TrialRecord
from situs.lab.comparing.trial import longest_first
from situs.lab.records import Progress
from situs.lab.running import clusters
from situs.lab.running.team import TIMEOUT


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

    done: called in this process with each record.
    Other options are those of `situs.lab.running.clusters.run`.
    """
    chosen = longest_first(trials)

    def work() -> Any:
        return CompareWork(source, source.load() if any(trial.corpus for trial in chosen) else None)

    clusters.run(
        chosen,
        work,
        address=address,
        gpus_per_trial=gpus_per_trial,
        timeout=timeout,
        tell=tell,
        done=lambda trial, answer: done(cast(TrialRecord, answer)),
        claim=claim,
    )
