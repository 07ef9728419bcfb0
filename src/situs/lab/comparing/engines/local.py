"""The local engine: trials in worker processes of this machine. See `situs.lab.running.team`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import cast

from situs.lab.comparing.jobs import Answer, CompareWork, CorpusSource, Job
from situs.lab.comparing.records import Trial, TrialRecord
from situs.lab.comparing.trial import longest_first
from situs.lab.records import Progress
from situs.lab.running.team import TIMEOUT, Team


def run(
    trials: Iterable[Trial],
    source: CorpusSource,
    *,
    workers: int | None = None,
    team: Team | None = None,
    timeout: float = TIMEOUT,
    tell: Callable[[int, Trial, Progress], None] = lambda worker, trial, progress: None,
    done: Callable[[TrialRecord], None],
    claim: Callable[[Trial], bool] = lambda trial: True,
) -> None:
    """Run trials, the longest first, and hand over each record as soon as it is there.

    workers: how many processes; as many as there are cores by default.
    team: workers that are there already, which stay.
    timeout: seconds that a trial may take.
    tell: called in this process with a worker's number, its trial and where it is.
    done: called in this process with each record.
    claim: asked in this process before a trial is begun; one that it denies is left out.
    """

    def hand_over(job: Job, answer: Answer) -> None:
        done(cast(TrialRecord, answer))

    with Team(workers) if team is None else contextlib.nullcontext(team) as those:
        those.run(
            longest_first(trials),
            CompareWork(source),
            tell=cast(Callable[[int, Job, Progress], None], tell),
            done=hand_over,
            claim=cast(Callable[[Job], bool], claim),
            timeout=timeout,
        )
