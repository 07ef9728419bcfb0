"""The table for programs: every method in a row of a CSV file, with full numbers."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from situs.lab.comparing.records import Comparison
from situs.lab.comparing.summary import Row
from situs.plots.comparison.view import View


def table_csv(records: Comparison | View) -> str:
    """Write the table in the order of the comparison; fields without a number are empty."""
    view = View.of(records)
    return as_csv([_plain(view, row) for row in view.rows])


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Write rows by the names of their fields; a field that a row does not have is empty."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    file = io.StringIO()
    writer = csv.DictWriter(file, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def _plain(view: View, row: Row) -> dict[str, Any]:
    found: dict[str, Any] = {"method": row.name, "rank": _rank(view, row)}
    for task in view.tasks:
        scores = row.scores.get(task)
        for length in view.lengths:
            for name, points in (("", scores.levels), ("change_", scores.changes)) if scores else ():
                point = view.at(points, length)
                where = f"{task}_{name or scores.measure + '_'}{length}" if scores else ""
                numbers = ("", "", "") if point is None else (point.mean, point.low, point.high)
                found |= dict(zip((where, f"{where}_low", f"{where}_high"), numbers, strict=True))
        found[f"{task}_seeds"] = max((len(point.seeds) for point in scores.levels.values()), default=0) if scores else 0
    found |= {"parameters": _empty(row.parameters), "training_seconds": _empty(row.seconds)}
    for length in view.cost_lengths:
        cost = view.cost(row, length)
        found[f"time_over_plain_{length}"] = _empty(cost.time)
        found[f"time_over_plain_{length}_low"] = _empty(cost.time_low)
        found[f"time_over_plain_{length}_high"] = _empty(cost.time_high)
        found[f"memory_over_plain_{length}"] = _empty(cost.memory)
    decode = None if row.cost is None else row.cost.decode
    found["decode_time_over_plain"] = _empty(decode and decode.time)
    found["decode_time_over_plain_low"] = _empty(decode and decode.time_low)
    found["decode_time_over_plain_high"] = _empty(decode and decode.time_high)
    for name, measured in row.properties.items():
        found[name] = _empty(measured.holds)
    return found | {"problems": " | ".join(row.problems), "verdict": row.verdict}


def _rank(view: View, row: Row) -> Any:
    """Give the rank in the report's ranking; methods that tie with the first all have 1."""
    entries = [] if view.ranking is None else view.ranking.entries
    found = ((number, entry) for number, entry in enumerate(entries, 1) if entry.row.name == row.name)
    return next((1 if entry.ties else number for number, entry in found), "")


def _empty(value: Any) -> Any:
    return "" if value is None else value
