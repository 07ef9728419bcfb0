"""Completing what was planned: run what is missing, store every record at once, and take what other processes run.

Any number of processes may complete trials into one folder at the same time, and any of them may be killed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sized
from time import sleep
from typing import Any, Protocol, TypeVar, runtime_checkable

from situs.lab.plain import to_json
from situs.lab.running.claims import Claims
from situs.lab.running.store import PLAN, RECORDS, Finished, Sound, Store

Engine = Callable[..., None]
"""Runs trials: ``run`` of ``local`` or ``ray``, which differ in their options."""
LOOKED = 0.5  # seconds between looks at what others have finished


@runtime_checkable
class Keyed(Protocol):
    """Be a trial, which is found by its key as its record is."""

    @property
    def key(self) -> str:
        """What tells it from every other."""


T = TypeVar("T", bound=Keyed)
R = TypeVar("R", bound=Finished)


def being_run(left: Sized, owner: str) -> str:
    """Say how many trials are left to other processes, and who runs them."""
    return f"{len(left)} trial{'s are' if len(left) != 1 else ' is'} being run by {owner}."


def complete(
    trials: Iterable[T],
    store: Store[R],
    engine: Engine,
    *,
    done: Callable[[R], None] = lambda record: None,
    known: Mapping[str, R] | None = None,
    wait: Callable[[list[T], str], None] = lambda trials, owner: None,
    **options: Any,
) -> dict[str, R]:
    """Run trials by an engine and return all their records.

    done: called with each record after it was stored, by this process or another.
    known: records that the store has but which do not count, such as those of trials that failed before.
    wait: called once with the trials that are left to other processes, and who runs them, before they are waited for.
    options: go to the engine.
    """
    wanted = {trial.key: trial for trial in trials}
    old = {key: to_json(record) for key, record in (known or {}).items() if key in wanted}
    found: dict[str, R] = {}

    def look(key: str) -> bool:
        """Look for a record; tells whether there is one by now."""
        record = store.find(key)
        if record is None or to_json(record) == old.get(key):
            return False
        found[key] = record
        done(record)
        return True

    with Claims(store.trials) as claims:

        def claim(trial: T) -> bool:
            if not claims.take(trial.key):
                return False
            if look(trial.key):  # another process finished it just before
                claims.release(trial.key)
                return False
            return True

        def store_record(record: R) -> None:
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


def conclude(store: Store[R], records: Sound) -> None:
    """Write what came of all trials and remove what only a run that goes on needs."""
    store.write(RECORDS, to_json(records, indent=1))
    store.remove(PLAN)
    Claims(store.trials).tidy()
