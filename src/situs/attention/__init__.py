"""Attention with any encoding: ``attend`` for speed; ``reference`` defines what is right.

attend      attend(), explain(), and the choice of a kernel
layer       Attention, the layer with its projections
cache       KVCache, which owns decoding
memory      keys and values as a value: rows that grow, windows that forget
admission   what a cache requires of new keys, positions and rotations
parallel    attend_sharded(), over the ranks of a process group
reference   every score formed, one formula a line
request     what was asked, checked and resolved once
visibility  which key each query may see
offsets     biases and vectors over offsets, made or cached
kernels/    private: one kernel a file or folder
"""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from situs.attention.reference import reference
from situs.attention.visibility import visibility

if TYPE_CHECKING:
    from situs.attention.attend import Explanation, attend, explain

__all__ = ["Explanation", "attend", "attend_sharded", "explain", "reference", "visibility"]

# Loaded when first asked for: the kernels come with attend, torch.distributed with attend_sharded.
_ON_DEMAND = {
    "Explanation": "situs.attention.attend",
    "attend": "situs.attention.attend",
    "attend_sharded": "situs.attention.parallel",
    "explain": "situs.attention.attend",
}


class _Package(ModuleType):
    """Leave ``attend`` to the function: importing the submodule of that name would put the submodule there."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _ON_DEMAND and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name not in _ON_DEMAND:
        raise AttributeError(f"module 'situs.attention' has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(_ON_DEMAND[name]), name)
    return found


def __dir__() -> list[str]:
    """What is loaded, and every public name that is not yet."""
    return sorted({*globals(), *__all__})
