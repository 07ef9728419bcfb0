"""The look of figures: legible in both themes, told apart without colour, and gone without a trace."""

import io
import itertools
import subprocess
import sys
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

from situs.lab.naming import parse
from situs.plots import style
from situs.plots.style import DARK, LIGHT, Theme
from tests.plots.comparison.sample import METHODS, ODD

pytestmark = pytest.mark.once

THEMES = pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
# Machado, Oliveira & Fernandes 2009, severity 1: what people without red, green or blue cones see, in linear RGB
BLINDNESS = {
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def linear(colour: str) -> np.ndarray[Any, Any]:
    value = np.array(to_rgb(colour))
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    light = sorted(float(linear(colour) @ [0.2126, 0.7152, 0.0722]) for colour in (one, other))
    return (light[1] + 0.05) / (light[0] + 0.05)


def lab(rgb: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    x, y, z = np.cbrt(np.clip(np.array(to_xyz) @ rgb / [0.9505, 1.0, 1.089], 1e-6, None))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def sample(**options: Any) -> matplotlib.figure.Figure:
    with style.figure("Title", "what is up", "What to see.", height=2.0, **options) as sheet:
        sheet.axes().plot([1, 2], [3, 4])
    return sheet.figure


@THEMES
def test_letters_and_lines_stand_out_from_the_paper(theme: Theme) -> None:
    assert min(contrast(theme.paper, colour) for colour in (theme.ink, theme.faint)) >= 4.5
    assert {hue: contrast(theme.paper, hue) for hue in theme.hues if contrast(theme.paper, hue) < 3} == {}


@THEMES
@pytest.mark.parametrize("kind", BLINDNESS)
def test_hues_are_told_apart_by_the_colour_blind(theme: Theme, kind: str) -> None:
    seen = [lab(np.clip(np.array(BLINDNESS[kind]) @ linear(hue), 0, 1)) for hue in theme.hues]
    assert min(float(np.linalg.norm(one - other)) for one, other in itertools.combinations(seen, 2)) > 10


@THEMES
def test_thirty_methods_all_look_different(theme: Theme) -> None:
    names = [*METHODS, *(f"method_{number}" for number in range(30 - len(METHODS)))]
    assert len(set(style.looks(names, theme).values())) == 30


def test_scalings_share_the_hue_of_what_they_scale_and_nobody_else_has_it() -> None:
    looks = style.looks(METHODS, LIGHT, families=[parse(name).base for name in METHODS])
    family = {name for name in METHODS if name.startswith("rotary")}
    assert {name for name in METHODS if looks[name].colour == looks["rotary"].colour} == family
    assert len({looks[name].marker for name in family}) == len({str(looks[name].dashes) for name in family}) == 4


@pytest.mark.parametrize(("members", "others"), [(12, 0), (9, 14), (5, 60)])
def test_no_two_methods_share_both_colour_and_dashes(members: int, others: int) -> None:
    names = [*(f"rotary+{number}" for number in range(members)), *(f"method_{number}" for number in range(others))]
    families = ["rotary"] * members + names[members:]
    looks = style.looks(names, LIGHT, families=families)
    assert len({(look.colour, str(look.dashes)) for look in looks.values()}) == members + others
    axes = matplotlib.figure.Figure().subplots()
    for look in looks.values():
        axes.plot([0, 1], [0, 1], **look.line)  # matplotlib takes them all


def test_a_plus_in_a_number_makes_no_family() -> None:
    names = ["rotary(base=1e+5)", "rotary(base=1e+6)", "rotary(base=1e+6)+yarn"]
    looks = style.looks(names, LIGHT, families=[parse(name).base for name in names])
    colours = [looks[name].colour for name in names]
    assert colours[0] != colours[1] == colours[2]


def test_matplotlib_is_left_as_it_was() -> None:
    before = dict(matplotlib.rcParams)
    style.png(sample(dark=True))
    with pytest.raises(ZeroDivisionError), style.figure("", "", "", height=1.0):
        raise ZeroDivisionError
    assert dict(matplotlib.rcParams) == before


def test_the_settings_of_users_change_nothing() -> None:
    expected = style.png(sample())
    theirs: Any = {
        "font.size": 30, "axes.facecolor": "red", "lines.linewidth": 9, "savefig.facecolor": "red",
        "savefig.bbox": "tight",
    }  # fmt: skip
    with matplotlib.rc_context(theirs):
        assert style.png(sample()) == expected


def test_no_window_is_ever_opened() -> None:
    code = "import sys, situs.plots.comparison.report; print('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.parametrize(("narrow", "width"), [(False, 1520), (True, 820)])
@THEMES
def test_images_are_whole_pixels_of_paper(theme: Theme, narrow: bool, width: int) -> None:
    image = Image.open(io.BytesIO(style.png(sample(dark=theme is DARK, narrow=narrow)))).convert("RGB")
    assert image.width == width
    paper = tuple(round(255 * part) for part in to_rgb(theme.paper))
    edges = [image.crop(box).getcolors() for box in ((0, 0, width, 1), (0, image.height - 1, width, image.height))]
    assert edges == [[(width, paper)], [(width, paper)]]


def test_the_title_is_on_the_left_and_the_caption_below() -> None:
    title, subtitle, caption = sample().texts
    assert [text.get_text() for text in (title, subtitle, caption)] == ["Title", "what is up", "What to see."]
    assert title.get_position()[0] == subtitle.get_position()[0] == caption.get_position()[0] < 0.02
    assert title.get_position()[1] > subtitle.get_position()[1] > 0.8 > 0.2 > caption.get_position()[1]
    assert sample().get_label() == "Title. What to see."


def test_lines_are_wrapped_where_they_would_get_too_wide() -> None:
    lines = style.wrapped("some words that do not fit on one line", 10.0, 1.2)
    assert " ".join(lines) == "some words that do not fit on one line"
    assert max(style.text_width(line, 10.0) for line in lines) <= 1.2 < style.text_width(" ".join(lines[:2]), 10.0)


def test_long_names_keep_their_beginning_and_their_end() -> None:
    assert style.short("rotary") == "rotary"
    assert style.short("my_module:MyEncoding(max_distance=32)", 16) == "my_modul…nce=32)"
    assert len(style.short(ODD, 16)) == 16


def test_signs_without_a_letter_become_question_marks() -> None:
    assert style.short("编码:Zoë") == "??:Zoë"
    assert style.wrapped("编 α", 10.0, 5.0) == ["? α"]
