"""Numbers, lists and caveats in words."""

from typing import Any

import pytest

from situs.lab.scores import Point
from situs.plots.comparison import caveats, words
from situs.plots.comparison.figures import loss_by_length, loss_by_position
from situs.plots.comparison.report import report_html
from situs.plots.comparison.table import explanations
from situs.plots.page import broken
from tests.plots.comparison.sample import make_records, view_of

pytestmark = pytest.mark.once


def text(**options: Any) -> dict[str, Any]:
    return make_records(tasks=("text",), failures=False, **options)


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0.114, "+0.11"), (-0.02, "−0.02"), (0.004, "+0.004"), (-0.0049, "−0.005"), (0.0001, "0.000"), (-0.0, "0.000")],
)
def test_changes_have_a_sign_and_decimals_that_are_not_all_zero(number: float, expected: str) -> None:
    assert words.signed(number) == expected


def test_intervals_of_changes_have_as_many_decimals_as_the_change() -> None:
    assert words.change_interval(Point(0.004, -0.0012, 0.009, (0.004,))) == "−0.001 to +0.009"
    assert words.change_interval(Point(0.4, 0.31, 0.5, (0.4,))) == "+0.31 to +0.50"
    assert words.change_interval(Point(0.004, 0.0003, 0.01, (0.004,))) == "+0.0003 to +0.0100"
    assert words.change_interval(Point(0.004, -0.0003, 0.01, (0.004,))) == "0.000 to +0.010"


def test_lists_end_with_how_many_more() -> None:
    assert words.listed([]) == ""
    assert words.listed(["a"]) == "a"
    assert words.listed("ab") == "a and b"
    assert words.listed("abcd") == "a, b, c and d"
    assert words.listed("abcdef") == "a, b, c and 3 more"


@pytest.mark.parametrize(("number", "expected"), [(5.0, "5 s"), (183.0, "3 min"), (7200.0, "2.0 h")])
def test_durations_have_the_unit_that_suits_them(number: float, expected: str) -> None:
    assert words.seconds(number) == expected


def test_points_whose_seeds_overlap_are_alike() -> None:
    near = Point(1.0, 0.9, 1.1, (0.95, 1.05))
    assert words.alike(near, Point(1.08, 1.0, 1.2, (1.04, 1.12)))
    assert not words.alike(near, Point(1.2, 1.1, 1.3, (1.15, 1.25)))
    assert words.alike(Point(1.0, 1.0, 1.0, (1.0,)), Point(1.005, 1.0, 1.0, (1.005,)))


def test_caveats_fit_what_was_done() -> None:
    several = " ".join(caveats.caveats(view_of(text(methods=("alibi", "t5", "rotary", "rotary+yarn")))))
    one = " ".join(caveats.caveats(view_of(text(methods=("alibi",), seeds=1, costs=False))))
    assert "The same tokens are scored at every length" in several
    assert "rotary+yarn: 2 to 0.25" in several
    assert (
        "options were set for the training length: t5's buckets tell distances apart up to the training length, or up "
        "to 32 if that is longer."
    ) in several
    assert "fire" not in several
    assert "between 2 seeds" in several
    assert "300 steps on text" in several
    assert "only one seed" in one
    assert "ramp" not in one
    assert "Costs" not in one


def test_learning_rates_are_named_with_their_tasks_where_they_differ() -> None:
    records = make_records(tasks=("text", "passkey", "recall"), failures=False)
    said = dict(caveats.reproduction(view_of(records)))["Training"]
    assert said.startswith("AdamW, learning rate 0.006 in batches of 32, at length 64; 40 steps of warm-up")
    records["tasks"]["recall"] |= {"learning_rate": 0.003, "batch": 64}
    rates = "0.006 in batches of 32 on text and passkey, 0.003 in batches of 64 on recall"
    assert f"learning rate {rates}, at length 64" in dict(caveats.reproduction(view_of(records)))["Training"]
    assert f"All methods have the same learning rate ({rates})" in " ".join(caveats.caveats(view_of(records)))


def test_facts_count_trials_by_what_became_of_them() -> None:
    facts = {name: (fact, more) for name, fact, more in caveats.facts(view_of(make_records()))}
    assert facts["trials"] == ("48", "of 52 done, 2 failed, 2 diverged; 2 seeds")
    assert facts["tested up to"] == ("1,024", "16× the training length")


def test_the_lead_says_what_a_tie_is_where_there_is_one() -> None:
    tie = "Methods tie if the 95 % interval of their difference includes 0."
    assert caveats.lead(view_of(text(methods=("alibi", "kerple")))).endswith(tie)  # by their increase
    assert caveats.lead(view_of(text(methods=("alibi",)))) == (
        "one position encoding in decoders of 2 layers of width 64, trained at 64 bytes (1×) and tested up to 1,024."
    )


