"""One look for every figure of the project: light and dark, told apart without colour, and legible on a phone.

A figure is a title, a line that says what the vertical axis is, the drawing, and a caption that says what to see. It is
made within a context, which leaves matplotlib's settings as they were:

    with figure("Loss", "nats per byte", "It falls.", height=3.0, dark=True) as sheet:
        axes = sheet.axes()
        axes.plot(...)
    image = png(sheet.figure)

Colours start from those of Okabe & Ito, Color Universal Design (2008), changed until each stands out from the paper by
3:1 or more and all stay apart for the colour-blind; the marker and the dashes say the same again.
"""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.textpath import TextToPath

WIDE, NARROW = 7.6, 4.1  # inches
MARGIN = 0.12
LINE = 1.35  # of the size of the letters
TITLE, TEXT, SMALL = 13.0, 9.5, 8.5  # points
DPI = 200
FAMILY = "DejaVu Sans"  # comes with matplotlib


@dataclass(frozen=True)
class Theme:
    """Hold colours that go together."""

    paper: str
    ink: str
    faint: str
    grid: str
    shade: str
    hues: tuple[str, ...]
    little: str
    much: str
    below: str
    """Less than nothing, where numbers may be."""

    @property
    def colormap(self) -> LinearSegmentedColormap:
        """The colours from little to much, in one hue."""
        return LinearSegmentedColormap.from_list("situs", [self.little, self.much])

    @property
    def signed(self) -> LinearSegmentedColormap:
        """The colours from below zero over nothing to above, in two hues that no eye takes for each other."""
        return LinearSegmentedColormap.from_list("situs signed", [self.below, self.little, self.much])


LIGHT = Theme(
    paper="#ffffff",
    ink="#1a1f26",
    faint="#57606b",
    grid="#e4e7eb",
    shade="#eef4f1",
    hues=("#0072b2", "#e0643a", "#00946a", "#bc6095", "#1b9be6", "#c68700", "#6b6200"),
    little="#f2efe8",
    much="#005c91",
    below="#b04a10",
)
DARK = Theme(
    paper="#14171c",
    ink="#e9ebee",
    faint="#a3acb7",
    grid="#2a3038",
    shade="#1b2724",
    hues=("#4c9fe0", "#f0803c", "#22bd8f", "#df94bd", "#8fd0f5", "#e6a92b", "#efe46a"),
    little="#262b33",
    much="#6cc0f5",
    below="#f28a4b",
)
DASHES: tuple[Any, ...] = (
    "solid", (0, (4, 1.4)), (0, (1.2, 1.2)), (0, (5, 1.2, 1.2, 1.2)),
    (0, (9, 1.6)), (0, (1.2, 2.8)), (0, (9, 1.4, 3, 1.4)),
)  # fmt: skip
"""Of lines that share a hue; `dashes` goes on with a dash and more and more dots."""
FAMILIES = 3  # that have a hue for themselves
MARKERS = "osD^vXP<>*hd"


@dataclass(frozen=True)
class Look:
    """Hold how one line is drawn."""

    colour: str
    dashes: Any
    marker: str

    @property
    def line(self) -> dict[str, Any]:
        """The options of ``Axes.plot``."""
        size = 4.6 if self.marker in "o^vXP<>" else 4.0
        return {
            "color": self.colour, "linestyle": self.dashes, "marker": self.marker, "markersize": size, "linewidth": 1.6,
        }  # fmt: skip


def dashes(variant: int) -> Any:
    """Give the dashes of so many lines of one hue, each its own."""
    if variant < len(DASHES):
        return DASHES[variant]
    return (0, (5, 1.2, *(1.2, 1.2) * (variant - len(DASHES) + 2)))


def looks(names: Sequence[str], theme: Theme, *, families: Sequence[str] | None = None) -> dict[str, Look]:
    """Give each name a look. Names of one family share a hue with each other and no one else; the rest take turns. What
    shares a hue differs in its dashes, so that no two lines are alike, and in its marker while there are others.

    families: that of each name; each is its own if left out.
    """
    family = dict(zip(names, names if families is None else families, strict=True))
    members = Counter(family.values())
    joined = [base for base, count in members.items() if count > 1][:FAMILIES]
    alone = [base for base in members if base not in joined]
    shared = range(len(joined), len(theme.hues))
    hues = {base: hue for hue, base in enumerate(joined)}
    hues |= {base: shared[number % len(shared)] for number, base in enumerate(alone)}
    seen: dict[int, int] = {}
    found = {}
    for name in names:
        hue = hues[family[name]]
        variant = seen[hue] = seen.get(hue, -1) + 1
        found[name] = Look(theme.hues[hue], dashes(variant), MARKERS[(hue + variant) % len(MARKERS)])
    return found


@dataclass(frozen=True)
class Sheet:
    """Hold a figure with its title and caption, and room for axes in between."""

    figure: Figure
    theme: Theme
    narrow: bool
    top: float
    """Inches from the upper edge that are taken."""
    bottom: float

    @property
    def width(self) -> float:
        """The width in inches."""
        return float(self.figure.get_figwidth())

    def axes(self, *, left: float = 0.45, right: float = MARGIN, above: float = 0.0, below: float = 0.5) -> Axes:
        """Make axes with so many inches of room around them, within title and caption."""
        height = float(self.figure.get_figheight()) - self.top - self.bottom
        return self.inches(left, self.bottom + below, self.width - left - right, height - above - below)

    def inches(self, x: float, y: float, width: float, height: float) -> Axes:
        """Make axes somewhere, in inches from the lower left."""
        total = float(self.figure.get_figheight())
        return self.figure.add_axes((x / self.width, y / total, width / self.width, height / total))


