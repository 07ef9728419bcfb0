"""The page: valid, complete, safe, and readable in a browser that has no network."""

import base64
import csv
import io
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from situs.lab.comparing.summary import TRAINED
from situs.lab.probing.properties import PROBES
from situs.plots.comparison.columns import of_properties
from situs.plots.comparison.findings import headline
from situs.plots.comparison.report import report_html
from situs.plots.comparison.table import explanations, tables
from situs.plots.comparison.table_csv import table_csv
from situs.plots.comparison.view import View
from situs.plots.comparison.words import percent, signed
from situs.plots.page import breakable, broken
from tests.plots.comparison.browser import MISSING, Page, browser
from tests.plots.comparison.sample import METHODS, ODD, make_records, view_of, view_of_losses
from tests.plots.parsed import Parsed

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def page(view: View) -> str:
    return report_html(view)


@pytest.fixture(scope="module")
def parsed(page: str) -> Parsed:
    return Parsed(page)


def test_the_page_is_whole(page: str, parsed: Parsed) -> None:
    assert page.startswith('<!DOCTYPE html>\n<html lang="en">')
    assert parsed.open == []
    names = [attributes["id"] for _, attributes in parsed.elements if "id" in attributes]
    assert len(set(names)) == len(names)
    targets = {str(link["href"]).removeprefix("#") for link in parsed.all("a")}
    assert targets <= set(names)
    assert not re.search(r"\$[a-z_]+\b", re.sub(r"\$x\$", "", page))  # of the template


def test_nothing_is_loaded_from_anywhere(page: str, parsed: Parsed) -> None:
    addresses = [
        str(value)
        for _, attributes in parsed.elements
        for name, value in attributes.items()
        if name in ("src", "srcset", "href", "data", "action", "poster")
    ]
    assert {address[:5] for address in addresses if address[0] != "#"} == {"data:"}
    without_images = re.sub(r"base64,[A-Za-z0-9+/=]+", "", page)  # whose letters are by chance
    assert "http" not in without_images.replace("http-equiv", "")
    assert "url(" not in page
    assert "@import" not in page
    assert not {"script", "iframe", "object", "form"} & {tag for tag, _ in parsed.elements}
    assert not [name for _, attributes in parsed.elements for name in attributes if name.startswith("on")]


def test_odd_names_are_words_and_not_elements(page: str, parsed: Parsed) -> None:
    assert ODD in parsed.text
    assert "b" not in {tag for tag, _ in parsed.elements}
    assert "<memory>" in parsed.text
    assert "<b>" not in page


Shown = dict[str, dict[str, str]]
"""By method and heading, what stands in a table."""


def tables_with(parsed: Parsed, methods: Sequence[str]) -> list[Shown]:
    """The tables in which all of these methods have a row, in the order of the page."""
    found: list[Shown] = []
    for row in parsed.rows:
        if row[0] == "method":
            heads = row[1:]
            found.append({})
        elif found:
            found[-1][row[0]] = dict(zip(heads, row[1:], strict=True))
    return [table for table in found if set(table) == set(methods)]


def test_every_method_stands_in_every_table_with_its_numbers(view: View, parsed: Parsed) -> None:
    first, losses, passkey, copy, costs, properties = tables_with(parsed, METHODS)
    for row in view.rows:
        scores = row.scores["text"]
        level, change = scores.levels[1024], scores.changes[1024]
        assert first[row.name]["loss at 16×"].startswith(f"{level.mean:.2f}" if level.exists else "ends")
        assert first[row.name]["change at 16×"].startswith(signed(change.mean) if change.exists else "ends")
        assert first[row.name]["in words"] == row.verdict
        assert losses[row.name]["loss at 1×"].startswith(f"{scores.levels[64].mean:.2f}")
        for times, length in {"2×": 128, "4×": 256, "8×": 512, "16×": 1024}.items():
            point = scores.changes[length]
            assert losses[row.name][f"change at {times}"].startswith(signed(point.mean) if point.exists else "ends")
        found = row.scores["passkey"].levels[1024]
        assert passkey[row.name]["16×"].startswith(percent(found.mean) if found.exists else "ends")
    assert copy["xpos"]["16×"] == "failed"
    assert first["cope"]["loss at 16×"].endswith("1 of 2 seeds")
    assert costs["rotary"]["time at 4,096"] == "1.03×1.01 to 1.06"
    assert costs["learned"]["time at 4,096"] == "ends"
    assert costs["sandwich"]["time at 4,096"] == "–"
    assert costs["kerple"]["parameters"] == "16"
    assert (properties["alibi"]["decaying"], properties["rotary"]["decaying"]) == ("yes", "no")


