"""Sentences follow the numbers."""

import math
from typing import Any

import pytest

from situs.lab.comparing.summary import Point
from situs.plots.comparison import caveats, words
from situs.plots.comparison.view import View
from tests.plots.comparison.sample import make_records, view_of

pytestmark = pytest.mark.once


def changed(records: dict[str, Any], method: str, length: int, by: float) -> dict[str, Any]:
    """Records in which a method's losses at a length are others."""
    for trial in records["trials"]:
        if trial["trial"]["task"] == "text" and method in trial["methods"]:
            at = trial["methods"][method]["lengths"][str(length)]
            at["scores"] = [score + by for score in at["scores"]]
    return records


def text(**options: Any) -> dict[str, Any]:
    return make_records(tasks=("text",), failures=False, **options)


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0.114, "+0.11"), (-0.02, "−0.02"), (0.004, "+0.004"), (-0.0049, "−0.005"), (0.0001, "0.000"), (-0.0, "0.000")],
)
def test_changes_have_a_sign_and_digits_that_say_something(number: float, expected: str) -> None:
    assert words.signed(number) == expected


def test_lists_end_with_how_many_more() -> None:
    assert words.listed([]) == ""
    assert words.listed(["a"]) == "a"
    assert words.listed("ab") == "a and b"
    assert words.listed("abcd") == "a, b, c and d"
    assert words.listed("abcdef") == "a, b, c and 3 more"


@pytest.mark.parametrize(("number", "expected"), [(5.0, "5 s"), (183.0, "3 min"), (7200.0, "2.0 h")])
def test_durations_are_said_as_one_says_them(number: float, expected: str) -> None:
    assert words.seconds(number) == expected


def test_the_headline_names_the_lowest_loss_among_those_that_hold() -> None:
    records = text(methods=("alibi", "kerple", "rotary"))
    assert words.headline(view_of(records)).startswith(
        "kerple carries farthest: trained on 64 bytes, it reads 1,024 at"
    )
    assert words.headline(view_of(changed(records, "kerple", 1024, 0.1))).startswith("alibi carries farthest")


def test_the_headline_follows_the_reach_if_nobody_gets_to_the_end() -> None:
    records = changed(text(methods=("alibi", "kerple")), "alibi", 1024, 1.0)
    for length in (512, 1024):
        changed(records, "kerple", length, 1.0)
    assert words.headline(view_of(records)).startswith("alibi carries farthest: trained on 64 bytes, it reads 512 at")


def test_a_loss_that_got_lower_is_no_loss() -> None:
    records = changed(text(methods=("alibi",)), "alibi", 1024, -0.2)
    assert words.headline(view_of(records)).endswith("it reads 1,024 at no loss")


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        (text(methods=("rotary", "learned")), "No encoding here holds its loss beyond the 64 it was trained at"),
        (text(methods=("alibi",), multiples=(1,)), "Only the training length was tested"),
        (
            make_records(methods=("rotary", "t5", "none"), tasks=("passkey",)),
            "t5 and none carry farthest: trained at 64, right at 1,024 still",
        ),
        (
            make_records(methods=("cope",), tasks=("copy",), failures=False),
            "Nothing here carries beyond its training length",
        ),
        (make_records(methods=("xpos",), tasks=("copy",)), "No trial was finished"),
    ],
)
def test_headlines_of_other_outcomes(records: dict[str, Any], expected: str) -> None:
    found = (
        words.headline(view_of(records))
        .replace("t5 and NoPE (none)", "t5 and none")
        .replace("NoPE (none) and t5", "t5 and none")
    )
    assert found == expected


def test_rivals_are_named_where_seeds_overlap() -> None:
    near = Point(1.0, 0.9, 1.1, (0.95, 1.05))
    assert words.alike(near, Point(1.08, 1.0, 1.2, (1.04, 1.12)))
    assert not words.alike(near, Point(1.2, 1.1, 1.3, (1.15, 1.25)))
    assert words.alike(Point(1.0, 1.0, 1.0, (1.0,)), Point(1.005, 1.0, 1.0, (1.005,)))
    said = " ".join(words.findings(view_of(text(methods=("rotary", "fire", "rotary+yarn", "none")))))
    assert "fire cannot be told from it" in said or "rotary cannot be told from it" in said
    assert "rotary+yarn cannot" not in said  # it is the same training


def test_findings_say_where_loss_and_retrieval_disagree(view: View) -> None:
    said = " ".join(words.findings(view))
    assert "Flat in loss, and yet the passkey is not reliably found at 1,024: alibi (67\N{NO-BREAK SPACE}%)." in said
    assert "rotary+yarn does best: at 16× it takes the change of rotary from +1.25 to +0.67." in said
    assert "learned (at 64)" in said
    assert "cope costs most" in said


def test_a_plus_in_a_number_is_no_scaling() -> None:
    methods = ("rotary(base=1e+5)", "rotary(base=1e+5)+yarn", "rotary+random")
    said = " ".join(words.findings(view_of(text(methods=methods))))
    assert "rotary(base=1e+5)+yarn does best: at 16× it takes the change of rotary(base=1e+5) from +1.10 to" in said
    assert "Scaled" not in " ".join(words.findings(view_of(text(methods=(methods[0], methods[2])))))


def test_a_method_called_none_is_not_taken_for_nobody(view: View) -> None:
    for sentence in [words.headline(view), *words.findings(view)]:
        assert "none" not in sentence.replace("NoPE (none)", "").replace("so none is given", "")


def test_nothing_is_said_of_what_was_not_measured() -> None:
    assert words.findings(view_of(text(methods=("alibi",), multiples=(1,), costs=False))) == [
        f"At the training length itself alibi reads best, {_level('alibi')} nats a byte."
    ]


def _level(method: str) -> str:
    rows = view_of(text(methods=(method,), multiples=(1,), costs=False)).rows
    return f"{rows[0].scores['text'].levels[64].mean:.2f}"


def test_caveats_fit_what_was_done() -> None:
    several = " ".join(caveats.caveats(view_of(text(methods=("alibi", "t5", "rotary", "rotary+yarn")))))
    one = " ".join(caveats.caveats(view_of(text(methods=("alibi",), seeds=1, costs=False))))
    assert "The same tokens are scored at every length" in several
    assert "rotary+yarn: 2 to 0.25" in several
    assert "suit another: t5 and its buckets end at what was trained, or 32." in several
    assert "fire" not in several
    assert "Intervals are of 2 seeds" in several
    assert "300 steps on text" in several
    assert "one seed only" in one
    assert "ramp" not in one
    assert "Costs" not in one


def test_numbers_that_are_none_are_passed_over() -> None:
    records = changed(text(methods=("alibi", "kerple")), "alibi", 1024, math.nan)
    assert words.headline(view_of(records)).startswith("kerple carries farthest")


def test_learning_rates_are_named_with_their_tasks_where_they_differ() -> None:
    records = make_records(tasks=("text", "passkey", "recall"), failures=False)
    said = dict(caveats.reproduction(view_of(records)))["Training"]
    assert said.startswith("AdamW, learning rate 0.006 in batches of 32, at length 64; 40 steps of warm-up")
    records["tasks"]["recall"] |= {"learning_rate": 0.003, "batch": 64}
    rates = "0.006 in batches of 32 on text and passkey, 0.003 in batches of 64 on recall"
    assert f"learning rate {rates}, at length 64" in dict(caveats.reproduction(view_of(records)))["Training"]
    assert f"One learning rate for all methods ({rates}) is simple" in " ".join(caveats.caveats(view_of(records)))
