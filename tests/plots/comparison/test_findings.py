"""The headline and the findings follow the numbers, and agree with the table."""

import math
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from situs.plots.comparison.columns import overview
from situs.plots.comparison.findings import findings, headline
from situs.plots.comparison.view import View
from situs.plots.comparison.words import called, listed
from tests.plots.comparison.sample import make_records, view_of, view_of_losses

pytestmark = pytest.mark.once

FAR = "at 16× the training length"
WINDOWS = [0.3 * number for number in range(-4, 5)]


def changed(records: dict[str, Any], method: str, length: int, by: float) -> dict[str, Any]:
    """Records in which a method's losses at a length are others."""
    for trial in records["trials"]:
        if trial["trial"]["task"] == "text" and method in trial["methods"]:
            at = trial["methods"][method]["lengths"][str(length)]
            at["scores"] = [score + by for score in at["scores"]]
    return records


def text(**options: Any) -> dict[str, Any]:
    return make_records(tasks=("text",), failures=False, **options)


def flat(*losses: float) -> list[list[float]]:
    """The losses of some seeds, on windows of which some are harder."""
    return [[loss + window for window in WINDOWS] for loss in losses]


def table(view: View) -> list[dict[str, str]]:
    """The rows of the first table, as they are shown: names, numbers, and what stands under these."""
    rows = []
    for row in view.ranked:
        cells = {column.head: column.cell(row) for column in overview(view)}
        shown = {head: cell.text for head, cell in cells.items()}
        rows.append({"method": row.name, **shown, "under": cells["behind the first"].small})
    return rows


def test_the_headline_names_the_first_of_the_table_and_the_smallest_increase_apart() -> None:
    view = view_of_losses(
        {
            "alibi": {64: flat(2.01, 2.03), 1024: flat(2.015, 2.035)},
            "transformer_xl": {64: flat(1.79, 1.77), 1024: flat(1.80, 1.78)},
            "rotary": {64: flat(1.90, 1.91), 1024: flat(3.0, 3.1)},
        }
    )
    assert headline(view) == (
        f"Lowest loss {FAR}: transformer_xl, 1.79 nats per byte. Smallest increase from 1×: alibi, +0.005"
    )
    assert [row["method"] for row in table(view)] == ["transformer_xl", "alibi", "rotary"]
    assert "But it starts from 2.02, where the lowest loss at 1× is 1.78." in " ".join(findings(view))


def test_a_method_that_learnt_nothing_and_loses_nothing_does_not_lead() -> None:
    view = view_of_losses({"none": {64: flat(5.5), 1024: flat(5.5)}, "rotary": {64: flat(1.9), 1024: flat(2.9)}})
    assert headline(view).startswith(f"Lowest loss {FAR}: rotary, 2.90 nats per byte")
    assert [row["method"] for row in table(view)] == ["rotary", "none"]


def test_ties_are_named_in_the_headline_and_marked_in_the_table() -> None:
    view = view_of_losses(
        {
            "alibi": {64: flat(2.0, 2.0), 1024: flat(2.0, 2.1)},
            "kerple": {64: flat(2.0, 2.0), 1024: flat(2.04, 2.07)},
            "none": {64: flat(2.0, 2.0), 1024: flat(2.3, 2.4)},
        }
    )
    tie = "alibi, 2.05 nats per byte (tie: kerple)"
    assert headline(view) == f"No method keeps its loss beyond the training length. Lowest loss {FAR}: {tie}. " + (
        "Smallest increase from 1×: alibi, +0.05 (tie: kerple)"
    )
    assert [row["under"].startswith("tie") for row in table(view)] == [False, True, False]
    assert "kerple ties with it: the 95 % interval of the difference includes 0." in " ".join(findings(view))


LOSSES = st.lists(st.sampled_from([1.5, 1.52, 1.6, 1.9, 2.5]), min_size=2, max_size=2)
NAMES = ("alibi", "kerple", "none", "rotary", "t5", "transformer_xl")