def test_rows_of_every_table_are_ranked_by_the_loss_at_the_longest_length(view: View, parsed: Parsed) -> None:
    losses = {row.name: row.scores["text"].levels[1024] for row in view.rows}
    known = sorted((name for name in METHODS if losses[name].exists), key=lambda name: losses[name].mean)
    for table in tables_with(parsed, METHODS):
        assert list(table) == [*known, "learned"]
    assert "Ordered by the loss at 16×, lowest first." in parsed.text


def test_more_lengths_than_fit_go_on_in_another_table() -> None:
    view = view_of(make_records(methods=("alibi", "t5"), tasks=("text",), multiples=tuple(range(1, 21)), windows=4))
    losses = [table for table in tables(view) if table.name.startswith("losses")]
    assert [len(table.columns) for table in losses] == [8, 8, 4]
    assert [table.title for table in losses] == ["Loss by length", *["Loss by length, continued"] * 2]
    assert losses[-1].columns[-1].head == "change at 20×"


def test_results_that_are_missing_at_some_lengths_are_shown_with_their_reason() -> None:
    whole, part = [[2.0, 2.1], [2.0, 2.2]], [[2.0, 2.1]]
    view = view_of_losses(
        {"alibi": {64: whole, 128: whole, 256: whole}, "t5": {64: whole, 128: part}, "fire": {64: whole, 128: whole}}
    )
    page = Parsed(report_html(view))
    shown = tables_with(page, ("alibi", "t5", "fire"))
    first = next(table for table in shown if "loss at 4×" in table["t5"])
    assert [first[name]["loss at 4×"] for name in ("alibi", "t5", "fire")] == ["2.08", "no result", "no result"]
    losses = next(table for table in shown if "change at 2×" in table["t5"])
    assert losses["t5"]["change at 2×"].startswith("0.000")
    assert "t5, on text, seed 1, at 128: no result" in page.text
    assert "t5, on text, seed 0, at 256: no result" in page.text
    assert first["fire"]["in words"] == "loss holds to 2×, no result beyond"


def test_costs_that_failed_are_listed() -> None:
    records = make_records(methods=("alibi", "none"), tasks=("text",), windows=4)
    records["costs"]["alibi"]["lengths"]["4096"] = {"error": "MemoryError: no room"}
    page = report_html(view_of(records))
    assert "alibi, cost at 4096: MemoryError: no room" in page


def test_the_page_says_what_costs_are_measured_on(view: View, parsed: Parsed) -> None:
    assert "the attention layers of this model (4 heads of 16 channels), with their projections" in parsed.text
    assert "weighs more than in larger models" in parsed.text


def test_each_column_is_explained(view: View, parsed: Parsed) -> None:
    told = explanations(view)
    for name, explained in told:
        assert name in parsed.text
        assert explained in parsed.text
    every = [column for table in tables(view) for column in table.columns]
    assert {column.explained for column in every} == {explained for _, explained in told}


def test_every_property_is_explained_by_what_it_claims(view: View) -> None:
    told = {column.head: column.explained for column in of_properties(view)}
    assert list(told) == [name.replace("_", " ") for name in (*PROBES, *TRAINED)]
    assert told["norm preserving"] == "Measured: the lengths of inputs, queries and keys do not change."
    assert told["extrapolating"] == "Measured: the loss holds up to the longest text that was tested."


def test_the_page_can_be_used_without_seeing_it(parsed: Parsed) -> None:
    assert all(str(image.get("alt", "")).count(" ") > 4 for image in parsed.all("img"))
    assert all(head.get("scope") in ("row", "col", "colgroup") for head in parsed.all("th"))
    boxes = [box for box in parsed.all("div") if str(box.get("class", "")).startswith("scroll")]
    assert len(boxes) > 6
    assert all(box.get("tabindex") == "0" for box in boxes)
    assert all(box.get("aria-label") or box.get("aria-labelledby") for box in boxes)
    assert [tag for tag, _ in parsed.elements].count("h1") == 1


