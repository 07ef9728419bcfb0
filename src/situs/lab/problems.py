"""Problems of a job: an error as a sentence, with the file and line of one's own code that it came from.

Workers make them, since only they run code of one's own; the rest of the program receives plain text.
"""

from __future__ import annotations

import contextlib
import re
import traceback
from dataclasses import dataclass

from situs.lab.naming.grammar import Method
from situs.lab.naming.methods import require_trainable
from situs.registry.origins import place_of, words_of
from situs.registry.own import at_class, load, require_imported


class RefusedError(ValueError):
    """Raised for a method that cannot be compared at all: a wrong name, or a module that cannot be imported."""


@dataclass(frozen=True)
class Problem:
    """Hold what went wrong, in words, and the traceback for those who look closer."""

    said: str
    traceback: str


def problem_of(error: BaseException, method: Method | None = None) -> Problem:
    """Say what was raised, and where in the files of one's own that a method comes from: the line, or the class where
    none of its lines raised it."""
    modules = [] if method is None else own_modules(method)
    place = place_of(error, modules) or _own_class(method) if method is not None and modules else ""
    said = f"{type(error).__name__}: {words_of(error)}" + (f" ({place})" if place else "")
    return Problem(said, "".join(traceback.format_exception(error)))


def first_line(said: str) -> str:
    """Give the first line of a long error, with the file and line of one's own code that end it."""
    first, newline, rest = said.partition("\n")
    place = re.search(r" \([^()\n]+:\d+\)$", rest)
    return f"{first} ..." + (place[0] if place else "") if newline else said


def own_modules(method: Method) -> list[str]:
    """List the modules of the method's encodings that are not of this package."""
    return sorted({part.name.partition(":")[0] for part in method.parts if part.of_ones_own})


def _own_class(method: Method) -> str:
    """Say where the first class of one's own that a method names is written; nothing where that is not known."""
    name = next(part.name for part in method.parts if part.of_ones_own)
    with contextlib.suppress(Exception, SystemExit):  # its module was imported before, so that no code runs again
        if place := at_class(load(name)):
            return f"class{place}"
    return ""


def require_importable(method: Method) -> None:
    """Import the classes that a method names, and raise unless they can be put together as it is written."""
    for part in method.parts:
        if part.of_ones_own:
            _require_imported(part.name)
    try:
        require_trainable(method)
    except ValueError as problem:
        raise RefusedError(str(problem)) from problem


def _require_imported(name: str) -> None:
    try:
        require_imported(name)
    except ValueError as problem:
        raise RefusedError(str(problem)) from problem
