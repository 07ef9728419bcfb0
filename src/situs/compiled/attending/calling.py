"""Calls of the compiled loops: which tensors they serve, and how these lie."""

from __future__ import annotations

import ctypes
import struct
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from situs.compiled import available, give_up
from situs.compiled.threads import team
from situs.compiled.watching import count_of_modes, is_batched, is_in_memory, is_transformed

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
FEW_QUERIES = 16
"""Fewer than these, or so few keys, are left to torch's kernel, which rewrites no keys and fills no panels of them."""
LEAST_WORK = 1 << 26
"""Products of numbers in a call that are worth compiling a loop for."""
WIDEST = 256  # channels
TASKS = 4  # for each thread, so that one that is held up leaves the rest to others
ROWS, LEAST_BLOCK = 6, 48
"""Queries that a loop takes at a time, and those of a block that are worth rewriting its keys."""
FLOATS = 4  # bytes
AXES = ("batch", "head", "row")
PARTED, MASKS = ("of_key", "of_value", "of_mask"), ("mask", "of_mask")


class Gradients(NamedTuple):
    """Where gradients go to, in float32."""

    query: Float[Tensor, "batch heads query head_dim"]
    key: Float[Tensor, "batch heads key head_dim"]
    value: Float[Tensor, "batch heads key value_dim"]
    added: Added | None = None
    """Those of pairs, or of offsets; each row and head has its own."""