def test_every_figure_is_there_four_times(parsed: Parsed) -> None:
    sources, images = parsed.all("source"), parsed.all("img")
    assert (len(sources), len(images)) == (15, 5)
    for each in [*sources, *images]:
        data = str(each.get("src") or each.get("srcset")).removeprefix("data:image/png;base64,")
        picture = Image.open(io.BytesIO(base64.b64decode(data)))
        assert (str(picture.width), str(picture.height)) == (each["width"], each["height"])
    kinds = [str(source["media"]) for source in sources[:3]]
    assert kinds == [
        "(prefers-color-scheme: dark) and (max-width: 640px)", "(prefers-color-scheme: dark)", "(max-width: 640px)"
    ]  # fmt: skip


def test_the_page_says_what_must_be_said(view: View, parsed: Parsed) -> None:
    for words in (
        headline(view), "situs compare --preset quick", "ab12cd34ef56", "torch 2.13.0", "Seeds0, 1", "2 cores",
        "the literature says", "measured here", "second-hand", "arXiv:2108.12409",
        "Models that were trained too little look robust", "some would do better with another",
        "on other files than those that are scored", "cope, on text, seed 1: diverged",
        "xpos, on copy, seed 0: RuntimeError", "In the paper rotary is ahead of sinusoidal",
    ):  # fmt: skip
        assert words in parsed.text, words


@pytest.mark.parametrize(
    "records",
    [
        pytest.param({**make_records(windows=8), "trials": []}, id="no trials"),
        pytest.param(make_records(windows=8, seeds=1, methods=("learned", ODD), tasks=("passkey",)), id="one seed"),
        pytest.param(
            {
                name: value
                for name, value in make_records(windows=8, methods=("none",), multiples=(1, 3)).items()
                if name not in ("costs", "properties", "where", "seconds", "command", "made", "preset")
            },
            id="bare",
        ),
    ],
)
def test_pages_of_poor_records_are_whole_too(records: dict[str, Any]) -> None:
    assert Parsed(report_html(view_of(records))).open == []


def test_the_table_for_programs_holds_full_numbers(view: View) -> None:
    table = {row["method"]: row for row in csv.DictReader(io.StringIO(table_csv(view)))}
    assert list(table) == list(METHODS)
    for row in view.rows:
        shown, change = table[row.name], row.scores["text"].changes[1024]
        if change.exists:
            assert float(shown["text_change_1024"]) == change.mean
            assert float(shown["text_change_1024_low"]) == change.low
            assert float(shown["text_loss_64_high"]) == row.scores["text"].levels[64].high
        else:
            assert shown["text_change_1024"] == shown["text_loss_1024"] == ""
        assert shown["verdict"] == row.verdict
    assert table["cope"]["text_seeds"] == "1"
    assert table["xpos"]["copy_accuracy_1024"] == ""
    assert "not enough <memory>" in table["xpos"]["problems"]
    assert math.isclose(float(table["rotary"]["time_over_plain_4096"]), 1.03)
    assert math.isclose(float(table["rotary"]["time_over_plain_4096_low"]), 0.98 * 1.03)
    assert table["alibi"]["decaying"] == "True"
    assert (table["kerple"]["rank"], table["alibi"]["rank"], table["learned"]["rank"]) == ("1", "2", "")


