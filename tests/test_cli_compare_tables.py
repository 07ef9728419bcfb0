"""The tables at the end of a comparison: whole at every width, ranked as in the report, with a reason for every gap."""

import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from situs.cli import compare_display
from situs.cli.compare_tables import print_tables
from situs.cli.text_table import Column, fits, render
from situs.plots.comparison.findings import headline
from situs.plots.comparison.view import View
from tests.plots.comparison.sample import make_records, view_of, view_of_losses

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def view() -> View:
    """Text and retrieval, with a failure, a divergence, an ended table and an odd name."""
    return view_of(make_records(windows=8))


def printed(view: View, width: int) -> list[str]:
    file = StringIO()
    print_tables(view, Path("folder"), Console(file=file, width=width))
    return file.getvalue().splitlines()


WORDS = re.compile(r"[a-z]{3,}")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_tables_fit_the_width_and_break_no_word(view: View, width: int) -> None:
    lines = printed(view, width)
    assert max(cell_len(line.rstrip()) for line in lines) <= width
    assert not [line for line in lines if "…" in line]
    known = set(WORDS.findall("\n".join(printed(view, 400))))
    assert set(WORDS.findall("\n".join(lines))) <= known


def test_blocks_of_a_table_repeat_the_names(view: View) -> None:
    starts = [line.split()[0] for line in printed(view, 60) if line.startswith(("alibi ", "encoding "))]
    assert starts.count("alibi") == starts.count("encoding") >= 5


def test_intervals_are_shown_where_they_fit(view: View) -> None:
    (narrow,), (wide,) = ([line for line in printed(view, width) if "kerple  " in line][:1] for width in (80, 160))
    assert "±" not in narrow
    assert "±" in wide


def test_the_headline_and_the_order_are_those_of_the_report(view: View) -> None:
    lines = printed(view, 160)
    assert " ".join(lines).startswith(headline(view))
    start = next(number for number, line in enumerate(lines) if line.startswith("─"))
    names = [line.split("  ")[0] for line in lines[start + 1 : start + 4]]
    assert names == [row.name for row in view.ranked[:3]]
    assert any("ordered by the loss at 16×, lowest first" in line for line in lines)


def test_every_gap_has_its_reason(view: View) -> None:
    lines = "\n".join(printed(view, 200))
    assert "learned ends at 64: its table of positions has no more entries." in lines
    assert "cope: text, seed 1: diverged" in lines
    assert "xpos: passkey, seed 0: RuntimeError: not enough <memory>" in lines
    assert re.search(r"xpos( +failed){5}\n", lines)
    assert "1 trial diverged" not in lines  # of cope, one with each task
    assert "2 trials diverged" in lines


def test_missing_lengths_and_costs_that_failed_are_told() -> None:
    view = view_of_losses({"alibi": {64: [[2.0, 2.1]], 128: [[2.0, 2.1]]}, "t5": {64: [[2.0, 2.2]]}})
    lines = printed(view, 100)
    assert any(re.match(r"t5 +2\.10 +no result +no result +loss holds to 1×, no result beyond", line) for line in lines)
    assert "t5: text, seed 0, at 128: no result" in lines
    records = make_records(methods=("alibi",), tasks=("text",), windows=4)
    records["costs"]["alibi"]["decode"] = {"error": "MemoryError: no room"}
    assert "alibi, cost at decoding: MemoryError: no room" in printed(view_of(records), 100)


def test_no_report_is_named_where_none_was_written(view: View) -> None:
    file = StringIO()
    compare_display.show(view, None, Console(file=file, width=100))
    assert "Report" not in file.getvalue()
    assert "Report: folder/report.html" in printed(view, 100)


def test_answers_alone_are_ordered_by_the_most_that_are_right() -> None:
    view = view_of(make_records(methods=("rotary", "none"), tasks=("passkey",), windows=8, costs=False))
    lines = printed(view, 160)
    assert any("ordered by right answers at 16×, most first" in line for line in lines)
    start = next(number for number, line in enumerate(lines) if line.startswith("─"))
    assert [line.split()[0] for line in lines[start + 1 : start + 3]] == ["none", "rotary"]


@pytest.mark.parametrize(("columns", "longest"), [("60", 60), (None, 200)])
def test_columns_chooses_the_width_where_there_is_no_terminal(
    columns: str | None, longest: int, view: View, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    compare_display.show(view, Path("folder"))
    found = max(len(line.rstrip()) for line in capsys.readouterr().out.splitlines())
    assert longest // 2 < found <= longest


def test_a_small_table_is_as_it_should_be() -> None:
    columns = [Column("loss\n1×", ["2.01", "–"]), Column("in words", ["it holds", "it is not known why"], words=True)]
    assert render(["alibi", "rotary+yarn(factor=4.0)"], columns, 48) == [
        "              loss",
        "encoding        1×  in words",
        "────────────  ────  ───────────────────",
        "alibi         2.01  it holds",
        "rotary+yarn(     –  it is not known why",
        "factor=4.0)",
    ]
    lines = render(["alibi"], [columns[0]], 44)
    assert lines == ["          loss", "encoding    1×", "────────  ────", "alibi     2.01"]


CELLS = st.text("ab+-.1 ", max_size=12).map(str.strip)


@given(
    st.lists(st.text("ab_+", min_size=1, max_size=20), min_size=1, max_size=3),
    st.lists(st.tuples(st.text("xyz", min_size=1, max_size=9), CELLS, st.booleans()), min_size=1, max_size=9),
    st.integers(40, 100),
)
def test_lines_are_never_longer_than_the_width(names: list[str], cells: list[Any], width: int) -> None:
    columns = [Column(head, [cell] * len(names), words=words) for head, cell, words in cells]
    lines = render(names, columns, width)
    assert max(map(len, lines)) <= width
    assert fits(names, columns, width) == ("" not in lines)
    for column in columns:
        assert any(column.head in line for line in lines)
        for word in column.cells[0].split():
            assert any(word in line for line in lines)
