"""Figures show the numbers of the summary, and every word on them can be read."""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection, QuadMesh
from matplotlib.figure import Figure
from matplotlib.text import Text

from situs.lab.comparing.records import Comparison
from situs.lab.comparing.summary import summarise
from situs.lab.plain import from_plain
from situs.plots.comparison.figures import (
    accuracy_by_length,
    cost_and_loss,
    figures,
    loss_by_length,
    loss_by_position,
    retrieval,
    stretches,
)
from situs.plots.comparison.tradeoff import Spot, best_of_both
from situs.plots.comparison.view import View
from situs.plots.style import png, short
from tests.plots.comparison.sample import METHODS, ODD, make_records, view_of

pytestmark = pytest.mark.once

NAMES = ["loss-by-length", "loss-by-position", "passkey-by-depth", "copy-by-length", "cost-and-loss"]
Draw = Callable[..., Figure | None]


def drawn(figure: Figure | None) -> Figure:
    assert figure is not None
    return figure


def lines(axes: Axes) -> dict[str, tuple[list[float], list[float]]]:
    named = {str(line.get_label()): line for line in axes.get_lines()}
    found = {name: line for name, line in named.items() if name and not name.startswith("_")}
    return {name: ([*np.asarray(line.get_xdata())], [*np.asarray(line.get_ydata())]) for name, line in found.items()}


def words(axes: Axes, kind: str) -> list[str]:
    return [text.get_text() for text in axes.texts if text.get_gid() == kind]


def test_lines_of_loss_are_the_changes_of_the_summary(view: View) -> None:
    (axes,) = drawn(loss_by_length(view)).axes
    shown = lines(axes)
    assert set(shown) == set(METHODS)
    for row in view.rows:
        changes = {length: point.mean for length, point in row.scores["text"].changes.items() if point.exists}
        assert shown[row.name] == ([*map(float, changes)], [*changes.values()])


def test_bands_are_the_range_of_seeds(view: View) -> None:
    (axes,) = drawn(loss_by_length(view)).axes
    bands = [band for band in axes.collections if isinstance(band, PolyCollection)]
    tops = sorted(float(np.asarray(band.get_paths()[0].vertices)[:, 1].max()) for band in bands)
    seeds = [row.scores["text"].changes[1024].seeds for row in view.rows if row.name not in ("learned", "cope")]
    expected = sorted(
        max(point.seeds) for row in view.rows for point in row.scores["text"].changes.values() if point.seeds
    )
    assert len(bands) == len(seeds) == 14
    assert set(np.round(tops, 9)) <= set(np.round(expected, 9))


def test_every_method_is_named_with_its_loss_at_the_training_length(view: View) -> None:
    (axes,) = drawn(loss_by_length(view)).axes
    named = dict(zip(words(axes, "label"), words(axes, "number"), strict=True))
    assert named == {short(row.name): f"{row.scores['text'].levels[64].mean:.2f}" for row in view.rows}
    assert "table ends at 64" in words(axes, "heading")


def test_lengths_are_spaced_by_doubling_and_say_what_they_are(view: View) -> None:
    (axes,) = drawn(loss_by_length(view)).axes
    assert axes.get_xscale() == "log"
    assert [*axes.get_xticks()] == [64, 128, 256, 512, 1024]
    assert [label.get_text() for label in axes.get_xticklabels()][-1] == "16×\n1,024"


def test_a_loss_that_explodes_does_not_flatten_the_others() -> None:
    records = make_records(tasks=("text",), methods=("rotary", "alibi"), failures=False)
    for trial in records["trials"]:
        for name, tested in trial["methods"].items():
            if name == "rotary":
                tested["lengths"]["1024"]["scores"] = [score + 50 for score in tested["lengths"]["1024"]["scores"]]
    (axes,) = drawn(loss_by_length(view_of(records))).axes
    assert axes.get_yscale() == "symlog"
    assert axes.get_ylim()[1] > 50


def test_a_method_without_numbers_at_the_end_is_named_below() -> None:
    records = make_records(tasks=("text",), methods=("rotary", "alibi"), failures=False)
    for trial in records["trials"]:
        for tested in trial["methods"].values():
            if trial["trial"]["method"] == "alibi":
                tested["lengths"]["1024"]["scores"][0] = math.nan
    (axes,) = drawn(loss_by_length(view_of(records))).axes
    assert "no result beyond 512" in words(axes, "heading")
    assert lines(axes)["alibi"][0] == [64, 128, 256, 512]


