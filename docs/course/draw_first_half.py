"""Draw the pictures of chapters 1 to 4, each from the objects that the chapter's code uses.

``PICTURES`` names them for ``python docs/make.py figures``, which writes docs/figures/course-NAME.png and
course-NAME-dark.png.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Arc, Circle, FancyBboxPatch
from torch import Tensor

import situs
from situs.plots import style
from situs.plots.panels import Colours, Map, Panels
from situs.plots.style import MARGIN, SMALL, Sheet

SENTENCES = ("the cat chased the dog", "the dog chased the cat")


def order(*, dark: bool = False) -> Figure:
    """Draw the attention weights of two sentences of the same words: without positions, causal, with positions."""
    torch.manual_seed(0)
    vectors = {word: torch.randn(32) for word in ("the", "cat", "chased", "dog")}
    project = torch.randn(2, 32, 32) / math.sqrt(32)
    ways = {
        "no positions": (None, False),
        "no positions, causal mask": (None, True),
        "positions added": ("added", False),
    }
    left, wide, gap, high = 0.62, 2.14, 0.13, 1.3
    with style.figure(
        "The same words in two orders",
        "rows: words as queries; columns: words as keys; colour and number: the attention weight",
        "Without positions both maps hold the same weights: each word looks at each other word as before, wherever the "
        "two stand. A causal mask hides what comes later, and so tells the two sentences apart; positions do, too.",
        height=2 * high + 0.75,
        dark=dark,
    ) as sheet:
        for column, (way, (added, causal)) in enumerate(ways.items()):
            for row, sentence in enumerate(SENTENCES):
                words = sentence.split()
                x = torch.stack([vectors[word] for word in words])[None]
                x = situs.Sinusoidal(dim=32)(x) if added else x
                query, key = (x @ each for each in project)
                weights = situs.attend(query[None], key[None], torch.eye(5)[None, None], causal=causal)[0, 0]
                y = sheet.bottom + 0.28 + (1 - row) * (high + 0.12)
                axes = sheet.inches(left + column * (wide + gap), y, wide, high)
                axes.imshow(weights, cmap=sheet.theme.colormap, vmin=0, vmax=0.8, aspect="auto")
                _number_cells(axes, weights, sheet)
                axes.set_yticks(range(5), words if column == 0 else [""] * 5)
                axes.set_xticks(range(5), words)
                axes.tick_params(labelsize=7.5, length=0, pad=2)
                axes.grid(visible=False)
                axes.spines["bottom"].set_visible(False)
                if row == 0:
                    axes.tick_params(labelbottom=False, labeltop=True)
                    axes.set_title(way, size=style.TEXT, weight="bold", pad=17)
    return sheet.figure


def _number_cells(axes: Axes, weights: Tensor, sheet: Sheet) -> None:
    for (row, column), weight in np.ndenumerate(weights.numpy()):
        if weight > 0.005:
            colour = sheet.theme.paper if weight > 0.5 else sheet.theme.ink
            said = f"{weight:.2f}".removeprefix("0")
            axes.text(column, row, said, ha="center", va="center", size=7.5, color=colour)


def places(*, dark: bool = False) -> Figure:
    """Draw the steps of attention, and under each place the encodings of the registry that act there."""
    steps = ("x", "x + p(i)", "q, k, v", "R(m) q,  R(n) k", "q · k + b", "softmax", "Σ a (v + r)")
    widths = (0.35, 0.86, 0.72, 1.2, 0.9, 0.78, 0.98)
    named = {1: "input", 3: "query and key", 4: "score", 6: "value"}
    acting = {place: [name for name in situs.names() if _acts(name, place)] for place in named.values()}
    line, head, most = 0.165, 1.2, 9  # inches of a name, and above the first; names below each other
    height = head + line * min(most, max(map(len, acting.values())))
    with style.figure(
        "Where position enters attention",
        "the steps from a word to its output; in colour, the places where position can be added",
        "x: word; p: vector of a position; R: rotation; b: number or term for a pair of positions; a: "
        "attention weight; r:\u00a0vector of a distance.",
        height=height,
        dark=dark,
    ) as sheet:
        axes = sheet.axes(left=0.0, right=0.0, below=0.0)
        axes.set_axis_off()
        axes.set(xlim=(0, sheet.width), ylim=(-height, 0))
        gap = (sheet.width - 2 * MARGIN - sum(widths)) / (len(steps) - 1)
        x = MARGIN
        for number, (step, width) in enumerate(zip(steps, widths, strict=True)):
            place = named.get(number)
            hue = sheet.theme.faint if place is None else sheet.theme.hues[list(named).index(number)]
            box = FancyBboxPatch(
                (x + 0.05, -0.55),
                width - 0.1,
                0.35,
                boxstyle="round,pad=0.05",
                fill=False,
                edgecolor=hue,
                linewidth=1.6,
            )
            axes.add_patch(box)
            axes.text(x + width / 2, -0.385, step, ha="center", va="center", size=SMALL)
            if number + 1 < len(steps):
                arrow = {"arrowstyle": "->", "color": sheet.theme.faint, "shrinkA": 0, "shrinkB": 0}
                axes.annotate("", (x + width + gap - 0.02, -0.375), (x + width + 0.02, -0.375), arrowprops=arrow)
            if place is not None:
                axes.plot([x + width / 2] * 2, [-0.62, -0.85], color=hue, linewidth=1.6)
                axes.text(x + width / 2, -0.98, place, ha="center", va="center", weight="bold", color=hue)
                for index, name in enumerate(acting[place]):
                    column, below = divmod(index, most)
                    across = x + width / 2 + 0.95 * column
                    axes.text(across, -head - line * below, name, ha="center", va="center", size=SMALL)
            x += width + gap
    return sheet.figure


def _acts(name: str, place: str) -> bool:
    """Tell whether an encoding acts at a place; what changes queries alone stands with queries and keys."""
    where = situs.entry(name).place
    return where in ("query", "query and key") if place == "query and key" else place in where.split(" and ")


def sinusoids(*, dark: bool = False) -> Figure:
    """Draw the table of sinusoids, some of its channels, and how similar position 64 is to the others."""
    encoding, length = situs.Sinusoidal(dim=64), 128
    table: Map = encoding.encode(situs.Positions.range(length), torch.float64)[0].numpy()
    waves = 2 * math.pi / encoding.frequencies()
    height, left = 3.3, 4.35
    with style.figure(
        "Sinusoidal positions: many waves, fast to slow",
        "left: position (down) and channel of 64 (right); right: single channels, and the cosine with position 64",
        "Fast channels on the left tell neighbours apart; those on the right hardly move within 128 positions. Near "
        "positions are similar, and the similarity falls with distance, though not steadily.",
        height=height,
        dark=dark,
    ) as sheet:
        axes = sheet.inches(0.48, sheet.bottom + 0.5, 3.3, height - 0.55)
        colours = Colours.of([table], sheet.theme)
        colours.draw(axes, table)
        axes.grid(visible=False)
        axes.spines["bottom"].set_visible(False)
        colours.key(sheet, "added", room=sheet.width - 3.6)
        for number, channel in enumerate((0, 16, 32)):
            strip = sheet.inches(left, sheet.bottom + height - 0.6 * (number + 1), 2.1, 0.5)
            strip.plot(table[:, channel], color=sheet.theme.hues[number], linewidth=1.3)
            strip.set(xlim=(0, length - 1), ylim=(-1.15, 1.15), xticks=[], yticks=[0], yticklabels=[""])
            words = f"channel {channel}\n{waves[channel // 2]:,.0f} positions\nper wave"
            strip.text(1.04, 0.5, words, transform=strip.transAxes, va="center", size=SMALL, linespacing=1.1)
        curve = sheet.inches(left, sheet.bottom + 0.5, 2.1, height - 2.45)
        alike = table @ table[64] / 32
        curve.plot(alike, color=sheet.theme.hues[0], linewidth=1.5)
        curve.set(xlim=(0, length - 1), ylim=(0, 1.05), yticks=[0, 0.5, 1])
        words = "cosine with\nposition 64"
        curve.text(1.04, 0.5, words, transform=curve.transAxes, va="center", size=SMALL, linespacing=1.1)
        curve.set_xlabel("position", labelpad=2, loc="left")
    return sheet.figure


def clock_hands(*, dark: bool = False) -> Figure:
    """Draw pairs of channels as hands of clocks: a step of four positions is the same angle, wherever it starts."""
    encoding, step, starts = situs.Sinusoidal(dim=16), 4, (3, 20)
    frequencies = encoding.frequencies()
    size, gap = 1.6, 0.28
    with style.figure(
        "In four positions every hand moves by its own angle",
        "each clock is one pair of channels: right its cosine, up its sine; thin: before the step, thick: after it",
        "The angle of the step is 4 ω radians in either colour: moving by 4 is the same rotation from position 3 as "
        "from position 20. Fast hands take large steps, slow ones small steps.",
        height=size + 0.45,
        dark=dark,
    ) as sheet:
        for number, pair in enumerate(range(4)):
            axes = sheet.inches(MARGIN + 0.1 + number * (size + gap), sheet.bottom + 0.35, size, size)
            axes.set_axis_off()
            axes.set(xlim=(-1.15, 1.15), ylim=(-1.15, 1.15))
            axes.add_patch(Circle((0, 0), 1, fill=False, edgecolor=sheet.theme.faint, linewidth=0.8))
            speed = float(frequencies[pair])
            for colour, start, radius in zip(sheet.theme.hues, starts, (0.5, 0.72), strict=False):
                for position, width in ((start, 1.0), (start + step, 2.4)):
                    sine, cosine = encoding.encode(situs.Positions.explicit(torch.tensor([position])))[
                        0, 0, 2 * pair :
                    ][:2]
                    axes.plot([0, float(cosine)], [0, float(sine)], color=colour, linewidth=width)
                first, last = (math.degrees(speed * each) for each in (start, start + step))
                arc = Arc((0, 0), 2 * radius, 2 * radius, theta1=first, theta2=last, color=colour, linewidth=1.4)
                axes.add_patch(arc)
            words = f"ω = {speed:.3g}: {step * speed:.3g} radians"
            axes.text(0, -1.32, words, ha="center", va="center", size=SMALL)
        for number, (start, colour) in enumerate(zip(starts, sheet.theme.hues, strict=False)):
            said = f"from {start} to {start + step}"
            sheet.figure.text(
                (MARGIN + 0.1 + 1.1 * number) / sheet.width,
                (sheet.bottom + 0.02) / float(sheet.figure.get_figheight()),
                said, size=SMALL, weight="bold", color=colour,
            )  # fmt: skip
    return sheet.figure


def learned_tables(*, dark: bool = False) -> Figure:
    """Draw how similar positions are in three tables: sinusoids, a learned one before training, and after it."""
    rows, reached = 64, 48
    torch.manual_seed(0)
    learned = situs.Learned(dim=32, max_length=rows)
    before = learned.table.detach().clone()
    _train_on_neighbours(learned, reached)
    waves = situs.Sinusoidal(dim=32).encode(situs.Positions.range(rows))[0]
    tables = {"sinusoidal": waves, "learned, before training": before, "learned, after": learned.table.detach()}
    panels = Panels(3, 3)
    with style.figure(
        "What training puts into a table of positions",
        "cosine between the vectors of two positions; the model averages each word with its neighbours",
        f"After training, rows of neighbours are similar. Texts had {reached} words, so rows from {reached} on were "
        "never trained, and are still noise.",
        height=panels.height,
        dark=dark,
    ) as sheet:
        maps: dict[str, Map] = {}
        for name, table in tables.items():
            unit = torch.nn.functional.normalize(table.double(), dim=-1)
            maps[name] = (unit @ unit.T).numpy()
        colours = Colours.of(list(maps.values()), sheet.theme)
        for axes, (name, values) in zip(panels.axes(sheet), maps.items(), strict=True):
            colours.draw(axes, values)
            axes.set_title(name, size=style.TEXT, pad=4, loc="left")
        axes.axvline(reached - 0.5, color=sheet.theme.ink, linewidth=0.8)
        axes.axhline(reached - 0.5, color=sheet.theme.ink, linewidth=0.8)
        colours.key(sheet, "cosine")
    return sheet.figure


def _train_on_neighbours(learned: situs.Learned, length: int, steps: int = 600) -> None:
    """Train a table, with projections of queries and keys, to average each word with its neighbours."""
    project = [torch.nn.Linear(learned.dim, learned.dim, bias=False) for _ in range(2)]
    parameters = [*learned.parameters(), *(each.weight for each in project)]
    optimiser = torch.optim.Adam(parameters, lr=1e-2)
    distance = (torch.arange(length) - torch.arange(length)[:, None]).abs()
    near = (4 - distance).clamp(min=0).float()
    near = near / near.sum(-1, keepdim=True)
    for _ in range(steps):
        words = torch.randn(16, length, learned.dim)
        placed = learned(0.3 * words)
        query, key = (each(placed)[:, None] for each in project)
        loss = (situs.attend(query, key, words[:, None])[:, 0] - near @ words).square().mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()


PICTURES = {
    "order": order,
    "places": places,
    "sinusoids": sinusoids,
    "clock-hands": clock_hands,
    "learned-tables": learned_tables,
}
"""Every picture of these chapters by its name."""
