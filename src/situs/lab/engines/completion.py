"""Completing a comparison: run what is missing, keep every record at once, and take from other processes what they run.

Any number of processes may complete comparisons into one folder at the same time, and any of them may be killed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from time import sleep
from typing import Any

from situs.lab.engines.claims import Claims
from situs.lab.store import Record, Store, to_json
from situs.lab.trial import Trial

Engine = Callable[..., None]
"""Runs trials: ``run`` of ``local`` or ``ray``, which differ in their options."""
LOOKED = 0.5  # seconds between looks at what others have finished


def complete(
    trials: Iterable[Trial],
    store: Store,
    engine: Engine,
    *,
    done: Callable[[Record], None] = lambda record: None,
    known: Mapping[str, Record] | None = None,
    wait: Callable[[list[Trial]], None] = lambda trials: None,
    **options: Any,
) -> dict[str, Record]:
    """Run trials by an engine and return all their records.

    done: called with each record after it was stored, by this process or another.
    known: records that the store has but which do not count, such as those of trials that failed before.
    wait: called once with the trials that are left to other processes, before their records are waited for.
    options: go to the engine.
    """
    wanted = {trial.key: trial for trial in trials}
    old = {key: to_json(record) for key, record in (known or {}).items() if key in wanted}
    found: dict[str, Record] = {}

    def look(key: str) -> bool:
        """Whether there is a record by now."""
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

        def keep(record: Record) -> None:
            store.save(record)
            claims.release(record["key"])
            found[record["key"]] = record
            done(record)

        told = False
        while missing := [trial for key, trial in wanted.items() if key not in found]:
            free = [trial for trial in missing if not claims.held(trial.key)]
            if free:
                engine(free, claim=claim, done=keep, **options)
            elif not told:
                told = True
                wait(missing)
            else:
                sleep(LOOKED)
            for trial in missing:
                if trial.key not in found:
                    look(trial.key)
    return {key: found[key] for key in wanted}