def test_loss_along_the_text_is_drawn_with_the_training_length(view: View) -> None:
    (axes,) = drawn(loss_by_position(view)).axes
    shown = lines(axes)
    assert "learned" not in shown
    for row in view.rows:
        if row.name != "learned":
            assert shown[row.name] == (stretches(32, 1024), row.scores["text"].along)
    dashed = next(line for line in axes.get_lines() if [*np.asarray(line.get_xdata())] == [64, 64])
    assert dashed.get_linestyle() == "--"


def test_stretches_are_where_the_lab_cuts_them() -> None:
    torch = pytest.importorskip("torch")
    middles = [float(part.double().mean()) for part in torch.arange(1, 1024).tensor_split(32)]
    assert max(abs(ours - real) for ours, real in zip(stretches(32, 1024), middles, strict=True)) <= 1


def test_maps_hold_the_share_found_at_each_depth_and_length(view: View) -> None:
    figure = drawn(retrieval(view))
    maps = {str(axes.get_label()): axes for axes in figure.axes if axes.get_gid() == "map"}
    assert list(maps) == list(METHODS)
    for row in view.rows:
        mesh = next(each for each in maps[row.name].collections if isinstance(each, QuadMesh))
        cells = np.ma.filled(mesh.get_array().astype(float), math.nan).reshape(8, 5)  # type: ignore[union-attr]
        depths = row.scores["passkey"].depths
        for across, length in enumerate(view.lengths):
            expected = [*depths[length].values()] if length in depths else [math.nan] * 8
            np.testing.assert_allclose(cells[:, across], expected)
        assert mesh.get_clim() == (0.0, 1.0)
        assert maps[row.name].get_ylim() == (8, 0)  # the beginning of the text on top
    assert sum(len(axes.patches) for axes in maps.values()) == 4  # learned beyond its table


def test_points_of_cost_and_loss_are_time_and_loss_with_bars_for_the_time(view: View) -> None:
    (axes,) = drawn(cost_and_loss(view)).axes
    expected = {
        row.name: ([view.cost(row, 4096).time], [row.scores["text"].levels[1024].mean])
        for row in view.rows
        if row.name not in ("learned", "sandwich")  # without a loss there, and without costs
    }
    assert lines(axes) == expected
    bars = [[*np.asarray(line.get_xdata())] for line in axes.get_lines() if line.get_label() == "_interval"]
    costs = [view.cost(row, 4096) for row in view.rows if row.name in expected]
    assert sorted(bars) == sorted([cost.time_low, cost.time_high] for cost in costs)
    assert len(words(axes, "label")) == len(expected)
    assert "4,096" in axes.get_xlabel()


def test_the_caption_of_costs_names_what_no_other_beats_in_both() -> None:
    spots = {"a": Spot(1.0, 1.0, 1.0, 3.0), "b": Spot(2.0, 2.0, 2.0, 2.0), "c": Spot(2.5, 2.5, 2.5, 2.5)}
    assert best_of_both(spots) == ["a", "b"]
    assert best_of_both({**spots, "d": Spot(0.9, 0.9, 0.9, 1.0)}) == ["d"]


def test_a_loss_that_explodes_does_not_flatten_costs() -> None:
    records = make_records(tasks=("text",), methods=("rotary", "alibi"), failures=False)
    for trial in records["trials"]:
        if "rotary" in trial["methods"]:
            at = trial["methods"]["rotary"]["lengths"]["1024"]
            at["scores"] = [score + 50 for score in at["scores"]]
    (axes,) = drawn(cost_and_loss(view_of(records))).axes
    assert axes.get_yscale() == "log"


def test_the_caption_of_losses_along_the_text_compares_methods_and_not_their_own_beginnings() -> None:
    records = make_records(tasks=("text",), methods=("alibi", "rotary+linear"), failures=False)
    for trial in records["trials"]:
        for name, tested in trial["methods"].items():
            tested["lengths"]["1024"]["along"] = [2.9 if name == "rotary+linear" else 2.0 + 0.01 * n for n in range(32)]
    figure = drawn(loss_by_position(view_of(records)))
    assert str(figure.get_label()).endswith(
        "At the end of the text the loss of alibi is lowest, 2.31, and that of rotary+linear highest, 2.90."
    )


