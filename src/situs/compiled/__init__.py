"""Loops that LLVM compiles for this machine, and what they are written with.

    program    a function for LLVM, with its loops and its memory
    numbers    how numbers are read and written, whatever their dtype
    vectors    arithmetic with the vectors that a machine's registers hold
    threads    who runs a loop
    watching   whether anything follows the operations, so that only plain ones may be used
    attending  attention of some queries over some keys, and its gradients

They need llvmlite (``pip install situs[fast]``). Without it, everything is done by operations of torch.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import warnings
from functools import cache

__all__ = ["available", "give_up"]

_failure: Exception | None = None


def available() -> bool:
    """Whether loops can be compiled: llvmlite is installed and works, and SITUS_FUSED is not "0"."""
    return _failure is None and _wanted()


@cache
def _wanted() -> bool:
    asked = os.environ.get("SITUS_FUSED", "1") != "0"
    return asked and sys.byteorder == "little" and importlib.util.find_spec("llvmlite") is not None


def give_up(problem: Exception, what: str, instead: str) -> None:
    """Warn that this machine, or its LLVM, compiles no loops, and ask for none again.

    what: runs fastest by such a loop.
    instead: what is used now.
    """
    global _failure
    _failure = problem
    warnings.warn(
        f"situs[fast] must compile its loop with llvmlite 0.45 or newer, since {what} runs fastest so; got "
        f"{type(problem).__name__}: {problem}. {instead} used instead; SITUS_FUSED=0 leaves this out.",
        stacklevel=3,
    )
