"""An evaluation: its plan, trials that are not there yet, and the records of it all.

Whatever is finished is kept: the same evaluation into the same folder goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter
from typing import Protocol, runtime_checkable

from situs.lab.evaluating.engines import TIMEOUT
from situs.lab.evaluating.jobs import Answer, EvaluateWork, Job, Planned, Planning
from situs.lab.evaluating.records import FOLDER, Evaluation, Trial, TrialRecord
from situs.lab.evaluating.source import Source
from situs.lab.plain import to_json
from situs.lab.records import Machine, Progress, now
from situs.lab.running.completion import Engine, being_run, complete, conclude
from situs.lab.running.store import PLAN, Store
from situs.lab.running.team import Team

PLANNED = 3600.0
"""Seconds that a model may take to be loaded, hashed and run for a moment, at least."""


@runtime_checkable
class Watcher(Protocol):
    """Be told how an evaluation goes."""

    def planned(self, trials: Sequence[Trial], finished: int) -> None:
        """Hear how much there is to do."""

    def going(self, worker: int, trial: Trial, progress: Progress) -> None:
        """Hear how far a worker has come with a trial."""

    def finished(self, record: TrialRecord) -> None:
        """Hear that a trial has ended."""

    def remark(self, text: str) -> None:
        """Hear something that a person should know."""


def plan(planning: Planning, source: Source, team: Team, *, timeout: float = TIMEOUT) -> Evaluation:
    """Check all that was asked in a worker, which then holds the model; raises for the first thing that cannot be."""
    found: list[Planned] = []

    def note(job: Job, answer: Answer) -> None:
        assert isinstance(answer, Planned)
        found.append(answer)

    team.run([planning], EvaluateWork(source), done=note, timeout=max(timeout, PLANNED), at_most=1)
    (planned,) = found
    if planned.asked is None:
        said = "" if planned.problem is None else planned.problem.said
        reason = f"{FOLDER} must load and run before it is measured; got {source.folder!r}: {said}"
        raise ValueError(planned.refused or reason)
    return planned.asked


def evaluate(
    asked: Evaluation,
    source: Source,
    store: Store[TrialRecord],
    engine: Engine,
    watcher: Watcher,
    *,
    fresh: bool = False,
    command: str = "",
) -> Evaluation:
    """Run what is missing, write and return the records.

    asked: what was planned, without results.
    source: where model and text are.
    """
    began = perf_counter()
    trials = asked.planned
    known = {key: record for key in trials if (record := store.find(key)) is not None}
    store.tell_damaged(watcher.remark)
    # one that failed may have failed for want of memory
    have = {} if fresh else {key: record for key, record in known.items() if record.status == "done"}
    missing = [trial for key, trial in trials.items() if key not in have]
    watcher.planned(list(trials.values()), len(have))
    asked = replace(asked, command=command, where=Machine.here(asked.setup.device), made=now())
    store.write(PLAN, to_json(asked))  # for a report, should this be stopped
    if missing:
        have |= complete(
            missing,
            store,
            engine,
            done=watcher.finished,
            known=known,
            wait=lambda left, owner: watcher.remark(being_run(left, owner)),
            source=source,
            tell=watcher.going,
        )
    store.tell_damaged(watcher.remark)
    records = replace(
        asked, trials=[have[key] for key in trials], planned={}, made=now(), seconds=perf_counter() - began
    )
    conclude(store, records)
    return records
