"""Wrong wishes of ``situs plot``: one sentence, and nothing half-written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import situs
from situs.cli import main, plot
from situs.plots import KINDS

pytestmark = pytest.mark.once

LENGTHS = "since fewer show nothing and more cannot be seen in a figure"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


WRONG: dict[str, tuple[list[str], str]] = {
    "no names": ([], "names must be given, such as situs plot rotary; got none. See situs plot --list."),
    "json of a figure": (
        ["rotary", "--json"],
        "--json must be used with --list, since a figure is not data; got it without --list.",
    ),
    "a name": (
        ["rotery"],
        f"name must be one of {', '.join(situs.names())}; got 'rotery'. Did you mean 'rotary'?",
    ),
    "a kind": (
        ["rotary", "--kind", "rotatoin"],
        f"--kind must be one of {', '.join(KINDS)}; got 'rotatoin'. Did you mean 'rotation'?",
    ),
    "an option": (["kerple", "kernal=log"], "kerple takes kernel, num_heads; got 'kernal'. Did you mean 'kernel'?"),
    "an option's form": (
        ["rotary", "head_dim"],
        "options must be written NAME=VALUE, such as head_dim=64; got 'head_dim'.",
    ),
    "names behind a space": (
        ["rotary", "alibi", "my:Own", "head_dim=8"],
        "names must be separated by commas; got 'alibi' behind a space. Write rotary,alibi,my:Own.",
    ),
    "an odd head": (
        ["rotary", "head_dim=15"],
        "head_dim must be even, since rotary rotates pairs of channels; got 15.",
    ),
    "a scaling": (
        ["rotary+yarm"],
        "rotary+yarm: + must be followed by one of linear, ntk, dynamic_ntk, ntk_by_parts, yarn, longrope, "
        "llama3, proportional, selfextend, rerope, dualchunk, axial; got 'yarm'. Did you mean 'yarn'?",
    ),
    "an unsuitable kind": (
        ["alibi", "--kind", "table"],
        "table is for an encoding that is added to the input; got alibi. Kinds that suit it: distance, bias, decay, "
        "likeness, order, attention.",
    ),
    "no kind for both": (
        ["swin,rotary"],
        "names must have a kind of figure in common, since they are drawn in one; got swin,rotary. Draw each by "
        "itself, or see situs plot --list.",
    ),
    "several for one map": (
        ["alibi,t5", "--kind", "bias"],
        "bias must be given one encoding, since its figure has room for one; got 2: alibi, t5. Draw each by itself, or "
        "choose a kind that takes several: distance, decay, likeness, attention, wavelengths.",
    ),
    "an enormous length": (
        ["learned", "--length", "1000000000000"],
        f"length must be 2 to 2,048 for table, {LENGTHS}; got 1000000000000.",
    ),
    "an enormous table": (
        ["learned", "max_length=1000000000000000"],
        "learned needs more memory than there is. Choose smaller sizes.",
    ),
    "no length": (["rotary", "--length", "0"], f"length must be 2 to 32 for rotation, {LENGTHS}; got 0."),
    "a length in words": (["rotary", "--length", "ten"], "--length must be written like 64; got 'ten'."),
    "a negative length": (["rotary", "--length=-3"], "--length must be written like 64; got '-3'."),
    "a size": (["swin", "--size", "7"], "--size must be written like 14x14; got '7'."),
    "channels": (
        ["learned", "--kind", "dimensions", "--channels", "1;2"],
        "--channels must be written like 0,1,8; got '1;2'.",
    ),
    "a training length": (
        ["rotary", "--kind", "wavelengths", "--train-length", "x"],
        "--train-length must be written like 64; got 'x'.",
    ),
    "another kind's choice": (["rotary", "--head", "2"], "rotation takes --length, --pair; got --head."),
    "another's training length": (
        ["alibi", "--train-length", "8"],
        "distance takes --length; got --train-length.",
    ),
    "a training length without a scaling": (
        ["rotary,rotary+axial", "--kind", "attention", "--train-length", "8"],
        "attention takes --length, --head, --no-causal; got --train-length.",
    ),
    "no training": (
        ["rotary+yarn", "--train-length", "1"],
        f"train_length must be 2 to 134,217,728 for rotation, {LENGTHS}; got 1.",
    ),
    "an enormous training": (
        ["rotary+yarn", "--train-length", "134217729"],
        f"train_length must be 2 to 134,217,728 for rotation, {LENGTHS}; got 134217729.",
    ),
    "a name to list": (
        ["rotery", "--list"],
        f"name must be one of {', '.join(situs.names())}; got 'rotery'. Did you mean 'rotary'?",
    ),
    "sizes that differ": (
        ["sinusoidal,shaw", "dim=128", "--kind", "attention", "--length", "4"],
        "encodings must be of one size to be drawn beside each other, since they meet the same queries and keys; got "
        "dim=128 of sinusoidal with 4 heads of 16.",
    ),
    "more keys than are counted": (
        ["cope", "--kind", "decay", "--length", "5000"],
        "length must be 4,096 or less for cope, since it looks at every key between; got 5,000.",
    ),
    "another's mask": (["swin", "--no-causal"], "grid takes --size; got --no-causal."),
    "no head so high": (
        ["shaw", "--head", "8", "--length", "8"],
        "head must be one of 0 .. 3, since shaw has 4 here; got 8.",
    ),
    "no pair so high": (["rotary", "--pair", "32"], "pair must be one of 0 .. 31, since so many pairs rotate; got 32."),
    "an ending": (
        ["rotary", "--out", "a.jpg"],
        "--out must end in .png, .svg, .pdf, since that tells the format; got 'a.jpg'.",
    ),
    "no ending": (
        ["rotary", "--out", "a"],
        "--out must end in .png, .svg, .pdf, since that tells the format; got 'a'.",
    ),
    "no such folder": (
        ["rotary", "--out", "there/a.png"],
        "--out must be in a folder that exists; got 'there/a.png'.",
    ),
    "a name too long": (
        ["rotary", "--out", f"{'a' * 300}.png"],
        f"--out must be a file that can be written; got '{'a' * 300}.png': File name too long.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_bad_input_gets_a_clear_sentence_and_leaves_no_file(
    what: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, message = WRONG[what]
    assert main(["plot", *arguments]) == 2
    assert capsys.readouterr() == ("", f"situs plot: {message}\n")
    assert left(here) == []


def test_a_folder_in_the_files_place_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "a.png").mkdir()
    assert main(["plot", "rotary", "--out", "a.png"]) == 2
    assert capsys.readouterr().err == "situs plot: --out must be a file that can be written; got 'a.png'.\n"
    assert left(here) == ["a.png"]


def test_a_file_that_may_not_be_written_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "a.png").write_text("mine")
    (here / "a.png").chmod(0o444)
    if os.access(here / "a.png", os.W_OK):
        pytest.skip("root may write it")
    assert main(["plot", "rotary", "--out", "a.png"]) == 2
    assert capsys.readouterr().err == "situs plot: --out must be a file that can be written; got 'a.png'.\n"
    assert (here / "a.png").read_text() == "mine"


def test_a_disk_that_is_full_leaves_the_old_file_and_nothing_else(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fill(file: int) -> None:
        assert sorted(path.suffix for path in here.iterdir()) == [".part", ".png"]
        raise OSError(28, "No space left on device")

    (here / "a.png").write_text("old")
    monkeypatch.setattr(os, "fsync", fill)
    assert main(["plot", "rotary", "--out", "a.png"]) == 2
    assert capsys.readouterr().err == "situs plot: a.png could not be written: No space left on device.\n"
    assert left(here) == ["a.png"]
    assert (here / "a.png").read_text() == "old"


def test_an_interruption_while_writing_leaves_no_part(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(file: int) -> None:
        assert [path.suffix for path in here.iterdir()] == [".part"]
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    assert main(["plot", "rotary", "--out", "a.png"]) == 130
    assert left(here) == []


def test_errors_that_are_no_lack_of_memory_are_not_called_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(options: Any) -> Any:
        raise RuntimeError("a defect")

    monkeypatch.setattr(plot, "_wanted", fail)
    with pytest.raises(RuntimeError, match=r"^a defect$"):
        main(["plot", "rotary"])


@pytest.mark.parametrize("arguments", [["rotary"], ["--list"]])
def test_without_matplotlib_one_is_told_how_to_get_it(arguments: list[str], here: Path) -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None; from situs.cli import main; "
        f"sys.exit(main(['plot', *{arguments!r}]))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (2, "")
    cure = "pip install 'situs[lab]', or '.[lab]' in the repository"
    assert found.stderr == f"situs plot: figures need matplotlib. Install it: {cure}.\n"
    assert left(here) == []
