"""The literature beside the measurements: papers' numbers as they are, and differences worked out."""

import math
from typing import Any

import pytest

from situs.plots.comparison.beside import Beside, beside, differences
from situs.plots.comparison.literature import PUBLISHED
from situs.plots.comparison.view import View
from tests.plots.comparison.sample import make_records, view_of
from tests.plots.comparison.test_findings import changed

pytestmark = pytest.mark.once

ALIBI, SLIDING, KAZEMNEJAD, HAVIV, PI, YARN, RANDOMISED = PUBLISHED


def found(records: dict[str, Any]) -> dict[str, Beside]:
    return {each.published.paper: each for each in beside(view_of(records))}


def text(*methods: str) -> dict[str, Any]:
    return make_records(tasks=("text",), methods=methods, failures=False)


def test_published_numbers_are_those_of_the_papers() -> None:
    assert ALIBI.numbers["sinusoidal"] == {512: 20.05, 1012: 43.54, 1512: 76.23, 3512: 178.97, 15512: 406.0}
    assert ALIBI.numbers["alibi"][15512] == 18.31
    assert SLIDING.numbers["t5"] == {512: 17.92, 3072: 30.77}
    assert KAZEMNEJAD.numbers["none"] == {0: 0.577}
    assert {name: each[1] for name, each in HAVIV.numbers.items()} == {
        "none": 13.10, "learned": 13.05, "sinusoidal": 12.93, "alibi": 12.51
    }  # fmt: skip
    assert {each.paper for each in PUBLISHED if not each.second_hand} == {KAZEMNEJAD.paper, RANDOMISED.paper}


def test_perplexities_become_nats() -> None:
    assert ALIBI.at == dict.fromkeys(ALIBI.numbers, 3512)  # the last that all four have
    assert ALIBI.badness("sinusoidal") == math.log(178.97 / 20.05)
    assert ALIBI.others("sinusoidal") == "also 43.54 at 1,012, 76.23 at 1,512, 406.00 at 15,512"
    assert SLIDING.others("sinusoidal") == ""
    assert ALIBI.said("sinusoidal") == "20.05 → 178.97 at 6.9× (+2.19 nats per token)"
    assert PI.said("rotary") == "7.20 → >1,000 at 2× (>+4.93 nats per token)"
    assert YARN.said("rotary+linear") == ">10,000 (>9.21 nats per token)"
    assert KAZEMNEJAD.said("t5") == "54.4\N{NO-BREAK SPACE}%"
    assert RANDOMISED.said("+random") == "+12.0 points"


def test_an_order_that_differs_is_found_and_said_with_both_numbers() -> None:
    records = text("sinusoidal", "rotary", "t5", "alibi")
    each = found(records)[ALIBI.paper]
    rows = {row.name: row.scores["text"].changes[512].mean for row in view_of(records).rows}
    assert (each.same, each.level, each.verdict) == (5, 0, "differs")
    assert each.differ == [
        f"In the paper rotary is ahead of sinusoidal; here it is behind, +{rows['rotary']:.2f} against "
        f"+{rows['sinusoidal']:.2f}."
    ]
    assert [row[0] for row in each.rows] == ["sinusoidal", "rotary", "t5", "alibi"]
    assert each.rows[1][3].startswith(f"+{rows['rotary']:.2f} at 8×")


def test_the_verdict_follows_the_numbers() -> None:
    records = changed(text("sinusoidal", "rotary", "t5", "alibi"), "sinusoidal", 512, 2.0)
    each = found(records)[ALIBI.paper]
    assert (each.same, each.verdict, each.said) == (6, "same order", "6 of 6 pairs are in the same order here.")


def test_close_calls_count_for_neither() -> None:
    records = text("rotary+yarn", "rotary+ntk", "rotary+linear")
    each = found(records)[YARN.paper]
    assert each.level + each.same + len(each.differ) == 3
    assert each.level == 1  # the seeds of ntk and linear overlap
    assert "1 is too close to call." in each.said


def test_levels_are_compared_at_the_training_length_with_their_spread() -> None:
    each = found(text("none", "learned", "alibi"))[HAVIV.paper]
    assert each.verdict == "same order"
    assert each.said.endswith(
        "The best and the worst are 0.05 nats per token apart in the paper, 0.27 nats per byte here."
    )


def test_answers_are_averaged_over_tasks_and_lengths() -> None:
    records = make_records(tasks=("passkey", "copy"), methods=("none", "rotary"), failures=False)
    each = found(records)[KAZEMNEJAD.paper]
    rows = view_of(records).rows
    beyond = [
        row.scores[task].levels[length].mean for row in rows for task in row.scores for length in (128, 256, 512, 1024)
    ]
    none, rotary = sum(beyond[:8]) / 8, sum(beyond[8:]) / 8
    assert [row[3] for row in each.rows] == [
        f"{100 * mean:.0f}\N{NO-BREAK SPACE}% beyond 1×" for mean in (none, rotary)
    ]
    assert each.said == "It is the same here."


@pytest.mark.parametrize("name", ["alibi(slopes=1)", "alibi(slopes=1e+0)"])
def test_options_do_not_hide_a_method(name: str) -> None:
    each = found(text(name, "sinusoidal"))[SLIDING.paper]
    assert [row[0] for row in each.rows] == ["sinusoidal", name]


def test_every_randomised_method_is_held_against_its_own_self() -> None:
    records = make_records(tasks=("passkey",), methods=("rotary", "rotary+random"), failures=False)
    each = found(records)[RANDOMISED.paper]
    assert [row[0] for row in each.rows] == ["rotary+random", "rotary"]
    assert RANDOMISED.paper not in found(text("rotary"))


@pytest.mark.parametrize("methods", [("fire",), ("alibi",), ("learned", "kerple")])
def test_what_was_not_measured_is_not_compared(methods: tuple[str, ...]) -> None:
    for each in found(text(*methods)).values():
        assert (each.verdict, each.said) == ("not measured", "Too few of these methods were measured here.")


def test_one_sentence_tells_whom_the_records_contradict(view: View) -> None:
    said = differences(beside(view))
    assert "the order differs from Press et al. 2021, ALiBi, windows side by side and Kazemnejad et al. 2023" in said
    assert "the order agrees with Press et al. 2021, ALiBi, sliding window and Haviv et al. 2022" in said


def test_one_wrong_answer_of_one_seed_is_too_close_to_call() -> None:
    records = make_records(tasks=("passkey",), methods=("none", "t5"), failures=False, seeds=1, windows=48)
    for trial in records["trials"]:
        for results in trial["methods"].values():
            for outcome in results["lengths"].values():
                outcome["scores"] = [1.0] * 48
                outcome["scores"][:1] = [float(trial["trial"]["method"] == "t5")]
    each = found(records)[KAZEMNEJAD.paper]
    assert [row[3] for row in each.rows] == ["98\N{NO-BREAK SPACE}% beyond 1×", "100\N{NO-BREAK SPACE}% beyond 1×"]
    assert (each.level, each.differ, each.verdict) == (1, [], "no contradiction")
    assert each.said == "Too close to call here."
