"""Tables and numbers as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


def table(header: str, rows: Iterable[Sequence[object]], separator: str = ",") -> Iterator[str]:
    """A table's lines, names of columns in one string."""
    names = [name.strip() for name in header.split(separator)]
    yield f"| {' | '.join(names)} |"
    yield f"|{'---|' * len(names)}"
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"
    yield ""


def number(value: float) -> str:
    """Three digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def cells(values: dict[str, float], names: Iterable[str]) -> list[str]:
    """Numbers by name, a dash for one that was not measured."""
    return [number(values[name]) if name in values else "–" for name in names]
