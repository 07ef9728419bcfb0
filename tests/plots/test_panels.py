"""Panels side by side: where they lie, which colours their numbers have, and what the key says."""

import numpy as np
import pytest

from situs.plots import style
from situs.plots.panels import GAP, Colours, Panels, heads_shown, name
from situs.plots.style import LIGHT, MARGIN, WIDE
from tests.plots.portraits.reading import MINUS, drawn, extent, key, names

pytestmark = pytest.mark.once


@pytest.mark.parametrize(("count", "columns"), [(1, 1), (3, 3), (5, 4), (9, 3)])
def test_panels_lie_apart_within_the_sheet_row_by_row(count: int, columns: int) -> None:
    panels = Panels(count, columns, aspect=0.5)
    with style.figure("Title", "under it", "Caption.", height=panels.height) as sheet:
        made = panels.axes(sheet)
    high = sheet.figure.get_figheight()
    boxes = [axes.get_position() for axes in made]
    assert len(made) == count
    for number, box in enumerate(boxes):
        across = number % columns
        assert box.x0 * WIDE == pytest.approx(panels.left + across * (panels.width + GAP))
        assert box.width * WIDE == pytest.approx(panels.width)
        assert box.height * high == pytest.approx(panels.width / 2)
        assert sheet.bottom < box.y0 * high < box.y1 * high < high - sheet.top
    assert all(box.x1 * WIDE <= WIDE - MARGIN + 1e-9 for box in boxes)
    tops = [box.y1 for box in boxes[::columns]]
    assert tops == sorted(tops, reverse=True)
    assert [axes.yaxis.get_tick_params()["labelleft"] for axes in made] == [
        number % columns == 0 for number in range(count)
    ]
    assert [axes.xaxis.get_tick_params()["labelbottom"] for axes in made] == [
        number + columns >= count for number in range(count)
    ]


def test_heads_that_are_alike_have_one_name() -> None:
    assert heads_shown(np.zeros((1, 3))) == {"head 1": 0}
    assert heads_shown(np.zeros((3, 2, 2)) + 1e-6 * np.arange(3)[:, None, None]) == {"all heads": 0}
    many = np.array([1.0, 2.0, 1.0, 1.0, 1.0, 1.0, 2.0])
    assert heads_shown(many[:, None]) == {"heads 1, 3, 4, 2 more": 0, "heads 2, 7": 1}
    assert list(heads_shown(np.arange(16.0)[:, None], most=3)) == ["head 1", "head 9", "head 16"]
    hidden = np.array([[1.0, np.nan], [1.0, np.nan]])
    assert heads_shown(hidden) == {"all heads": 0}


def test_panels_are_no_wider_than_they_may_be() -> None:
    assert Panels(1, 1).width == 3.3
    assert Panels(1, 1, widest=2.0).width == 2.0
    assert Panels(4, 4).width == pytest.approx((WIDE - 0.48 - MARGIN - 3 * GAP) / 4)


@pytest.mark.parametrize(
    ("values", "options", "ends", "two", "cut"),
    [
        ([0.5, 2.0], {}, (0.5, 2.0), False, False),
        ([0.5, 2.0], {"zero": True}, (0.0, 2.0), False, False),
        ([-1.0, 3.0], {}, (-3.0, 3.0), True, False),
        ([-1.0, 3.0], {"one_hue": True}, (-1.0, 3.0), False, False),
        ([-40.0, -1.0], {"floor": -12.0}, (-12.0, -1.0), False, True),
        ([-40.0, 5.0], {"floor": -12.0}, (-12.0, 12.0), True, True),
        ([np.nan, 4.0, np.inf], {}, (4.0, 5.0), False, False),
        ([0.0, 0.0], {}, (0.0, 1.0), False, False),
    ],
)
def test_colours_span_the_numbers_that_are_there(
    values: list[float], options: dict[str, float], ends: tuple[float, float], two: bool, cut: bool
) -> None:
    colours = Colours.of([np.array(values)], LIGHT, **options)  # type: ignore[arg-type]
    assert (colours.norm.vmin, colours.norm.vmax) == ends
    assert colours.colormap.name == (LIGHT.signed if two else LIGHT.colormap).name
    assert colours.cut == cut


def test_maps_have_cells_around_whole_numbers_and_their_first_row_at_the_top() -> None:
    values = np.arange(6.0).reshape(2, 3)
    colours = Colours.of([values], LIGHT)
    with style.figure("", "", "", height=2.0) as sheet:
        axes = sheet.axes()
        colours.draw(axes, values)
        name(axes, "here", "and beside", sheet.theme)
        colours.key(sheet, "number")
    assert np.array_equal(drawn(axes), values)
    assert extent(axes) == (-0.5, 2.5, 1.5, -0.5)
    assert names(sheet.figure) == [("here", "and beside")]
    assert key(sheet.figure) == ["number: 0", "5"]


def test_the_key_says_where_numbers_are_cut_or_what_the_ends_mean() -> None:
    colours = Colours.of([np.array([-40.0, -1.0])], LIGHT, floor=-12.0)
    for ends, expected in ((None, [f"added: {MINUS}12 or less", f"{MINUS}1"]), (("a", "b"), ["added: a", "b"])):
        with style.figure("", "", "", height=2.0) as sheet:
            colours.key(sheet, "added", ends)
        assert key(sheet.figure) == expected
