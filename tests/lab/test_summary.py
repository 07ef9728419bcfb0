"""Summaries: pairs, intervals and verdicts, against numbers worked out by hand."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from situs.lab.comparing.records import Comparison, Parameters, Results, Seconds, Taught, Trial, TrialRecord
from situs.lab.comparing.summary import summarise, verdict
from situs.lab.naming import parse
from situs.lab.probing.findings import Costs, DecodeCost
from situs.lab.records import Measure, Outcome
from situs.lab.scores import Point, Scores, farthest, point
from situs.lab.settings import Settings

pytestmark = pytest.mark.once

SETTINGS = Settings(train_length=8, multiples=(1, 2))


def trial(
    name: str, task: str, seed: int, lengths: dict[int, Outcome], measure: Measure = "loss", **more: Any
) -> TrialRecord:
    method = parse(name)
    record = TrialRecord(
        key=f"{method} {task} {seed}",
        trial=Trial(method, (method,), task, seed, 10, SETTINGS),
        status="done",
        measure=measure,
        curve=[],
        methods={name: Results(lengths, None)},
        parameters=Parameters(model=100, encodings=7),
        seconds=Seconds(training=2.0 + seed, testing=1.0),
    )
    return replace(record, **more)


def records(trials: list[TrialRecord], *methods: str) -> Comparison:
    return Comparison(
        settings=SETTINGS,
        seeds=[0, 1],
        tasks={"text": Taught(steps=10, measure="loss"), "passkey": Taught(steps=10, measure="accuracy")},
        methods=[parse(name) for name in methods],
        corpus=None,
        trials=trials,
    )


def test_changes_are_paired_window_by_window_and_seed_by_seed() -> None:
    hard_and_easy = [1.0, 5.0, 3.0]
    first = {8: Outcome(scores=hard_and_easy), 16: Outcome(scores=[score + 0.5 for score in hard_and_easy])}
    second = {8: Outcome(scores=[9.0, 1.0, 2.0]), 16: Outcome(scores=[9.3, 1.3, 2.3])}
    trials = [trial("alibi", "text", 0, first), trial("alibi", "text", 1, second)]
    (row,) = summarise(records(trials, "alibi"))
    change = row.scores["text"].changes[16]
    assert change.mean == pytest.approx(0.4)
    assert change.seeds == pytest.approx((0.5, 0.3))
    assert (change.low, change.high) == pytest.approx((0.3, 0.5))
    level = row.scores["text"].levels[8]
    assert level.mean == pytest.approx(3.5)
    assert level.high - level.low > 2  # what pairs leave out
    assert row.scores["text"].changes[8].mean == 0.0
    assert row.parameters == 7
    assert row.seconds == pytest.approx(2.5)
    extrapolating = row.properties["extrapolating"]
    assert not extrapolating.holds
    assert extrapolating.said == (
        "At 2 times the training length the loss changes by +0.400 nats; it holds below 0.05."
    )


def test_an_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    generator = torch.Generator().manual_seed(0)
    covered = 0
    for _ in range(200):
        found = point(torch.randn(3, 60, generator=generator, dtype=torch.float64))
        covered += found.low <= 0 <= found.high
    assert 0.88 <= covered / 200 <= 1.0
    again = point(torch.ones(2, 5, dtype=torch.float64))
    assert (again.mean, again.low, again.high, again.seeds) == (1.0, 1.0, 1.0, (1.0, 1.0))


def test_tables_that_end_and_trials_that_fail_are_told() -> None:
    ended = {8: Outcome(scores=[2.0, 2.2]), 16: Outcome(ends=8)}
    broken = trial("learned", "text", 1, {}, status="failed", error="MemoryError: no room", methods={})
    (row,) = summarise(records([trial("learned", "text", 0, ended), broken], "learned"))
    assert row.scores["text"].levels[16].ends == 8
    assert row.unfinished == {"text": ("failed",)}
    assert not row.scores["text"].changes[16].exists
    assert math.isnan(row.scores["text"].levels[16].mean)
    assert row.problems == ("text, seed 1: MemoryError: no room",)
    assert row.verdict == "table ends at 8; 1 trial failed"


def test_answers_are_kept_by_depth() -> None:
    lengths = {
        8: Outcome(scores=[1.0, 1.0, 1.0, 1.0], depths=[0.0, 0.5, 1.0, 0.5]),
        16: Outcome(scores=[0.0, 1.0, 1.0, 0.0], depths=[0.0, 0.5, 1.0, 0.5]),
    }
    (row,) = summarise(records([trial("t5", "passkey", 0, lengths, "accuracy")], "t5"))
    assert row.scores["passkey"].depths[16] == {0.0: 0.0, 0.5: 0.5, 1.0: 1.0}
    assert row.verdict == "passkey: right to 1×"


@dataclass(frozen=True)
class Failed(Outcome):
    """An outcome with the reason why it has no scores."""

    error: str | None = None


def test_a_length_without_scores_has_its_reason_and_the_rest_is_kept() -> None:
    partial = {8: Outcome(scores=[2.0, 2.2]), 16: Failed(error="IndexError: too long")}
    (row,) = summarise(records([trial("shaw", "text", 0, partial)], "shaw"))
    found = row.scores["text"]
    assert found.levels[8].mean == pytest.approx(2.1)
    assert (found.levels[16].exists, found.levels[16].error) == (False, "IndexError: too long")
    assert found.changes[16].error == "IndexError: too long"
    assert row.problems == ("text, seed 0, at 16: IndexError: too long",)
    assert row.verdict == "loss holds to 1×, no result beyond"
    assert row.properties["extrapolating"].holds is None
    assert row.properties["extrapolating"].said == "It has no result at 16 tokens: IndexError: too long."


def test_a_length_that_one_seed_lacks_is_averaged_over_the_others() -> None:
    whole = {8: Outcome(scores=[1.0, 2.0]), 16: Outcome(scores=[1.5, 2.5])}
    partial = {8: Outcome(scores=[3.0, 4.0])}
    trials = [trial("alibi", "text", 0, whole), trial("alibi", "text", 1, partial)]
    (row,) = summarise(records(trials, "alibi"))
    found = row.scores["text"]
    assert (found.levels[8].seeds, found.levels[16].seeds) == ((1.5, 3.5), (2.0,))
    assert found.changes[16].mean == pytest.approx(0.5)
    assert row.problems == ("text, seed 1, at 16: no result",)


def test_trials_without_results_are_counted_by_their_status() -> None:
    done = trial("alibi", "text", 0, {8: Outcome(scores=[2.0]), 16: Outcome(scores=[2.01])})
    diverged = trial("alibi", "text", 1, {}, status="diverged", methods={})
    late = trial("alibi", "text", 2, {}, status="timed out", error="no result after 600 s", methods={})
    (row,) = summarise(records([done, diverged, late], "alibi"))
    assert row.verdict == "loss holds to 2×; 1 trial diverged; 1 trial timed out"
    assert row.problems == ("text, seed 1: diverged", "text, seed 2: timed out: no result after 600 s")
    assert row.unfinished == {"text": ("diverged", "timed out")}


def test_lengths_that_were_tested_before_a_trial_timed_out_are_kept() -> None:
    found = {8: Outcome(scores=[2.0, 2.0])}
    late = trial("alibi", "text", 0, found, status="timed out", error="timed out after 600 s")
    (row,) = summarise(records([late], "alibi"))
    assert row.scores["text"].levels[8].mean == 2.0
    assert row.problems == ("text, seed 0: timed out after 600 s",)
    assert row.verdict == "loss holds to 1×, no result beyond; 1 trial timed out"


def test_a_method_without_results_says_so() -> None:
    (row,) = summarise(records([], "fire"))
    assert (row.verdict, row.scores, row.parameters) == ("no result", {}, None)


def scores(measure: Measure, levels: list[float], changes: list[float]) -> Scores:
    def points(numbers: list[float]) -> dict[int, Point]:
        return {8 * 2**n: Point(number, number, number, (number,)) for n, number in enumerate(numbers)}

    return Scores(measure, points(levels), points(changes))


@pytest.mark.parametrize(
    ("found", "reached", "words"),
    [
        (scores("loss", [2.0, 2.01, 2.02], [0.0, 0.01, 0.02]), 32, "loss holds to 4×"),
        (scores("loss", [2.0, 2.01, 2.5], [0.0, 0.01, 0.5]), 16, "loss holds to 2× only"),
        (scores("loss", [2.0, 2.9, 2.0], [0.0, 0.9, 0.0]), 8, "loss rises beyond 1×"),
        (scores("loss", [2.0], [0.0]), 8, "tested at 1× only"),
        (scores("loss", [math.nan, 2.0], [math.nan, math.nan]), 0, "no loss at 1×"),
        (scores("accuracy", [1.0, 0.95, 0.4], []), 16, "x: right to 2×"),
        (scores("accuracy", [0.3, 0.3, 0.3], []), 0, "x: under 90\N{NO-BREAK SPACE}%"),
    ],
)
def test_a_verdict_says_how_far_it_holds_without_a_break(found: Scores, reached: int, words: str) -> None:
    assert farthest(found) == reached
    assert verdict({"x": found}, 8, ()) == words


def test_parameters_are_counted_where_a_trial_failed_and_costs_were_measured() -> None:
    none = trial("alibi", "text", 0, {}, status="failed", methods={}, parameters=Parameters(None, None))
    costs = {"alibi": Costs(8, {}, DecodeCost())}
    assert summarise(records([none], "alibi"))[0].parameters is None
    assert summarise(replace(records([none], "alibi"), costs=costs))[0].parameters == 8
    assert summarise(replace(records([trial("alibi", "text", 0, {})], "alibi"), costs=costs))[0].parameters == 7
