"""An evaluation: trials that are not there yet, and the records of it all.

Whatever is finished is kept: the same evaluation into the same folder goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from time import perf_counter
from typing import Protocol, final, runtime_checkable

from situs.lab.comparing.engines.completion import Engine, complete
from situs.lab.comparing.records import Machine, Progress
from situs.lab.comparing.store import Store
from situs.lab.evaluating import trial as trials
from situs.lab.evaluating.plan import Plan
from situs.lab.evaluating.records import Evaluation, Trial, TrialRecord
from situs.lab.evaluating.trial import Bench
from situs.lab.plain import to_json

RECORDS = "records.json"


@runtime_checkable
class Watcher(Protocol):
    """Be told how an evaluation goes."""

    def planned(self, trials: Sequence[Trial], finished: int) -> None:
        """Hear how much there is to do."""

    def going(self, trial: Trial, progress: Progress) -> None:
        """Hear how far a trial is."""

    def finished(self, record: TrialRecord) -> None:
        """Hear that a trial has ended."""

    def remark(self, text: str) -> None:
        """Hear something that a person should know."""


@final
class TrialFolder:
    """Store trials of an evaluation in the folder of a `Store`, one file each."""

    def __init__(self, store: Store) -> None:
        self.store = store

    @property
    def trials(self) -> Path:
        """The folder of records and claims."""
        return self.store.trials

    def find(self, key: str) -> TrialRecord | None:
        """Read the record of one trial; None where there is none, or it was damaged and is now moved aside."""
        return self.store.read(TrialRecord, f"trials/{key}.json", key=key)

    def save(self, record: TrialRecord) -> None:
        """Store a finished trial."""
        record.require_sound()
        self.store.write(f"trials/{record.key}.json", to_json(record))


def run_here(
    chosen: Iterable[Trial],
    *,
    bench: Bench,
    done: Callable[[TrialRecord], None],
    claim: Callable[[Trial], bool] = lambda trial: True,
    tell: Callable[[Trial, Progress], None] = lambda trial, progress: None,
) -> None:
    """Run trials one after another in this process, on all its threads: the engine "local".

    One model fills a machine; two at once would share its memory and its cores.
    """
    for trial in chosen:
        if claim(trial):
            done(trials.run(trial, bench, lambda progress, trial=trial: tell(trial, progress)))  # type: ignore[misc]


def evaluate(
    plan: Plan,
    store: Store,
    watcher: Watcher,
    *,
    engine: Engine = run_here,
    fresh: bool = False,
    command: str = "",
) -> Evaluation:
    """Run what is missing, write and return the records."""
    began = perf_counter()
    folder = TrialFolder(store)
    planned = plan.trials
    known = {trial.key: record for trial in planned if (record := folder.find(trial.key)) is not None}
    for name, reason in store.damaged.items():
        watcher.remark(f"{name} is damaged: {reason}. It is set aside as {name}.damaged, and made again.")
    store.damaged = {}
    # one that failed may have failed for want of memory
    have = {} if fresh else {key: record for key, record in known.items() if record.status == "done"}
    missing = [trial for trial in planned if trial.key not in have]
    watcher.planned(planned, len(have))
    if missing:
        have |= complete(
            missing,
            folder,
            engine,
            done=watcher.finished,
            known=known,
            wait=lambda left, owner: watcher.remark(
                f"{len(left)} trial{'s are' if len(left) != 1 else ' is'} being run by {owner}."
            ),
            bench=plan.bench,
            tell=watcher.going,
        )
    records = plan.evaluation(
        [have[trial.key] for trial in planned],
        made=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        command=command,
        where=Machine.here(plan.setup.device),
        seconds=perf_counter() - began,
    )
    store.write(RECORDS, to_json(records, indent=1))
    return records
