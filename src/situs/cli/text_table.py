"""Tables for the terminal that fit its width: no word is broken and no heading is cut.

Columns that find no room beside the others go on in another block below, with the names of the rows again.

    encoding  loss  change
                1×      2×
    ────────  ────  ──────
    alibi     2.01  +0.002
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

GAP = 2
LONGEST_NAME = 24  # or a quarter of the width: longer names go on in the next line, where one of their parts ends
LEAST_WORDS = 24  # of room for a column of words; with less, it goes to another block


@dataclass(frozen=True)
class Column:
    """Hold a heading, whose lines are separated by newlines, and a cell for each row.

    words: whether cells are sentences, which are aligned left and go on in the next line between words.
    """

    head: str
    cells: Sequence[str]
    words: bool = False

    @property
    def width(self) -> int:
        """The width that the column needs, if nothing goes on in the next line."""
        return max((cell_len(line) for text in (self.head, *self.cells) for line in text.split("\n")), default=0)

    @property
    def least(self) -> int:
        """The width that the column needs at least."""
        if not self.words:
            return self.width
        longest = max((cell_len(word) for text in (self.head, *self.cells) for word in text.split()), default=0)
        return min(self.width, max(longest, LEAST_WORDS))


def fits(names: Sequence[str], columns: Sequence[Column], width: int, *, head: str = "encoding") -> bool:
    """Tell whether all columns find room in one block."""
    return len(_blocks(_named(names, width, head).width, columns, width)) == 1


def render(names: Sequence[str], columns: Sequence[Column], width: int, *, head: str = "encoding") -> list[str]:
    """Write a table as lines that are no longer than ``width``, in blocks with an empty line between them.

    head: what stands over the names.
    """
    first = _named(names, width, head)
    lines: list[str] = []
    for block in _blocks(first.width, columns, width):
        lines += [""] * bool(lines)
        used = first.width + sum(GAP + column.least for column in block)
        room = [column.least + (width - used if column.words else 0) for column in block]
        widths = [min(column.width, most) for column, most in zip(block, room, strict=True)]
        lines += _block([first, *block], [first.width, *widths])
    return lines


def _named(names: Sequence[str], width: int, head: str) -> Column:
    """Make the column of names, in which long names go on in the next line where one of their parts ends."""
    parts = [re.split(r"(?<=[+(/:&_=,. ])", name) for name in names]
    longest = min(LONGEST_NAME, width // 4)
    return Column(head, ["\n".join(line.rstrip() for line in _filled(each, longest, "")) for each in parts])


def _blocks(first: int, columns: Sequence[Column], width: int) -> list[list[Column]]:
    """Put as many columns into each block as find room beside the names."""
    blocks: list[list[Column]] = []
    used = width
    for column in columns:
        if not blocks or used + GAP + column.least > width:
            blocks.append([])
            used = first
        blocks[-1].append(column)
        used += GAP + column.least
    return blocks


def _block(columns: Sequence[Column], widths: Sequence[int]) -> list[str]:
    """Write columns side by side: headings, a rule, and the rows."""
    heads = [column.head.split("\n") for column in columns]
    most = max(len(head) for head in heads)
    lowered = [[""] * (most - len(head)) + head for head in heads]
    lines = [_line(columns, widths, [head[number] for head in lowered]) for number in range(most)]
    lines.append((" " * GAP).join("─" * width for width in widths))
    for row in range(len(columns[0].cells)):
        cells = [
            _filled(column.cells[row].split(" "), width, " ") if column.words else column.cells[row].split("\n")
            for column, width in zip(columns, widths, strict=True)
        ]
        for number in range(max(len(cell) for cell in cells)):
            lines.append(_line(columns, widths, [cell[number] if number < len(cell) else "" for cell in cells]))
    return lines


def _line(columns: Sequence[Column], widths: Sequence[int], texts: Sequence[str]) -> str:
    """Write one line: names and words aligned left, numbers right."""
    padded = []
    for number, (column, width, text) in enumerate(zip(columns, widths, texts, strict=True)):
        room = " " * (width - cell_len(text))
        padded.append(text + room if column.words or number == 0 else room + text)
    return (" " * GAP).join(padded).rstrip()


def _filled(parts: Sequence[str], width: int, between: str) -> list[str]:
    """Join parts to lines that are no wider than ``width``, if no single part is."""
    lines: list[str] = []
    for part in parts:
        longer = f"{lines[-1]}{between}{part}" if lines else part
        if lines and cell_len(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(part)
    return lines