def test_right_answers_are_drawn_for_any_task(view: View) -> None:
    (axes,) = drawn(accuracy_by_length(view, "copy")).axes
    for row in view.rows:
        if row.name != "xpos":  # all of its trials failed
            levels = [point.mean for point in row.scores["copy"].levels.values() if point.exists]
            assert lines(axes)[row.name][1] == levels
    assert "xpos" not in lines(axes)


@pytest.mark.thin(3)
@pytest.mark.parametrize("narrow", [False, True], ids=["wide", "narrow"])
@pytest.mark.parametrize("name", NAMES)
def test_no_word_is_cut_off_or_upon_another(view: View, name: str, narrow: bool) -> None:
    figure = figures(view, narrow=narrow)[name]
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    boxes = {text: text.get_window_extent(canvas.get_renderer()) for text in written(figure)}
    whole = figure.bbox
    for text, box in boxes.items():
        inside = whole.x0 - 1 <= box.x0 and box.x1 <= whole.x1 + 1 and whole.y0 - 1 <= box.y0 and box.y1 <= whole.y1 + 1
        assert inside, f"{text.get_text()!r} is cut off"
    for (one, box), (other, second) in itertools.combinations(boxes.items(), 2):
        width = min(box.x1, second.x1) - max(box.x0, second.x0)
        height = min(box.y1, second.y1) - max(box.y0, second.y0)
        assert width < 3 or height < 6, f"{one.get_text()!r} lies upon {other.get_text()!r}"


def written(figure: Figure) -> Iterator[Text]:
    """Every word that is drawn."""
    yield from figure.texts
    for axes in figure.axes:
        if axes.get_gid() != "key":
            ticks = [(axes.get_xlim(), axes.get_xticks(), axes.get_xticklabels())]
            ticks += [(axes.get_ylim(), axes.get_yticks(), axes.get_yticklabels())]
            for limits, places, names in ticks:
                yield from (
                    name for place, name in zip(places, names, strict=False) if min(limits) <= place <= max(limits)
                )
            yield axes.xaxis.label
        yield from axes.texts


def test_each_figure_comes_in_four_kinds(view: View) -> None:
    sizes = {}
    for dark, narrow in itertools.product((False, True), repeat=2):
        found = figures(view, dark=dark, narrow=narrow)
        assert list(found) == NAMES
        sizes[dark, narrow] = [each.get_figwidth() for each in found.values()], found["cost-and-loss"].get_facecolor()
    assert sizes[False, False][0] == sizes[True, False][0] != sizes[False, True][0] == sizes[True, True][0]
    assert sizes[False, False][1] == sizes[False, True][1] != sizes[True, False][1] == sizes[True, True][1]


def test_records_do_as_well_as_their_view() -> None:
    records = from_plain(Comparison, make_records(methods=("alibi", "none"), failures=False, windows=8))
    assert png(drawn(loss_by_length(records))) == png(drawn(loss_by_length(View(records, summarise(records)))))


def without(**changes: Any) -> dict[str, Any]:
    return {**make_records(methods=("alibi", ODD), windows=8), **changes}


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        pytest.param(without(trials=[]), [], id="no trials"),
        pytest.param(make_records(methods=("xpos",), tasks=("text",)), [], id="all failed"),
        pytest.param(make_records(methods=("cope",), seeds=1), [], id="diverged"),
        pytest.param(without(costs={}), [*NAMES[:3]], id="no costs"),
        pytest.param(make_records(tasks=("passkey",), windows=8), ["passkey-by-depth"], id="no text"),
        pytest.param(make_records(tasks=("text",), windows=8, multiples=(1,)), [], id="one length"),
        pytest.param(make_records(tasks=("copy",), windows=8, seeds=1), ["copy-by-length"], id="another task"),
        pytest.param(make_records(methods=("learned",), windows=8), ["loss-by-length", NAMES[2]], id="one that ends"),
    ],
)
def test_figures_without_numbers_are_left_out(records: dict[str, Any], expected: list[str]) -> None:
    found = figures(view_of(records))
    assert list(found) == expected
    for figure in found.values():
        png(figure, dpi=50)
    for draw in (loss_by_length, loss_by_position, retrieval, accuracy_by_length, cost_and_loss):
        name: Draw = draw
        name(view_of(records))
