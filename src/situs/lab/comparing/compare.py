"""A comparison: trials that are not there yet, measurements beside them, and the records of it all.

Whatever is finished is kept: the same comparison into the same folder goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any, Protocol, runtime_checkable

from situs.lab.comparing.jobs import (
    Answer,
    CompareWork,
    CorpusSource,
    Found,
    Job,
    Measurement,
    Tried,
    TryOut,
    failed_trial,
)
from situs.lab.comparing.plan import Plan
from situs.lab.comparing.records import FORMAT, Comparison, Measured, Trial, TrialRecord
from situs.lab.naming.grammar import Method, renamed
from situs.lab.plain import to_json, to_plain
from situs.lab.records import Machine, Progress, hashed, now
from situs.lab.running.completion import Engine, being_run, complete, conclude
from situs.lab.running.store import PLAN, Store
from situs.lab.running.team import TIMEOUT

TRY_OUT = 300.0
"""Seconds that a method may take to be imported, built and run once, at most."""


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


@runtime_checkable
class Workers(Protocol):
    """Do jobs in other processes, as a `Team` does."""

    def run(
        self,
        jobs: Iterable[Job],
        work: CompareWork,
        *,
        done: Callable[[Job, Answer], None],
        timeout: float,
        at_most: int | None = None,
    ) -> None:
        """Do jobs, and hand over each answer."""


def try_out(plan: Plan, team: Workers, *, timeout: float = TIMEOUT) -> Plan:
    """Import, build and run every method once, in worker processes, and note which cannot be. A class that is named in
    several ways, such as own.py and own.py:Own, is called by the first of them, so that it is trained once.

    Raises for a wrong name or a module that cannot be imported, and if no method is left.
    """
    tried: dict[str, Tried] = {}

    def note(job: Job, answer: Answer) -> None:
        assert isinstance(answer, Tried)
        tried[job.method.name] = answer

    jobs = [TryOut(method, plan.settings) for method in plan.methods]
    team.run(jobs, CompareWork(), done=note, timeout=min(timeout, TRY_OUT))
    found = {method.name: tried[method.name] for method in plan.methods}
    for each in found.values():
        if each.refused is not None:
            raise ValueError(each.refused)
    problems = {name: each.problem for name, each in found.items() if each.problem is not None}
    if len(problems) == len(found):
        name, problem = next(iter(problems.items()))
        raise ValueError(f"{name} cannot be built at this size: {problem.said}")
    called = _first_names(found.values())
    methods = {method.name: renamed(method, called) for method in plan.methods}
    return replace(
        plan,
        methods=list({method.name: method for method in methods.values()}.values()),
        sources={methods[name].name: each.source for name, each in found.items()},
        problems={methods[name].name: problem for name, problem in problems.items()},
        renamed={name: method.name for name, method in methods.items() if name != method.name},
    )


def _first_names(tried: Iterable[Tried]) -> dict[str, str]:
    """For each name of a class of one's own, give the first name that was written for that class."""
    first: dict[str, str] = {}
    return {name: first.setdefault(address, name) for each in tried for name, address in each.addresses.items()}


