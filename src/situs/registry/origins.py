"""Origins of errors: which line of one's own code an error came from, and what it said, in a sentence.

One's own are files that belong neither to this package nor to an installed one.
"""

from __future__ import annotations

import functools
import linecache
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def place_of(error: BaseException, modules: Iterable[str] = (), *, with_code: bool = False) -> str:
    """Find the last line of one's own code that an error came through, as FILE:LINE; empty where there is none.

    modules: whose files are one's own wherever they lie.
    with_code: quote the line.
    """
    files = {os.path.realpath(file) for name in modules if (file := getattr(sys.modules.get(name), "__file__", None))}
    if isinstance(error, SyntaxError) and error.filename and _own(error.filename, files):
        return f"{short(error.filename)}:{error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _own(frame.filename, files)]
    if not frames:
        return ""
    file, line = frames[-1].filename, frames[-1].lineno or 0
    code = f", `{linecache.getline(file, line).strip()}`" if with_code else ""
    return f"{short(file)}:{line}{code}"


def first_own_place(frames: Iterable[tuple[str, str]]) -> str:
    """Find the first of frames, the innermost first, that is of one's own code, as FILE:LINE."""
    return next((f"{short(file)}:{line}" for file, line in frames if _own(file, set())), "")


def words_of(error: BaseException) -> str:
    """Give the message of an error; a SyntaxError's without the file, which is named apart."""
    try:
        said = error.msg if isinstance(error, SyntaxError) else str(error)
    except Exception:  # a message of one's own may fail, too
        said = "its message cannot be shown"
    return said.rstrip(".") if isinstance(error, SyntaxError) else said


def sentence_of(error: BaseException, place: str) -> str:
    """Say what was raised, where and with which words: ``SystemExit at own.py:12: 3``, without a full stop."""
    lines = words_of(error).strip().splitlines() or [""]
    return f"{type(error).__name__}{f' at {place}' if place else ''}: {lines[0]}".rstrip(": .")


def short(filename: str) -> str:
    """Name a file as seen from the working directory, if it lies below."""
    path = os.path.realpath(filename)
    below = os.path.relpath(path)
    return path if below.startswith(os.pardir) else below


def is_own_file(file: str) -> bool:
    """Tell whether a file is neither of this package nor installed."""
    path = os.path.realpath(file)
    if not os.path.isfile(path) or {"site-packages", "dist-packages"} & set(Path(path).parts):
        return False
    return not path.startswith(_installed())


@functools.cache
def _installed() -> tuple[str, ...]:
    """List the folders of this package and of what is installed; sysconfig reads a file of Python's own, so not when
    this is imported."""
    paths = sysconfig.get_paths()
    installed = (paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib") if paths.get(name))
    return tuple(f"{folder}{os.sep}" for folder in (str(PACKAGE), *map(os.path.realpath, installed)))


def _own(filename: str, files: set[str]) -> bool:
    return os.path.realpath(filename) in files or is_own_file(filename)
