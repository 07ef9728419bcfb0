"""``situs compare`` where something goes wrong: what is printed, what is written, and the exit status that agrees."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from situs.cli import main
from situs.lab.comparing import plan
from situs.lab.comparing.records import Comparison
from situs.lab.running.store import read_record

pytestmark = pytest.mark.once

SMALL = [
    "--tasks=copy", "--train-length=12", "--lengths=1,2", "--steps=3", "--dim=16", "--layers=1", "--heads=2",
    "--batch=4", "--seeds=1", "--workers=1",
]  # fmt: skip
FAULTS = """
import sys
import situs

class Late(situs.Sinusoidal):
    def forward(self, x, positions):
        if x.shape[1] > 12:
            raise RuntimeError("no such luck")
        return super().forward(x, positions)

class Exits(situs.NoPE):
    def __init__(self):
        sys.exit(0)
"""


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """The folder and the exit status of a comparison with encodings that fail."""
    folder = tmp_path_factory.mktemp("faults")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("broken.py").write_text(FAULTS)
        status = main(["compare", "--encodings", "broken:Late,broken:Exits,alibi", *SMALL, "--out", "out"])
    return folder / "out", status


def test_encodings_that_fail_leave_the_others_and_their_own_results(broken: tuple[Path, int]) -> None:
    folder, status = broken
    assert status == 1
    records = read_record(Comparison, folder / "records.json")
    assert [record.status for record in records.trials] == ["failed", "failed", "done"]
    late, exits, _ = records.trials
    assert late.error == "broken:Late at length 24: RuntimeError: no such luck (broken.py:8)"
    assert late.methods["broken:Late"].lengths[12].scores is not None
    assert exits.error == "SystemExit: 0 (broken.py:13)"
    assert list(records.costs) == ["broken:Late", "alibi"]
    assert records.problems["broken:Late"][0] == "costs at length 4096: RuntimeError: no such luck (broken.py:8)"
    assert "broken" not in sys.modules


def test_the_report_says_what_is_wrong_and_ends_alike(
    broken: tuple[Path, int], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, status = broken
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["compare", "--report", str(folder), "--out", str(tmp_path)]) == status
    said = capsys.readouterr().out
    assert "broken:Late: copy, seed 0: broken:Late at length 24: RuntimeError: no such luck (broken.py:8)" in said
    assert said.count("no such luck") == 1
    assert f"Report: {tmp_path / 'report.html'}" in said
    assert "no such luck (broken.py:8)" in (tmp_path / "report.html").read_text(encoding="utf-8")
    row = next(line for line in said.splitlines() if "broken:Late" in line)
    assert "%" in row
    assert "failed" in row


def test_a_folder_that_cannot_be_written_still_shows_its_report(
    broken: tuple[Path, int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **options: object) -> None:  # root may write anywhere, so permissions would not do
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    folder, _ = broken
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    monkeypatch.setattr(Path, "touch", refuse)
    assert main(["compare", "--report", str(folder)]) == 1
    shown = capsys.readouterr()
    assert "broken:Late" in shown.out
    assert "Report:" not in shown.out
    assert shown.err == (
        "situs compare: the report was not written. folder must be readable and writable, since each trial is stored "
        f"there as a file; got {folder}: Read-only file system. Choose another. Give it with --out.\n"
    )
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"methods": 3}, "methods must be list; got 3"),
        ({"format": 1}, "format must be 2, since this version of situs writes and reads it; got 1"),
        ({"settings": None}, "settings must be Settings; got None"),
    ],
)
def test_a_report_from_damaged_records_names_the_file_and_changes_nothing(
    broken: tuple[Path, int],
    tmp_path: Path,
    change: dict[str, object],
    reason: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    content = json.loads((broken[0] / "records.json").read_text())
    (tmp_path / "records.json").write_text(json.dumps({**content, **change}))
    assert main(["compare", "--report", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert f"situs compare: {tmp_path / 'records.json'} cannot be read: " in said
    assert reason in said
    assert [path.name for path in tmp_path.iterdir()] == ["records.json"]


def test_a_trial_that_diverges_is_called_so_everywhere_and_is_no_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--encodings", "alibi", *SMALL, "--steps", "60", "--lr", "1e30", "--out", str(tmp_path)]
    assert main(["compare", *arguments]) == 1
    shown = capsys.readouterr()
    assert re.search(
        r"alibi on copy, seed 0: diverged: the loss was no number by step \d+ of 60. Try a smaller --lr.\n", shown.err
    )
    assert "alibi: copy, seed 0: diverged" in shown.out
    assert "1 trial diverged" in shown.out
    assert "failed" not in shown.out
    assert read_record(Comparison, tmp_path / "records.json").trials[0].status == "diverged"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="makes a pipe")
def test_a_pipe_is_refused_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert main(["compare", "--tasks", "text", "--text", str(tmp_path / "pipe"), "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == (
        f"situs compare: --text must be a file or a folder, since every worker reads it again; got "
        f"{str(tmp_path / 'pipe')!r}, which is a pipe or a device. Write the text to a file.\n"
    )


@pytest.mark.parametrize("device", ["mps", "meta", "cuda:99", "toaster"])
def test_a_device_that_is_not_there_is_refused(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    if device == "mps" and plan.torch.backends.mps.is_available():  # type: ignore[attr-defined]
        pytest.skip("there is one")
    assert main(["compare", "--device", device]) == 2
    said = capsys.readouterr().err
    assert said.startswith("situs compare: device must ")
    assert repr(device) in said
    assert len(said.splitlines()) == 1
    assert len(said) < 150


@pytest.mark.heavy
def test_each_failure_is_told_once_while_it_runs_and_once_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    Path("long_error.py").write_text(FAULTS.replace("sys.exit(0)", 'raise ValueError("first\\nsecond\\nthird")'))
    arguments = ["--encodings", "long_error:Exits,alibi", *SMALL, "--seeds=3", "--tasks=copy,reverse", "--out", "out"]
    assert main(["compare", *arguments]) == 1
    shown = capsys.readouterr()
    told = "ValueError: first ... (long_error.py:13)"
    assert f"long_error:Exits cannot be built at this size, so that its trials fail: {told}\n" in shown.err
    assert shown.err.count("ValueError") == 1
    assert shown.err.count(": failed, for the reason above") == 6
    assert shown.out.count("ValueError") == 1
    assert (
        f"long_error:Exits: copy, seed 0: {told}; also reverse, seed 0, copy, seed 1, reverse, seed 1 and 2 more"
        in (shown.out)
    )
    page = (tmp_path / "out/report.html").read_text(encoding="utf-8")
    assert f"<li>long_error:Exits, on copy, seed 0: {told}; also " in page


def test_lengths_that_cannot_fit_are_refused_with_their_size(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--tasks", "passkey", "--lengths", "1,100000000"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(
        "situs compare: the longest window must fit in memory; got 6,400,000,000 tokens, which take about "
    )
    assert said.endswith("Test shorter lengths, or use a smaller model.\n")


@pytest.mark.skipif(sys.platform != "linux", reason="sends signals")
@pytest.mark.thin(2)
@pytest.mark.parametrize("loaded", ["libtorch_cpu", "/numpy/"])
def test_ctrl_c_while_everything_is_imported_is_quiet(loaded: str, tmp_path: Path) -> None:
    situs = str(Path(sys.executable).with_name("situs"))
    process = subprocess.Popen(
        [situs, "compare", *SMALL, "--out", str(tmp_path / "out")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    while process.poll() is None and loaded not in Path(f"/proc/{process.pid}/maps").read_text():
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    out, said = process.communicate(timeout=120)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in said
