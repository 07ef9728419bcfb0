"""How tensors of one shape are turned: which loop, in what order, in how many tasks."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from array import array
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor, is_legacy_batchedtensor
from torch.nn import Parameter

from situs.functional.fused.threads import team

if TYPE_CHECKING:
    from situs.functional.rotation import Pairing, RotationTable

LEAST_TASK = 1 << 15
"""Elements that are worth a thread's start; as many as torch asks for."""

TASKS_PER_THREAD = 4

WIDEST = 512
"""Of a vector; a program is straight code for one, and grows with it."""

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


@cache
def available() -> bool:
    """Whether the compiled loop can be used: llvmlite is installed, and SITUS_FUSED is not "0"."""
    wanted = os.environ.get("SITUS_FUSED", "1") != "0"
    return wanted and sys.byteorder == "little" and importlib.util.find_spec("llvmlite") is not None


class Plan:
    """How tensors of one shape are turned: a program, how they lie for it, and the number of threads."""

    def __init__(self, program: int, lie: tuple[int, ...], threads: int) -> None:
        self.program, self.threads = program, threads
        self._alone = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(program)
        self._lie = array("q", lie)
        self._lie_at, _ = self._lie.buffer_info()

    def turn(
        self,
        x: Float[Tensor, "batch heads sequence dim"],
        cos: Float[Tensor, "#batch #heads sequence pairs"],
        sin: Float[Tensor, "#batch #heads sequence pairs"],
    ) -> Float[Tensor, "batch heads sequence dim"]:
        """``x`` turned, in one pass."""
        out = torch.empty_like(x)
        record = array("q", (0, x.data_ptr(), out.data_ptr(), cos.data_ptr(), sin.data_ptr(), self._lie_at))
        if self.threads == 1:
            self._alone(record.buffer_info()[0])
        else:
            team()(self.program, record.buffer_info()[0], self.threads)
        return out


def plan(x: Tensor, table: RotationTable, pairing: Pairing) -> Plan | None:
    """How the compiled loop turns ``x``, or None where it cannot; judged from metadata alone."""
    if (
        not available()
        or type(x) not in (Tensor, Parameter)
        or not x.is_cpu
        or x.is_neg()
        or is_legacy_batchedtensor(x)
        or is_functorch_wrapped_tensor(x)
    ):
        return None
    key = (x.dtype, x.shape, x.stride(), pairing, torch.get_num_threads())
    try:
        return table.plans[key]
    except KeyError:
        cos, sin = table.cos, table.sin
        wrapped = is_functorch_wrapped_tensor(cos) or is_functorch_wrapped_tensor(sin)
        reachable = cos.is_cpu and not (cos.requires_grad or wrapped) and cos.stride() == sin.stride()
        table.plans[key] = made = _plan(*key, cos.dtype, cos.shape, cos.stride()) if reachable else None
        return made


@lru_cache(maxsize=4096)
def _plan(
    dtype: torch.dtype,
    shape: tuple[int, ...],
    x_strides: tuple[int, ...],
    pairing: Pairing,
    threads: int,
    table_dtype: torch.dtype,
    table_shape: tuple[int, ...],
    table_strides: tuple[int, ...],
) -> Plan | None:
    served = (
        dtype in DTYPES
        and table_dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        and len(shape) == 4
        and 0 not in shape
        and shape[-1] <= WIDEST
        and all(one in (1, other) for one, other in zip(table_shape, shape[:2], strict=False))
        and table_shape[2] == shape[2]
        and 0 < 2 * table_shape[3] <= shape[3]
        and x_strides[-1] == table_strides[-1] == 1
    )
    if not served:
        return None

    from situs.functional.fused.loop import Work, compiled
    from situs.functional.fused.program import converts_halves

    if dtype == torch.float16 and not converts_halves():
        return None

    # walk memory in its own order: whichever of heads and sequence lies farther apart is the outer loop
    batch, heads, length, dim = shape
    heads_lie_inside = length == 1 or x_strides[2] > x_strides[1]
    order = (0, 2, 1) if heads_lie_inside else (0, 1, 2)
    outer, inner = (length, heads) if heads_lie_inside else (heads, length)
    out_strides = torch.empty_like(torch.empty_strided(shape, x_strides, device="meta")).stride()
    table_steps = [table_strides[axis] * table_dtype.itemsize if table_shape[axis] > 1 else 0 for axis in order]
    steps = [strides[axis] * dtype.itemsize for strides in (x_strides, out_strides) for axis in order] + table_steps
    still: Literal["inner", "outer", "neither"] = (
        "inner" if not table_steps[2] else "outer" if not table_steps[1] else "neither"
    )
    work = Work(dtype, pairing, table_shape[-1], dim, still)

    # a few tasks for each thread, so that one who is held up leaves the rest to others; long runs of memory are best
    share = max(LEAST_TASK, batch * heads * length * dim // (TASKS_PER_THREAD * threads))
    inner_block = inner if heads_lie_inside else max(1, min(inner, share // (work.together * dim)))
    outer_block = max(work.together, share // (inner_block * dim))
    blocks = -(-outer // outer_block), -(-inner // inner_block)
    tasks = batch * blocks[0] * blocks[1]
    lie = (tasks, *blocks, outer_block, inner_block, outer, inner, *steps)
    return Plan(compiled(work), lie, min(threads, tasks))
