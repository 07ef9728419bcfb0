"""The loop that ``fused`` runs, compiled by Numba; imported only when it is first needed.

Half-precision numbers arrive as their 16 bits, bfloat16 as unsigned and float16 as signed integers, which is how
the compiler tells them apart. They are widened to float32, turned, and rounded once to nearest even. The loops are
functions of the module, not closures, so that their compiled form is kept for the next process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic, overload

FLOAT, HALF, WORD, SHORT = ir.FloatType(), ir.HalfType(), ir.IntType(32), ir.IntType(16)


@intrinsic
def bits_of_float(typing_context: Any, value: Any) -> Any:
    return types.uint32(types.float32), lambda context, builder, signature, args: builder.bitcast(args[0], WORD)


@intrinsic
def float_of_bits(typing_context: Any, bits: Any) -> Any:
    return types.float32(types.uint32), lambda context, builder, signature, args: builder.bitcast(args[0], FLOAT)


@intrinsic
def float_of_half(typing_context: Any, bits: Any) -> Any:
    def widen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fpext(builder.bitcast(args[0], HALF), FLOAT)

    return types.float32(types.int16), widen


@intrinsic
def half_of_float(typing_context: Any, value: Any) -> Any:
    def narrow(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(builder.fptrunc(args[0], HALF), SHORT)

    return types.int16(types.float32), narrow


def load(stored: Any) -> Any:
    """The number that is stored; replaced by the overload below in compiled code."""
    return stored


@overload(load)
def _load(stored):  # type: ignore[no-untyped-def]
    if stored == types.uint16:
        return lambda stored: float_of_bits(np.uint32(stored) << np.uint32(16))  # type: ignore[call-arg]
    if stored == types.int16:
        return lambda stored: float_of_half(stored)  # type: ignore[call-arg]
    return lambda stored: stored


def store(like: Any, value: Any) -> Any:
    """A number as it is stored, in the way that ``like`` is; replaced by the overload below in compiled code."""
    return value


@overload(store)
def _store(like, value):  # type: ignore[no-untyped-def]
    if like == types.uint16:
        return lambda like, value: bfloat16_of_float(value)
    if like == types.int16:
        return lambda like, value: half_of_float(value)  # type: ignore[call-arg]
    return lambda like, value: value


@njit
def bfloat16_of_float(value):  # type: ignore[no-untyped-def]
    bits: Any = bits_of_float(value)  # type: ignore[call-arg]
    nearest_even = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))  # type: ignore[unreachable]
    return np.uint16((bits + nearest_even) >> np.uint32(16)) if value == value else np.uint16(0x7FC0)


# Both loops: rows ``first .. last`` of the outer axis, in flat arrays; steps say how far apart rows lie. Indices
# are unsigned, since a check for negative ones would keep the compiler from vector instructions.


@njit(nogil=True, error_model="numpy", cache=True)
def turn_neighbours(  # type: ignore[no-untyped-def]
    x, out, cos, sin, batch, first, last, inner, dim, pairs,
    x_batch, x_outer, x_inner, out_batch, out_outer, out_inner, t_batch, t_outer, t_inner,
):  # fmt: skip
    one, two, count, size = np.uintp(1), np.uintp(2), np.uintp(pairs), np.uintp(dim)
    for b in range(batch):
        for i in range(first, last):
            for j in range(inner):
                source = np.uintp(b * x_batch + i * x_outer + j * x_inner)
                target = np.uintp(b * out_batch + i * out_outer + j * out_inner)
                place = np.uintp(b * t_batch + i * t_outer + j * t_inner)
                for p in range(count):
                    stored = x[source + two * p]
                    a, e = load(stored), load(x[source + two * p + one])
                    c, s = cos[place + p], sin[place + p]
                    out[target + two * p] = store(stored, a * c - e * s)
                    out[target + two * p + one] = store(stored, a * s + e * c)
                for rest in range(two * count, size):
                    out[target + rest] = x[source + rest]


@njit(nogil=True, error_model="numpy", cache=True)
def turn_halves(  # type: ignore[no-untyped-def]
    x, out, cos, sin, batch, first, last, inner, dim, pairs,
    x_batch, x_outer, x_inner, out_batch, out_outer, out_inner, t_batch, t_outer, t_inner,
):  # fmt: skip
    two, count, size = np.uintp(2), np.uintp(pairs), np.uintp(dim)
    for b in range(batch):
        for i in range(first, last):
            for j in range(inner):
                source = np.uintp(b * x_batch + i * x_outer + j * x_inner)
                target = np.uintp(b * out_batch + i * out_outer + j * out_inner)
                place = np.uintp(b * t_batch + i * t_outer + j * t_inner)
                for p in range(count):
                    stored = x[source + p]
                    a, e = load(stored), load(x[source + count + p])
                    c, s = cos[place + p], sin[place + p]
                    out[target + p] = store(stored, a * c - e * s)
                    out[target + count + p] = store(stored, a * s + e * c)
                for rest in range(two * count, size):
                    out[target + rest] = x[source + rest]


KERNELS: dict[str, Callable[..., None]] = {"interleaved": turn_neighbours, "halves": turn_halves}
