"""The course: chapters have their parts, links lead to sections, and tables hold the numbers of their sources."""

import functools
import importlib.util
import json
import pathlib
import re
from types import ModuleType

import pytest

ROOT = pathlib.Path(__file__).parent.parent
COURSE = ROOT / "docs" / "course"
CHAPTERS = sorted(COURSE.glob("[0-9]*.md"))
PARTS = [
    "The question",
    "The intuition",
    "The formula",
    "The picture",
    "The code",
    "What people get wrong",
    "Exercises",
]


def text_of(path: pathlib.Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def rows_of(text: str) -> list[list[str]]:
    """The cells of all tables of a page, row by row."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def anchors_of(path: pathlib.Path) -> set[str]:
    """What GitHub calls the sections of a page."""
    titles = re.findall(r"^#+ (.*)$", text_of(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_chapters_have_their_parts_in_order_and_two_exercises(chapter: pathlib.Path) -> None:
    text = text_of(chapter)
    titles = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert [title for title in titles if title in PARTS] == PARTS
    exercises = text.partition("## Exercises")[2]
    assert exercises.count("<details><summary>Answer</summary>") == exercises.count("</details>") >= 2


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_links_to_sections_lead_to_headings(chapter: pathlib.Path) -> None:
    links = re.findall(r"\]\(([^)#:]*)#([^)]+)\)", text_of(chapter))
    for page, anchor in links:
        assert anchor in anchors_of((chapter.parent / page).resolve()), f"{chapter.name} links to {page}#{anchor}"


@pytest.mark.parametrize("name", ["07-alibi.md", "08-longer-contexts.md"])
def test_tables_of_measured_numbers_are_rows_of_the_readme(name: str) -> None:
    readme = rows_of(ROOT.joinpath("README.md").read_text(encoding="utf-8").partition("| encoding | loss at 64 |")[2])
    columns = ["64", "128", "256", "512", "1024", "passkey at 1024"]
    known = {row[0]: dict(zip(columns, row[1:], strict=True)) for row in readme if len(row) == 7}
    table = [row for row in rows_of(text_of(COURSE / name)) if len(row) > 3]
    head, rows = table[0], table[1:]
    assert len(rows) == 4
    for method, *cells in rows:
        assert cells == [known[method][column] for column in head[1:]], method


@functools.cache
def table_of_encodings() -> ModuleType:
    """docs/course/table_of_encodings.py."""
    spec = importlib.util.spec_from_file_location("table_of_encodings", COURSE / "table_of_encodings.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
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
