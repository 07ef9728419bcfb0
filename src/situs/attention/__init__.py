"""Attention with any encoding: ``attend`` for speed; ``reference`` defines what is right."""

import importlib
from typing import TYPE_CHECKING

from situs.attention.reference import reference
from situs.attention.visibility import visibility

if TYPE_CHECKING:
    from situs.attention.dispatch import Explanation, attend, explain
    from situs.attention.parallel import attend_sharded

__all__ = ["Explanation", "attend", "attend_sharded", "explain", "reference", "visibility"]

# The kernels are loaded when they are first asked for.
_ON_DEMAND = {
    "Explanation": "situs.attention.dispatch",
    "attend": "situs.attention.dispatch",
    "attend_sharded": "situs.attention.parallel",
    "explain": "situs.attention.dispatch",
}


def __getattr__(name: str) -> object:
    if name in _ON_DEMAND:
        return getattr(importlib.import_module(_ON_DEMAND[name]), name)
    raise AttributeError(f"module 'situs.attention' has no attribute {name!r}")


def __dir__() -> list[str]:
    """What is loaded, and every public name that is not yet."""
    return sorted({*globals(), *__all__})
