"""Every encoding draws every kind that suits it, every other is refused with a cure, and nothing is left behind."""

import inspect
import subprocess
import sys
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from torch import Tensor

import situs
from situs import Positions, plots
from situs.lab.naming import parse
from situs.lab.probing.sitters import Sitter, sitters_of
from situs.plots import KINDS, suiting
from situs.plots.portraits.kinds import ORDER
from situs.plots.style import DARK, LIGHT
from tests.plots.portraits.reading import drawn, lines, panels, words
from tests.raising import raises_exactly

pytestmark = pytest.mark.once

SMALL: dict[str, Any] = {"dim": 16, "head_dim": 16, "num_heads": 2, "size": (4, 4), "window": (4, 4), "max_length": 64}
LENGTHS: dict[str, dict[str, int]] = {"scalings": {"train_length": 16, "length": 64}, "grid": {}}
NAMES = [*situs.names(), "rotary+axial", "sinusoidal(axes=2)", "rotary&alibi", "rotary+yarn"]
WORDS = {name: KINDS[name].suits.words for name in KINDS}
PORTRAITS = {
    "boxes": "grid", "vitdet": "grid", "forgetting": "scores", "projected": "scores",
    "gated": "scores", "mlp": "distance",
    "alibi": "distance", "cope": "scores", "deberta": "scores", "fire": "distance", "kerple": "distance",
    "learned": "table", "learned_grid": "grid", "lerope": "rotation", "none": "order", "rope_mixed": "grid",
    "rotary": "rotation", "sandwich": "distance",
    "shaw": "scores", "sinusoidal": "table", "swin": "grid", "t5": "distance", "transformer_xl": "scores",
    "tupe": "bias", "xpos": "rotation", "rotary+axial": "grid", "sinusoidal(axes=2)": "grid",
    "rotary&alibi": "decay", "rotary+yarn": "rotation", "pope": "similarity", "rotary_value": "rotation",
    "temperature": "factors",
}  # fmt: skip


def small(name: str) -> Sitter:
    options = {option: value for option, value in SMALL.items() if name not in ("none", "rotary&alibi")}
    taken = sitters_of([parse(name)], {}, length=16)[0].encodings[0].config if options else {}
    (found,) = sitters_of([parse(name)], {option: options[option] for option in options if option in taken}, length=16)
    return found


def draw(kind: str, sitter: Any, **options: Any) -> Figure:
    return KINDS[kind].draw(sitter, **{**LENGTHS.get(kind, {"length": 12}), **options})


