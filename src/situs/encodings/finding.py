"""Encodings by name wherever people write one: registered ones, and classes of one's own as MODULE:CLASS."""

from __future__ import annotations

import importlib
import sys

from situs.encodings.base import Encoding
from situs.registry import Entry, entry


def find_entry(name: str) -> Entry:
    """The entry of a registered name, or one for MODULE:CLASS, which may lie in the working directory."""
    if ":" not in name:
        return entry(name)
    module_name, _, class_name = name.partition(":")
    sys.path.insert(0, "")  # as python -m would find it
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as problem:
        raise ValueError(
            f"name must be MODULE:CLASS with a module that can be imported; got {name!r}: {problem}."
        ) from problem
    finally:
        sys.path.remove("")
    cls = getattr(module, class_name, None)
    if not (isinstance(cls, type) and issubclass(cls, Encoding)):
        raise ValueError(f"{class_name} must be a situs.Encoding in module {module_name}; got {cls!r}.")
    return Entry(name, cls, paper="", formula="")
