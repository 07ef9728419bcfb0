"""What commands write: files, whole or not at all and never over another by accident; and lines for a terminal."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

WIDEST = 100
"""Columns that are still read with ease, however wide a terminal is."""


def terminal_width() -> int:
    """The columns that text is wrapped at: the terminal's, and 80 where there is none."""
    return min(shutil.get_terminal_size((80, 24)).columns, WIDEST)


def lines_of(texts: Iterable[str], *, indent: str = "") -> str:
    """Texts of which each begins a line, wrapped at the terminal's width."""
    from situs.models.wrapping import filled

    return "\n".join(line for text in texts for line in filled(text, terminal_width(), indent))


def require_writable(flag: str, out: Path, *, endings: Sequence[str] = ()) -> Path:
    """Raise unless a file can be written to a path, before any work is done."""
    if endings and out.suffix.lower() not in endings:
        raise ValueError(f"{flag} must end in {', '.join(endings)}, since that tells the format; got {str(out)!r}.")
    try:
        if not out.parent.is_dir():
            raise ValueError(f"{flag} must be in a folder that exists; got {str(out)!r}.")
        if not out.is_dir() and os.access(out if out.exists() else out.parent, os.W_OK):
            return out
        reason = "."
    except OSError as problem:  # a name that is too long, or a folder that may not be looked into
        reason = f": {problem.strerror}."
    raise ValueError(f"{flag} must be a file that can be written; got {str(out)!r}{reason}")


def require_new(flag: str, out: Path, *, force: bool) -> Path:
    """Raise where a file is there already, unless it is to be replaced."""
    if out.exists() and not force:
        raise ValueError(f"{flag} must be a new file, since {str(out)!r} would be lost. Give --force to replace it.")
    return out


def write(data: bytes, out: Path) -> None:
    """Write a file whole or not at all."""
    from situs.lab.running.store import write_whole

    try:
        write_whole(out, data)
    except OSError as problem:
        raise ValueError(f"{out} could not be written: {problem.strerror or problem}.") from problem
