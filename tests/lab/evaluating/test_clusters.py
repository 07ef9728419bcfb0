"""Trials on a Ray cluster of this machine give the numbers that a worker gives."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from situs.lab.evaluating.engines import run_on_ray
from situs.lab.evaluating.plan import make_plan
from situs.lab.evaluating.records import TrialRecord
from situs.lab.evaluating.source import Source
from situs.lab.evaluating.trial import run
from situs.lab.running.completion import complete
from situs.lab.running.serving import EngineError
from situs.lab.running.store import Store
from tests.raising import raises_exactly

pytestmark = pytest.mark.once


def test_without_ray_it_says_what_to_install(random_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with raises_exactly(
        EngineError,
        "ray must be installed, since the trials are to run on a Ray cluster; got import of ray halted; None in "
        "sys.modules. Use pip install 'situs[ray]'.",
    ):
        run_on_ray([], Source(str(random_model)), done=print)


@pytest.mark.heavy
def test_a_cluster_gives_the_local_numbers(random_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    source = Path(__file__).parents[3] / "src"
    monkeypatch.setenv("PYTHONPATH", str(source), prepend=os.pathsep)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    plan = make_plan(random_model, windows=2, lengths=(1, 2), scalings="none,yarn,self-extend")
    told: list[str] = []
    there = complete(
        plan.trials,
        Store(tmp_path, TrialRecord),
        run_on_ray,
        source=Source(str(random_model)),
        tell=lambda worker, trial, progress: told.append(trial.key),
    )
    assert {record.status for record in there.values()} == {"done"}
    assert set(told) <= {trial.key for trial in plan.trials}
    for trial in plan.trials:
        here = run(trial, plan.bench)
        assert here.outcome.scores == pytest.approx(there[trial.key].outcome.scores, rel=1e-5)
