"""Retrieval by length and depth: one small map per method."""

from __future__ import annotations

from matplotlib.figure import Figure

from situs.lab.comparing.records import Comparison
from situs.lab.comparing.summary import Row
from situs.lab.scores import Scores
from situs.plots import style
from situs.plots.comparison import words
from situs.plots.comparison.findings import answers
from situs.plots.comparison.view import View
from situs.plots.depths import DepthMap, draw_maps, maps_height


def retrieval(
    records: Comparison | View, task: str | None = None, *, dark: bool = False, narrow: bool = False
) -> Figure | None:
    """Draw the share of right answers by the length of the text and by how deep in it the answer lies."""
    view = View.of(records)
    task = task or next((task for task in view.answer_tasks if view.searched(task)), "")
    maps = [_map(view, row, scores) for row, scores in view.scored(task) if scores.depths]
    if not maps:
        return None
    with style.figure(
        f"{task.capitalize()}: right answers by length and depth",
        "down: how deep in the text the answer lies; right: length of the text, as a multiple of the training length",
        answers(view, task) or "Only the training length was tested.",
        height=maps_height(len(maps), narrow=narrow),
        dark=dark,
        narrow=narrow,
    ) as sheet:
        draw_maps(sheet, maps, {length: view.times(length) for length in view.lengths})
    return sheet.figure


def _map(view: View, row: Row, scores: Scores) -> DepthMap:
    last = view.last(scores.levels)
    share = "" if last is None else f"{words.percent(last[1].mean)} at {view.times(last[0])}"
    ended = next((point.ends for point in scores.levels.values() if point.ends is not None), None)
    if last is None or last[0] < view.longest:
        share = f"no result at {view.times(view.longest)}"
    return DepthMap(row.name, share if ended is None else f"table ends at {ended:,}", scores.depths)
