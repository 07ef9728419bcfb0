"""Short inputs, for which a number for each pair of tokens is the faster way.

Layers ask here whether their input is short. The self-test of ``accelerate`` runs its inputs, which are, as long ones
too: what serves those would not be seen otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

_AS_LONG: ContextVar[set[int] | None] = ContextVar("situs_as_long", default=None)
"""Sizes that would have been short, while none is."""


def is_short(size: int, most: int) -> bool:
    """Whether an input has at most so many tokens, or pairs of them."""
    if size > most:
        return False
    if torch.compiler.is_compiling():
        return True
    sizes = _AS_LONG.get()
    if sizes is None:
        return True
    sizes.add(size)
    return False


@contextmanager
def as_long() -> Iterator[set[int]]:
    """Serve every input as if it were long, in this thread; gives the sizes of those that are not."""
    sizes: set[int] = set()
    token = _AS_LONG.set(sizes)
    try:
        yield sizes
    finally:
        _AS_LONG.reset(token)
