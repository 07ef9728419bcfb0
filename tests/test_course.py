"""The course keeps its form: chapters have the same parts, and their measured numbers are those that were measured."""

import functools
import json
import pathlib
import re
from types import ModuleType
from typing import Any

import pytest

from tests.test_documents import FENCED, maker

ROOT = pathlib.Path(__file__).parent.parent
COURSE = ROOT / "docs" / "course"
CHAPTERS = sorted(COURSE.glob("[0-9][0-9]-*.md"))
PARTS = [
    "The question",
    "The intuition",
    "The formula",
    "The picture",
    "The code",
    "What people get wrong",
    "Exercises",
]
COLUMNS = ("64", "128", "256", "512", "1024", "passkey at 1024")


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter_has_every_part_in_order_and_two_exercises(chapter: pathlib.Path) -> None:
    whole = chapter.read_text(encoding="utf-8")
    text = FENCED.sub("", whole)
    assert [title for title in re.findall(r"^## (.*)$", text, re.MULTILINE) if title in PARTS] == PARTS
    exercises = text.partition("## Exercises")[2]
    for page in (whole, exercises):
        assert page.count("<details><summary>Answer</summary>") == page.count("</details>") == 2
    assert "<picture>" in whole
    assert "../mistakes.md#" in whole


def test_the_first_page_leads_to_every_chapter_in_order() -> None:
    linked = re.findall(r"\]\((\d\d-[a-z-]+\.md)\)", (COURSE / "README.md").read_text(encoding="utf-8"))
    assert [int(name[:2]) for name in linked] == list(range(1, 11))
    assert {chapter.name for chapter in CHAPTERS} <= set(linked)


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def tables(path: pathlib.Path) -> list[dict[str, dict[str, str]]]:
    """Tables of losses, each by encoding and column."""
    found = []
    for block in path.read_text(encoding="utf-8").split("\n\n"):
        lines = block.splitlines()
        head = re.compile(r"\| (encoding )?\| (loss at )?64 \|")
        start = next((number for number, line in enumerate(lines) if head.match(line)), None)
        if start is not None:
            columns = [re.sub(r"^(loss |change )?at ", "", column) for column in cells(lines[start])[1:]]
            rows = [cells(line) for line in lines[start + 2 :] if line.startswith("|")]
            found.append({name: dict(zip(columns, numbers, strict=True)) for name, *numbers in rows})
    return found


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_losses_that_a_chapter_repeats_are_those_of_the_readme(chapter: pathlib.Path) -> None:
    (readme,) = tables(ROOT / "README.md")
    for table in tables(chapter):
        for name, row in table.items():
            if name in readme:
                assert {column: number for column, number in row.items() if column in COLUMNS} == {
                    column: readme[name][column] for column in row if column in COLUMNS
                }


@pytest.mark.parametrize("name", ["07-alibi.md", "08-longer-contexts.md"])
def test_tables_of_measured_numbers_are_rows_of_the_readme(name: str) -> None:
    (readme,), (table,) = tables(ROOT / "README.md"), tables(COURSE / name)
    assert len(table) == 4
    for method, row in table.items():
        assert row == {column: readme[method][column] for column in row}, method


def signed(number: float) -> str:
    return f"{number:+.3f}".replace("0.", ".", 1)


def cells_of(row: dict[str, Any]) -> list[str]:
    """Loss and changes of a measured method, as the tables of chapter 5 write them."""
    lengths = list(row["change"].values())
    changes = ["table ends", "", "", ""] if lengths[0] is None else [signed(each[0]) for each in lengths]
    return [f"{row['loss']:.2f}", *changes]


def measured() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((COURSE / "measured.json").read_text(encoding="utf-8"))
    return found


def chapter_5(mark: str) -> tuple[str, list[list[str]]]:
    """The text of the chapter, and the rows of the table between two marks."""
    chapter = (COURSE / "05-relative-positions.md").read_text(encoding="utf-8")
    table = re.search(rf"<!-- {mark} -->\n(.*?)<!-- /{mark} -->", chapter, re.DOTALL)
    assert table is not None
    return chapter, [cells(line) for line in table[1].strip().splitlines()[2:]]


def test_the_table_of_chapter_5_is_what_was_measured() -> None:
    record, (chapter, table) = measured(), chapter_5("measured")
    rows = sorted(record["rows"], key=lambda row: float(row["loss"]))
    passkeys = ["" if row["passkey"]["1024"] is None else f"{100 * row['passkey']['1024']:.0f} %" for row in rows]
    assert table == [
        [row["encoding"], *cells_of(row), passkey, f"{row['parameters']:,}"]
        for row, passkey in zip(rows, passkeys, strict=True)
    ]
    assert f"    {record['command']}\n" in chapter


def test_the_table_of_clipped_distances_in_chapter_5_is_what_was_measured() -> None:
    record, (chapter, table) = measured(), chapter_5("clipping")
    named = {row["encoding"]: row for row in [*record["rows"], *record["clipping"]["rows"]]}
    expected = {
        ("Shaw", "16"): "shaw", ("Shaw", "64"): "shaw(max_distance=64)",
        ("DeBERTa", "15"): "deberta(max_distance=16)", ("DeBERTa", "63"): "deberta",
        ("T5", "31"): "t5(max_distance=32)", ("T5", "59"): "t5",
    }  # fmt: skip
    assert table == [[*which, *cells_of(named[name])] for which, name in expected.items()]
    assert f"    {record['clipping']['command']}\n" in chapter


def test_the_text_about_the_tables_of_chapter_5_repeats_their_numbers() -> None:
    record, (chapter, _) = measured(), chapter_5("measured")
    rows = [*record["rows"], *record["clipping"]["rows"]]
    known = {signed(each[0]) for row in rows for each in row["change"].values() if each is not None}
    assert set(re.findall(r"[+-]\d?\.\d{3}\b", chapter)) <= known


@functools.cache
def table_of_encodings() -> ModuleType:
    """docs/course/table_of_encodings.py."""
    module: ModuleType = maker().loaded(COURSE / "table_of_encodings.py")
    return module


def test_table_of_encodings_is_what_the_registry_and_the_record_say() -> None:
    assert (COURSE / "10-choosing.md").read_text(encoding="utf-8") == table_of_encodings().page(), "run make docs"


def test_models_are_told_of_methods_in_the_table_only() -> None:
    record = json.loads((COURSE / "choosing.json").read_text(encoding="utf-8"))
    assert set(table_of_encodings().MODELS) <= {row["name"] for row in record["rows"]}
    assert record["command"].startswith("situs compare --encodings none,learned,")
    assert "--out" not in record["command"]


def test_a_table_that_was_changed_by_hand_is_found(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, page = table_of_encodings(), tmp_path / "10-choosing.md"
    text = (COURSE / "10-choosing.md").read_text(encoding="utf-8")
    page.write_text(text.replace("| alibi | score | distance |", "| alibi | score | position |"), encoding="utf-8")
    monkeypatch.setattr(module, "PAGE", page)
    assert page.read_text(encoding="utf-8") != text
    assert module.page() == text
