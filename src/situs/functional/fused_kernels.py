"""The loop that ``fused`` runs, compiled by Numba; imported only when it is first needed.

Half-precision numbers arrive as their 16 bits. They are widened to float32, turned, and rounded once to
nearest even, so the result is the float32 result's nearest neighbour.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic


def _conversion(source: Any, target: Any, emit: Callable[[Any, Any], Any]) -> Any:
    """A function of one number that is a few machine instructions."""

    @intrinsic
    def convert(typing_context: Any, value: Any) -> Any:
        return target(source), lambda context, builder, signature, arguments: emit(builder, arguments[0])

    return convert


FLOAT, HALF, WORD, SHORT = ir.FloatType(), ir.HalfType(), ir.IntType(32), ir.IntType(16)

bits_of_float = _conversion(types.float32, types.uint32, lambda b, v: b.bitcast(v, WORD))
float_of_bits = _conversion(types.uint32, types.float32, lambda b, v: b.bitcast(v, FLOAT))
load_float16 = _conversion(types.uint16, types.float32, lambda b, v: b.fpext(b.bitcast(v, HALF), FLOAT))
store_float16 = _conversion(types.float32, types.uint16, lambda b, v: b.bitcast(b.fptrunc(v, HALF), SHORT))


@njit(inline="always")
def load_bfloat16(bits: Any) -> Any:
    return float_of_bits(np.uint32(bits) << np.uint32(16))


@njit(inline="always")
def store_bfloat16(value: Any) -> Any:
    bits = bits_of_float(value)
    nearest_even = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return np.uint16((bits + nearest_even) >> np.uint32(16)) if value == value else np.uint16(0x7FC0)


@njit(inline="always")
def same(value: Any) -> Any:
    return value


def _kernel(load: Any, store: Any, interleaved: bool) -> Callable[..., None]:
    """Rows ``first .. last`` of the outer loop; arrays are flat, steps say how far apart rows lie."""

    @njit(nogil=True, error_model="numpy", cache=True)
    def turn(  # type: ignore[no-untyped-def]
        x, out, cos, sin, batch, first, last, inner, dim, pairs,
        x_batch, x_outer, x_inner, out_batch, out_outer, out_inner, t_batch, t_outer, t_inner,
    ):  # fmt: skip
        # unsigned indices need no check for negative ones, which would keep the loop from vector instructions
        one, two, count, size = np.uintp(1), np.uintp(2), np.uintp(pairs), np.uintp(dim)
        for b in range(batch):
            for i in range(first, last):
                for j in range(inner):
                    source = np.uintp(b * x_batch + i * x_outer + j * x_inner)
                    target = np.uintp(b * out_batch + i * out_outer + j * out_inner)
                    place = np.uintp(b * t_batch + i * t_outer + j * t_inner)
                    for p in range(count):
                        if interleaved:
                            first_channel, second_channel = two * p, two * p + one
                        else:
                            first_channel, second_channel = p, p + count
                        a, e = load(x[source + first_channel]), load(x[source + second_channel])
                        c, s = cos[place + p], sin[place + p]
                        out[target + first_channel] = store(a * c - e * s)
                        out[target + second_channel] = store(a * s + e * c)
                    for rest in range(two * count, size):
                        out[target + rest] = x[source + rest]

    return turn


CONVERSIONS = {
    torch.float64: (same, same),
    torch.float32: (same, same),
    torch.bfloat16: (load_bfloat16, store_bfloat16),
    torch.float16: (load_float16, store_float16),
}

KERNELS: dict[tuple[torch.dtype, str], Callable[..., None]] = {
    (dtype, pairing): _kernel(load, store, pairing == "interleaved")
    for dtype, (load, store) in CONVERSIONS.items()
    for pairing in ("interleaved", "halves")
}
