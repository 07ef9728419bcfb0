"""What figures, table and page ask of a comparison, worked out once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from situs.lab.summary import ACCURACY, LOSS, Point, Row, Scores, farthest, lengths_of, summarise


@dataclass(frozen=True)
class View:
    """Records and their rows."""

    records: Mapping[str, Any]
    rows: list[Row]

    @staticmethod
    def of(records: Mapping[str, Any] | View) -> View:
        """Of records, or the same again."""
        return records if isinstance(records, View) else View(records, summarise(records))

    @property
    def methods(self) -> list[str]:
        """In the order of the comparison."""
        return [row.method for row in self.rows]

    @property
    def train_length(self) -> int:
        """What was trained at."""
        return int(self.records["settings"]["train_length"])

    @property
    def lengths(self) -> list[int]:
        """What was tested at, from short to long."""
        return sorted(lengths_of(self.records))

    @property
    def longest(self) -> int:
        """The last of them."""
        return self.lengths[-1]

    @property
    def beyond(self) -> list[int]:
        """Lengths that were never trained at."""
        return [length for length in self.lengths if length > self.train_length]

    def times(self, length: int) -> str:
        """A length as a multiple of the training length."""
        return f"{length / self.train_length:g}×"

    @cached_property
    def loss_task(self) -> str | None:
        """The first task that is measured by its loss, if any trial of it was finished."""
        return next((task for task, measure in self._measures.items() if measure == LOSS), None)

    @cached_property
    def answer_tasks(self) -> list[str]:
        """Tasks that are measured by the share of right answers."""
        return [task for task, measure in self._measures.items() if measure == ACCURACY]

    @cached_property
    def _measures(self) -> dict[str, str]:
        found = {task: {row.scores[task].measure for row in self.rows if task in row.scores} for task in self.tasks}
        return {task: next(iter(measures)) for task, measures in found.items() if measures}

    @property
    def tasks(self) -> list[str]:
        """All that were asked for."""
        return list(self.records["tasks"])

    def searched(self, task: str) -> bool:
        """Whether answers lay at depths that are known."""
        return any(scores.depths for _, scores in self.scored(task))

    def scored(self, task: str | None) -> list[tuple[Row, Scores]]:
        """The methods that have scores on a task."""
        return [(row, row.scores[task]) for row in self.rows if task is not None and task in row.scores]

    def reach(self, scores: Scores) -> int:
        """The longest length up to which it holds."""
        return farthest(scores)

    def at(self, points: Mapping[int, Point], length: int) -> Point | None:
        """The point at a length, if there is a number."""
        point = points.get(length)
        return point if point is not None and point.exists and math.isfinite(point.mean) else None

    def last(self, points: Mapping[int, Point]) -> tuple[int, Point] | None:
        """The longest length that has a number."""
        found = [(length, point) for length in self.lengths if (point := self.at(points, length)) is not None]
        return found[-1] if found else None

    @cached_property
    def cost_lengths(self) -> list[int]:
        """Lengths that costs were measured at."""
        return sorted({int(length) for row in self.rows for length in row.cost.get("lengths", {})})

    def cost(self, row: Row, length: int, what: str) -> float | None:
        """Time or memory over plain attention."""
        found = row.cost.get("lengths", {}).get(str(length), {}).get(what)
        return None if found is None else float(found)