def outside(figure: Figure) -> list[str]:
    """Words that leave the sheet; ticks are matplotlib's own."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw_without_rendering()
    sheet = figure.bbox.padded(2.0)
    texts = [*figure.texts, *(text for axes in figure.axes for text in (*axes.texts, axes.xaxis.label))]
    boxes = {text.get_text(): text.get_window_extent(renderer) for text in texts if text.get_text()}
    return [said for said, box in boxes.items() if not (sheet.contains(*box.p0) and sheet.contains(*box.p1))]


@pytest.mark.thin(4)
@pytest.mark.parametrize("name", NAMES)
def test_every_encoding_draws_every_kind_that_suits_it(name: str) -> None:
    sitter = small(name)
    assert suiting(sitter)[0] == PORTRAITS[name]
    for kind in suiting(sitter):
        figure = draw(kind, [sitter])
        title, subtitle, caption = words(figure)
        assert all((title, subtitle, caption))
        assert figure.get_label() == f"{title}. {caption}"
        assert caption.endswith(sitter.note), kind
        assert bool(sitter.note) == any(True for each in sitter.encodings for _ in each.parameters())
        images = [drawn(axes) for axes in panels(figure) if axes.images]
        curves = [line for axes in panels(figure) for line in axes.get_lines()]
        assert all(np.isfinite(each).any() for each in images)
        assert images or curves
        assert outside(figure) == [], kind


@pytest.mark.parametrize("name", NAMES)
def test_every_other_kind_is_refused_and_those_that_suit_are_named(name: str) -> None:
    sitter = small(name)
    fitting = suiting(sitter)
    assert fitting == [kind for kind in ORDER if KINDS[kind].suits.rule(sitter)]
    for kind in KINDS:
        if kind not in fitting:
            with raises_exactly(
                ValueError,
                f"{kind} is for {WORDS[kind]}; got {name}. Kinds that suit it: {', '.join(fitting)}.",
            ):
                draw(kind, [sitter])


def test_kinds_are_all_in_order_and_all_public() -> None:
    assert sorted(ORDER) == sorted(KINDS)
    assert set(KINDS) <= set(plots.__all__)
    assert all(getattr(plots, name) is kind.draw for name, kind in KINDS.items())
    assert all(kind.about and kind.draw.__doc__ for kind in KINDS.values())


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_drawn_is_called_encodings(kind: str) -> None:
    known = inspect.signature(KINDS[kind].draw)
    first, *others = known.parameters.values()
    assert (first.name, first.annotation, first.kind) == ("encodings", "Drawn", first.POSITIONAL_OR_KEYWORD)
    assert known.return_annotation == "Figure"
    assert all(each.kind is each.KEYWORD_ONLY for each in others)
    assert [each.name for each in others] == list(KINDS[kind].options)
    with raises_exactly(
        ValueError, "encodings must be one or more, since there is nothing to draw otherwise; got none."
    ):
        KINDS[kind].draw(encodings=[])


def test_an_encoding_that_does_not_say_where_it_ends_is_drawn_at_the_usual_length() -> None:
    class Endless(situs.InputEncoding):
        usable_length = None

        def forward(self, x: Tensor, positions: Any = None) -> Tensor:
            return x + Positions.of(positions, x.shape[-2]).ids[..., None]

    assert drawn(panels(plots.table(Endless()))[0]).shape == (KINDS["table"].options["length"].default, 64)


def test_words_say_whom_a_kind_suits() -> None:
    assert WORDS["table"] == "an encoding that is added to the input"
    assert WORDS["rotation"] == WORDS["speeds"] == "an encoding that rotates queries and keys by themselves, or values"
    assert WORDS["decay"] == "an encoding for text that tells positions"
    assert "learned_grid, rope_mixed, swin, boxes, vitdet, sinusoidal(axes=2)" in WORDS["grid"]


@pytest.mark.parametrize(
    ("kind", "longest"),
    [("table", 2048), ("bias", 2048), ("rotation", 32), ("distance", 1_000_000), ("wavelengths", 1 << 27)],
)
def test_lengths_that_show_nothing_or_too_much_are_refused(kind: str, longest: int) -> None:
    encoding = {"table": situs.Sinusoidal(dim=8), "bias": situs.ALiBi(num_heads=2)}.get(kind)
    encoding = encoding or (situs.ALiBi(num_heads=2) if kind == "distance" else situs.Rotary(head_dim=8))
    for length in (1, 0, -5, longest + 1, 10**18, 8.0, "8"):
        with raises_exactly(
            ValueError,
            f"length must be 2 to {longest:,} for {kind}, since fewer show nothing and more cannot be seen in a "
            f"figure; got {length!r}.",
        ):
            KINDS[kind].draw(encoding, length=length)
    assert KINDS[kind].draw(encoding, length=2).axes


def test_training_lengths_are_held_to_the_same() -> None:
    for draw_ in (plots.wavelengths, plots.scalings):
        with raises_exactly(
            ValueError,
            f"train_length must be 2 to 134,217,728 for {draw_.__name__}, since fewer show nothing and more cannot be "
            "seen in a figure; got 1.",
        ):
            draw_(situs.Rotary(head_dim=8), train_length=1)


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if not kind.many])
def test_kinds_of_one_map_take_one_encoding(kind: str) -> None:
    with raises_exactly(
        ValueError,
        f"{kind} must be given one encoding, since its figure has room for one; got 2: none, none (2). Draw each by "
        f"itself, or choose a kind that takes several: {', '.join(name for name in KINDS if KINDS[name].many)}.",
    ):
        KINDS[kind].draw([situs.NoPE(), situs.NoPE()])


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_cannot_be_drawn(kind: str) -> None:
    nothings: list[Any] = [[], {}, None]
    for nothing in nothings:
        with raises_exactly(
            ValueError, "encodings must be one or more, since there is nothing to draw otherwise; got none."
        ):
            KINDS[kind].draw(nothing)


def test_names_that_come_twice_are_numbered() -> None:
    (axes,) = panels(plots.decay([situs.Rotary(head_dim=8), situs.Rotary(head_dim=16)], length=8))
    assert list(lines(axes)) == ["rotary", "rotary (2)"]


@pytest.mark.parametrize("kind", ["table", "distance", "wavelengths", "attention"])
def test_dark_pages_get_dark_paper_and_the_same_numbers(kind: str) -> None:
    name = {"distance": "alibi", "wavelengths": "rotary"}.get(kind, "sinusoidal")
    light, dark = draw(kind, [small(name)]), draw(kind, [small(name)], dark=True)
    for figure, theme in ((light, LIGHT), (dark, DARK)):
        assert to_hex(figure.get_facecolor()) == theme.paper
        assert {to_hex(axes.get_facecolor()) for axes in figure.axes} == {theme.paper}
        assert to_hex(figure.texts[0].get_color()) == theme.ink
    assert words(light) == words(dark)
    for one, other in zip(panels(light), panels(dark), strict=True):
        assert [*lines(one)] == [*lines(other)]
        if one.images:
            assert np.array_equal(drawn(one), drawn(other), equal_nan=True)


def test_drawing_leaves_settings_random_numbers_and_encodings_as_they_were() -> None:
    encoding = situs.Learned(dim=8, max_length=16, dropout=0.5)
    state = {name: value.clone() for name, value in encoding.state_dict().items()}
    with matplotlib.rc_context({"font.size": 30, "axes.grid": False}):  # the user's own
        settings = dict(matplotlib.rcParams)
        torch.manual_seed(3)
        before = torch.get_rng_state()
        for kind in suiting(Sitter("learned", (encoding,))):
            first, again = draw(kind, encoding), draw(kind, encoding)
            assert words(first) == words(again), "dropout would differ"
        with pytest.raises(ValueError, match=r"^rotation is for"):
            plots.rotation(encoding)
        assert dict(matplotlib.rcParams) == settings
        assert torch.equal(torch.get_rng_state(), before)
    assert encoding.training
    assert all(torch.equal(value, state[name]) for name, value in encoding.state_dict().items())


def test_pyplot_is_never_imported() -> None:
    code = (
        "import sys, situs; situs.plots.decay(situs.Rotary(head_dim=8), length=8); "
        "print('matplotlib.figure' in sys.modules, 'matplotlib.pyplot' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "True False\n"
