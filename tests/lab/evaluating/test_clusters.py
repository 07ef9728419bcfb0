"""Trials on a Ray cluster of this machine give the numbers that this process gives."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from situs.lab.comparing.engines import EngineError
from situs.lab.comparing.store import Store
from situs.lab.evaluating.clusters import Parcel, run_on_ray
from situs.lab.evaluating.evaluate import evaluate, run_here
from situs.lab.evaluating.plan import make_plan
from situs.lab.evaluating.records import Trial, TrialRecord
from tests.raising import raises_exactly

pytestmark = pytest.mark.once


class Silent:
    """Hear nothing but remarks."""

    def __init__(self) -> None:
        self.remarks: list[str] = []

    def planned(self, trials: object, finished: int) -> None: ...

    def going(self, trial: Trial, progress: object) -> None: ...

    def finished(self, record: TrialRecord) -> None: ...

    def remark(self, text: str) -> None:
        self.remarks.append(text)


def test_without_ray_it_says_what_to_install(random_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    plan = make_plan(random_model, windows=2, lengths=(1, 2), tasks="text", scalings="none")
    with raises_exactly(
        EngineError,
        "ray must be installed, since the trials are to run on a Ray cluster; got import of ray halted; None in "
        "sys.modules. Use pip install 'situs[ray]'.",
    ):
        run_on_ray(plan.trials, bench=plan.bench, done=print)


def test_another_model_on_another_machine_is_refused(random_model: Path) -> None:
    plan = make_plan(random_model, windows=2, lengths=(1, 2), tasks="text", scalings="none")
    parcel = Parcel(str(random_model), "another", "float32", "cpu", plan.bench.tokens, plan.bench.scalings)
    with raises_exactly(
        ValueError,
        f"MODEL_DIR must hold the same model on every machine, since trials are compared with each other; got another "
        f"in {str(random_model)!r}.",
    ):
        parcel.unpack()


@pytest.mark.heavy
def test_a_cluster_gives_the_local_numbers(random_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    source = Path(__file__).parents[3] / "src"
    monkeypatch.setenv("PYTHONPATH", str(source), prepend=os.pathsep)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    plan = make_plan(random_model, windows=2, lengths=(1, 2), scalings="none,yarn,self-extend")
    here = evaluate(plan, Store(tmp_path / "here"), Silent(), engine=run_here)
    there = evaluate(plan, Store(tmp_path / "there"), Silent(), engine=run_on_ray)
    assert {record.status for record in there.trials} == {"done"}
    for one, other in zip(here.trials, there.trials, strict=True):
        assert one.key == other.key
        assert one.outcome.scores == pytest.approx(other.outcome.scores, rel=1e-5)
