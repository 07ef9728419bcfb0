"""Problems of a method: an error as a sentence, with the file and line of one's own code that it came from.

Workers make them, since only they run code of one's own; the rest of the program receives plain text.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass

from situs.lab.naming.grammar import Method
from situs.lab.naming.methods import require_trainable
from situs.lab.naming.sources import is_users
from situs.registry import entry


class RefusedError(ValueError):
    """Raised for a method that cannot be compared at all: a wrong name, or a module that cannot be imported."""


@dataclass(frozen=True)
class Problem:
    """Hold what went wrong, in words, and the traceback for those who look closer."""

    said: str
    traceback: str


def problem_of(error: BaseException, method: Method) -> Problem:
    """Say what was raised, and where in the method's own files."""
    place = place_of(error, own_modules(method))
    said = f"{type(error).__name__}: {_words(error)}" + (f" ({place})" if place else "")
    return Problem(said, "".join(traceback.format_exception(error)))


def first_line(said: str) -> str:
    """Give the first line of a long error, with the file and line of one's own code that end it."""
    first, newline, rest = said.partition("\n")
    place = re.search(r" \([^()\n]+:\d+\)$", rest)
    return f"{first} ..." + (place[0] if place else "") if newline else said


def own_modules(method: Method) -> list[str]:
    """List the modules of the method's encodings that are not of this package."""
    return sorted({part.name.partition(":")[0] for part in method.parts if part.of_ones_own})


def place_of(error: BaseException, modules: Iterable[str]) -> str:
    """Find the last line of one's own code that an error came through, as FILE:LINE; empty where there is none.

    One's own are the files of these modules, and files that are neither of this package nor installed.
    """
    files = {os.path.realpath(file) for name in modules if (file := getattr(sys.modules.get(name), "__file__", None))}
    if not modules:
        return ""
    if isinstance(error, SyntaxError) and error.filename and _own(error.filename, files):
        return f"{_short(error.filename)}:{error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _own(frame.filename, files)]
    return f"{_short(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""


def first_own_place(frames: Iterable[tuple[str, str]]) -> str:
    """Find the first of frames, the innermost first, that is of one's own code, as FILE:LINE."""
    return next((f"{_short(file)}:{line}" for file, line in frames if _own(file, set())), "")


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
    module = name.partition(":")[0]
    try:
        entry(name)
    except BaseException as problem:  # whatever a module does when it is imported, SystemExit included
        place = place_of(problem, [module])
        if isinstance(problem, ValueError) and not place:  # a sentence of ours: no such module, or no such class
            raise RefusedError(str(problem)) from problem
        raise RefusedError(
            f"{module} must be a module that can be imported, since {name.partition(':')[2]} is defined there; got "
            f"{type(problem).__name__}{f' at {place}' if place else ''}: {_words(problem)}."
        ) from problem


def _words(error: BaseException) -> str:
    """Give the message of an error; a SyntaxError's without the file, which is named apart."""
    try:
        said = error.msg if isinstance(error, SyntaxError) else str(error)
    except Exception:  # a message of one's own may fail, too
        said = "its message cannot be shown"
    return said.rstrip(".") if isinstance(error, SyntaxError) else said


def _own(filename: str, files: set[str]) -> bool:
    return os.path.realpath(filename) in files or is_users(filename)


def _short(filename: str) -> str:
    """Name a file as seen from the working directory, if it lies below."""
    path = os.path.realpath(filename)
    below = os.path.relpath(path)
    return path if below.startswith(os.pardir) else below
