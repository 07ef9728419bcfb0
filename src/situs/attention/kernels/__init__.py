"""The kernels that ``attend`` chooses among. They share inputs, tiles and softmax; none imports another.

flash       encodings of the input, of queries and keys, products of positions: torch's own attention, as it is
toeplitz    encodings that know positions by the offset alone: strided views, slanted products, tails
banded      rotary whose rotations differ by band of distance
flex        biases as score_mods of FlexAttention, compiled
blockwise   anything, asked tile by tile
dense       biases of any kind as one dense mask: single queries, dropout, graphs
reference   anything, every score formed
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from situs.attention.kernels import banded, blockwise, dense, flash, flex, toeplitz
from situs.attention.reference import cannot as reference_cannot
from situs.attention.reference import run as reference_run
from situs.attention.request import Request

__all__ = ["KERNELS", "Kernel"]


class Kernel(NamedTuple):
    """A way to serve requests, or some of them."""

    cannot: Callable[[Request], str | None]
    """Why it does not serve a request; None if it does."""

    run: Callable[[Request], Tensor]
    """The attention that was asked for."""


KERNELS = {
    "flash": Kernel(flash.cannot, flash.run),
    "toeplitz": Kernel(toeplitz.cannot, toeplitz.run),
    "banded": Kernel(banded.cannot, banded.run),
    "flex": Kernel(flex.cannot, flex.run),
    "blockwise": Kernel(blockwise.cannot, blockwise.run),
    "dense": Kernel(dense.cannot, dense.run),
    "reference": Kernel(reference_cannot, reference_run),
}
