"""Encodings of one's own, found by where they are written: MODULE:CLASS, FILE.py:CLASS, or FILE.py with one class."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from situs.registry.origins import place_of, sentence_of, short
from situs.registry.spelling import did_you_mean

if TYPE_CHECKING:
    from situs.encodings.base import Encoding


FILLED_IN = ("dim", "head_dim", "num_heads", "max_length", "size")
"""Options that commands fill in, by the sizes of the model, where a class takes them."""


def is_own(name: str) -> bool:
    """Whether a name says where a class is written: MODULE:CLASS, or a Python file with or without :CLASS."""
    return ":" in name or name.strip().endswith(".py")


def load(name: str) -> type[Encoding]:
    """Import the class that a name leads to; modules may lie in the working directory."""
    module, where, class_name = _module_of(name)
    base: type[Encoding] = importlib.import_module("situs.encodings.base").Encoding
    defined = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, base) and value.__module__ == module.__name__
    }
    if not class_name:
        if len(defined) != 1:
            found = ", ".join(sorted(defined)) or "none"
            raise ValueError(
                f"{where} must define one encoding where no class is named, since one is made from it; got {found}. "
                f"Write {where}:CLASS."
            )
        return next(iter(defined.values()))
    cls = getattr(module, class_name, None)
    if not (isinstance(cls, type) and issubclass(cls, base)):
        cure = did_you_mean(class_name, defined)
        raise ValueError(f"{class_name} must be a situs.Encoding in {where}; got {cls!r}.{cure}")
    return cls


def load_function(name: str) -> Callable[..., Any]:
    """Import the function that a name leads to, as FILE.py:FUNCTION or MODULE:FUNCTION."""
    module, where, called = _module_of(name)
    found: Callable[..., Any] | None = getattr(module, called, None) if called else None
    if not callable(found):
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        cure = did_you_mean(called, known) if called else f" Write {where}:FUNCTION."
        raise ValueError(f"{called or name!r} must be a function in {where}, since it is called; got {found!r}.{cure}")
    return found


def _module_of(name: str) -> tuple[ModuleType, str, str]:
    """Import the module of a name; where it lies, and what is named in it."""
    where, _, called = (part.strip() for part in name.strip().rpartition(":"))
    if not where:  # FILE.py alone
        where, called = called, ""
    return (_of_file(name, where) if where.endswith(".py") else _of_module(name, where)), where, called


def require_imported(name: str) -> None:
    """Import the class that a name leads to, and raise in one sentence where its module fails, whatever that raises."""
    where, _, class_name = (part.strip() for part in name.strip().rpartition(":"))
    if not where:
        where, class_name = class_name, ""
    try:
        load(name)
    except (Exception, SystemExit) as problem:
        place = place_of(problem, [where])
        if isinstance(problem, ValueError) and not place:  # a sentence of ours: no such module, or no such class
            raise
        reason = f"{class_name} is defined there" if class_name else "an encoding is read from it"
        raise ValueError(
            f"{where} must be a module that can be imported, since {reason}; got {sentence_of(problem, place)}."
        ) from problem


def require_makeable(name: str, cls: type[Encoding], options: Mapping[str, object]) -> None:
    """Raise unless a class of one's own defines all that its base leaves open, and has all options that it needs."""
    for left_open in sorted(getattr(cls, "__abstractmethods__", ())):
        method = getattr(cls, left_open)
        base = next(each.__name__ for each in cls.__mro__ if left_open in vars(each))
        raise TypeError(
            f"{cls.__name__} must define {left_open}({', '.join(inspect.signature(method).parameters)}), since "
            f"{base} leaves it to its subclasses; got a class without it{at_class(cls)}."
        )
    for key, each in inspect.signature(cls).parameters.items():
        variable = each.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        if key not in options and each.default is inspect.Parameter.empty and not variable:
            raise TypeError(
                f"{key} must be given, since {cls.__name__}{at_class(cls)} has no default for it; got none. Sizes are "
                f"filled in where they are called {', '.join(FILLED_IN[:-1])} or {FILLED_IN[-1]}."
                f"{did_you_mean(key, FILLED_IN)} Other options are written after the name: situs check {name} "
                f"{key}=..., or {name}({key}=...)."
            )


def at_class(cls: type) -> str:
    """Say file and line of a class; nothing where it was typed into a shell."""
    try:
        file, (_, line) = inspect.getsourcefile(cls), inspect.getsourcelines(cls)
    except (OSError, TypeError):
        return ""
    return "" if file is None else f" at {short(file)}:{line}"


def _of_module(name: str, where: str) -> ModuleType:
    with _importable_from(""):  # as python -m would find it
        try:
            return importlib.import_module(where)
        except ModuleNotFoundError as problem:
            if problem.name is not None and not f"{where}.".startswith(f"{problem.name}."):
                raise  # the module is there, and something that it imports is not
            raise ValueError(
                f"name must be MODULE:CLASS with a module that can be imported, or FILE.py:CLASS; got {name!r}: "
                f"{problem}. Call it from the folder of {where.partition('.')[0]}.py, or write the path to that file."
            ) from problem


def _of_file(name: str, where: str) -> ModuleType:
    path = Path(where).expanduser().resolve()
    if not path.is_file():
        raise ValueError(
            f"name must lead to a file, since a class is read from it; got {name!r}, and {path} is no file."
        )
    # named by its path, so that files of one name stay apart and what is pickled here can be read here
    called = f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if called in sys.modules:
        return sys.modules[called]
    spec = importlib.util.spec_from_file_location(called, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[called] = module
    try:
        with _importable_from(str(path.parent)):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[called]
        raise
    return module


@contextmanager
def _importable_from(folder: str) -> Iterator[None]:
    """Find modules in a folder first."""
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
