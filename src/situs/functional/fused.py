"""One pass over memory: the rotation as a compiled loop.

Turning pairs is bound by memory, so the fastest program reads each vector once and writes it once,
which no chain of tensor operations does. Numba (``pip install situs[fast]``) compiles that loop from
the Python below; without it, or for tensors it cannot reach, ``rotation`` works in chunks instead.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

if TYPE_CHECKING:
    from situs.functional.rotation import Pairing

# A call into the compiled loop costs as much as a few tensor operations on this many elements,
# and a second thread pays for its start with this many.
SMALLEST = 1 << 14
SMALLEST_PER_THREAD = 1 << 20

STORED_AS = {
    torch.float64: torch.float64,
    torch.float32: torch.float32,
    torch.bfloat16: torch.uint16,
    torch.float16: torch.int16,
}


@cache
def available() -> bool:
    """Whether the compiled loop can be used: Numba is installed, and SITUS_FUSED is not "0"."""
    return os.environ.get("SITUS_FUSED", "1") != "0" and importlib.util.find_spec("numba") is not None


def serves(x: Tensor, cos: Tensor) -> bool:
    """Whether the compiled loop can turn ``x``; judged from metadata alone."""
    return (
        x.numel() >= SMALLEST
        and x.device.type == "cpu"
        and x.ndim == 4
        and x.dtype in STORED_AS
        and type(x) in (Tensor, torch.nn.Parameter)
        and x.stride(-1) == 1
        and not (x.is_neg() or torch._C._functorch.is_legacy_batchedtensor(x))
        and cos.device.type == "cpu"
        and cos.dtype == (torch.float64 if x.dtype == torch.float64 else torch.float32)
        and available()
    )


def rotate(
    x: Float[Tensor, "batch heads sequence dim"],
    cos: Float[Tensor, "#batch #heads sequence pairs"],
    sin: Float[Tensor, "#batch #heads sequence pairs"],
    pairing: Pairing,
) -> Float[Tensor, "batch heads sequence dim"]:
    """``rotation.rotate`` in one pass. Call ``serves`` first."""
    out = torch.empty_like(x)
    cos, sin = cos.contiguous(), sin.contiguous()
    batch, _heads, _length, dim = x.shape
    kernel = _kernels()[pairing]

    # walk memory in its own order: whichever of heads and sequence lies farther apart is the outer loop
    outer, inner = (1, 2) if x.stride(1) >= x.stride(2) else (2, 1)
    table_strides = [0 if cos.shape[axis] == 1 else cos.stride(axis) for axis in range(3)]
    steps = [[source[axis] for axis in (0, outer, inner)] for source in (x.stride(), out.stride(), table_strides)]
    arrays = [_memory(tensor) for tensor in (x, out, cos, sin)]

    def turn(first: int, last: int) -> None:
        kernel(*arrays, batch, first, last, x.shape[inner], dim, cos.shape[-1], *steps[0], *steps[1], *steps[2])

    _in_threads(turn, x.shape[outer], x.numel() // SMALLEST_PER_THREAD)
    return out


def _memory(tensor: Tensor) -> Any:
    """The tensor's memory from its first to its last element, as a flat NumPy array."""
    flat = tensor.detach()
    if flat.is_contiguous():
        flat = flat.view(-1)
    else:
        flat = flat.as_strided(
            (1 + sum((n - 1) * step for n, step in zip(flat.shape, flat.stride(), strict=True)),), (1,)
        )
    return (flat if STORED_AS[flat.dtype] == flat.dtype else flat.view(STORED_AS[flat.dtype])).numpy()


def _in_threads(work: Callable[[int, int], None], count: int, most: int) -> None:
    """Run ``work(first, last)`` over ``range(count)``, in as many threads as torch would use."""
    threads = max(1, min(torch.get_num_threads(), most, count))
    bounds = [count * thread // threads for thread in range(threads + 1)]
    others = [_pool().submit(work, *bounds[thread : thread + 2]) for thread in range(1, threads)]
    work(bounds[0], bounds[1])
    for other in others:
        other.result()


@cache
def _pool() -> ThreadPoolExecutor:
    # threads do not survive a fork, so a child makes its own
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_pool.cache_clear)
    return ThreadPoolExecutor(max_workers=os.cpu_count(), thread_name_prefix="situs")


@cache
def _kernels() -> dict[str, Callable[..., None]]:
    from situs.functional.fused_kernels import KERNELS

    return KERNELS
