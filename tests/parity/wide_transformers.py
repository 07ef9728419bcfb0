"""transformers' own code, run in float64.

transformers forms frequencies and angles in float32, so at position p an angle may be off by some ``p w 2^-23``: far
out, only a wide tolerance would pass, and a wide tolerance proves little. Here the very same code is run with every
mention of float32 read as float64. What it computes is unchanged; only its rounding is gone, and ours must then
agree to float64's precision however far the position.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from transformers import modeling_rope_utils

# angles of positions below 2^17 are good to 2^17 2^-53 = 1.5e-11; scores and outputs add a few of those
WIDE_TOLERANCE = 1e-9


class _WideTorch:
    """The torch module with float64 in float32's place."""

    float = float32 = torch.float64
    FloatTensor = torch.DoubleTensor

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


@contextmanager
def in_float64(*sources: Any) -> Iterator[None]:
    """Within, the modules that define ``sources`` (classes or functions of transformers) compute in float64."""
    default = torch.get_default_dtype()
    modules = {sys.modules[source.__module__] for source in sources} | {modeling_rope_utils}
    with ExitStack() as patches:
        for module in modules:
            patches.enter_context(patch.object(module, "torch", _WideTorch()))
        patches.enter_context(patch.object(torch.Tensor, "float", torch.Tensor.double))
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(default)
