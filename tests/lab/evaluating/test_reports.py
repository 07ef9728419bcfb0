"""``situs evaluate --report``: everything again from records, without a model; from a part of them, and read-only."""

from __future__ import annotations

import errno
import io
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from situs import models
from situs.cli import main
from situs.lab.evaluating.records import Evaluation, TrialRecord
from situs.lab.plain import to_json
from situs.lab.running.store import Store
from tests.plots.evaluation.sample import make_records, stopped

pytestmark = pytest.mark.once

FILES = ["config.json", "records.json", "report.html", "table.csv"]


def written(folder: Path, records: Evaluation) -> Path:
    """A folder as an evaluation leaves it that has ended."""
    folder.mkdir(exist_ok=True)
    (folder / "records.json").write_text(to_json(records))
    return folder


def left(folder: Path, finished: int) -> tuple[Path, Evaluation]:
    """A folder as an evaluation leaves it that was stopped after so many trials."""
    records = stopped(make_records(failing=False), finished)
    store = Store(folder, TrialRecord)
    store.write("plan.json", to_json(replace(records, trials=[])))
    for record in records.trials:
        store.save(record)
    return folder, records


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw nothing: figures take longer than all the rest."""
    for module in ("cli.evaluate_files", "plots.evaluation.report"):
        monkeypatch.setattr(f"situs.{module}.figures", lambda *_, **__: {})


@pytest.mark.usefixtures("no_figures")
def test_a_report_is_made_again_without_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = written(tmp_path / "out", make_records(failing=False))
    assert main(["evaluate", "--report", str(folder)]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out.startswith("self-extend has the lowest loss at 4× (512 tokens), 2.00.")
    assert shown.out.endswith(f"Report: {folder / 'report.html'}\n")
    assert sorted(path.name for path in folder.iterdir()) == FILES
    config = json.loads((folder / "config.json").read_text())
    assert config["rope_parameters"]["rope_type"] == "yarn"  # the best that a configuration says
    assert models.read(config).main.lengths.declared == 512
    before = {name: (folder / name).read_bytes() for name in ("table.csv", "report.html", "config.json")}
    other = tmp_path / "other"
    assert main(["evaluate", "--report", str(folder / "records.json"), "--out", str(other), "--json"]) == 0
    assert {name: (other / name).read_bytes() for name in before} == before
    assert not (other / "trials").exists()
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == make_records().scalings


@pytest.mark.usefixtures("no_figures")
def test_a_report_is_not_written_over_that_of_another_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = make_records(failing=False)
    folder, other = (written(tmp_path / name, records) for name in ("out", "other"))
    written(other, replace(records, model=replace(records.model, hash="0123")))
    assert main(["evaluate", "--report", str(folder), "--out", str(other)]) == 2
    assert capsys.readouterr().err == (
        f"situs evaluate: --out must be a folder without the evaluation of another model, since its report would be "
        f"replaced; got {str(other)!r}, which has that of another one called {records.model.name}. Give --out a folder "
        "of its own.\n"
    )
    assert [each.name for each in other.iterdir()] == ["records.json"]


class Unread(io.StringIO):
    """An output whose reader has left."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._number = os.open(file, os.O_CREAT | os.O_WRONLY)

    def write(self, text: str) -> int:
        """Raise as a closed pipe does."""
        raise BrokenPipeError

    def fileno(self) -> int:
        """Give a number that may become another file's."""
        return self._number