@pytest.fixture(scope="module")
def opened(page: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    if MISSING:
        pytest.skip(f"needs {' and '.join(MISSING)} (Debian: chromium, chromium-driver)")
    folder = tmp_path_factory.mktemp("browser")
    path = folder / "report.html"
    path.write_text(page, encoding="utf-8")
    with browser(folder) as window:
        yield window, path


@pytest.mark.thin(2)
@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 768, 1280])
def test_a_browser_shows_it_whole(opened: tuple[Page, Path], width: int, dark: bool) -> None:
    window, path = opened
    window.show(path, width=width, dark=dark)
    assert window.complaints() == []
    assert window.ask("Promise.all([...document.images].map(image => image.decode())).then(() => true)")
    expected = 820 if width <= 640 else 1520
    assert set(window.ask("[...document.images].map(image => image.naturalWidth)")) == {expected}
    assert window.ask("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert window.ask("document.body.scrollWidth <= document.documentElement.clientWidth")
    beyond = (
        "[...document.querySelectorAll('body *')].filter(each => !each.closest('.scroll, .unseen, pre') && "
        "each.getBoundingClientRect().right > innerWidth + 0.5).map(each => each.outerHTML.slice(0, 80))"
    )
    assert window.ask(beyond) == []
    scrolled = "[...document.querySelectorAll('.scroll')].filter(box => box.scrollWidth > box.clientWidth).length"
    if width != 768:
        assert window.ask(scrolled) == 0
    paper = "rgb(20, 23, 28)" if dark else "rgb(255, 255, 255)"
    assert window.ask("getComputedStyle(document.body).backgroundColor") == paper
    chosen = window.ask("[...document.images].map(image => image.currentSrc.length)")
    assert min(chosen) > 1000


def test_long_names_go_on_in_a_new_line_between_words_only() -> None:
    assert broken("transformer_xl") == "transformer_xl"
    assert broken("rotary+ntk_by_parts") == "rotary+<wbr>ntk_by_parts"
    assert broken("own_modules_of_mine.py:MyOwnEncodings<2>") == (
        "own_<wbr>modules_<wbr>of_<wbr>mine.<wbr>py:<wbr>My<wbr>Own<wbr>Encodings&lt;2&gt;"
    )
    text = "a_word_of_any_kind, own_modules_of_mine.py:MyOwnEncodings"
    assert breakable(text) == text.split(" ")[0] + " " + broken(text.split(" ")[1])


@pytest.mark.thin(2)
@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
def test_no_word_is_broken_in_the_middle(opened: tuple[Page, Path], tmp_path: Path, width: int) -> None:
    window, _ = opened
    names = ("none", "rotary", "rotary+ntk_by_parts", "transformer_xl", "own_modules/ofmine.py:EncodingOfMyOwn")
    (tmp_path / "report.html").write_text(
        report_html(view_of(make_records(methods=names, windows=8))), encoding="utf-8"
    )
    window.show(tmp_path / "report.html", width=width)
    assert window.ask(BROKEN) == []
    assert (
        window.ask("[...document.querySelectorAll('.scroll')].filter(box => box.scrollWidth > box.clientWidth)") == []
    )


BROKEN = """
(() => {
  const bad = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    for (const found of node.textContent.matchAll(/[\\p{L}\\p{N}_]+/gu)) {
      if (/^[0-9a-f]{32,}$/.test(found[0])) continue;  // a hash is no word
      const range = document.createRange();
      range.setStart(node, found.index);
      range.setEnd(node, found.index + found[0].length);
      if (new Set([...range.getClientRects()].map(each => Math.round(each.top))).size > 1) bad.push(found[0]);
    }
  }
  return bad;
})()
"""


@pytest.mark.slow
def test_phones_show_intervals_and_all_columns_if_the_reader_asks(opened: tuple[Page, Path]) -> None:
    window, path = opened
    hidden = "[...document.querySelectorAll('.tables .wide, .tables small')].filter(each => !each.offsetWidth).length"
    window.show(path, width=390)
    assert window.ask(hidden) > 100
    window.ask("document.getElementById('all').click()")
    assert window.ask(hidden) == 0
    window.show(path, width=1280)
    assert window.ask(hidden) == 0
    assert window.ask("document.getElementById('all').offsetWidth") == 0


@pytest.mark.slow
def test_words_on_the_page_stand_out_from_what_is_behind(opened: tuple[Page, Path]) -> None:
    window, path = opened
    for dark in (False, True):
        window.show(path, width=1280, dark=dark)
        assert window.ask(CONTRAST) == []


CONTRAST = """
(() => {
  const part = value => { value /= 255; return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4; };
  const read = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = ([red, green, blue]) => 0.2126 * part(red) + 0.7152 * part(green) + 0.0722 * part(blue);
  const behind = each => {
    for (; each; each = each.parentElement) {
      const colour = read(getComputedStyle(each).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const bad = [];
  for (const each of document.querySelectorAll("body *")) {
    if (![...each.childNodes].some(node => node.nodeType === 3 && node.textContent.trim())) continue;
    const [low, high] = [light(read(getComputedStyle(each).color)), light(behind(each))].sort((a, b) => a - b);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < 4.5) bad.push(each.tagName + " " + each.textContent.slice(0, 30) + " " + ratio.toFixed(2));
  }
  return bad;
})()
"""
