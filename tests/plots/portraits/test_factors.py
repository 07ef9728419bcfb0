"""Factors: the drawn temperatures are those of released models."""

from typing import Any

import numpy as np
import pytest
import torch

import situs
from situs import plots
from tests.plots.portraits.reading import lines, panels, words, written
from tests.references import temperature

pytestmark = pytest.mark.once

OTHERS = ["llama4", "ministral3", "inkling", "log_n", "power"]
SOFTER = "A softmax over more keys is flatter; larger queries sharpen it again."


@pytest.mark.parametrize("dialect", ["inkling", "power"])
def test_every_dialect_is_drawn_with_the_numbers_of_the_encoding(dialect: Any) -> None:
    figure = plots.factors(situs.Temperature(dialect=dialect, original_length=64, factor=0.2))
    (axes,) = panels(figure)
    shown = lines(axes)
    assert list(shown) == [dialect, *(name for name in OTHERS if name != dialect)]
    for name, (x, y) in shown.items():
        assert (x[0], x[-1]) == (8, 32 * 64)
        assert np.allclose(y, [temperature.factor(int(each) - 1, name, 64, 0.2) for each in x], atol=1e-12), name
    assert axes.get_xscale() == "log"
    assert axes.get_xlabel() == "tokens up to the query, itself included"
    widths = {str(line.get_label()): line.get_linewidth() for line in axes.get_lines() if line.get_label() in shown}
    assert [name for name, width in widths.items() if width == max(widths.values())] == [dialect]
    assert written(axes, "label") == list(shown)
    assert written(axes, "number") == [f"{y[-1]:.3f}" for _, y in shown.values()]
    assert written(axes, "heading") == ["at 2,047"]


def test_words_say_where_it_begins_and_where_it_ends() -> None:
    assert words(plots.factors(situs.Temperature(original_length=64), length=129)) == [
        "temperature: what queries are multiplied by",
        "factor by position, original length 64; thick: llama4, a = 0.1; thin: other dialects",
        f"{SOFTER} Queries within the original length of 64 stay as they are. The query at position 128 is multiplied "
        "by 1.11.",
    ]
    power = words(plots.factors(situs.Temperature(dialect="power", original_length=64), length=128))
    assert power[2] == f"{SOFTER} The query at position 127 is multiplied by 1.12."
    log_n = words(plots.factors(situs.Temperature(dialect="log_n", original_length=64), length=64))
    assert log_n[1] == "factor by position, original length 64; thick: log_n; thin: other dialects"


def test_steps_are_drawn_at_their_positions_and_what_lies_beyond_is_shaded() -> None:
    (axes,) = panels(plots.factors(situs.Temperature(original_length=1000), length=5000))
    x, y = lines(axes)["llama4"]
    assert {999.0, 1000.0, 1999.0, 2000.0} <= set(x)
    assert x[np.flatnonzero(np.diff(y)) + 1].tolist() == [1000, 2000, 3000, 4000, 5000]
    assert axes.patches[0].get_extents().transformed(axes.transData.inverted()).xmin == pytest.approx(1000)
    (short,) = panels(plots.factors(situs.Temperature(original_length=1000), length=2))
    assert short.get_xlim() == (1, 2)
    assert not short.patches


def test_a_learned_temperature_has_a_line_for_each_head() -> None:
    learned = situs.Temperature(dialect="ssmax", original_length=64, num_heads=2)
    with torch.no_grad():
        learned.s.copy_(torch.tensor([0.5, 0.25]))
        learned.b.copy_(torch.tensor([0.0, 1.0]))
    figure = plots.factors(learned, length=256)
    (axes,) = panels(figure)
    assert list(lines(axes)) == ["ssmax", *OTHERS]
    first, second = (np.asarray(line.get_ydata()) for line in axes.get_lines() if str(line.get_label())[-5:] == "ssmax")
    x, _ = lines(axes)["ssmax"]
    assert np.allclose(first, 0.5 * np.log(x), atol=1e-6)
    assert np.allclose(second, 0.25 * np.log(x) + 1, atol=1e-6)
    assert words(figure)[1:] == [
        "factor by position, original length 64; thick: ssmax, 2 heads; thin: other dialects",
        f"{SOFTER} The query at position 255 is multiplied by 2.39 to 2.77.",
    ]
