"""A comparison: trials that are not there yet, measurements beside them, and the records of it all.

Whatever is finished is kept: the same comparison into the same folder goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from importlib import metadata
from time import perf_counter
from typing import Any, Protocol, runtime_checkable

import torch

from situs.lab import costs, probes
from situs.lab.engines import CorpusSource, Engine, complete
from situs.lab.methods import Method
from situs.lab.plan import Plan
from situs.lab.store import Store, to_json
from situs.lab.trial import FORMAT, Progress, Trial


@runtime_checkable
class Watcher(Protocol):
    """Who is told how it goes."""

    def planned(self, trials: Sequence[Trial], finished: int) -> None:
        """How much there is to do."""

    def finished(self, record: dict[str, Any]) -> None:
        """A trial has ended."""

    def measuring(self, method: str) -> None:
        """Costs and properties of a method are being measured."""

    def remark(self, text: str) -> None:
        """Something a person should know."""


@runtime_checkable
class Follower(Watcher, Protocol):
    """A watcher who is told of every step, too."""

    def going(self, worker: int, trial: Trial, progress: Progress) -> None:
        """A worker has come so far with a trial."""


FAILED = {"status": "failed"}


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
) -> dict[str, Any]:
    """Run what is missing, measure the rest, write and return the records."""
    began = perf_counter()
    trials = plan.trials
    known = {} if fresh else store.load()
    for name in store.damaged:
        watcher.remark(f"{name} was damaged; its trial is run again.")
    # one that failed may have failed for want of memory or space; one that diverged would diverge again
    have = {trial.key: known[trial.key] for trial in trials if known.get(trial.key, FAILED)["status"] != "failed"}
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
    records = {
        "format": FORMAT,
        "made": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": command,
        "preset": preset,
        "where": where(plan.settings.device),
        **plan.facts(),
        "trials": [have[trial.key] for trial in trials],
        "costs": {name: each["costs"] for name, each in measured.items()},
        "properties": {name: each["properties"] for name, each in measured.items()},
        "seconds": perf_counter() - began,
    }
    store.write("records.json", to_json(records, indent=1))
    return records


def _measured(method: Method, plan: Plan, store: Store, watcher: Watcher, fresh: bool) -> dict[str, Any]:
    """Costs and properties, once for each method, size and machine, and each state of one's own source."""
    source = method.sources()
    facts = {
        "format": FORMAT,
        "method": method.name,
        "settings": asdict(plan.settings),
        "where": where(plan.settings.device),
        **({"source": source} if source else {}),  # not for ours, so that what is stored of them is found again
    }
    key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
    found = None if fresh else store.read(f"measured/{key}.json")
    if found is None:
        watcher.measuring(method.name)
        found = {
            **facts,
            "costs": costs.measure(method, plan.settings),
            "properties": probes.measure(method, plan.settings),
        }
        store.write(f"measured/{key}.json", to_json(found))
    return found


def where(device: str) -> dict[str, Any]:
    """The machine and the versions, as far as they could matter."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "situs": metadata.version("situs"),
        "platform": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else device,
    }
