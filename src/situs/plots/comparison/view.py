"""What figures, tables and page need of a comparison, computed once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from situs.lab.comparing.ranking import rank
from situs.lab.comparing.records import Comparison
from situs.lab.comparing.summary import Row, summarise
from situs.lab.naming.grammar import Method
from situs.lab.probing.findings import Cost
from situs.lab.scores import ACCURACY, LOSS, MISSING, Point, Ranking, Scores, at, farthest
from situs.plots.style import Look, Theme, looks


@dataclass(frozen=True)
class View:
    """Hold the records of a comparison and their rows."""

    records: Comparison
    rows: list[Row]

    @staticmethod
    def of(records: Comparison | View) -> View:
        """Sum up records, unless that was done."""
        return records if isinstance(records, View) else View(records, summarise(records))

    @property
    def methods(self) -> list[Method]:
        """All methods, in the order of the comparison."""
        return [row.method for row in self.rows]

    @property
    def names(self) -> list[str]:
        """The names of all methods."""
        return [row.name for row in self.rows]

    def looks(self, theme: Theme) -> dict[str, Look]:
        """Give every method a look by its name; what is added to a method shares a hue with it."""
        return looks(self.names, theme, families=[method.base for method in self.methods])

    @property
    def trials(self) -> int:
        """How many trials were planned."""
        return len(self.records.planned) or len(self.records.trials)

    @property
    def unfinished(self) -> dict[str, int]:
        """How many trials have no result, by what became of them."""
        statuses = [record.status for record in self.records.trials if record.status != "done"]
        return dict(Counter([*statuses, *(MISSING for _ in self.records.missing)]))

    @property
    def train_length(self) -> int:
        """The length that was trained at."""
        return self.records.settings.train_length

    @property
    def lengths(self) -> list[int]:
        """All lengths that were tested at, from short to long."""
        return sorted(self.records.settings.lengths)

    @property
    def longest(self) -> int:
        """The longest length that was tested at."""
        return self.lengths[-1]

    @property
    def beyond(self) -> list[int]:
        """Lengths that were never trained at."""
        return [length for length in self.lengths if length > self.train_length]

    def times(self, length: int) -> str:
        """Write a length as a multiple of the training length."""
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
        """All tasks that were asked for."""
        return list(self.records.tasks)

    def searched(self, task: str) -> bool:
        """Tell whether the answers of a task lay at depths that are known."""
        return any(scores.depths for _, scores in self.scored(task))

    def scored(self, task: str | None) -> list[tuple[Row, Scores]]:
        """List the methods that have scores on a task."""
        return [(row, row.scores[task]) for row in self.rows if task is not None and task in row.scores]

    def reach(self, scores: Scores) -> int:
        """Find the longest length up to which the loss holds or answers are found."""
        return farthest(scores)

    def at(self, points: Mapping[int, Point], length: int) -> Point | None:
        """Look up the point at a length, if there is a number."""
        return at(points, length)

    def last(self, points: Mapping[int, Point]) -> tuple[int, Point] | None:
        """Find the longest length that has a number."""
        found = [(length, point) for length in self.lengths if (point := self.at(points, length)) is not None]
        return found[-1] if found else None

    def rank(self, task: str, length: int, *, scaled: bool = True) -> Ranking[Row]:
        """Order methods by their loss or their right answers at a length; without scalings of others if not wanted."""
        rows = self.rows if scaled else [row for row in self.rows if row.method.scaling is None]
        return rank(self.records, rows, task, length)

    @cached_property
    def ranking(self) -> Ranking[Row] | None:
        """The order of the table: by the first loss, or else the first answers, at the longest length with a number."""
        task = self.loss_task or next(iter(self.answer_tasks), None)
        found = (self.rank(task, length) for length in reversed(self.lengths)) if task is not None else iter(())
        return next((ranking for ranking in found if ranking.entries), None)

    @cached_property
    def increases(self) -> Ranking[Row] | None:
        """The order by how much the loss grows from the training length to where the table is ranked."""
        if self.loss_task is None or self.ranking is None or self.ranking.length == self.train_length:
            return None
        found = rank(self.records, self.rows, self.loss_task, self.ranking.length, "change")
        return found if found.entries else None

    @property
    def ranked(self) -> list[Row]:
        """All methods in the order of the table, those without a number last."""
        return self.rows if self.ranking is None else self.ranking.rows

    @cached_property
    def cost_lengths(self) -> list[int]:
        """Lengths that costs were measured at."""
        return sorted({length for row in self.rows if row.cost is not None for length in row.cost.lengths})

    def cost(self, row: Row, length: int) -> Cost:
        """Look up the cost of a method at a length, which is empty where it was not measured."""
        return Cost() if row.cost is None else row.cost.lengths.get(length, Cost())
