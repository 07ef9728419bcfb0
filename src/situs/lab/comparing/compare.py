"""A comparison: trials that are not there yet, measurements beside them, and the records of it all.

Whatever is finished is kept: the same comparison into the same folder goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from time import perf_counter
from typing import Any, Protocol, runtime_checkable

from situs.lab.comparing.engines import CorpusSource, Engine, complete
from situs.lab.comparing.plan import Plan
from situs.lab.comparing.records import FORMAT, Comparison, Machine, Measured, Progress, Trial, TrialRecord, hashed
from situs.lab.comparing.store import Store
from situs.lab.naming.grammar import Method
from situs.lab.naming.methods import sources
from situs.lab.plain import to_json, to_plain
from situs.lab.probing import costs, properties


@runtime_checkable
class Watcher(Protocol):
    """Be told how a comparison goes."""

    def planned(self, trials: Sequence[Trial], finished: int) -> None:
        """Hear how much there is to do."""

    def finished(self, record: TrialRecord) -> None:
        """Hear that a trial has ended."""

    def measuring(self, method: str) -> None:
        """Hear that costs and properties of a method are being measured."""

    def remark(self, text: str) -> None:
        """Hear something that a person should know."""


@runtime_checkable
class Follower(Watcher, Protocol):
    """Be told of every step, too."""

    def going(self, worker: int, trial: Trial, progress: Progress) -> None:
        """Hear how far a worker has come with a trial."""


def compare(
    plan: Plan,
    store: Store,
    engine: Engine,
    watcher: Watcher,
    *,
    text: str | None = None,
    fresh: bool = False,
    command: str = "",
    preset: str = "",
) -> Comparison:
    """Run what is missing, measure the rest, write and return the records."""
    began = perf_counter()
    trials = plan.trials
    known = {} if fresh else store.load()
    for name in store.damaged:
        watcher.remark(f"{name} was damaged; its trial is run again.")
    # one that failed may have failed for want of memory or space; one that diverged would diverge again
    settled = {key: record for key, record in known.items() if record.status != "failed"}
    have = {trial.key: settled[trial.key] for trial in trials if trial.key in settled}
    missing = [trial for trial in trials if trial.key not in have]
    watcher.planned(trials, len(have))
    if missing:
        source = CorpusSource(text, "" if plan.corpus is None else plan.corpus.hash)
        have |= complete(
            missing,
            store,
            engine,
            done=watcher.finished,
            known=store.load() if fresh else known,
            wait=lambda left: watcher.remark(f"{len(left)} trials are being run by another process; waiting for them."),
            source=source,
            **({"tell": watcher.going} if isinstance(watcher, Follower) else {}),
        )
    measured = {method.name: _measured(method, plan, store, watcher, fresh) for method in plan.methods}
    records = plan.comparison(
        [have[trial.key] for trial in trials],
        made=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        command=command,
        preset=preset,
        where=Machine.here(plan.settings.device),
        costs={name: each.costs for name, each in measured.items()},
        properties={name: each.properties for name, each in measured.items()},
        seconds=perf_counter() - began,
    )
    store.write("records.json", to_json(records, indent=1))
    return records


def _measured(method: Method, plan: Plan, store: Store, watcher: Watcher, fresh: bool) -> Measured:
    """Measure costs and properties, once for each method, size and machine, and each state of one's own source."""
    facts: dict[str, Any] = {
        "method": method, "settings": plan.settings, "where": Machine.here(plan.settings.device),
        **({"source": source} if (source := sources(method)) else {}),
    }  # fmt: skip
    file = f"measured/{hashed({'format': FORMAT, **to_plain(facts)})}.json"
    found = None if fresh else store.read(Measured, file)
    if found is None:
        watcher.measuring(method.name)
        found = Measured(
            **facts,
            costs=costs.measure(method, plan.settings),
            properties=properties.measure(method, plan.settings),
        )
        store.write(file, to_json(found))
    return found
