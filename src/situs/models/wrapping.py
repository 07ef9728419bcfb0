"""Lines of a width, for terminals: what reports, differences and verdicts are printed in."""

from __future__ import annotations

import textwrap

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
