"""A comparison as a whole: what is measured beside its trials, and when it is measured again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from situs.lab.comparing.compare import compare, try_out
from situs.lab.comparing.jobs import Answer, CompareWork, Found, Job, Measurement, failed_trial
from situs.lab.comparing.jobs import answer as do
from situs.lab.comparing.plan import Plan, make_plan
from situs.lab.comparing.records import Trial, TrialRecord
from situs.lab.probing.findings import Cost, Costs, DecodeCost
from situs.lab.problems import Problem
from situs.lab.running.store import Store
from situs.lab.settings import Size

pytestmark = pytest.mark.once

OWN = """
import situs

class Own(situs.NoPE):
    pass
"""


class Told:
    """A watcher that remembers which methods were measured."""

    def __init__(self) -> None:
        self.measured: list[str] = []

    def planned(self, trials: Sequence[Trial], finished: int) -> None:
        """Nothing to remember."""

    def finished(self, record: TrialRecord) -> None:
        """Nothing to remember."""

    def measuring(self, method: str) -> None:
        self.measured.append(method)

    def remark(self, text: str) -> None:
        """Nothing to remember."""


class Here:
    """A team that does all jobs in this process, and measures in no time."""

    def run(
        self,
        jobs: Iterable[Job],
        work: CompareWork,
        *,
        done: Callable[[Job, Answer], None],
        timeout: float,
        at_most: int | None = None,
    ) -> None:
        for job in jobs:
            if isinstance(job, Measurement):
                of_costs = job.what == "costs"
                done(job, Found(costs=COSTS) if of_costs else Found(properties={}))
            else:
                done(job, do(job, None, lambda progress: None, lambda record: None))


COSTS = Costs(0, {12: Cost()}, DecodeCost())


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a module of one's own."""
    monkeypatch.chdir(tmp_path)
    Path("compared_of_ones_own.py").write_text(OWN)


def plan() -> Plan:
    names = "alibi,compared_of_ones_own:Own,rotary&compared_of_ones_own:Own"
    size = Size(dim=8, layers=1, heads=2)
    return make_plan(encodings=names, tasks="copy", train_length=12, multiples=(1,), steps=1, size=size, seeds=1)


def measured(*, fresh: bool = False) -> list[str]:
    """The methods whose costs and properties were not there yet."""

    def engine(trials: list[Trial], **options: Any) -> None:
        for trial in trials:
            if options["claim"](trial):
                options["done"](failed_trial(trial, Problem("ValueError: not asked", "")))

    told = Told()
    team = Here()
    asked = try_out(plan(), team)
    records = compare(asked, Store("out", TrialRecord), engine, told, team=team, fresh=fresh)
    assert list(records.costs) == [method.name for method in asked.methods]
    return told.measured


@pytest.mark.heavy
def test_what_was_measured_is_kept_until_ones_own_source_changes() -> None:
    own = ["compared_of_ones_own:Own", "rotary&compared_of_ones_own:Own"]
    assert measured() == ["alibi", *own]
    assert measured() == []
    Path("compared_of_ones_own.py").write_text(OWN + "# another bias\n")
    assert measured() == own
    assert measured() == []
    Path("compared_of_ones_own.py").write_text(OWN)
    assert measured() == []  # as it was before
    assert measured(fresh=True) == ["alibi", *own]


def test_what_is_kept_of_our_own_encodings_does_not_name_a_source() -> None:
    measured()
    kept = [json.loads(path.read_text()) for path in Path("out/measured").iterdir()]
    sources = {each["method"]: each.get("source") for each in kept}
    assert sources["alibi"] is None
    assert len(str(sources["compared_of_ones_own:Own"])) == 16
    assert sources["compared_of_ones_own:Own"] == sources["rotary&compared_of_ones_own:Own"]


def test_a_class_that_is_named_in_several_ways_is_trained_once() -> None:
    Path("named_twice.py").write_text(OWN)
    names = "named_twice.py, named_twice.py:Own/none, ./named_twice.py:Own & alibi, named_twice:Own, alibi"
    size = Size(dim=8, layers=1, heads=2)
    asked = make_plan(encodings=names, tasks="copy", train_length=12, multiples=(1,), steps=1, size=size, seeds=1)
    tried = try_out(asked, Here())
    found = ["named_twice.py", "named_twice.py/none", "named_twice.py&alibi", "alibi"]
    assert [method.name for method in tried.methods] == found
    assert [trial.method.name for trial in tried.trials] == found
    assert tried.renamed == {
        "named_twice.py:Own/none": "named_twice.py/none",
        "./named_twice.py:Own&alibi": "named_twice.py&alibi",
        "named_twice:Own": "named_twice.py",
    }
    assert [name for name, source in tried.sources.items() if source] == found[:-1]
