"""Every item of common explanations is treated under a heading of the course or of the page of mistakes."""

import pathlib

import pytest

from tests.anchors import anchor_of, anchors_of
from tests.seeds_table import ITEMS

DOCS = pathlib.Path(__file__).parent.parent / "docs"
LINES = {"A": 289, "B": 137, "C": 104, "D": 97, "E": 408}  # of each text


@pytest.mark.parametrize("page", sorted({each.partition("#")[0] for item in ITEMS for each in item.where}))
def test_every_heading_that_treats_an_item_is_on_its_page(page: str) -> None:
    wanted = {each.partition("#")[2] for item in ITEMS for each in item.where if each.partition("#")[0] == page}
    assert wanted - anchors_of(DOCS / page) == set()


def test_every_item_has_a_heading_and_stands_once() -> None:
    assert all(item.where and item.says for item in ITEMS)
    assert len({(item.text, item.lines, item.says) for item in ITEMS}) == len(ITEMS)


@pytest.mark.parametrize("text", LINES)
def test_items_follow_their_text_to_its_end(text: str) -> None:
    ends = [[int(line) for line in item.lines.split("-")] for item in ITEMS if item.text == text]
    assert all(first <= last <= LINES[text] for first, *_, last in (each * 2 for each in ends))
    assert [each[0] for each in ends] == sorted(each[0] for each in ends)


def test_every_mistake_is_met_by_an_item_or_belongs_to_practice() -> None:
    linked = {each.partition("#")[2] for item in ITEMS for each in item.where if each.startswith("mistakes.md#")}
    page = (DOCS / "mistakes.md").read_text(encoding="utf-8")
    mistakes = {anchor_of(line.removeprefix("### ")) for line in page.splitlines() if line.startswith("### ")}
    assert mistakes - linked == {"positions-frequencies-or-angles-in-half-precision"}


def test_anchors_are_those_of_github() -> None:
    assert anchor_of('"Wavelengths run from 2π to 10000 · 2π, one for each channel"') == (
        "wavelengths-run-from-2π-to-10000--2π-one-for-each-channel"
    )
    assert anchor_of("Why embeddings are multiplied by √d") == "why-embeddings-are-multiplied-by-d"
    assert (
        anchor_of('i - j or j - i: "the relative position", either way')
        == "i---j-or-j---i-the-relative-position-either-way"
    )
