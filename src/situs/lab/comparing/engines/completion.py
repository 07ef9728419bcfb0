"""Completing a comparison: run what is missing, store every record at once, and take what other processes run.

Any number of processes may complete comparisons into one folder at the same time, and any of them may be killed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from time import sleep
from typing import Any

from situs.lab.comparing.engines.claims import Claims
from situs.lab.comparing.records import Trial, TrialRecord
from situs.lab.comparing.store import Store
from situs.lab.plain import to_json

Engine = Callable[..., None]
"""Runs trials: ``run`` of ``local`` or ``ray``, which differ in their options."""
LOOKED = 0.5  # seconds between looks at what others have finished


def complete(
    trials: Iterable[Trial],
    store: Store,
    engine: Engine,
    *,
    done: Callable[[TrialRecord], None] = lambda record: None,
    known: Mapping[str, TrialRecord] | None = None,
    wait: Callable[[list[Trial], str], None] = lambda trials, owner: None,
    **options: Any,
) -> dict[str, TrialRecord]:
    """Run trials by an engine and return all their records.

    done: called with each record after it was stored, by this process or another.
    known: records that the store has but which do not count, such as those of trials that failed before.
    wait: called once with the trials that are left to other processes, and who runs them, before they are waited for.
    options: go to the engine.
    """
    wanted = {trial.key: trial for trial in trials}
    old = {key: to_json(record) for key, record in (known or {}).items() if key in wanted}
    found: dict[str, TrialRecord] = {}

    def look(key: str) -> bool:
        """Look for a record; tells whether there is one by now."""
        record = store.find(key)
        if record is None or to_json(record) == old.get(key):
            return False
        found[key] = record
        done(record)
        return True

    with Claims(store.trials) as claims:

        def claim(trial: Trial) -> bool:
            if not claims.take(trial.key):
                return False
            if look(trial.key):  # another process finished it just before
                claims.release(trial.key)
                return False
            return True

        def store_record(record: TrialRecord) -> None:
            store.save(record)
            claims.release(record.key)
            found[record.key] = record
            done(record)

        told = False
        while missing := [trial for key, trial in wanted.items() if key not in found]:
            free = [trial for trial in missing if not claims.held(trial.key)]
            if free:
                engine(free, claim=claim, done=store_record, **options)
            elif not told:
                told = True
                wait(missing, claims.awaited(trial.key for trial in missing))
            else:
                sleep(LOOKED)
            for trial in missing:
                if trial.key not in found:
                    look(trial.key)
    return {key: found[key] for key in wanted}