@given(st.dictionaries(st.sampled_from(NAMES), st.tuples(LOSSES, LOSSES), min_size=1))
def test_the_headline_says_what_the_table_shows(drawn: dict[str, tuple[Sequence[float], Sequence[float]]]) -> None:
    view = view_of_losses({name: {64: flat(*near), 1024: flat(*far)} for name, (near, far) in drawn.items()})
    rows, said = table(view), headline(view)
    shown = [float(row["loss at 16×"]) for row in rows]
    assert shown == sorted(shown)
    tied = [called(row["method"]) for row in rows if row["under"].startswith("tie")]
    also = f" (tie: {listed(tied, 3)})" if tied else ""
    lowest = f"Lowest loss {FAR}: {called(rows[0]['method'])}, {rows[0]['loss at 16×']} nats per byte{also}."
    assert lowest in said
    grown = re.search(r"Smallest increase from 1×: (.+?), ([+−]?[\d.]+)( \(|$)", said)
    assert grown is not None
    named = next(row for row in rows if called(row["method"]) == grown[1])
    assert grown[2] == named["change at 16×"]
    changes = {row["method"]: float(row["change at 16×"].replace("−", "-")) for row in rows}
    assert changes[named["method"]] == min(changes.values())
    assert ("No method keeps its loss" in said) == all(change >= 0.05 for change in changes.values())


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        (
            text(methods=("rotary", "learned")),
            f"No method keeps its loss beyond the training length. Lowest loss {FAR}: rotary, 3.23 nats per byte. "
            "Smallest increase from 1×: rotary, +1.25",
        ),
        (
            text(methods=("learned",)),
            "No method has a result beyond the training length. Lowest loss at the training length: learned, 2.30 "
            "nats per byte",
        ),
        (
            text(methods=("alibi",), multiples=(1,)),
            "Only the training length was tested. Lowest loss at the training length: alibi, 2.08 nats per byte",
        ),
        (
            make_records(methods=("rotary", "t5", "none"), tasks=("passkey",)),
            f"Most right answers on passkey {FAR}: t5, 100\N{NO-BREAK SPACE}% (tie: NoPE (none))",
        ),
        (
            make_records(methods=("cope",), tasks=("copy",), failures=False),
            f"Most right answers on copy {FAR}: cope, 19\N{NO-BREAK SPACE}%; 90\N{NO-BREAK SPACE}% would count as "
            "solved",
        ),
        (make_records(methods=("xpos",), tasks=("copy",)), "No trial has a result"),
    ],
)
def test_headlines_of_other_outcomes(records: dict[str, Any], expected: str) -> None:
    assert headline(view_of(records)) == expected


def test_scaled_methods_are_not_rivals_of_the_model_that_they_scale() -> None:
    said = " ".join(findings(view_of(text(methods=("rotary", "fire", "rotary+yarn", "none")))))
    assert "At the training length, rotary has the lowest loss, 1.98 nats per byte. fire ties with it" in said
    assert "rotary+yarn tie" not in said


def test_findings_say_where_loss_and_retrieval_disagree(view: View) -> None:
    said = " ".join(findings(view)).replace("\N{NO-BREAK SPACE}", " ")
    assert "The loss holds at 16×, but fewer than 90 % of the passkey answers are right: alibi (67 %)." in said
    assert "rotary+yarn has the lowest loss at 16×: 2.65, where rotary without scaling has 3.23." in said
    assert "learned (64 positions)" in said
    assert "cope takes longest" in said
    assert "Of 78 trials, 2 failed and 3 diverged; they are listed below." in said


def test_a_scaling_that_does_not_help_is_said_to_be_none() -> None:
    said = " ".join(findings(view_of(changed(text(methods=("rotary", "rotary+yarn")), "rotary+yarn", 1024, 3.0))))
    assert "No scaling that was added after training lowers the loss at 16×: the best, rotary+yarn, has 5.65" in said


def test_a_plus_in_a_number_is_no_scaling() -> None:
    methods = ("rotary(base=1e+5)", "rotary(base=1e+5)+yarn", "rotary+random")
    said = " ".join(findings(view_of(text(methods=methods))))
    assert "rotary(base=1e+5)+yarn has the lowest loss at 16×" in said
    assert "scaling" not in " ".join(findings(view_of(text(methods=(methods[0], methods[2])))))


def test_a_method_called_none_is_not_taken_for_nobody(view: View) -> None:
    for sentence in [headline(view), *findings(view)]:
        assert "none" not in sentence.replace("NoPE (none)", "")


def test_nothing_is_said_of_what_was_not_measured() -> None:
    assert findings(view_of(text(methods=("alibi",), multiples=(1,), costs=False))) == [
        "At the training length, alibi has the lowest loss, 2.08 nats per byte."
    ]


def test_numbers_that_are_not_finite_are_passed_over() -> None:
    records = changed(text(methods=("alibi", "kerple")), "alibi", 1024, math.nan)
    assert headline(view_of(records)).startswith(f"Lowest loss {FAR}: kerple, 2.00 nats per byte. Smallest")


def test_methods_without_a_result_are_not_counted_among_those_that_keep_their_loss() -> None:
    view = view_of(text(methods=("alibi", "kerple", "rotary", "learned")))
    said = next(sentence for sentence in findings(view) if "keep their loss" in sentence)
    assert said == (
        "2 of 3 methods keep their loss within 0.05 nats per byte of its value at 1× up to 16×: alibi and kerple. 1 "
        "more has no result there."
    )
    alone = findings(view_of(text(methods=("alibi", "learned"))))
    assert (
        "alibi keeps its loss within 0.05 nats per byte of its value at 1× up to 16×. 1 more has no result there."
        in alone
    )
    assert "alibi keeps its loss within 0.05 nats per byte of its value at 1× up to 16×." in findings(
        view_of(text(methods=("alibi",)))
    )
