"""Numbers, names and lists as they are written on the page, in captions and on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from situs.lab.comparing.summary import Row
from situs.lab.scores import FINDS, HOLDS, LEVEL, Point, Ranking
from situs.plots.style import minus

FAIR_CHANGE = 5 * HOLDS  # above, a change is coloured red
FAIR_ANSWERS = 0.6  # below, a share of right answers is coloured red
CHANGES = (HOLDS, FAIR_CHANGE)
SHARES = (100 * FAIR_ANSWERS, 100 * FINDS)


def signed(number: float, digits: int = 2) -> str:
    """Write a change with its sign and two decimals; with more where two would be 0, or where rounded it would stand on
    the other side of a border by which it is judged."""
    if abs(number) < 0.0005:
        return "0.000"
    return minus(f"{number:+.{_decimals(number, max(digits, 3 if abs(number) < 0.0095 else 2), CHANGES)}f}")


def percent(share: float, digits: int = 0) -> str:
    """Write a share of all answers in percent, with more decimals where rounding would cross a border."""
    return f"{100 * share:.{_decimals(100 * share, digits, SHARES)}f}\N{NO-BREAK SPACE}%"


def _decimals(number: float, least: int, borders: Iterable[float]) -> int:
    """Choose the fewest decimals with which a number stays on its side of all borders; they are shown up to six."""
    enough = (
        digits
        for digits in range(least, 6)
        if all((round(number, digits) < border) == (number < border) for border in borders)
    )
    return next(enough, 6)


def listed(names: Iterable[str], most: int = 4) -> str:
    """Join names to ``a, b and c``; of more than ``most``, write the first and the number of the rest."""
    each = list(names)
    if len(each) > most:
        each = [*each[: most - 1], f"{len(each) - most + 1} more"]
    return f"{', '.join(each[:-1])} and {each[-1]}" if len(each) > 1 else "".join(each)


def called(method: str) -> str:
    """Name a method within a sentence, where "none" alone would mean something else."""
    return "NoPE (none)" if method == "none" else method


def unit(task: str | None) -> str:
    """Name what a loss is measured in."""
    return "nats per byte" if task == "text" else "nats per token"


def change_interval(point: Point) -> str:
    """Write the 95 % interval of a change, with three decimals where two would hide on which side of 0 an end lies, and
    with more where an interval that does not include 0 would look as if it did."""
    least = min(abs(number) for number in (point.low, point.mean, point.high))
    digits = 3 if least < 0.0095 else 2
    if point.low * point.high > 0:
        near = min(abs(point.low), abs(point.high))
        digits = next((more for more in range(digits, 6) if round(near, more)), 6)
    return interval(point, lambda number: f"{number:+.{digits}f}" if round(number, digits) else f"{0:.{digits}f}")


def interval(point: Point, form: Callable[[float], str]) -> str:
    """Write the 95 % interval of a point."""
    return minus(f"{form(point.low)} to {form(point.high)}")


def leading(ranking: Ranking[Row], form: Callable[[float], str]) -> str:
    """Name the first of a ranking with its number, and all methods that tie with it."""
    first, *others = ranking.entries
    tied = [called(entry.row.name) for entry in others if entry.ties]
    return f"{called(first.row.name)}, {form(first.point.mean)}" + (f" (tie: {listed(tied, 3)})" if tied else "")


def alike(one: Point, other: Point) -> bool:
    """Tell whether the seeds of two points overlap, or their means lie within ``LEVEL``."""
    overlap = min(one.seeds) <= max(other.seeds) and min(other.seeds) <= max(one.seeds)
    return overlap or abs(one.mean - other.mean) < LEVEL


def seconds(number: float) -> str:
    """Write a duration in the unit that suits it."""
    if number < 90:
        return f"{number:.0f} s"
    return f"{number / 60:.0f} min" if number < 5400 else f"{number / 3600:.1f} h"