def test_a_scaling_with_options_of_ones_own_is_a_caveat() -> None:
    methods = ("rotary", "rotary+yarn(factor=4.0)")
    said = caveats.caveats(view_of(text(methods=methods)))
    assert [each for each in said if each.startswith("rotary+yarn(factor=4.0) is scaled with factor=4.0, as written.")]
    assert not [each for each in caveats.caveats(view_of(text(methods=("rotary",)))) if "as written" in each]


def test_names_go_on_in_a_new_line_only_where_their_parts_end() -> None:
    assert broken("transformer_xl+random") == "transformer_xl+<wbr>random"
    assert broken("rotary+yarn(factor=4)") == "rotary+<wbr>yarn(<wbr>factor=<wbr>4)"
    assert broken("a&<b>") == "a&amp;<wbr>&lt;b&gt;"
    assert broken("yarn(original_length=64)") == "yarn(<wbr>original_<wbr>length=<wbr>64)"  # too wide for a phone


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0.046, "+0.046"), (0.0496, "+0.0496"), (0.05, "+0.05"), (0.054, "+0.05"), (0.2477, "+0.248"), (0.251, "+0.25")],
)
def test_no_change_is_rounded_across_a_border_by_which_it_is_coloured(number: float, expected: str) -> None:
    assert words.signed(number) == expected


@pytest.mark.parametrize(("share", "expected"), [(0.896, "89.6"), (0.9, "90"), (0.8996, "89.96"), (0.598, "59.8")])
def test_no_share_is_rounded_across_a_border_by_which_it_is_coloured(share: float, expected: str) -> None:
    assert words.percent(share) == f"{expected}\N{NO-BREAK SPACE}%"


def test_zero_has_no_sign() -> None:
    assert words.signed(-0.0001, 3) == "0.000"
    assert words.change_interval(Point(0.0, -0.0001, 0.0002, (0.0,))) == "0.000 to 0.000"


def test_warm_up_is_told_as_it_was_used() -> None:
    records = make_records(tasks=("text", "passkey"), failures=False)
    records["tasks"]["text"]["steps"] = 40
    assert (
        "; 10 steps on text and 40 steps on passkey of warm-up, then"
        in dict(caveats.reproduction(view_of(records)))["Training"]
    )
    records["tasks"]["passkey"]["steps"] = 3
    records["tasks"]["text"]["steps"] = 4
    assert "; 1 step of warm-up, then" in dict(caveats.reproduction(view_of(records)))["Training"]


def test_an_end_of_tables_is_a_caveat_only_where_one_ends() -> None:
    ends = "Where a table of positions ends"
    assert ends in " ".join(caveats.caveats(view_of(text(methods=("alibi", "learned")))))
    assert ends not in " ".join(caveats.caveats(view_of(text(methods=("alibi",)))))


@pytest.mark.parametrize(
    ("cut", "expected"), [(False, "1 file to tune (9 bytes)"), (True, "1 piece to tune (9 bytes)")]
)
def test_pieces_of_a_text_are_called_so_and_one_is_no_plural(cut: bool, expected: str) -> None:
    records = text(methods=("alibi",))
    records["corpus"] |= {"cut": cut, "files": {"train": 8, "tune": 1}, "bytes": {"train": 80, "tune": 9}}
    said = dict(caveats.reproduction(view_of(records)))["Text"]
    assert said.endswith(expected)
    assert f"8 {'pieces' if cut else 'files'} to train" in said


def test_columns_are_named_together_only_where_they_differ_in_numbers() -> None:
    names = dict(explanations(view_of(make_records(multiples=(1, 2, 4)))))
    assert "1× to 4× and passkey at 4×" in names
    assert "change at 2× and change at 4×" in names


def test_studies_that_cannot_be_compared_are_named_in_one_line() -> None:
    page = report_html(view_of(text(methods=("alibi", "t5"))))
    assert page.count('class="study"') == 2
    assert page.count("not measured</span>") == 0
    assert "<p>Too few methods were measured to compare with Kazemnejad et al. 2023; Haviv et al. 2022; " in page


def test_bands_are_named_only_where_seeds_have_a_range() -> None:
    for seeds in (1, 2):
        figure = loss_by_length(view_of(text(methods=("alibi",), seeds=seeds)))
        assert figure is not None
        said = " ".join(found.get_text() for found in figure.texts)
        assert ("bands" in said) == (seeds > 1)


def test_the_label_of_the_training_length_stands_where_there_is_room() -> None:
    sides = {}
    for multiples in ((1, 2), (1, 2, 4, 8, 16)):
        figure = loss_by_position(view_of(text(methods=("alibi",), multiples=multiples)), narrow=True)
        assert figure is not None
        (label,) = (found for found in figure.axes[0].texts if found.get_text() == "training length")
        sides[multiples[-1]] = label.get_horizontalalignment()
    assert sides == {2: "right", 16: "left"}
