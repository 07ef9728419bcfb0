"""Calls of the compiled loops, and which tensors they serve."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable
from functools import cache
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from situs.compiled import available, give_up
from situs.compiled.attending.tensors import EVERYTHING, NOWHERE, Added, Band, Gradients, Lie, is_readable, readable
from situs.compiled.threads import team
from situs.compiled.watching import count_of_modes, is_batched, is_transformed

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
FEW_QUERIES = 16
"""Fewer than these, or so few keys, are left to torch's kernel, which rewrites no keys and fills no panels of them."""
LEAST_WORK = 1 << 26
"""Products of numbers in a call that are worth compiling a loop for."""
WIDEST = 256  # channels
TASKS = 4  # for each thread, so that one that is held up leaves the rest to others
LEAST_BLOCK = 48  # queries that are worth rewriting keys for


def serves(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether compiled loops attend with such tensors of the processor, outside of graphs."""
    if torch.compiler.is_compiling() or not query.is_cpu:
        return False
    if query.dtype not in DTYPES or not query.dtype == key.dtype == value.dtype or not available():
        return False
    if count_of_modes():  # which would not see what a loop writes
        return False
    (*shape, queries, width), keys = query.shape, key.shape[2]
    pairs = shape[0] * shape[1] * queries * keys
    if min(queries, keys) < FEW_QUERIES or pairs * (width + value.shape[3]) < LEAST_WORK:
        return False
    lanes = _lanes()
    for dim in (width, value.shape[3]):
        if not lanes or not 0 < dim <= WIDEST or dim % lanes:
            return False
    return all(is_readable(each) for each in (query, key, value))


def attend(
    query: Float[Tensor, "batch heads query head_dim"],
    key: Float[Tensor, "batch heads key head_dim"],
    value: Float[Tensor, "batch heads key value_dim"],
    scale: float,
    added: Added | None = None,
    band: Band = EVERYTHING,
) -> tuple[Float[Tensor, "batch heads query value_dim"], Float[Tensor, "batch heads query"]] | None:
    """Output and log-sum-exp, 0 and -inf for a query that sees no key; None where no loop could be compiled."""
    loop = _loop("forward", query, value, masked=added is not None, wanted=False)
    if loop is None:
        return None
    out = query.new_empty(*query.shape[:3], value.shape[3])
    total, highest = (query.new_empty(query.shape[:3], dtype=torch.float32) for _ in range(2))
    added = None if added is None else added.readable(key.shape[2])
    # blocks of about one size, and a few for each thread
    (batch, heads, queries), threads = query.shape[:3], torch.get_num_threads()
    wished = min(-(-TASKS * threads // (batch * heads)), queries // LEAST_BLOCK)
    block = -(-queries // (loop.rows * max(1, wished, -(-queries // loop.queries)))) * loop.rows
    blocks = -(-queries // block)
    numbers = _sizes(query, key, scale, band)
    numbers |= {"total": total.data_ptr(), "highest": highest.data_ptr(), "block": block, "blocks": blocks}
    for name, tensor in (("query", query), ("key", key), ("value", value), ("out", out)):
        numbers |= _lying(name, Lie.of(tensor))
    numbers |= _lying("mask", NOWHERE if added is None else added.lie(queries))
    loop.run(numbers, batch * heads * blocks, (query, key, value, added, out, total, highest))
    return out, total.log_().add_(highest)


def attend_backward(
    gradient: Float[Tensor, "batch heads query value_dim"],
    query: Float[Tensor, "batch heads query head_dim"],
    key: Float[Tensor, "batch heads key head_dim"],
    value: Float[Tensor, "batch heads key value_dim"],
    logsumexp: Float[Tensor, "batch heads query"],
    delta: Float[Tensor, "batch heads query"],
    scale: float,
    into: Gradients,
    added: Added | None = None,
    band: Band = EVERYTHING,
) -> bool:
    """Add the gradients to those that are there; False where no loop could be compiled, and for many gradients at once.

    logsumexp: that over all keys, of which these may be some.
    delta: the sum of output times gradient of each query.
    """
    if is_batched(gradient) or is_transformed(gradient):
        return False
    loop = _loop("backward", query, value, masked=added is not None, wanted=into.added is not None)
    if loop is None:
        return False
    gradient, added = readable(gradient, query.dtype), None if added is None else added.readable(key.shape[2])
    logsumexp, delta = (readable(each, torch.float32).contiguous() for each in (logsumexp, delta))
    # a part of the queries for each thread, where there are fewer heads
    (batch, heads, queries), threads = query.shape[:3], torch.get_num_threads()
    wished = -(-TASKS * threads // (batch * heads)) if threads > 1 else 1
    parts = max(1, min(wished, -(-queries // loop.queries)))
    found = into if parts == 1 else into.in_parts(parts)
    numbers = _sizes(query, key, scale, band)
    numbers |= {"logsumexp": logsumexp.data_ptr(), "delta": delta.data_ptr(), "parts": parts}
    for name, tensor in (("gradient", gradient), ("query", query), ("key", key), ("value", value)):
        numbers |= _lying(name, Lie.of(tensor))
    numbers |= _lying("mask", NOWHERE if added is None else added.lie(queries))
    for name, (lie, step) in found.lies(queries, parts).items():
        numbers |= _lying(name, lie) | {f"{name}_part": step}
    loop.run(numbers, batch * heads * parts, (gradient, query, key, value, added, logsumexp, delta, found))
    if found is not into:
        into.add(found)
    return True


def _sizes(query: Tensor, key: Tensor, scale: float, band: Band) -> dict[str, int]:
    (batch, heads, queries), bits = query.shape[:3], ctypes.c_int32.from_buffer(ctypes.c_float(scale))
    return {
        "batch": batch, "heads": heads, "queries": queries, "keys": key.shape[2], "scale": bits.value,
        "first": band.first, "last": band.last,
    }  # fmt: skip


def _lying(name: str, lie: Lie) -> dict[str, int]:
    first, *steps = lie
    return {name: first} | {f"{name}_{axis}": step for axis, step in zip(("batch", "head", "row"), steps, strict=True)}


class Loop(NamedTuple):
    """A compiled loop."""

    address: int
    alone: Callable[[int], None]
    """It, in one thread."""

    names: tuple[str, ...]
    """What it is given."""

    floats: int
    """What a thread needs to work in."""

    rows: int
    """Queries that it takes at a time."""

    queries: int
    """The most of a block."""

    def run(self, numbers: dict[str, int], tasks: int, held: object) -> None:
        """Run it in as many threads as torch has, if there are so many tasks; ``held`` is what must stay meanwhile."""
        threads = max(1, min(torch.get_num_threads(), tasks))
        memory = torch.empty(threads * self.floats, dtype=torch.float32)
        numbers |= {"scratch": memory.data_ptr(), "threads": threads}
        given = array("q", [numbers[name] for name in self.names] + [0] * (1 + threads))
        if threads > 1:
            team().run(self.address, given, threads, (held, memory))
        else:
            self.alone(given.buffer_info()[0])


def _loop(
    kind: Literal["forward", "backward"], query: Tensor, value: Tensor, *, masked: bool, wanted: bool
) -> Loop | None:
    """The loop that serves; None where none can be compiled, which is said once."""
    try:
        return _made(kind, query.dtype, query.shape[3], value.shape[3], masked, wanted)
    except Exception as problem:
        give_up(problem, "attention", "torch's own kernel is")
        return None


@cache
def _made(
    kind: Literal["forward", "backward"],
    dtype: torch.dtype,
    head_dim: int,
    value_dim: int,
    masked: bool,
    wanted: bool,
) -> Loop:
    from situs.compiled.attending import backward, forward
    from situs.compiled.attending.blocks import END, ROWS, Work, places_of

    work = Work(dtype, head_dim, value_dim, _lanes(), masked, wanted)
    module = forward if kind == "forward" else backward
    address = (forward.Forward if kind == "forward" else backward.Backward)(work).program.compiled()
    alone = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)
    return Loop(address, alone, module.CALL, places_of(module.sizes(work))[END], ROWS, module.queries_of(work))


@cache
def _lanes() -> int:
    """How many numbers a register holds; 0 on machines for which no loop is compiled."""
    try:
        from situs.compiled.vectors import lanes

        return lanes()
    except Exception as problem:
        give_up(problem, "attention", "torch's own kernel is")
        return 0
