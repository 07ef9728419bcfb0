"""Lines of a width, for terminals: what reports, differences and verdicts are printed in."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

WIDTH = 80
"""Columns, where nobody says how many there are."""


def filled(text: str, width: int = WIDTH, indent: str = "") -> list[str]:
    """Break a text into lines of at most ``width`` columns, all but the first two columns farther right.

    >>> from situs.models.wrapping import filled
    >>> filled("frequencies differ by up to 96.7 %", 24, "  ")
    ['  frequencies differ by', '    up to 96.7 %']
    """
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=f"{indent}  ", break_long_words=False,
        break_on_hyphens=False,
    ) or [""]  # fmt: skip


def tabled(rows: Sequence[Sequence[str]], width: int = WIDTH, indent: str = "") -> list[list[str]]:
    """Write rows as cells below each other, at most ``width`` columns wide, each row as lines: where there is no room,
    the widest cells go on in the next line, between words.

    >>> from situs.models.wrapping import tabled
    >>> tabled([("pairs", "at 8,192"), ("0-20", "seen"), ("21-31", "never seen")], 16)
    [['pairs  at 8,192'], ['0-20   seen'], ['21-31  never', '       seen']]
    """
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, cells)) for cells in columns]
    least = [max(len(word) for cell in cells for word in (cell.split() or [""])) for cells in columns]
    while len(indent) + sum(widths) + 2 * (len(widths) - 1) > width:
        wider = [number for number, size in enumerate(widths) if size > least[number]]
        if not wider:
            break
        widths[max(wider, key=widths.__getitem__)] -= 1
    return [_lines(row, widths, indent) for row in rows]


def _lines(row: Sequence[str], widths: Sequence[int], indent: str) -> list[str]:
    cells = [
        textwrap.wrap(cell, size, break_long_words=False, break_on_hyphens=False)
        for cell, size in zip(row, widths, strict=True)
    ]
    return [
        indent
        + "  ".join(
            (cell[number] if number < len(cell) else "").ljust(size) for cell, size in zip(cells, widths, strict=True)
        ).rstrip()
        for number in range(max(map(len, cells)))
    ]
