"""Attention with any encoding: ``attend`` for speed; ``reference`` defines what is right."""

import importlib
from typing import TYPE_CHECKING

from situs.attention.reference import reference
from situs.attention.visibility import visibility

if TYPE_CHECKING:
    from situs.attention.dispatch import Explanation, attend, explain

__all__ = ["Explanation", "attend", "explain", "reference", "visibility"]


def __getattr__(name: str) -> object:
    if name in ("Explanation", "attend", "explain"):  # the kernels are loaded when they are first asked for
        return getattr(importlib.import_module("situs.attention.dispatch"), name)
    raise AttributeError(f"module 'situs.attention' has no attribute {name!r}")
