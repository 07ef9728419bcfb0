"""``situs compare`` as a person runs it: a small comparison from start to report, again, and every wrong wish."""

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

from situs.cli import main
from situs.lab.comparing.records import Comparison, TrialRecord
from situs.lab.plain import to_json
from situs.lab.running.store import Store, read_record, read_stopped

pytestmark = pytest.mark.once

SMALL = [
    "--tasks=passkey,copy", "--train-length=12", "--lengths=1,2", "--steps=6", "--dim=16", "--layers=1", "--heads=2",
    "--batch=4", "--seeds=2", "--workers=1",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished comparison."""
    out = tmp_path_factory.mktemp("compare") / "out"
    assert main(["compare", "--encodings", "alibi,rotary,rotary+ntk,learned", *SMALL, "--out", str(out)]) == 0
    return out


def trials(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in (folder / "trials").glob("*.json")}


def test_it_leaves_records_table_figures_and_report(folder: Path) -> None:
    records = json.loads((folder / "records.json").read_text())
    assert records["methods"] == ["alibi", "rotary", "rotary+ntk", "learned"]
    assert len(records["trials"]) == 3 * 2 * 2
    assert {trial["status"] for trial in records["trials"]} == {"done"}
    rows = list(csv.DictReader((folder / "table.csv").read_text(encoding="utf-8").splitlines()))
    assert [row["method"] for row in rows] == records["methods"]
    assert sorted(path.suffix for path in (folder / "figures").iterdir()) == [".png"] * len(
        list((folder / "figures").iterdir())
    )
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert all(name in page for name in records["methods"])


@pytest.mark.heavy
def test_the_same_command_runs_no_finished_trial_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = trials(folder)
    assert main(["compare", "--encodings", "alibi,rotary,rotary+ntk,learned", *SMALL, "--out", str(folder)]) == 0
    assert trials(folder) == before
    shown = capsys.readouterr()
    assert "12 trials, 12 of them finished before." in shown.err
    assert "ends at 12" in shown.out
    assert f"Report: {folder / 'report.html'}" in shown.out


@pytest.mark.heavy
def test_another_option_makes_other_trials_and_leaves_the_old_ones(folder: Path, tmp_path: Path) -> None:
    out = shutil.copytree(folder, tmp_path / "out")  # its records become those of the last comparison
    before = trials(out)
    arguments = ["--encodings", "alibi", *SMALL, "--steps", "7", "--tasks", "passkey", "--out", str(out)]
    assert main(["compare", *arguments]) == 0
    after = trials(out)
    assert len(after) == len(before) + 2
    assert before.items() <= after.items()


def test_the_report_is_made_again_without_training(folder: Path) -> None:
    before = trials(folder)
    (folder / "report.html").unlink()
    assert main(["compare", "--report", str(folder)]) == 0
    assert (folder / "report.html").exists()
    assert trials(folder) == before


def test_rows_come_as_json_for_programs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--report", str(folder), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {"method", "scores", "verdict", "cost", "properties"} <= rows[0].keys()


@pytest.mark.heavy
def test_a_damaged_record_is_named_and_run_again(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = shutil.copytree(folder, tmp_path / "out")
    arguments = ["--encodings", "alibi", *SMALL, "--steps", "7", "--tasks", "passkey", "--out", str(out)]
    main(["compare", *arguments])
    key = json.loads((out / "records.json").read_text())["trials"][0]["key"]
    path = out / "trials" / f"{key}.json"
    whole = json.loads(path.read_text())
    path.write_text(path.read_text()[:50])
    capsys.readouterr()
    assert main(["compare", *arguments]) == 0
    said = capsys.readouterr().err
    assert f"trials/{key}.json is damaged: a record must be JSON; got " in said
    assert f"It is set aside as trials/{key}.json.damaged, and made again where needed." in said
    again = json.loads(path.read_text())
    assert again["methods"] == whole["methods"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--encodings", "rotery"], "Did you mean 'rotary'?"),
        (["--tasks", "pascal"], "task must be one of text, passkey, copy, reverse, addition, recall; got 'pascal'."),
        (["--tasks", ","], "tasks must be names separated by commas, such as text,passkey; got ','."),
        (["--steps", "0"], "steps must be 1 or more; got 0."),
        (["--seeds", "-1"], "seeds must be 1 or more; got -1."),
        (["--lr", "0"], "lr must be positive and finite, since it scales every update of the weights; got 0.0."),
        (["--lengths", "0,2"], "lengths must be whole multiples of the training length, 1 or more, such as 1,2,4; got "
         "0,2."),
        (["--dim", "20", "--heads", "4"], "dim must be a multiple of twice heads, since each head has an even share of "
         "it; got dim=20 and heads=4."),
        (["--workers", "0"], "workers must be 1 or more, since they do the work; got 0."),
        (["--address", "x:1"], "--address must go with --engine ray, since processes here have none; got --engine "
         "local."),
        (["--engine", "ray", "--workers", "2"], "--workers must go with --engine local, since Ray runs as many as its "
         "cluster has room for."),
        (["--tasks", "copy", "--text", "x.txt"], "text must go with the task text, since no other reads it; got tasks "
         "copy."),
        (["--text", "no/such/file"], "--text must exist, since text is read from it; got 'no/such/file'."),
        (["--train-length", "4", "--tasks", "passkey"], "length must be 8 or more, since passkey needs room for the "
         "key, the question and some filler; got 4."),
        (["--report", "nowhere"], "--report must name a folder that situs compare wrote, with its records.json; got "
         "nowhere."),
        (["--train-length", "0"], "train-length must be 2 or more, since a token is predicted from those before it; "
         "got 0."),
        (["--lengths", ""], "lengths must be whole multiples of the training length, 1 or more, such as 1,2,4; got "
         "none."),
        (["--report", "nowhere", "--steps", "3", "--fresh", "--encodings=alibi"], "--report must go without "
         "--encodings, --steps, --fresh, since it trains nothing and shows what was recorded. Leave out --report to "
         "run a comparison."),
        (["--encodings", "learned+random"], "learned+random cannot be built at this size: "),
    ],
)  # fmt: skip
def test_a_wrong_wish_is_told_before_anything_is_trained(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["compare", *arguments]) == 2
    told = capsys.readouterr().err
    assert told.startswith("situs compare: ")
    assert message in told
    assert list(tmp_path.iterdir()) == []


def test_numbers_that_are_none_are_refused_by_the_parser(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["compare", "--lengths", "1,two"])
    assert "must be whole numbers separated by commas, such as 1,2,4; got '1,two'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seed", "3"], "unrecognized arguments: --seed 3. Did you mean --seeds?"),
        (["--seed=3"], "unrecognized arguments: --seed=3. Did you mean --seeds?"),
        (["--trian-length", "3"], "unrecognized arguments: --trian-length 3. Did you mean --train-length?"),
        (["alibi"], "unrecognized arguments: alibi. Encodings are given with --encodings alibi"),
        (
            ["--encodings", "alibi", "rotary"],
            "unrecognized arguments: rotary. Names are separated by commas, without spaces",
        ),
        (["--nothing-like-it"], "unrecognized arguments: --nothing-like-it"),
    ],
)
def test_unknown_arguments_are_refused_with_what_may_have_been_meant(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["compare", *arguments])
    assert capsys.readouterr().err.endswith(f"error: {message}\n")


def test_a_report_is_made_from_the_file_too_and_elsewhere_without_a_folder_of_trials(
    folder: Path, tmp_path: Path
) -> None:
    assert main(["compare", "--report", str(folder / "records.json"), "--out", str(tmp_path / "other")]) == 0
    assert sorted(path.name for path in (tmp_path / "other").iterdir()) == ["figures", "report.html", "table.csv"]


def test_the_report_of_a_comparison_that_was_stopped_says_how_to_go_on(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "trials").mkdir()
    for path in list((folder / "trials").glob("*.json"))[:2]:
        (tmp_path / "trials" / path.name).write_bytes(path.read_bytes())
    assert main(["compare", "--report", str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        "situs compare: --report must name a folder whose comparison has ended, since records.json is written then; "
        f"got {tmp_path}, where 2 trials are finished and the others are not. Run the same command again: it goes on "
        "from there.\n"
    )


@pytest.mark.heavy
def test_the_report_of_a_comparison_that_was_stopped_says_how_many_trials_are_missing(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = read_record(Comparison, folder / "records.json")
    planned = {record.key: record.trial for record in whole.trials}
    ordered = sorted(whole.trials, key=lambda record: record.trial.label)  # they are recorded as they end
    last = {record.trial.label.partition(" on ")[0]: record for record in ordered}
    damaged, *others = missing = list(last.values())[:3]  # of three methods
    there = [record for record in ordered if record not in missing]
    store = Store(tmp_path, TrialRecord)
    store.write("plan.json", to_json(replace(whole, trials=[], costs={}, properties={}, planned=planned)))
    for record in there:
        store.save(record)
    (tmp_path / "trials" / f"{damaged.key}.json").write_text("{}")
    before = trials(tmp_path)
    assert main(["compare", "--report", str(tmp_path)]) == 1
    assert trials(tmp_path) == before
    shown = capsys.readouterr().out
    total = len(planned)
    said = f"Stopped before the end: 3 of {total} trials missing. "
    assert shown.startswith(said)
    assert "1 trial missing" in shown
    labels = [record.trial.label for record in (damaged, *others)]
    begin = "Not run before the comparison was stopped: "
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    for text in (
        said,
        begin,
        *labels,
        f"of {total} done, 3 missing; ",
        f"Of {total} trials, 3 missing; they are listed below.",
    ):
        assert text in page
    assert "<dt>time</dt>" not in page  # it is not known
    named = " ".join(shown.split()).partition(begin)[2].partition(".")[0]
    assert sorted(named.replace(" and ", ", ").split(", ")) == sorted(", ".join(labels).split(", "))
    store.write("records.json", to_json(whole))  # named, it is shown instead
    assert main(["compare", "--report", str(tmp_path / "records.json"), "--out", str(tmp_path / "other")]) == 0


def test_a_comparison_that_was_stopped_while_measuring_says_so(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = read_record(Comparison, folder / "records.json")
    planned = {record.key: record.trial for record in whole.trials}
    asked = replace(whole, trials=[], costs={}, properties={}, planned=planned)
    Store(tmp_path, TrialRecord).write("plan.json", to_json(asked))
    (tmp_path / "trials").rmdir()
    (tmp_path / "trials").symlink_to(folder / "trials")
    assert main(["compare", "--report", str(tmp_path), "--out", str(tmp_path / "other")]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("Stopped before the end: costs and properties not measured. ")
    told = "Costs and properties are measured last. The same command goes on where it was stopped."
    assert told in " ".join(shown.split())


@pytest.mark.heavy
@pytest.mark.parametrize("form", [["--json"], []], ids=["json", "tables"])
def test_a_reader_that_stops_reading_ends_the_command_quietly(folder: Path, form: list[str]) -> None:
    situs = str(Path(sys.executable).with_name("situs"))
    reader, writer = os.pipe()
    os.close(reader)  # before anything is written: what is little would find room in the pipe
    try:
        ended = subprocess.run(
            [situs, "compare", "--report", str(folder), *form], stdout=writer, stderr=subprocess.PIPE, timeout=120
        )
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    assert main(["compare", *SMALL, "--out", str(file)]) == 2
    assert str(file) in capsys.readouterr().err
    assert file.read_text() == "x"


@pytest.mark.thin(3)
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_stopped_at_any_moment_it_goes_on_where_it_was(stop: signal.Signals, tmp_path: Path) -> None:
    situs = str(Path(sys.executable).with_name("situs"))
    out = str(tmp_path / "out")
    arguments = [situs, "compare", "--encodings", "alibi,none,t5", *SMALL, "--steps", "60", "--out", out]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        arguments, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # shells let background jobs ignore it
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while len(trials(tmp_path / "out") if (tmp_path / "out").exists() else ()) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, stop) if stop == signal.SIGINT else process.send_signal(stop)
    _, said = process.communicate(timeout=60)
    kept = trials(tmp_path / "out")
    assert 2 <= len(kept) < 12
    if stop != signal.SIGKILL:
        assert process.returncode == 128 + stop
        assert "trials missing. What is finished is kept; the same command goes on from here." in said
        assert "Traceback" not in said
    stopped = read_stopped(tmp_path / "out", Comparison, TrialRecord).records
    assert stopped is not None
    assert (len(stopped.planned), len(stopped.trials)) == (12, len(kept))
    again = subprocess.run(arguments, capture_output=True, text=True, check=True, env=environment, timeout=300)
    assert f"12 trials, {len(kept)} of them finished before." in again.stderr
    assert kept.items() <= trials(tmp_path / "out").items()
    found: Any = json.loads((tmp_path / "out" / "records.json").read_text())
    assert (len(found["trials"]), found["planned"]) == (12, {})
    assert read_stopped(tmp_path / "out", Comparison, TrialRecord).records is None


@pytest.mark.heavy
def test_names_in_any_spelling_are_recorded_under_one_and_options_of_a_scaling_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    out = tmp_path / "out"
    arguments = ["--encodings", "RoPE,Linear(factor=3),rotary", *SMALL, "--tasks", "passkey", "--seeds", "1"]
    assert main(["compare", *arguments, "--out", str(out)]) == 0
    assert (
        "rotary+linear(factor=3) is scaled with factor=3, as written. Its factor is the same at every length beyond "
        "the training length, and not derived from the length tested; its ramp, if it has one, is not searched.\n"
    ) in capsys.readouterr().err
    records = json.loads((out / "records.json").read_text())
    assert records["methods"] == ["rotary", "rotary+linear(factor=3)"]
    (trial,) = records["trials"]
    assert list(trial["methods"]) == records["methods"]
