"""``situs plot`` as a person runs it: the file that was asked for, and the figure in it."""

from __future__ import annotations

import itertools
import json
import webbrowser
from pathlib import Path
from typing import Any

import matplotlib.figure
import pytest
import torch
from PIL import Image

import situs
from situs.cli import main
from situs.lab.naming import parse
from situs.lab.probing import portraits
from situs.lab.probing.sitters import Sitter, sitters_of
from situs.plots import KINDS, suiting
from situs.plots.style import DARK, LIGHT
from tests.plots.portraits.reading import drawn, lines, panels, words
from tests.test_cli import OWN

pytestmark = pytest.mark.once


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[matplotlib.figure.Figure]:
    """All that are written from now on."""
    from situs.plots import style

    kept: list[matplotlib.figure.Figure] = []
    image = style.image

    def keep(figure: matplotlib.figure.Figure, form: str) -> bytes:
        kept.append(figure)
        return image(figure, form)

    monkeypatch.setattr(style, "image", keep)
    return kept


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("file", "magic"),
    [("a.png", b"\x89PNG\r\n\x1a\n"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF-"), ("a.b.PNG", b"\x89PNG")],
)
def test_the_ending_tells_the_format_and_bytes_are_the_same_twice(
    file: str, magic: bytes, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["plot", "t5", "--kind", "distance", "--length", "8", "--out", file]
    assert main(arguments) == 0
    assert capsys.readouterr() == (f"{file}\n", "")
    first = (here / file).read_bytes()
    assert first.startswith(magic)
    (here / file).unlink()
    assert main(arguments) == 0
    assert (here / file).read_bytes() == first
    assert left(here) == [file]


def test_an_old_file_is_replaced(here: Path) -> None:
    (here / "a.png").write_text("old")
    assert main(["plot", "rotary", "--out", "a.png"]) == 0
    with Image.open(here / "a.png") as image:
        assert image.width == 1520


@pytest.mark.parametrize(
    ("arguments", "file"),
    [
        (["rotary"], "rotary-rotation.png"),
        (["alibi,kerple", "--kind", "decay", "--length", "8"], "alibi-kerple-decay.png"),
        (["shaw(max_distance=4)", "--length", "8"], "shaw-max-distance-4-scores.png"),
        (["T5Bias", "--kind", "bias", "--length", "8"], "t5-bias.png"),
        (["RoPE,yarn(factor=8)", "--kind", "wavelengths"], "rotary-rotary-yarn-factor-8-wavelengths.png"),
        (
            [
                "sinusoidal,learned,rotary,xpos,alibi,kerple,t5,sandwich,fire,shaw",
                "--kind",
                "likeness",
                "--length",
                "4",
            ],
            "sinusoidal-learned-rotary-xpos-alibi-kerple-t5-sandwich-fire-likeness.png",
        ),
    ],
)
def test_without_a_file_name_it_is_that_of_names_and_kind(
    arguments: list[str], file: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plot", *arguments]) == 0
    assert capsys.readouterr().out == f"{here / file}\n"
    assert left(here) == [file]


def test_the_figure_is_of_what_was_asked_for(figures: list[Any]) -> None:
    assert main(["plot", "sinusoidal", "dim=8", "layout=concatenated", "--kind=table", "--length=6"]) == 0
    (axes,) = panels(figures[-1])
    assert drawn(axes).shape == (6, 8)
    assert drawn(axes)[0].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert main(["plot", "alibi", "num_heads=3", "--length", "6"]) == 0
    assert list(lines(panels(figures[-1])[0])) == ["head 1", "head 2", "head 3"]
    assert main(["plot", "rotary", "--pair", "2", "--length", "4"]) == 0
    assert words(figures[-1])[1].startswith("pair 2 of 32")
    assert main(["plot", "sinusoidal", "--kind", "dimensions", "--channels", "3,1", "--length", "4"]) == 0
    assert [axes.get_label() for axes in panels(figures[-1])] == ["channel 3", "channel 1"]
    assert main(["plot", "rotary+axial", "--size", "3x5"]) == 0
    assert drawn(panels(figures[-1])[0]).shape == (3, 5)
    assert main(["plot", "shaw", "--kind", "attention", "--head", "1", "--no-causal", "--length", "4"]) == 0
    assert "head 2, held-out text; colour" in words(figures[-1])[1]


def test_scalings_go_from_the_training_length_to_the_texts(figures: list[Any]) -> None:
    names = "rotary,rotary+linear"
    assert main(["plot", names, "--kind", "wavelengths", "--train-length", "50", "--length", "400"]) == 0
    shown = lines(panels(figures[-1])[0])
    assert shown["rotary+linear"][1] / shown["rotary"][1] == pytest.approx(8.0)


def test_bare_names_of_scalings_draw_lines_that_differ(figures: list[Any]) -> None:
    names = "rotary,rotary+linear,rotary+ntk,rotary+yarn,rotary+dynamic_ntk"
    assert main(["plot", names, "--kind", "wavelengths"]) == 0
    shown = {name: y for name, (_, y) in lines(panels(figures[-1])[0]).items()}
    assert shown["rotary+linear"] / shown["rotary"] == pytest.approx(4.0)
    assert (shown["rotary+ntk"] / shown["rotary"])[[0, -1]] == pytest.approx([1, 4])
    assert (shown["rotary+yarn"] / shown["rotary"])[[0, -1]] == pytest.approx([1, 4])
    dynamic = (4 * 8192 / 2048 - 3) ** (32 / 31)  # its base grows with the text, four times as long as in training
    assert (shown["rotary+dynamic_ntk"] / shown["rotary"])[-1] == pytest.approx(dynamic ** (31 / 32))
    for one, other in itertools.combinations(shown, 2):
        assert float(abs(shown[one] / shown[other] - 1).max()) > 0.4, (one, other)


def test_the_training_length_goes_to_scalings_whatever_is_drawn(figures: list[Any]) -> None:
    arguments = ["plot", "rotary+linear", "--pair", "0"]
    for more, step in (
        ([], "0.25"), (["--train-length", "4096"], "0.25"), (["--train-length", "16", "--length", "32"], "0.5"),
        (["--train-length", "32", "--length", "16"], "0.25"),
    ):  # fmt: skip
        assert main([*arguments, *more]) == 0
        assert words(figures[-1])[1] == f"pair 0 of 32, rotated by {step} radians per position"
    assert main(["plot", "alibi,rotary+linear", "--train-length", "8", "--length", "64"]) == 0
    encoding = situs.Rotary(head_dim=64, scaling=situs.LinearScaling(factor=8.0))
    found = portraits.decay(Sitter("rotary", (encoding,)), torch.arange(64)).mean[0]
    assert lines(panels(figures[-1])[0])["rotary+linear"][1] == pytest.approx((found - found[0]).numpy(), abs=1e-4)


def test_the_longest_training_can_be_drawn(figures: list[Any]) -> None:
    assert main(["plot", "rotary+dynamic_ntk", "--kind", "wavelengths", "--train-length", str(1 << 27)]) == 0
    assert list(lines(panels(figures[-1])[0])) == ["rotary+dynamic_ntk"]


def test_tables_are_long_enough_for_the_text_that_is_asked_for(figures: list[Any]) -> None:
    assert main(["plot", "learned", "--kind", "dimensions", "--length", "600", "--channels", "0"]) == 0
    assert panels(figures[-1])[0].get_xlim() == (0, 599)
    assert main(["plot", "learned", "max_length=20"]) == 0
    assert drawn(panels(figures[-1])[0]).shape == (20, 128)


def test_what_acts_together_is_drawn_together(figures: list[Any]) -> None:
    assert main(["plot", "learned&shaw&rotary", "--length", "6"]) == 0
    assert words(figures[-1])[0] == "How scores fall with distance: learned&shaw&rotary"


def test_ones_own_class_is_drawn(here: Path, figures: list[Any]) -> None:
    (here / "own_to_plot.py").write_text(OWN)
    assert main(["plot", "own_to_plot:Halfway", "--length", "5", "--out", "a.svg"]) == 0
    assert drawn(panels(figures[-1])[0]).tolist() == [[place / 2] * 128 for place in range(5)]
    assert words(figures[-1])[0] == "What own_to_plot:Halfway adds to the input"


def test_dark_is_for_dark_pages(here: Path) -> None:
    for file, more, theme in (("light.png", [], LIGHT), ("dark.png", ["--dark"], DARK)):
        assert main(["plot", "rotary", "--out", file, *more]) == 0
        with Image.open(here / file) as image:
            pixel = image.convert("RGB").getpixel((0, 0))
        assert isinstance(pixel, tuple)
        assert "#" + "".join(f"{int(part):02x}" for part in pixel) == theme.paper


def test_list_says_what_kinds_there_are_and_whom_they_suit(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plot", "--list"]) == 0
    kinds, encodings = (part.splitlines() for part in capsys.readouterr().out.split("\n\n"))
    assert [line.split()[0] for line in kinds] == list(KINDS)
    assert "decay        how the score of a token with itself falls with distance (several at once)" in kinds
    assert "table        what is added at each position, as a map over positions and channels" in kinds
    assert [line.split()[0] for line in encodings] == [*situs.names(), "rotary+axial", "sinusoidal(axes=2)"]
    assert "alibi               distance, bias, decay, likeness, order, attention" in encodings
    assert left(here) == []


def test_list_of_names_lists_those_only(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plot", "rotary+axial, alibi,shaw(values=False)", "--list"]) == 0
    kinds, encodings = (part.splitlines() for part in capsys.readouterr().out.split("\n\n"))
    assert [line.split()[0] for line in kinds] == list(KINDS)
    assert encodings == [
        f"rotary+axial        {', '.join(suiting(sitters_of([parse('rotary+axial')], {}, length=2)[0]))}",
        "alibi               distance, bias, decay, likeness, order, attention",
        "shaw(values=False)  scores, decay, likeness, order, attention",
    ]
    assert main(["plot", "none,t5", "--list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["encodings"] == {
        "none": ["order", "attention"],
        "t5": ["distance", "bias", "decay", "likeness", "order", "attention"],
    }
    assert left(here) == []


def test_list_as_json_can_be_read_by_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plot", "--list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    by_name = {kind["name"]: kind for kind in found["kinds"]}
    assert list(by_name) == list(KINDS)
    assert by_name["attention"] == {
        "name": "attention",
        "about": "the attention weights of a head, without the encoding and with it",
        "suits": "an encoding for text",
        "several": True,
        "options": {"length": 48, "head": 0, "causal": True},
    }
    assert found["encodings"]["none"] == ["order", "attention"]
    assert set(found["encodings"]) == {*situs.names(), "rotary+axial", "sinusoidal(axes=2)"}


def test_show_opens_the_file(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    opened: list[str] = []

    def view(address: str) -> bool:
        opened.append(address)
        return True

    monkeypatch.setattr(webbrowser, "open", view)
    assert main(["plot", "rotary", "--show", "--out", "a.svg"]) == 0
    assert opened == [(here / "a.svg").as_uri()]
    assert main(["plot", "rotary", "--show"]) == 0
    file = Path(capsys.readouterr().out.splitlines()[-1])
    assert opened[1] == file.as_uri()
    assert file.name == "rotary-rotation.png"
    assert file.exists()
    assert left(here) == ["a.svg"]  # what is only looked at does not lie about


def test_show_without_a_viewer_says_where_the_figure_is(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda address: False)
    assert main(["plot", "rotary", "--show", "--out", "a.png"]) == 2
    assert capsys.readouterr().err == (
        "situs plot: --show needs a viewer, and none was found; the figure is in a.png.\n"
    )
    assert left(here) == ["a.png"]


def test_options_may_stand_behind_flags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, behind = tmp_path / "before.png", tmp_path / "behind.png"
    assert main(["plot", "alibi", "num_heads=3", "--kind", "bias", "--length", "8", "--out", str(before)]) == 0
    assert main(["plot", "alibi", "--kind", "bias", "--length", "8", "--out", str(behind), "num_heads=3"]) == 0
    assert before.read_bytes() == behind.read_bytes()
    with pytest.raises(SystemExit):
        main(["plot", "alibi", "--kind", "bias", "--colour", "num_heads=3"])
    assert "unrecognized arguments: --colour" in capsys.readouterr().err


def test_trained_parameters_are_drawn_unless_untrained_ones_are_asked_for(figures: list[Any]) -> None:
    trained = "Trained for 800 steps on texts of 64 bytes, Python's standard library; layer 1 of 2."
    for arguments, note in (
        (["shaw"], trained),
        (["shaw", "--untrained"], "As initialised, not trained."),
        (["shaw", "head_dim=8"], "As initialised: trained parameters are stored for head_dim=16 only."),
        (["cope", "--untrained"], "As initialised, not trained. All parameters are 0."),
        (["learned", "--length", "80"], "As initialised: the trained table has 64 positions only."),
        (["t5", "--kind", "bias", "--length", "80"], f"{trained} Distances of 64 and more were never trained."),
    ):
        assert main(["plot", *arguments]) == 0
        assert words(figures[-1])[2].endswith(f" {note}"), arguments


def test_several_trained_encodings_share_a_sentence(figures: list[Any]) -> None:
    assert main(["plot", "t5,alibi,kerple", "--kind", "distance", "--length", "32"]) == 0
    assert words(figures[-1])[2].endswith(
        " t5, kerple: trained for 800 steps on texts of 64 bytes, Python's standard library."
    )


def test_what_lies_beyond_training_is_marked(figures: list[Any]) -> None:
    assert main(["plot", "t5"]) == 0
    (axes,) = panels(figures[-1])
    assert axes.get_xlim() == (0, 127)
    assert [patch.get_gid() for patch in axes.patches] == ["never trained"]
    assert main(["plot", "t5", "--length", "64"]) == 0
    assert len(panels(figures[-1])[0].patches) == 0
    assert main(["plot", "alibi,t5", "--kind", "distance"]) == 0
    assert " t5: trained up to here" in [text.get_text() for text in panels(figures[-1])[0].texts]
