"""How tensors of one shape are rotated: which loop, in what order, in how many tasks."""

from __future__ import annotations

import ctypes
import math
from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from situs.compiled import available, give_up
from situs.compiled.threads import team
from situs.compiled.watching import is_in_memory
from situs.functional.rotation import Pairing

LEAST_TASK = 1 << 15
"""Elements that are worth a thread's start; as many as torch asks for."""

TASKS_PER_THREAD = 4

TOGETHER = 4
"""How many outer steps that share a row of the table are taken at a time. Where their number is no multiple of this, it
is the greatest common divisor of the two."""

WIDEST = 512
"""Of a vector; a program is straight code for one, and grows with it."""

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


__all__ = ["Plan", "available", "plan"]


class Plan:
    """How tensors that share a table are rotated in one pass: a program, how they lie for it, and the number of
    threads."""

    def __init__(self, program: int, layouts: Sequence[Sequence[int]], threads: int) -> None:
        self.program, self.threads = program, threads
        self._alone = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(program)
        self._layouts = array("q", [number for layout in layouts for number in layout])
        self._known = threads, len(layouts), self._layouts.buffer_info()[0]
        self._counts = [0] * (len(layouts) * threads)

    def rotate(
        self,
        tensors: Sequence[Float[Tensor, "batch _ sequence dim"]],
        cos: Float[Tensor, "#batch #heads sequence pairs"],
        sin: Float[Tensor, "#batch #heads sequence pairs"],
    ) -> list[Float[Tensor, "batch _ sequence dim"]]:
        """Rotate each of the tensors."""
        several = team() if self.threads > 1 else None
        call = [cos.data_ptr(), sin.data_ptr(), 0 if several is None else several.number, *self._known]
        rotated = []
        for x in tensors:
            out = torch.empty_like(x)
            rotated.append(out)
            call += x.data_ptr(), out.data_ptr()
        given = array("q", call + self._counts)
        if several is not None:
            several.run(self.program, given, self.threads, (self, tensors, rotated, cos, sin))
        else:
            self._alone(given.buffer_info()[0])
        return rotated


def plan(
    tensors: Sequence[Tensor], cos: Tensor, sin: Tensor, pairing: Pairing, threads: int, *, trailing: bool = False
) -> Plan | None:
    """Plan how the compiled loop rotates tensors by a table, or None where it cannot; judged from metadata alone."""
    if not all(is_in_memory(each) for each in (*tensors, cos, sin)) or (cos.dtype, cos.shape) != (sin.dtype, sin.shape):
        return None
    lying = tuple((x.dtype, x.shape, x.stride()) for x in tensors)
    return _plan(pairing, trailing, threads, lying, (cos.dtype, cos.shape, cos.stride(), sin.stride()))


Sizes = tuple[int, ...]
Vectors = tuple[torch.dtype, Sizes, Sizes]
"""Dtype, shape and strides."""

Angles = tuple[torch.dtype, Sizes, Sizes, Sizes]
"""Dtype, shape and strides of a table, whose cosines and sines have their own."""


@lru_cache(maxsize=4096)
def _plan(pairing: Pairing, trailing: bool, threads: int, tensors: tuple[Vectors, ...], table: Angles) -> Plan | None:
    total = sum(math.prod(shape) for _, shape, _ in tensors)
    share = max(LEAST_TASK, total // (TASKS_PER_THREAD * threads))
    works, layouts = set(), []
    for each in tensors:
        work_and_layout = _work_and_layout(each, table, pairing, trailing, share)
        if work_and_layout is None:
            return None
        works.add(work_and_layout[0])
        layouts.append(work_and_layout[1])
    if len(works) != 1:
        return None
    program = _compiled(*works.pop())
    tasks = sum(layout[0] for layout in layouts)
    return None if program is None else Plan(program, layouts, max(1, min(threads, tasks, total // LEAST_TASK)))


def _work_and_layout(
    x: Vectors, table: Angles, pairing: Pairing, trailing: bool, share: int
) -> tuple[tuple[Any, ...], tuple[int, ...]] | None:
    """What a program for such a tensor is made for, and how the tensor lies for it, in tasks of about ``share``
    elements; None if no program can rotate it."""
    dtype, shape, x_strides = x
    table_dtype, table_shape, cos_strides, sin_strides = table
    if dtype not in DTYPES or not len(shape) == len(table_shape) == 4 or 0 in shape or shape[-1] > WIDEST:
        return None
    batch, heads, length, dim = shape
    rows, of_heads, positions, pairs = table_shape
    fits = rows in (1, batch) and of_heads in (1, heads) and positions == length and 0 < 2 * pairs <= dim
    out_strides = torch.empty_like(torch.empty_strided(shape, x_strides, device="meta")).stride()
    together = {strides[-1] for strides in (x_strides, out_strides, cos_strides, sin_strides)} == {1}
    exact = table_dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    if not (fits and together and exact):
        return None

    # walk memory in its own order: whichever of heads and sequence lies farther apart is the outer loop
    heads_lie_inside = length == 1 or x_strides[2] > x_strides[1]
    order = (0, 2, 1) if heads_lie_inside else (0, 1, 2)
    outer, inner = (length, heads) if heads_lie_inside else (heads, length)

    def steps(strides: Sizes, sizes: Sizes, itemsize: int) -> list[int]:
        return [strides[axis] * itemsize if sizes[axis] > 1 else 0 for axis in order]

    of_cos, of_sin = (steps(each, table_shape, table_dtype.itemsize) for each in (cos_strides, sin_strides))
    moves = [*steps(x_strides, shape, dtype.itemsize), *steps(out_strides, shape, dtype.itemsize), *of_cos, *of_sin]
    still_inside, still_outside = (not (of_cos[loop] or of_sin[loop]) for loop in (2, 1))
    many = 1 if still_inside or not still_outside else math.gcd(outer, TOGETHER)

    # a few tasks for each thread, so that one who is held up leaves the rest to others; long runs of memory are best
    inner_block = inner if heads_lie_inside else max(1, min(inner, share // (many * dim)))
    outer_block = many * max(1, share // (many * inner_block * dim))
    blocks = -(-outer // outer_block), -(-inner // inner_block)
    layout = (batch * blocks[0] * blocks[1], *blocks, outer_block, inner_block, outer, inner, *moves)
    first = dim - 2 * pairs if trailing else 0
    return (dtype, pairing, pairs, dim, first, still_inside, many), layout


def _compiled(dtype: torch.dtype, *work: Any) -> int | None:
    """The loop for this kind of work; None where this machine or its LLVM cannot, which is said once."""
    try:
        from situs.compiled.program import converts_halves
        from situs.rotation.fused.loop import Work, compiled

        return compiled(Work(dtype, *work)) if dtype != torch.float16 or converts_halves() else None
    except Exception as problem:
        give_up(problem, "rotary", "Tensor operations are")
        return None