@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize("form", [["--json"], []], ids=["json", "tables"])
def test_a_reader_that_has_left_ends_a_report_quietly(
    form: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = written(tmp_path / "out", make_records(failing=False))
    monkeypatch.setattr("sys.stdout", Unread(tmp_path / "unread"))
    assert main(["evaluate", "--report", str(folder), *form]) == 141
    assert (folder / "report.html").exists()


@pytest.mark.usefixtures("no_figures")
def test_a_trial_that_failed_is_told_and_the_exit_status_agrees(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", "--report", str(written(tmp_path, make_records()))]) == 1
    shown = " ".join(capsys.readouterr().out.split())  # lines end where the terminal does
    assert "linear on text at 512: RuntimeError: a <b>reason</b> & more ..." in shown
    assert "loss rises beyond" in shown
    assert "2 trials failed" in shown
    assert "linear has no result at 512 tokens, and may be better." in shown


@pytest.mark.usefixtures("no_figures")
def test_the_report_of_a_part_says_what_is_missing_and_what_could_not_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, records = left(tmp_path, 20)
    broken = records.trials[3]
    (folder / "trials" / f"{broken.key}.json").write_text("{}")
    before = {path: path.read_bytes() for path in (folder / "trials").iterdir()}
    assert main(["evaluate", "--report", str(folder)]) == 1
    shown = capsys.readouterr()
    file = folder / "trials" / f"{broken.key}.json"
    assert shown.err == (
        f"situs evaluate: {file} cannot be read: TrialRecord must have key; got nothing. It is left out.\n"
    )
    assert shown.out.startswith("Stopped before the end: 11 of 30 trials missing. ")
    assert "The same command goes on where it was stopped." in shown.out
    assert {path: path.read_bytes() for path in (folder / "trials").iterdir()} == before
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert f"Not run before the evaluation was stopped: {broken.trial.label}, " in page
    assert "of 30 done, 11 missing; 8 texts each" in page
    assert "<dt>time</dt>" not in page  # it is not known
    assert "<dt>Time</dt>" not in page
    assert (folder / "plan.json").exists()
    written(folder, make_records(failing=False))  # named, it is shown instead
    assert main(["evaluate", "--report", str(folder / "records.json"), "--out", str(tmp_path / "other")]) == 0


@pytest.mark.usefixtures("no_figures")
def test_a_report_before_anything_was_measured_has_every_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, records = left(tmp_path, 0)
    assert main(["evaluate", "--report", str(folder)]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith("Stopped before the end: 30 of 30 trials missing. Nothing was measured at the longest ")
    assert all(name in shown for name in records.scalings)
    assert shown.count("6 trials missing") == 5
    assert not (folder / "config.json").exists()


@pytest.mark.usefixtures("no_figures")
def test_a_plan_that_cannot_be_read_is_named_and_the_records_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = written(tmp_path, make_records(failing=False))
    (folder / "plan.json").write_text("{")
    assert main(["evaluate", "--report", str(folder)]) == 0
    assert capsys.readouterr().err == (
        f"situs evaluate: {folder / 'plan.json'} cannot be read: a record must be JSON; got '{{'. It is left out.\n"
    )


@pytest.mark.usefixtures("no_figures")
def test_a_folder_that_cannot_be_written_still_shows_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **options: object) -> None:  # root may write anywhere, so permissions would not do
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    folder = written(tmp_path, make_records(failing=False))
    monkeypatch.setattr(Path, "touch", refuse)
    assert main(["evaluate", "--report", str(folder)]) == 1
    shown = capsys.readouterr()
    assert "self-extend" in shown.out
    assert "Report:" not in shown.out
    assert shown.err == (
        "situs evaluate: the report was not written. folder must be readable and writable, since each trial is stored "
        f"there as a file; got {folder}: Read-only file system. Choose another. Give it with --out.\n"
    )
    assert [path.name for path in folder.iterdir()] == ["records.json"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"scalings": 3}, "scalings must be list; got 3"),
        ({"format": 0}, "format must be 1, since this version of situs writes and reads it; got 0"),
        ({"tasks": []}, "an evaluation must have lengths, tasks and scalings; got none"),
        ({"lengths": [256, 64]}, "lengths must be 1 or more, from short to long; got [256, 64]"),
        ({"chosen": {}}, "chosen must have every scaling that is not refused; got none for none"),
        ({"config": "/etc/passwd"}, "configurations must be JSON objects; got /etc/passwd"),
    ],
)
def test_a_report_from_damaged_records_names_the_file_and_changes_nothing(
    change: dict[str, Any], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, make_records()) / "records.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    assert main(["evaluate", "--report", str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        f"situs evaluate: {file} cannot be read: {reason}. Run the evaluation again: finished trials are kept.\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["records.json"]


def test_a_report_of_the_other_commands_folder_names_that_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = written(tmp_path / "out", make_records())
    assert main(["compare", "--report", str(folder)]) == 2
    assert capsys.readouterr().err == (
        f"situs compare: --report must name a folder that situs compare wrote; got {folder}, which situs evaluate "
        f"wrote. Use situs evaluate --report {folder}.\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "MODEL_DIR must be given, since its model is measured; got none. Give a folder with config.json and "
         "safetensors, or --report with the folder of an evaluation."),
        (["--report", "nowhere"], "--report must name a folder that situs evaluate wrote, with its records.json; got "
         "nowhere."),
        (["model", "--report", "nowhere", "--windows", "3"], "--report must go without MODEL_DIR, --windows, since it "
         "measures nothing and shows what was recorded. Leave out --report to run an evaluation."),
        (["model", "--out", "model"], "--out must be another folder than that of a model, since a config.json is "
         "written there; got 'model'."),
        (["model", "--out", "o" * 300], "folder must be readable and writable, since each trial is stored there as a "
         f"file; got {'o' * 300}: File name too long. Choose another."),
    ],
)  # fmt: skip
def test_a_wrong_wish_is_one_sentence(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model").mkdir()
    Path("model/model.safetensors").touch()
    assert main(["evaluate", *arguments]) == 2
    assert capsys.readouterr().err == f"situs evaluate: {message}\n"


def test_a_name_that_is_too_long_names_no_folder(capsys: pytest.CaptureFixture[str]) -> None:
    name = "n" * 300
    assert main(["evaluate", "--report", name]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"situs evaluate: {name}/plan.json cannot be read: File name too long. It is left out.",
        f"situs evaluate: --report must name a folder that situs evaluate wrote, with its records.json; got {name}.",
    ]


def test_trials_without_a_plan_say_how_to_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, _ = left(tmp_path, 2)
    (folder / "plan.json").unlink()
    assert main(["evaluate", "--report", str(folder)]) == 2
    assert capsys.readouterr().err == (
        "situs evaluate: --report must name a folder whose evaluation has ended, since records.json is written then; "
        f"got {folder}, where 2 trials are finished and the others are not. Run the same command again: it goes on "
        "from there.\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o"], "unrecognized arguments: -o. Did you mean --original or --out?"),
        (["--timeout=3"], "unrecognized arguments: --timeout=3. Did you mean --trial-timeout?"),
        (["model", "another"], "unrecognized arguments: another"),
    ],
)
def test_unknown_arguments_are_refused_with_what_may_have_been_meant(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["evaluate", *arguments])
    assert capsys.readouterr().err.endswith(f"error: {message}\n")
