"""docs/torch.md shows the table that the tests run: its rows, its columns, and a yes or torch's reason in each cell."""

from __future__ import annotations

import importlib
import json
import pathlib
import re

import pytest

import situs
from tests.test_documents import ROOT, maker
from tests.torch_features.table import COVERED, FEATURES, ROWS

pytestmark = pytest.mark.once

PAGE = ROOT / "docs" / "torch.md"


def tables_of(page: str) -> dict[str, dict[str, dict[str, str]]]:
    """What a page says, by group, encoding and feature."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    for section in page.split("\n## ")[1:]:
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*$", section, re.M)]
        (_, *features), _, *body = rows
        found[section.partition("\n")[0]] = {row: dict(zip(features, cells, strict=True)) for row, *cells in body}
    return found


def everything(outcome: str) -> list[dict[str, str]]:
    """A record where every cell has the same outcome."""
    return [
        {"group": group, "feature": feature, "row": row, "form": "attend", "outcome": outcome}
        for group, features in FEATURES.items()
        for feature in features
        for row in ROWS
    ]


def page_of(record: list[dict[str, str]]) -> str:
    page: str = maker().torch_features(map(json.dumps, record))
    return page


def test_the_page_has_the_rows_and_columns_of_the_table() -> None:
    tables = tables_of(PAGE.read_text(encoding="utf-8"))
    assert {group: list(rows) for group, rows in tables.items()} == {each: list(ROWS) for each in FEATURES}
    assert {group: [*rows["none"]] for group, rows in tables.items()} == {each: [*FEATURES[each]] for each in FEATURES}


def test_the_page_says_yes_or_why_torch_refuses() -> None:
    page = PAGE.read_text(encoding="utf-8")
    said = {cell for rows in tables_of(page).values() for cells in rows.values() for cell in cells.values()}
    assert said <= {"yes", "(1)", "(2)", "(3)"}
    assert page == page_of_same_cells(page)


def page_of_same_cells(page: str) -> str:
    """The page that the table and the reasons as they are written make of the cells as they are."""
    record = []
    for section, (group, rows) in zip(page.split("\n## ")[1:], tables_of(page).items(), strict=True):
        reasons = dict(re.findall(r"^(\d+)\. (.*)$", section, re.M))
        for row, cells in rows.items():
            for feature, cell in cells.items():
                outcome = reasons.get(cell.strip("()"), cell)
                record.append({"group": group, "feature": feature, "row": row, "outcome": outcome})
    return page_of(record)


def test_every_column_has_a_test() -> None:
    for path in pathlib.Path(__file__).parent.glob("test_*.py"):
        importlib.import_module(f"{__package__}.{path.stem}")
    assert {(group, feature) for group, features in FEATURES.items() for feature in features} == COVERED


def test_every_registered_encoding_has_a_row() -> None:
    assert set(situs.names()) <= set(ROWS)


def test_a_cell_is_as_good_as_its_worst_outcome() -> None:
    record = everything("yes")
    first = {**record[0], "form": "Attention", "outcome": "no"}
    second = {**record[1], "form": "Attention", "outcome": "torch: not today"}
    page = page_of([*record, first, second])
    cells = tables_of(page)[record[0]["group"]]
    assert cells[record[0]["row"]][record[0]["feature"]] == "no"
    assert cells[record[1]["row"]][record[1]["feature"]] == "(1)"
    assert "\n1. torch: not today\n" in page
    assert (
        sum(cell != "yes" for rows in tables_of(page).values() for row in rows.values() for cell in row.values()) == 2
    )


def test_a_cell_that_was_not_run_is_missed() -> None:
    record = everything("yes")
    missed = record[7]
    with pytest.raises(KeyError, match=re.escape(str((missed["group"], missed["feature"], missed["row"])))):
        page_of(record[:7] + record[8:])
