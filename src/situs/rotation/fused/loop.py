"""The loop that rotates vectors, written for LLVM and compiled by it for this machine.

    for each tensor that shares the table
        take the next task until none is left: a batch row, a block of the outer and a block of the inner loop
            for each outer step
                for each inner step
                    for each pair of the vector there:    a' = a cos - b sin,    b' = a sin + b cos

A program is made for one kind of `Work`, so that a vector is straight code on the machine's registers. It is called
with the numbers of a `CALL`, behind it those of each `TENSOR`, and behind these a count for every tensor and thread.
All threads run the program with the same numbers, and so share the tasks. A thread first takes those of its own share,
the same in every call, since their vectors may still lie in its core's cache; then it helps with what others have left.

Reading a row of the table costs as much as reading a vector, so a row serves several vectors: all of the inner loop,
where that goes over heads, or else those of a few outer steps at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch

from situs.compiled.numbers import Numbers, numbers_of
from situs.compiled.program import Program, Value, size_of, whole

CALL = ("cos", "sin", "thread", "threads", "tensors", "layouts")
"""What a call is given: addresses of the table and of a function that tells threads apart, how many threads and tensors
there are, and the address of the tensors' layouts."""

TENSOR = ("x", "out")
"""And for each tensor where it lies, and where it is rotated to."""

LAYOUT = (
    "tasks", "outer_blocks", "inner_blocks", "outer_block", "inner_block", "outer", "inner",
    *(f"{tensor}_{loop}_step" for tensor in ("x", "out", "cos", "sin") for loop in ("batch", "outer", "inner")),
)  # fmt: skip
"""How a tensor lies, which calls share: the number of tasks, how many blocks each loop has, their sizes, the loops'
lengths, and how many bytes a step moves."""

CACHE_LINE = 64


@dataclass(frozen=True)
class Work:
    """What a program is made for."""

    dtype: torch.dtype
    pairing: Literal["interleaved", "halves"]
    pairs: int
    dim: int
    first: int
    """The first of the rotated channels: 0, or as many as pass unchanged before them."""

    table_is_still: bool
    """Whether steps of the inner loop leave the table where it is."""

    together: int = 1
    """Outer steps that are taken at a time, since they share a row of the table; blocks are multiples of it."""


def write(work: Work) -> Program:
    """The whole loop for one kind of work."""
    program = Program()
    build = program.build
    numbers = numbers_of(work.dtype, program)

    call = program.read(CALL, program.given)
    tensors = program.behind(program.given, whole(1), whole(len(CALL)))
    counts = program.behind(tensors, call["tensors"], whole(len(TENSOR)))
    own = program.number_from(call["thread"])
    with program.each(whole(0), call["tensors"]) as index:
        value = call | program.read(TENSOR, program.behind(tensors, index, whole(len(TENSOR))))
        value |= program.read(LAYOUT, program.behind(program.address(call["layouts"]), index, whole(len(LAYOUT))))
        taken = program.behind(counts, index, call["threads"])

        def block(loop: str, index: Value) -> tuple[Value, Value]:
            size = value[f"{loop}_block"]
            first = build.mul(index, size)
            return first, program.least(build.add(first, size), value[loop])

        def moved(addresses: dict[str, Value], loop: str, index: Value) -> dict[str, Value]:
            return {
                name: build.add(address, build.mul(value[f"{name}_{loop}_step"], index))
                for name, address in addresses.items()
            }

        with program.each_task(value["tasks"], taken, value["threads"], own) as task:
            rest, outer_index = build.udiv(task, value["outer_blocks"]), build.urem(task, value["outer_blocks"])
            batch, inner_index = build.udiv(rest, value["inner_blocks"]), build.urem(rest, value["inner_blocks"])
            outer_first, outer_last = block("outer", outer_index)
            inner_first, inner_last = block("inner", inner_index)
            start = moved({name: value[name] for name in ("x", "out", "cos", "sin")}, "batch", batch)
            with program.each(outer_first, outer_last, work.together) as outer:
                rows = [moved(start, "outer", build.add(outer, whole(more))) for more in range(work.together)]
                shared = _angles(numbers, work, rows[0]) if work.table_is_still else None
                with program.each(inner_first, inner_last) as inner:
                    vectors = [moved(row, "inner", inner) for row in rows]
                    angles = shared or _angles(numbers, work, vectors[0])
                    for vector in vectors:
                        _rotate(numbers, work, angles, vector)
    build.ret_void()
    return program


@dataclass(frozen=True)
class Angles:
    """Cosines and sines of pairs that lie together, the first of them, and their number."""

    first: int
    width: int
    cos: Value
    sin: Value


def _angles(numbers: Numbers, work: Work, at: dict[str, Value]) -> list[Angles]:
    """A row of the table, in pieces of as many pairs as a cache line of vectors holds."""
    kind = numbers.computed
    return [
        Angles(
            first,
            width,
            *(numbers.program.load(kind, width, at[name], first * size_of(kind)) for name in ("cos", "sin")),
        )
        for first, width in _pieces(work.pairs, CACHE_LINE // (2 * numbers.size))
    ]


def _rotate(numbers: Numbers, work: Work, angles: Sequence[Angles], at: dict[str, Value]) -> None:
    """Rotate one vector."""
    x, out, build = at["x"], at["out"], numbers.build
    for piece in angles:
        first, second = (work.first + piece.first, work.first + piece.first + work.pairs)
        neighbours = work.first + 2 * piece.first
        if work.pairing == "interleaved":
            a, b = numbers.load_neighbours(piece.width, x, neighbours)
        else:
            a, b = numbers.load(piece.width, x, first), numbers.load(piece.width, x, second)
        rotated_a = build.fsub(build.fmul(a, piece.cos), build.fmul(b, piece.sin))
        rotated_b = build.fadd(build.fmul(a, piece.sin), build.fmul(b, piece.cos))
        if work.pairing == "interleaved":
            numbers.store_neighbours(rotated_a, rotated_b, out, neighbours)
        else:
            numbers.store(rotated_a, out, first)
            numbers.store(rotated_b, out, second)
    unchanged = 0 if work.first else 2 * work.pairs
    for first, width in _pieces(work.dim - 2 * work.pairs, CACHE_LINE // numbers.size):
        offset = (unchanged + first) * numbers.size
        numbers.program.store(numbers.program.load(numbers.stored, width, x, offset), out, offset)


def _pieces(count: int, width: int) -> Iterator[tuple[int, int]]:
    """``count`` numbers as runs of at most ``width``, a power of two: first indices and lengths."""
    first = 0
    while first < count:
        while first + width > count:
            width //= 2
        yield first, width
        first += width


@cache
def compiled(work: Work) -> int:
    """The address of the loop for this kind of work."""
    return write(work).compiled()
