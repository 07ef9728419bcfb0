"""The kernels that ``attend`` chooses among.

flash       input and rotary encodings, straight onto scaled_dot_product_attention
toeplitz    biases over offsets, as strided views
flex        biases as score_mods of FlexAttention, compiled
blockwise   anything, a block of queries at a time
reference   anything, every score formed
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from situs.attention import blockwise, flash, flex, toeplitz
from situs.attention.reference import cannot as reference_cannot
from situs.attention.reference import run as run_reference
from situs.attention.request import Request


class Kernel(NamedTuple):
    """A way to serve requests, or some of them."""

    cannot: Callable[[Request], str | None]
    """Why it does not serve a request; None if it does."""

    run: Callable[[Request], Tensor]
    """The attention that was asked for."""


KERNELS = {
    "flash": Kernel(flash.cannot, flash.run),
    "toeplitz": Kernel(toeplitz.cannot, toeplitz.run),
    "flex": Kernel(flex.cannot, flex.run),
    "blockwise": Kernel(blockwise.cannot, blockwise.run),
    "reference": Kernel(reference_cannot, run_reference),
}
