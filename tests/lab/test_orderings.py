"""What a small decoder shows again and again, as published or measured before: run with SITUS_SLOW=1, some minutes.

Changes of the loss in nats a byte, trained at 64 bytes, 300 steps, three seeds each.
"""

from __future__ import annotations

import os
import statistics
from functools import partial
from pathlib import Path

import pytest

from situs.lab.comparing.engines import local
from situs.lab.comparing.jobs import CorpusSource
from situs.lab.comparing.plan import make_plan
from situs.lab.comparing.records import TrialRecord
from situs.lab.comparing.summary import Row, summarise
from situs.lab.running.completion import complete
from situs.lab.running.store import Store

pytestmark = pytest.mark.skipif(os.environ.get("SITUS_SLOW") != "1", reason="trains for minutes; set SITUS_SLOW=1")


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Row]:
    folder: Path = tmp_path_factory.mktemp("orderings")
    names = "alibi,kerple,sinusoidal,rotary,rotary+yarn,t5"
    plan = make_plan(encodings=names, tasks="text", seeds=3)
    assert plan.corpus is not None
    source = CorpusSource(None, plan.corpus.hash)
    found = complete(plan.trials, Store(folder, TrialRecord), partial(local.run, source=source))
    comparison = plan.comparison([found[trial.key] for trial in plan.trials])
    return {row.name: row for row in summarise(comparison)}


def seeds(rows: dict[str, Row], method: str, multiple: int) -> tuple[float, ...]:
    """The change at a multiple of the training length, for each seed."""
    return rows[method].scores["text"].changes[64 * multiple].seeds


def test_alibi_and_kerple_stay_flat(rows: dict[str, Row]) -> None:
    assert max(map(abs, seeds(rows, "alibi", 16))) < 0.03
    assert max(seeds(rows, "kerple", 16)) < 0.05


def test_sinusoidal_breaks_at_twice_the_length(rows: dict[str, Row]) -> None:
    assert statistics.mean(seeds(rows, "sinusoidal", 2)) > 0.4  # single seeds come down to that


def test_rotary_breaks_at_four_times_the_length_and_yarn_halves_that(rows: dict[str, Row]) -> None:
    rotary, yarn = seeds(rows, "rotary", 4), seeds(rows, "rotary+yarn", 4)
    assert min(rotary) > 0.6
    assert all(scaled < plain / 2 for scaled, plain in zip(yarn, rotary, strict=True))


def test_t5_loses_some(rows: dict[str, Row]) -> None:
    assert all(0.2 < change < 0.6 for change in seeds(rows, "t5", 16))
