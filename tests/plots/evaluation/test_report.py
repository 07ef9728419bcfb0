"""The report of an evaluation: whole, safe, and readable in a browser that has no network; and what it advises."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from situs.cli.evaluate_display import show
from situs.lab.evaluating.advice import advise, headline
from situs.lab.evaluating.summary import Summary
from situs.lab.scores import at
from situs.plots.evaluation.figures import figures
from situs.plots.evaluation.report import report_html
from situs.plots.evaluation.tables import grids, table_csv
from tests.plots.comparison.browser import MISSING, browser
from tests.plots.evaluation.sample import LOSSES, ODD, SHARES, make_records, summary_of, without
from tests.plots.parsed import Parsed

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def summary() -> Summary:
    return summary_of(make_records())


@pytest.fixture(scope="module")
def page(summary: Summary) -> str:
    return report_html(summary)


def test_the_page_is_whole_and_loads_nothing(page: str) -> None:
    parsed = Parsed(page)
    assert page.startswith('<!DOCTYPE html>\n<html lang="en">')
    assert parsed.open == []
    names = [attributes["id"] for _, attributes in parsed.elements if "id" in attributes]
    assert len(set(names)) == len(names)
    assert {str(link["href"]).removeprefix("#") for link in parsed.all("a")} <= set(names)
    without_images = re.sub(r"base64,[A-Za-z0-9+/=]+", "", page)
    assert "http" not in without_images.replace("http-equiv", "")
    assert not {"script", "iframe", "object", "form", "b"} & {tag for tag, _ in parsed.elements}
    assert ODD in parsed.text
    assert not re.search(r"\$[a-z_]+\b", without_images)


def test_the_page_says_what_to_set_and_what_has_no_result(page: str) -> None:
    text = " ".join(Parsed(page).text.split())
    assert "self-extend has the lowest loss at 4× (512 tokens), 2.00" in text
    assert "No configuration says self-extend: situs.Rotary(..., scaling=situs.SelfExtend(window=32, group=5))" in text
    assert '"rope_type": "yarn"' in text
    assert f"longrope: factors must be given; got {ODD}." in text
    assert f"linear on text at 512: RuntimeError: {ODD}" in text
    assert "A remark." in text


def test_figures_say_what_is_to_be_seen(summary: Summary) -> None:
    found = figures(summary)
    assert list(found) == ["loss-by-length", "loss-by-position", "passkey-by-depth"]
    assert found["loss-by-length"].get_label() == (
        "Loss by length, against the released model. yarn and self-extend stay in the shade, within 0.05 of the "
        "released model, up to 4×; without a scaling the loss changes by +1.40. Each scaling is set once, for 4× "
        "or as written."
    )
    said = str(found["passkey-by-depth"].get_label())
    assert said.endswith("Most answers at 4× are right with yarn, 100\N{NO-BREAK SPACE}%.")
    axes = found["loss-by-length"].axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1×\n128", "2×\n256", "4×\n512"]
    nothing = figures(summary_of(make_records(tasks=("passkey",))))
    assert list(nothing) == ["passkey-by-depth"]


def test_advice_prefers_what_ties_with_the_released_model_and_says_what_short_texts_lose() -> None:
    records = make_records(failing=False)
    best = advise(summary_of(records))
    assert best is not None
    assert (best.scaling, best.sets) == ("self-extend", "yarn")
    yarn = advise(summary_of(without(records, "self-extend")))
    assert yarn is not None
    assert (yarn.scaling, yarn.sets) == ("yarn", "yarn")
    said = "Use yarn for texts of up to 512 tokens; without a scaling it is 1.36 nats worse (95 %"
    assert yarn.sentences[0].startswith(said)
    linear = advise(summary_of(without(records, "self-extend", "yarn", "ntk")))
    assert linear is not None
    assert linear.sentences[1:] == (
        "Even so the loss is 0.35 higher than that of the released model at 128 tokens, on the same tokens with less "
        "text before them. Training at the longer length may help.",
        "Texts of 128 tokens lose 0.30 by it: use the released settings for those.",
    )
    alone = advise(summary_of(without(records, "self-extend", "yarn", "ntk", "linear")))
    assert alone is not None
    assert (alone.scaling, alone.sets, alone.settings) == ("none", "", "")
    assert alone.sentences[0] == "Use the model as it is: no scaling is better at 4×."
    found = headline(summary_of(make_records(tasks=("passkey",))))
    assert found.startswith("yarn has most answers right at 4× (512 tokens)")


def test_a_model_that_guesses_by_how_often_tokens_occur_is_told() -> None:
    records = make_records(failing=False)
    base = at(summary_of(records).rows[0].scores["text"].levels, records.base)
    assert base is not None
    for guessed, told in ((base.mean - 0.1, True), (base.mean + 0.1, False)):
        text = replace(records.text, guessed=guessed)
        advice = advise(summary_of(replace(records, text=text)))
        assert advice is not None
        assert (
            f"These numbers do not tell scalings apart: at {records.base:,} tokens the released model has a loss of "
            f"{base.mean:.2f}, where guessing each token by how often it occurs in the text has {guessed:.2f}. The "
            f"model was not trained, or not on such text, or the tokenizer is another model's." in advice.sentences
        ) == told


def test_scalings_that_are_refused_for_one_reason_share_a_sentence() -> None:
    records = replace(
        make_records(), refused={"longrope": "no list.", "llama3": "no rotation.", "yarn": "no rotation."}
    )
    assert records.refusals == {"longrope": "no list.", "llama3, yarn": "no rotation."}


def test_a_headline_says_that_no_scaling_is_better_where_the_released_model_ties(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(LOSSES, "yarn", (2.0, 2.6, 3.3999))
    rest = ("self-extend", "ntk", "linear")
    tied = summary_of(without(make_records(failing=False), *rest))
    assert tied.entries[0].row.name == "yarn"
    assert headline(tied) == (
        "No scaling is better at 4× (512 tokens) than the model as it was released, which has a loss of 3.40"
    )
    best = advise(tied)
    assert best is not None
    assert best.sentences[0] == "Use the model as it is: no scaling is better at 4×."
    monkeypatch.setitem(SHARES, "none", 0.8)  # one answer fewer
    found = summary_of(without(make_records(tasks=("passkey",), failing=False), *rest))
    assert found.entries[0].row.name == "yarn"
    assert headline(found) == (
        "No scaling is better at 4× (512 tokens) than the model as it was released, which has 88 % right"
    )


@pytest.mark.parametrize(("gain", "scaling"), [(0.005, "none"), (0.015, "yarn")])
def test_a_gain_that_does_not_matter_is_no_reason_for_a_scaling(gain: float, scaling: str) -> None:
    records = without(make_records(failing=False), "self-extend", "ntk", "linear")
    scores = {
        r.trial.length: r.outcome.scores for r in records.trials if (r.trial.scaling, r.trial.task) == ("none", "text")
    }
    trials = []
    for record in records.trials:
        if (record.trial.scaling, record.trial.task) == ("yarn", "text"):
            lower = [score - gain for score in scores[record.trial.length] or []]
            record = replace(record, outcome=replace(record.outcome, scores=lower))
        trials.append(record)
    found = summary_of(replace(records, trials=trials))
    assert found.entries[0].row.name == "yarn"
    assert not found.entries[1].ties
    best = advise(found)
    assert best is not None
    assert best.scaling == scaling
    if scaling == "none":
        assert best.sentences[0] == "Use the model as it is: no scaling is better by 0.01 nats at 4×."
        assert headline(found) == (
            "No scaling is better by 0.01 nats at 4× (512 tokens) than the model as it was released, which has a loss "
            "of 3.40"
        )


def test_settings_that_must_go_for_those_to_be_pasted_are_named(tmp_path: Path) -> None:
    plain = make_records()
    older = replace(plain, config=json.dumps({**json.loads(plain.config), "rope_theta": 1e4}))
    for records, instead in ((plain, ""), (older, ", in place of rope_theta")):
        text = " ".join(Parsed(report_html(summary_of(records))).text.split())
        assert f"In config.json , for yarn{instead}:" in text.replace("config.json,", "config.json ,")
        shown = io.StringIO()
        show(summary_of(records), tmp_path, Console(file=shown, width=200))
        assert f"\nIn config.json, for yarn{instead}:\n" in shown.getvalue()


def test_the_table_for_programs_has_full_numbers(summary: Summary) -> None:
    rows = {row["scaling"]: row for row in csv.DictReader(io.StringIO(table_csv(summary)))}
    assert float(rows["yarn"]["text_loss_512"]) == pytest.approx(2.04)
    assert float(rows["yarn"]["text_change_512"]) == pytest.approx(0.04)
    assert rows["linear"]["text_loss_512"] == ""
    assert rows["linear"]["problems"].startswith("linear on text at 512: RuntimeError")
    assert rows["longrope"]["refused"].startswith("factors must be given")
    assert float(rows["none"]["seconds_512"]) == 0.04


def test_the_terminal_shows_every_scaling_at_any_width(summary: Summary, tmp_path: Path) -> None:
    for width in (60, 100, 200):
        file = io.StringIO()
        show(summary, tmp_path, Console(width=width, file=file, emoji=False, markup=False))
        shown = file.getvalue()
        assert all(row.name in shown for row in summary.rows)
        tables = shown.partition("In config.json")[0]
        assert all(len(line) <= width for line in tables.splitlines() if "─" in line)
    assert 'In config.json, for yarn:\n{\n  "rope_parameters": {' in shown
    assert "±" in shown


def test_tables_say_why_a_number_is_missing(summary: Summary) -> None:
    overview, losses, answers, costs = grids(summary)
    cells = dict(losses.rows)
    failed = cells["linear"][2]
    assert (failed.text, failed.title.partition("\n")[0]) == ("no result", f"RuntimeError: {ODD}")
    assert cells["longrope"][0].text == "–"
    assert overview.rows[-1][0] in ("longrope", "linear")
    assert dict(answers.rows)["yarn"][2].small == "100 to 100\N{NO-BREAK SPACE}%; 1.50 nats"
    assert [cell.text for cell in dict(costs.rows)["yarn"][:2]] == ["10.0 ms", "0.5 MiB"]


@pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}")
def test_the_page_opens_wide_and_on_a_phone_by_day_and_by_night(page: str, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(page, encoding="utf-8")
    with browser(tmp_path) as shown:
        for width, dark in ((1280, False), (390, True)):
            shown.show(path, width=width, dark=dark)
            assert shown.ask("document.documentElement.scrollWidth") <= width
            assert shown.ask("Promise.all([...document.images].map(image => image.decode())).then(() => true)")
            assert shown.ask("document.querySelectorAll('figure').length") == 3
            assert shown.complaints() == []
            (tmp_path / f"page-{width}.png").write_bytes(shown.picture())