def serves(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether compiled loops attend with such tensors of the processor, outside of graphs."""
    if torch.compiler.is_compiling():
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
    return all(_is_readable(each) for each in (query, key, value))


def _is_readable(tensor: Tensor) -> bool:
    """Whether a loop can read a tensor where it lies, and write a gradient that torch lays out like it. Rows that begin
    at neighbouring numbers overlap, and gradients like them would lie the other way round."""
    apart = all(step != 1 or size == 1 for step, size in zip(tensor.stride()[:-1], tensor.shape[:-1], strict=True))
    return is_in_memory(tensor) and tensor.stride(-1) == 1 and apart


def _readable(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """The same numbers in that dtype, in memory, with neighbours side by side."""
    if tensor._is_zerotensor():
        return torch.zeros(tensor.shape, dtype=dtype, device=tensor.device)
    tensor = tensor.to(dtype).resolve_neg()
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


class Added(NamedTuple):
    """What is added to scores."""

    numbers: Float[Tensor, "#batch #heads *_"]
    """For each pair, (..., query, key), where one may stand for all queries or keys; or for each offset, ascending."""

    by_offset: bool = False

    def lie(self, queries: int) -> Lie:
        """Where the numbers of the first query and key lie, and how far apart those of others are."""
        batch, head = (self._step(axis) for axis in (0, 1))
        size = self.numbers.itemsize
        if self.by_offset:  # the last query's come first
            return Lie(self.numbers.data_ptr() + (queries - 1) * size, batch, head, -size)
        return Lie(self.numbers.data_ptr(), batch, head, self._step(2))

    def _step(self, axis: int) -> int:
        return self.numbers.stride(axis) * self.numbers.itemsize if self.numbers.shape[axis] > 1 else 0

    def readable(self, keys: int) -> Added:
        """The same in float32, with neighbours side by side."""
        numbers = self.numbers
        if not self.by_offset and numbers.shape[-1] != keys:  # one number for all keys
            numbers = numbers.expand(*numbers.shape[:-1], keys)
        return self._replace(numbers=_readable(numbers, torch.float32))


class Lie(NamedTuple):
    """Where a tensor's first row lies in memory, and how many bytes further the next is along each axis."""

    first: int
    batch: int
    head: int
    row: int


class Band(NamedTuple):
    """Which keys queries see: the lowest and the highest number of a key minus that of a query, both counted from the
    first."""

    first: int
    last: int


EVERYTHING = Band(-(2**30), 2**30)
CAUSAL = Band(-(2**30), 0)


def attend(
    query: Float[Tensor, "batch heads query head_dim"],
    key: Float[Tensor, "batch heads key head_dim"],
    value: Float[Tensor, "batch heads key value_dim"],
    scale: float,
    added: Added | None = None,
    band: Band = EVERYTHING,
) -> tuple[Float[Tensor, "batch heads query value_dim"], Float[Tensor, "batch heads query"]] | None:
    """Output and log-sum-exp, 0 and -inf for a query that sees no key; None where no loop could be compiled."""
    run = _program("forward", query, value, added, wanted=False)
    if run is None:
        return None
    from situs.compiled.attending.forward import CALL, most_queries, sizes

    shape = *query.shape[:3], value.shape[3]
    out = query.new_empty(shape)
    total, highest = (query.new_empty(shape[:3], dtype=torch.float32) for _ in range(2))
    # of about one size, and a few for each thread
    matrices, most = shape[0] * shape[1], most_queries(run.work)
    blocks = max(-(-shape[2] // most), min(-(-TASKS * torch.get_num_threads() // matrices), shape[2] // LEAST_BLOCK))
    block = -(-shape[2] // (ROWS * max(1, blocks))) * ROWS
    blocks = -(-shape[2] // block)
    tensors = {"query": query, "key": key, "value": value, "out": out, "total": total, "highest": highest}
    run.call(CALL, sizes(run.work), tensors, added, scale, band, matrices * blocks, {"block": block, "blocks": blocks})
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
    run = _program("backward", query, value, added, wanted=into.added is not None)
    if run is None:
        return False
    from situs.compiled.attending.backward import CALL, queries_of, sizes

    matrices, blocks = query.shape[0] * query.shape[1], -(-query.shape[2] // queries_of(run.work))
    parts = max(1, min(blocks, -(-TASKS * torch.get_num_threads() // matrices))) if _shares(matrices) else 1
    parted = {"of_key": into.key, "of_value": into.value}
    if into.added is not None and into.added.by_offset:
        parted["of_mask"] = into.added.numbers
    own = {name: each if parts == 1 else each.new_zeros(parts, *each.shape) for name, each in parted.items()}
    one = {name: each if parts == 1 else each[0] for name, each in own.items()}
    steps = {f"{name}_part": own[name].stride(0) * FLOATS if name in own and parts > 1 else 0 for name in PARTED}
    wanted = into.added
    if wanted is not None:
        wanted = Added(one.get("of_mask", wanted.numbers), wanted.by_offset)
    tensors = {
        "gradient": _readable(gradient, query.dtype), "query": query, "key": key, "value": value,
        "of_query": into.query, "of_key": one["of_key"], "of_value": one["of_value"],
        "logsumexp": _readable(logsumexp, torch.float32).contiguous(),
        "delta": _readable(delta, torch.float32).contiguous(),
    }  # fmt: skip
    run.call(CALL, sizes(run.work), tensors, added, scale, band, matrices * parts, {"parts": parts, **steps}, wanted)
    if parts > 1:
        for name, each in parted.items():
            each.add_(own[name].sum(0))
    return True


def _shares(matrices: int) -> bool:
    """Whether there are so few heads that several threads would work at one."""
    return torch.get_num_threads() > 1 and matrices < TASKS * torch.get_num_threads()


@dataclass(frozen=True)
class Run:
    """A compiled loop."""

    work: Any
    """What it is made for."""

    address: int
    alone: Callable[[int], None]

    def call(
        self,
        names: Sequence[str],
        sizes: Mapping[str, int],
        tensors: Mapping[str, Tensor],
        added: Added | None,
        scale: float,
        band: Band,
        tasks: int,
        numbers: Mapping[str, int],
        wanted: Added | None = None,
    ) -> None:
        """Run it in as many threads as torch has.

        tensors: where a name ends in an axis of another, that is told too.
        wanted: where the gradient of what is added goes to.
        """
        query, key = tensors["query"], tensors["key"]
        batch, heads, queries = query.shape[:3]
        threads = max(1, min(torch.get_num_threads(), tasks))
        floats = sum(-(-size // 16) * 16 for size in sizes.values())
        memory = query.new_empty(threads * floats, dtype=torch.float32)
        known = {name: tensor.data_ptr() for name, tensor in tensors.items()}
        lies = {name: _lie(tensor) for name, tensor in tensors.items()}
        held = None if added is None else added.readable(key.shape[2]), wanted
        lies |= {name: each.lie(queries) if each else Lie(0, 0, 0, 0) for name, each in zip(MASKS, held, strict=True)}
        known |= {name: lie.first for name, lie in lies.items()}
        known |= {f"{name}_{axis}": getattr(lie, axis) for name, lie in lies.items() for axis in AXES}
        known |= {
            "scratch": memory.data_ptr(), "scale": struct.unpack("i", struct.pack("f", scale))[0],
            "first": band.first, "last": band.last, "batch": batch, "heads": heads, "queries": queries,
            "keys": key.shape[2], "threads": threads, **numbers,
        }  # fmt: skip
        given = array("q", [known[name] for name in names] + [0] * (1 + threads))
        if threads > 1:
            team().run(self.address, given, threads, (tensors, memory, held))
        else:
            self.alone(given.buffer_info()[0])


def _lie(tensor: Tensor) -> Lie:
    steps = [
        step * tensor.itemsize if size > 1 else 0 for step, size in zip(tensor.stride(), tensor.shape, strict=True)
    ]
    return Lie(tensor.data_ptr(), *steps[:3])


def _program(
    kind: Literal["forward", "backward"], query: Tensor, value: Tensor, added: Added | None, *, wanted: bool
) -> Run | None:
    """The loop that serves; None where none can be compiled, which is said once."""
    try:
        return _made(kind, query.dtype, query.shape[3], value.shape[3], added is not None, wanted)
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
) -> Run:
    from situs.compiled.attending import backward, forward
    from situs.compiled.attending.blocks import Work

    work = Work(dtype, head_dim, value_dim, _lanes(), masked, wanted)
    address = forward.compiled(work) if kind == "forward" else backward.compiled(work)
    return Run(work, address, ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address))


@cache
def _lanes() -> int:
    """How many numbers a register holds; 0 on machines for which no loop is compiled."""
    try:
        from situs.compiled.vectors import lanes

        return lanes()
    except Exception as problem:
        give_up(problem, "attention", "torch's own kernel is")
        return 0
