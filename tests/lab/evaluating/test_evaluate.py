"""A small model, trained in seconds: which scaling carries it, the same numbers every time, nothing lost by kills."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from situs import models
from situs.cli import main
from situs.lab.evaluating.advice import advise
from situs.lab.evaluating.records import Evaluation, TrialRecord
from situs.lab.evaluating.summary import Summary, summarise
from situs.lab.plain import to_json
from situs.lab.running.store import read_record
from tests.lab.test_kills import processes

pytestmark = pytest.mark.once

SMALL = ["--tasks", "text,passkey", "--windows", "4", "--lengths", "1,4", "--scalings", "none,yarn,self-extend"]


@pytest.fixture(scope="module")
def folder(released: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished evaluation with everything in it."""
    out = tmp_path_factory.mktemp("evaluate") / "out"
    scalings = "none,linear,dynamic,yarn,self-extend,longrope"
    assert main(["evaluate", str(released), "--scalings", scalings, "--windows", "16", "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def small(released: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished evaluation of a few trials, without a report."""
    out = tmp_path_factory.mktemp("small") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("situs.cli.evaluate_files.write", no_report)
        assert main(["evaluate", str(released), *SMALL, "--out", str(out)]) == 0
    return out


def no_report(*_: object) -> None:
    """Write nothing: figures take longer than the trials of a small model."""


@pytest.fixture
def without_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("situs.cli.evaluate_files.write", no_report)


def records_of(folder: Path) -> Evaluation:
    return read_record(Evaluation, folder / "records.json")


def numbers(record: TrialRecord) -> str:
    """All but the time and memory that it took."""
    return to_json(replace(record, seconds=[], bytes=None))


def files(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in (folder / "trials").glob("*.json")}


@pytest.fixture(scope="module")
def summary(folder: Path) -> Summary:
    return summarise(records_of(folder))


def test_yarn_beats_the_released_model_at_four_times_its_trained_length(summary: Summary) -> None:
    rows = {row.name: row.scores["text"] for row in summary.rows if row.refused is None}
    released, yarn = rows["none"].changes[256], rows["yarn"].changes[256]
    assert released.low > 0.3  # which breaks beyond 64
    assert yarn.high < released.low
    place = {entry.row.name: entry for entry in summary.entries}
    assert place["none"].behind.low > 0
    assert [entry.point.mean for entry in summary.entries] == sorted(entry.point.mean for entry in summary.entries)


def test_changes_are_counted_from_the_released_model_on_the_same_tokens(summary: Summary) -> None:
    assert summary.base == 64
    none = next(row for row in summary.rows if row.name == "none").scores["text"]
    assert (none.changes[64].mean, none.changes[64].low, none.changes[64].high) == (0.0, 0.0, 0.0)
    trials = {(each.trial.scaling, each.trial.length): each.outcome.scores for each in summary.records.trials
              if each.trial.task == "text"}  # fmt: skip
    released, yarn = trials["none", 64], trials["yarn", 256]
    assert released is not None
    assert yarn is not None
    apart = [far - near for far, near in zip(yarn, released, strict=True)]
    found = next(row for row in summary.rows if row.name == "yarn").scores["text"].changes[256]
    assert found.mean == pytest.approx(sum(apart) / len(apart))
    assert found.high - found.low < 0.5  # paired: single losses differ by far more


def test_dynamic_leaves_texts_of_the_trained_length_as_they_were(summary: Summary) -> None:
    dynamic = next(row for row in summary.rows if row.name == "dynamic").scores["text"]
    linear = next(row for row in summary.rows if row.name == "linear").scores["text"]
    assert dynamic.changes[64].mean == 0.0
    assert linear.changes[64].mean > 0.05  # set for 256 tokens, short texts pay


def test_what_the_model_cannot_have_is_a_row_with_its_reason(summary: Summary) -> None:
    row = next(row for row in summary.rows if row.name == "longrope")
    assert row.refused is not None
    assert row.refused.startswith("factors must hold short_factor and long_factor, 8 numbers each, since longrope")
    assert row.verdict == "cannot be measured"


def test_time_memory_and_the_loss_along_the_text_are_there(summary: Summary) -> None:
    for row in summary.rows:
        if row.refused is None:
            assert all(cost.seconds and cost.bytes for cost in row.costs.values())
            assert row.costs[256].bytes > row.costs[64].bytes  # type: ignore[operator]
            assert len(row.scores["text"].along or ()) == 32
            assert row.scores["passkey"].depths[256].keys() == {round(number / 7, 3) for number in range(8)}


def test_the_needle_is_told_relative_to_the_trained_length(summary: Summary) -> None:
    assert [needle.length for needle in summary.records.needles] == [64, 128, 256]
    assert summary.records.needles[0].beyond == 0
    last = summary.records.needles[-1]
    assert last.parts == {"beginning": 0, "needle": 28, "question": 21, "answer": 6}
    assert (last.nearest, last.farthest) == (21, 222)
    assert last.beyond == 12  # of 16: depths 0 .. 5/7
    said = [remark for remark in summary.records.remarks if remark.startswith("Passkey at 256")]
    assert said == [
        "Passkey at 256: 55 tokens besides filler; the number lies 21 to 222 tokens before its answer, 12 of 16 "
        "farther than the 64 tokens of training."
    ]


def test_the_advice_can_be_pasted_and_reads_as_it_was_measured(summary: Summary, folder: Path, released: Path) -> None:
    advice = advise(summary)
    assert advice is not None
    assert advice.sets in ("linear", "ntk", "dynamic", "yarn", "llama3")
    config = json.loads((folder / "config.json").read_text())
    pasted = {**json.loads((released / "config.json").read_text()), **json.loads(advice.settings)}
    assert models.read(config) == models.read(pasted)
    method: Any = advice.sets
    assert models.read(config) == models.extend(released, target=256, method=method).positions


def test_it_leaves_records_table_figures_and_report(folder: Path) -> None:
    rows = list(csv.DictReader((folder / "table.csv").read_text(encoding="utf-8").splitlines()))
    assert [row["scaling"] for row in rows] == records_of(folder).scalings
    assert rows[0]["text_change_64"] == "0.0"
    assert {path.name for path in (folder / "figures").iterdir()} == {
        "loss-by-length.png", "loss-by-position.png", "passkey-by-depth.png",
    }  # fmt: skip
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert all(name in page for name in records_of(folder).scalings)


@pytest.mark.usefixtures("in_this_process", "without_report")
def test_a_second_run_reads_what_is_finished(
    released: Path, small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = shutil.copytree(small, tmp_path / "out")
    before, first = files(out), records_of(out)
    assert main(["evaluate", str(released), *SMALL, "--out", str(out)]) == 0
    shown = capsys.readouterr()
    assert "12 trials, 12 of them finished before." in shown.err
    assert f"{released} has no tokenizer: every byte of a text is a token." in shown.err
    assert f"Report: {out / 'report.html'}" in shown.out
    assert files(out) == before
    assert list(map(to_json, records_of(out).trials)) == list(map(to_json, first.trials))


@pytest.mark.usefixtures("in_this_process", "without_report")
@pytest.mark.parametrize("name", ["records.json", "plan.json"])
def test_a_folder_keeps_the_report_of_its_model(
    random_model: Path, small: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    shutil.copy(small / "records.json", out / name)
    before = (out / name).read_bytes()
    assert main(["evaluate", str(random_model), *SMALL, "--out", str(out)]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"situs evaluate: --out must be a folder without the evaluation of another model, since its report would be "
        f"replaced; got {str(out)!r}, which has that of one called small-llama. Give --out a folder of its own."
    )
    assert [each.name for each in out.iterdir()] == [name]
    assert (out / name).read_bytes() == before


@pytest.mark.usefixtures("in_this_process", "without_report")
def test_numbers_are_the_same_when_everything_is_run_again(released: Path, small: Path, tmp_path: Path) -> None:
    out = shutil.copytree(small, tmp_path / "out")
    assert main(["evaluate", str(released), *SMALL, "--fresh", "--out", str(out), "--json"]) == 0
    assert list(map(numbers, records_of(out).trials)) == list(map(numbers, records_of(small).trials))
    assert all(files(out)[name] > written for name, written in files(small).items())


@pytest.mark.usefixtures("in_this_process", "without_report")
def test_a_damaged_record_is_named_and_made_again(
    released: Path, small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = shutil.copytree(small, tmp_path / "out")
    keys = [record.key for record in records_of(out).trials[:3]]
    broken, other, old = (out / "trials" / f"{key}.json" for key in keys)
    broken.write_text(broken.read_text()[:50])
    other.write_text(other.read_text().replace('"format": 1', '"format": 0'))
    old.write_text(old.read_text().replace('"scores": [', '"scores": [1.0, '))
    assert main(["evaluate", str(released), *SMALL, "--out", str(out)]) == 0
    said = capsys.readouterr().err
    assert f"trials/{keys[0]}.json is damaged: a record must be JSON; got " in said
    assert f"trials/{keys[1]}.json is damaged: format must be 1, since this version of situs writes and" in said
    assert f"trials/{keys[2]}.json is damaged: scores must be 4, one for each window; got 5. It is set aside as" in said
    assert "12 trials, 9 of them finished before." in said
    assert list(map(numbers, records_of(out).trials)) == list(map(numbers, records_of(small).trials))
    assert len(list((out / "trials").glob("*.damaged"))) == 3


@pytest.mark.usefixtures("in_this_process", "without_report")
@pytest.mark.parametrize("finished", [3, *(pytest.param(count, marks=pytest.mark.heavy) for count in (1, 6, 10))])
@pytest.mark.skipif(sys.platform != "linux", reason="kills processes")
def test_kill_and_resume_lose_nothing_and_give_the_same_numbers(
    finished: int, released: Path, small: Path, tmp_path: Path
) -> None:
    out = tmp_path / "killed"
    command = [sys.executable, "-m", "situs", "evaluate", str(released), *SMALL, "--out", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        deadline = time.monotonic() + 120
        while len(list((out / "trials").glob("*.json"))) < finished and time.monotonic() < deadline:
            assert process.poll() is None
            time.sleep(0.005)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    while processes(process.pid):  # the worker ends with its parent
        assert time.monotonic() < deadline
        time.sleep(0.01)
    kept = files(out)
    assert finished <= len(kept) < 12
    assert not (out / "records.json").exists()
    assert len(read_record(Evaluation, out / "plan.json").planned) == 12
    assert main(["evaluate", str(released), *SMALL, "--out", str(out)]) == 0
    assert kept.items() <= files(out).items()  # nothing was run again
    assert list(map(numbers, records_of(out).trials)) == list(map(numbers, records_of(small).trials))
    written = {path.stem for path in (out / "trials").glob("*.json")}
    assert len(written) == 12
    assert not (out / "plan.json").exists()
    # a process that is killed between a record and the end of its claim leaves the claim, which nobody asks for again
    assert {path.stem for path in (out / "trials").glob("*.claim")} <= written


@pytest.mark.usefixtures("in_this_process", "without_report")
def test_rows_come_as_json_for_programs(released: Path, small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(released), *SMALL, "--out", str(small), "--json"]) == 0
    shown = capsys.readouterr()
    assert [row["name"] for row in json.loads(shown.out)] == ["none", "yarn", "self-extend"]
    assert shown.err == ""
