"""What has no result and why, each reason once: for the terminal and for the page."""

from __future__ import annotations

import re

from situs.lab.comparing.summary import Row
from situs.lab.problems import first_line
from situs.lab.scores import NO_RESULT
from situs.plots.comparison.view import View
from situs.plots.comparison.words import listed

MOST = 12  # trials that are named


def failures(view: View, before: str = ": ") -> list[str]:
    """Say of every method what went wrong: the first line of each error, where it was met first, and where else.

    before: what stands between the name of a method and its trial.
    """
    said = [sentence for row in view.rows for sentence in _of(row, before)]
    missing = [trial.label for trial in view.records.missing]
    if missing:
        said.append(f"Not run before the comparison was stopped: {listed(missing, MOST)}.")
    if view.records.planned:
        said.append("Costs and properties are measured last. The same command goes on where it was stopped.")
    return said


def _of(row: Row, before: str) -> list[str]:
    met: dict[str, list[tuple[str, str]]] = {}
    for problem in row.problems:
        where, _, reason = problem.partition(": ")
        met.setdefault(problem if reason == NO_RESULT else _bare(row.name, reason), []).append((where, reason))
    said = []
    for places in met.values():
        where, reason = places[0]
        others = [place for place, _ in places[1:]]
        also = f"; also {'; '.join(others) if len(others) < 4 else listed(others)}" if others else ""
        between = ", " if where.startswith(("costs", "properties")) else before
        said.append(f"{row.name}{between}{where}: {first_line(reason)}{also}")
    errors = {} if row.cost is None else row.cost.errors
    untold = {at: error for at, error in errors.items() if _bare(row.name, error) not in met}
    return said + [f"{row.name}, cost at {at}: {first_line(error)}" for at, error in untold.items()]


def _bare(name: str, reason: str) -> str:
    """Leave out of a reason at which length it was met, by which the same error would seem to be several."""
    return re.sub(rf"^{re.escape(name)} at length \d+: ", "", reason)