def compare(
    plan: Plan,
    store: Store[TrialRecord],
    engine: Engine,
    watcher: Watcher,
    *,
    team: Workers,
    timeout: float = TIMEOUT,
    text: str | None = None,
    fresh: bool = False,
    command: str = "",
    preset: str = "",
) -> Comparison:
    """Run what is missing, measure the rest, write and return the records.

    plan: one that was tried out.
    team: measures costs and properties.
    timeout: seconds that a measurement may take; the engine has its own.
    """
    began = perf_counter()
    trials = plan.trials
    known = {} if fresh else store.load()
    store.tell_damaged(watcher.remark)
    # one that failed may have failed for want of memory or space; one that diverged would diverge again
    settled = {key: record for key, record in known.items() if record.status != "failed"}
    have = {trial.key: settled[trial.key] for trial in trials if trial.key in settled}
    missing = [trial for trial in trials if trial.key not in have]
    watcher.planned(trials, len(have))
    facts: dict[str, Any] = {
        "command": command, "preset": preset, "where": Machine.here(plan.settings.device), "made": now(),
    }  # fmt: skip
    asked = plan.comparison([], planned={trial.key: trial for trial in trials}, **facts)
    store.write(PLAN, to_json(asked))  # for a report, should this be stopped
    for trial in missing:
        if (problem := plan.problem(trial)) is not None:
            have[trial.key] = failed_trial(trial, problem)
            store.save(have[trial.key])
            watcher.finished(have[trial.key])
    if missing := [trial for trial in missing if trial.key not in have]:
        source = CorpusSource(text, "" if plan.corpus is None else plan.corpus.hash)
        have |= complete(
            missing,
            store,
            engine,
            done=watcher.finished,
            known=store.load() if fresh else known,
            wait=lambda left, owner: watcher.remark(being_run(left, owner)),
            source=source,
            **({"tell": watcher.going} if isinstance(watcher, Follower) else {}),
        )
    measuring = _Measuring(plan, store, watcher, team, timeout, fresh)
    measured = {method.name: measuring.measured(method) for method in plan.methods}
    store.tell_damaged(watcher.remark)
    records = plan.comparison(
        [have[trial.key] for trial in trials],
        **{**facts, "made": now()},
        costs={name: each.costs for name, each in measured.items() if each.costs is not None},
        properties={name: each.properties or {} for name, each in measured.items()},
        problems=measuring.problems,
        seconds=perf_counter() - began,
    )
    conclude(store, records)
    return records


class _Measuring:
    """Measure costs and properties, once for each method, size and machine, and each state of one's own source."""

    def __init__(
        self, plan: Plan, store: Store[TrialRecord], watcher: Watcher, team: Workers, timeout: float, fresh: bool
    ) -> None:
        self.plan, self.store, self.watcher, self.fresh = plan, store, watcher, fresh
        self.team, self.timeout = team, timeout
        self.problems: dict[str, list[str]] = {}

    def measured(self, method: Method) -> Found:
        """Read what was measured before, or measure; a method that cannot be built is left out."""
        if method.name in self.plan.problems:
            return Found()
        settings = self.plan.settings
        facts: dict[str, Any] = {
            "method": method, "settings": settings, "where": Machine.here(settings.device),
            **({"source": source} if (source := self.plan.sources.get(method.name)) else {}),
        }  # fmt: skip
        file = f"measured/{hashed({'format': FORMAT, **to_plain(facts)})}.json"
        kept = None if self.fresh else self.store.read(Measured, file)
        if kept is not None:
            return Found(kept.costs, kept.properties)
        self.watcher.measuring(method.name)
        found = self._measure(method)
        if found.costs is not None and found.properties is not None and method.name not in self.problems:
            self.store.write(file, to_json(Measured(**facts, costs=found.costs, properties=found.properties)))
        return found

    def _measure(self, method: Method) -> Found:
        answers: dict[str, Found] = {}

        def note(job: Job, answer: Answer) -> None:
            assert isinstance(job, Measurement)
            assert isinstance(answer, Found)
            answers[job.what] = answer

        jobs = [Measurement(method, self.plan.settings, "costs"), Measurement(method, self.plan.settings, "properties")]
        self.team.run(
            jobs, CompareWork(), done=note, timeout=self.timeout, at_most=1
        )  # alone, so that times are not disturbed
        problems = [f"{what}: {each.problem.said}" for what, each in answers.items() if each.problem is not None]
        costs = answers["costs"].costs
        if costs is not None:
            at = {f"costs at length {length}": cost.error for length, cost in costs.lengths.items()}
            at["costs of decoding"] = costs.decode.error
            problems += [f"{where}: {error}" for where, error in at.items() if error is not None]
        if problems:
            self.problems[method.name] = problems
        return Found(costs, answers["properties"].properties)