@contextmanager
def styled() -> Iterator[None]:
    """Switch to the settings of all figures, whatever the user's are, and back afterwards."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({"font.family": FAMILY, "text.parse_math": False, "savefig.facecolor": "auto"})
        yield


@contextmanager
def figure(
    title: str, subtitle: str, caption: str, *, height: float, dark: bool = False, narrow: bool = False
) -> Iterator[Sheet]:
    """Make a sheet whose drawing is ``height`` inches high; what does not fit on a line goes on the next."""
    theme = DARK if dark else LIGHT
    width = NARROW if narrow else WIDE
    title_size = TITLE - 1.5 if narrow else TITLE
    room = width - 2 * MARGIN
    heading = wrapped(title, title_size, room, weight="bold")
    under, foot = wrapped(subtitle, TEXT, room), wrapped(caption, TEXT, room)
    line, title_line = TEXT * LINE / 72, title_size * LINE / 72
    top = MARGIN + len(heading) * title_line + len(under) * line + 0.12
    bottom = MARGIN + len(foot) * line + (0.06 if foot else 0.0)
    with styled():
        matplotlib.rcParams.update(_settings(theme))
        total = math.ceil(50 * (top + height + bottom)) / 50  # whole pixels at 50, 100, 150 and 200 to the inch
        sheet = Sheet(Figure(figsize=(width, total), dpi=DPI), theme, narrow, top, bottom)
        sheet.figure.set_label(f"{title}. {caption}")
        left: dict[str, Any] = {"x": MARGIN / width, "ha": "left", "va": "top", "linespacing": LINE * 0.86}
        write = sheet.figure.text
        write(y=1 - MARGIN / total, s="\n".join(heading), size=title_size, weight="bold", **left)
        lower = MARGIN + len(heading) * title_line
        write(y=1 - lower / total, s="\n".join(under), size=TEXT, color=theme.faint, **left)
        write(y=(bottom - 0.06) / total, s="\n".join(foot), size=TEXT, color=theme.faint, **left)
        yield sheet


def _settings(theme: Theme) -> Any:  # matplotlib names every key in its types, and not the same in every version
    return {
        "figure.facecolor": theme.paper, "axes.facecolor": theme.paper, "text.color": theme.ink,
        "axes.edgecolor": theme.faint, "axes.labelcolor": theme.faint, "axes.labelsize": TEXT, "axes.linewidth": 0.8,
        "axes.spines.top": False, "axes.spines.right": False, "axes.spines.left": False,
        "axes.grid": True, "axes.grid.axis": "y", "axes.axisbelow": True,
        "grid.color": theme.grid, "grid.linewidth": 0.8,
        "xtick.color": theme.faint, "ytick.color": theme.faint, "xtick.labelsize": SMALL, "ytick.labelsize": SMALL,
        "ytick.major.size": 0, "xtick.major.size": 3, "xtick.minor.size": 0, "ytick.minor.size": 0,
        "xtick.minor.bottom": False, "font.size": TEXT, "hatch.color": theme.faint, "hatch.linewidth": 0.5,
    }  # fmt: skip


def png(drawn: Figure, *, dpi: int = DPI) -> bytes:
    """Make an image in a palette of 256 colours: a third of the size, and no eye tells the difference."""
    from PIL import Image

    pixels, file = io.BytesIO(), io.BytesIO()
    size = round(float(drawn.get_figwidth()) * dpi), round(float(drawn.get_figheight()) * dpi)
    with styled():
        drawn.savefig(pixels, format="rgba", dpi=dpi)
    image = Image.frombytes("RGBA", size, pixels.getvalue()).convert("RGB")
    image.quantize(256, dither=Image.Dither.NONE).save(file, "PNG", optimize=True, dpi=(dpi, dpi))
    return file.getvalue()


def image(drawn: Figure, form: str) -> bytes:
    """Make a file of a figure: "png", "svg" or "pdf", the same bytes every time."""
    if form == "png":
        return png(drawn)
    file = io.BytesIO()
    nothing = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}[form]
    with styled(), matplotlib.rc_context({"svg.hashsalt": "situs", "svg.fonttype": "path", "pdf.fonttype": 42}):
        drawn.savefig(file, format=form, metadata=nothing)
    return file.getvalue()


@lru_cache(maxsize=4096)
def text_width(text: str, size: float, weight: str = "normal") -> float:
    """Measure a text in inches, at a size in points."""
    font = FontProperties(family=FAMILY, size=size, weight=weight)
    width, _, _ = TextToPath().get_text_width_height_descent(text, font, ismath=False)
    return float(width) / 72


def wrapped(text: str, size: float, width: float, *, weight: str = "normal") -> list[str]:
    """Wrap a text into lines that are no wider than so many inches, if no single word is."""
    lines: list[str] = []
    for word in legible(text).split(" "):
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer, size, weight) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


@lru_cache(maxsize=1)
def _signs() -> frozenset[int]:
    return frozenset(get_font(findfont(FontProperties(family=FAMILY))).get_charmap())


def legible(text: str) -> str:
    """Write a text in signs that the letters have, since others would be drawn as boxes with a warning each."""
    return "".join(sign if ord(sign) in _signs() else "?" for sign in text)


def minus(text: str) -> str:
    """Write the minus sign that is meant where hyphens are signs of numbers."""
    return text.replace("-", "\u2212")


def short(name: str, letters: int = 24) -> str:
    """Shorten a name to what fits beside a line: its beginning and its end."""
    plain = legible(" ".join(name.split()))
    half = (letters - 1) // 2
    return plain if len(plain) <= letters else f"{plain[: letters - 1 - half]}…{plain[-half:]}"
