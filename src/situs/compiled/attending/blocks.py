"""Blocks of queries and keys in registers: what the loops of attention are written with.

Every product of matrices is formed in the same way. A block of the result stays in registers, a few rows of a few
vectors each, while numbers of the left matrix, one for each row, meet vectors of the right one:

                      right, step by step     -> | vector | vector | vector | vector |
    left, step by step   number of row 0         |            24 sums                |
          |              ...                     |        in registers               |
          v              number of row 5         |                                   |

Queries meet keys along channels, and so vectors must hold the same channel of many keys. Keys are therefore rewritten
into panels as they are needed, channel by channel:

    key 0:  c0 c1 c2 ...                  panel:  c0 of keys 0 .. 63
    key 1:  c0 c1 c2 ...       ->                 c1 of keys 0 .. 63
    ...                                           ...
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from situs.compiled.numbers import Numbers, numbers_of
from situs.compiled.program import FLOAT, INT32, Program, Value, whole
from situs.compiled.vectors import Vectors

ROWS = 6
VECTORS = {16: 4, 8: 2}
"""Vectors in a row of sums, by the numbers that a vector holds: sums have 24 of 32 registers with AVX-512, and 12 of 16
with AVX2."""

KEYS, FEW_KEYS = 192, 64
"""Keys that are rewritten at a time, of up to 128 channels and of more: whole panels, which stay in the cache."""

FLOATS = 4  # bytes

Sums = list[list[Value]]
"""Vectors of a block, row by row."""


@dataclass(frozen=True)
class Work:
    """What a program is made for."""

    dtype: torch.dtype
    head_dim: int
    value_dim: int
    lanes: int
    masked: bool
    """Whether a mask is added."""

    mask_wanted: bool = False
    """Whether backward the mask's gradient is wanted."""

    @property
    def vectors(self) -> int:
        """Vectors in a row of sums."""
        return VECTORS[self.lanes]

    @property
    def panel(self) -> int:
        """Keys of a panel."""
        return self.vectors * self.lanes

    @property
    def keys(self) -> int:
        """Keys that are rewritten at a time: fewer of more channels, which must find room in the cache too."""
        return KEYS if max(self.head_dim, self.value_dim) <= 128 else FEW_KEYS


END = ""
"""The name of where a thread's memory ends."""


def places_of(sizes: Mapping[str, int]) -> dict[str, int]:
    """Where pieces of memory begin that lie one behind the other, in floats, and where the last ends."""
    ends = itertools.accumulate((-(-size // 16) * 16 for size in sizes.values()), initial=0)
    return dict(zip((*sizes, END), ends, strict=True))


class Blocks:
    """A program that takes tasks, and what its loops over blocks share."""

    def __init__(self, work: Work, names: Sequence[str], sizes: Mapping[str, int]) -> None:
        """
        names: what a call is given.
        sizes: of the pieces of memory that a thread works in, in floats.
        """
        self.program = program = Program()
        self.build, self.work = program.build, work
        self.vectors = Vectors(program, work.lanes)
        self.numbers: Numbers = numbers_of(work.dtype, program)
        self.call = program.read(names, program.given)
        counts = program.behind(program.given, whole(1), whole(len(names)))
        self.own, self.counts = program.ticket(counts), program.behind(counts, whole(1), whole(1))
        places = places_of(sizes)
        start = program.moved(self.call["scratch"], self.own, FLOATS * places.pop(END))
        self.memory = {name: program.moved(start, FLOATS * place) for name, place in places.items()}
        self.scale = self.vectors.spread(self.build.bitcast(self.build.trunc(self.call["scale"], INT32), FLOAT))

    @contextmanager
    def each_matrix(self, parts: Value) -> Iterator[tuple[Value, Value, Value, Value]]:
        """A loop over the tasks: number of a row's head among all, row, head, and which part of it."""
        build, call = self.build, self.call
        tasks = build.mul(build.mul(call["batch"], call["heads"]), parts)
        with self.program.each_task(tasks, self.counts, call["threads"], self.own) as task:
            matrix = build.udiv(task, parts)
            yield matrix, build.udiv(matrix, call["heads"]), build.urem(matrix, call["heads"]), build.urem(task, parts)
        build.ret_void()

    def begin(self, name: str, batch: Value, head: Value, row: Value) -> Value:
        """Where a row of a tensor lies."""
        address = self.call[name]
        for axis, number in (("batch", batch), ("head", head), ("row", row)):
            address = self.program.moved(address, number, self.call[f"{name}_{axis}"])
        return address

    def nothing(self, rows: int, vectors: int) -> Sums:
        """Sums to begin with."""
        return [[self.vectors.of(0.0)] * vectors for _ in range(rows)]

    def product(
        self,
        sums: Sums,
        steps: tuple[Value, Value],
        left: Value,
        row_step: int,
        step: int,
        right: Callable[[Value], Sequence[Value]],
    ) -> Sums:
        """Add a product of matrices.

        steps: the first step, and the one behind the last.
        left: where the left matrix lies, in float32, whose next row is ``row_step`` bytes on, and whose next step is
            ``step`` bytes on.
        right: loads the vectors of a step.
        """
        width = len(sums[0])
        with self.program.each_with(*steps, [each for row in sums for each in row]) as (index, found):
            here, vectors = self.program.moved(left, index, step), right(index)
            for row in range(len(sums)):
                number = self.vectors.spread(self.program.load_one(FLOAT, here, row * row_step))
                for place, vector in enumerate(vectors):
                    where = row * width + place
                    found[where] = self.vectors.fma(number, vector, found[where])
        return [found[row * width : (row + 1) * width] for row in range(len(sums))]

    def rows_of(self, address: Value, step: Value | int, first: int, width: int) -> Callable[[Value], list[Value]]:
        """Load some vectors of a row of numbers as the tensor has them."""
        lanes = self.work.lanes

        def load(index: Value) -> list[Value]:
            row = self.program.moved(address, index, step)
            return [self.numbers.load(lanes, row, first + lanes * number) for number in range(width)]

        return load

    def floats_of(self, address: Value, step: int, first: int, width: int) -> Callable[[Value], list[Value]]:
        """Load some vectors of a row of float32."""

        def load(index: Value) -> list[Value]:
            row = self.program.moved(address, index, step)
            return [self.vectors.load(row, FLOATS * first + self.vectors.bytes * number) for number in range(width)]

        return load

    def columns(self, dim: int) -> list[tuple[int, int]]:
        """Channels as groups of vectors: the first channel, and how many vectors."""
        lanes = self.work.lanes
        most = self.work.vectors
        return [(first, min(most, (dim - first) // lanes)) for first in range(0, dim, most * lanes)]

    def copy_rows(self, source: Value, step: Value, count: Value, rows: Value, dim: int, target: Value) -> None:
        """Copy ``count`` rows of a tensor as float32, and the last of them until there are ``rows``."""
        lanes, last = self.work.lanes, self.build.sub(count, whole(1))
        with self.program.each(whole(0), rows) as row:
            here = self.program.moved(source, self.program.least(row, last), step)
            there = self.program.moved(target, row, FLOATS * dim)
            for first in range(0, dim, lanes):
                self.vectors.store(self.numbers.load(lanes, here, first), there, FLOATS * first)

    def rewrite(self, source: Value, step: Value, count: Value, dim: int, target: Value) -> None:
        """Rewrite ``count`` rows of a tensor into panels; behind them stand copies of the last."""
        lanes, panel, last = self.work.lanes, self.work.panel, self.build.sub(count, whole(1))
        with self.program.each(whole(0), count, lanes) as key:
            rows = [
                self.program.moved(source, self.program.least(self.build.add(key, whole(more)), last), step)
                for more in range(lanes)
            ]
            number, inside = self.build.udiv(key, whole(panel)), self.build.urem(key, whole(panel))
            place = self.program.moved(self.program.moved(target, number, FLOATS * panel * dim), inside, FLOATS)
            with self.program.each(whole(0), whole(dim), lanes) as channel:
                bytes_on = self.build.mul(channel, whole(self.numbers.size))
                block = [self.numbers.load(lanes, self.build.add(row, bytes_on), 0) for row in rows]
                there = self.program.moved(place, channel, FLOATS * panel)
                for number_in_block, vector in enumerate(self.vectors.transposed(block)):
                    self.vectors.store(vector, there, FLOATS * panel * number_in_block)

    def chosen(self, seen: tuple[Value, Value], key: Value, place: int) -> Value:
        """The lanes of a vector, ``place`` vectors behind this key, whose keys are seen."""
        here = self.build.add(key, whole(place * self.work.lanes))
        return self.vectors.between(*(self.build.trunc(self.build.sub(each, here), INT32) for each in seen))

    def seen_by(self, query: Value, first_key: Value, keys: Value) -> tuple[Value, Value]:
        """The first key that a query sees, and the one behind the last, counted from a block's first key."""
        ahead = self.build.sub(query, first_key)
        first = self.build.add(ahead, self.call["first"])
        past = self.build.add(self.build.add(ahead, self.call["last"]), whole(1))
        return self.program.greatest(first, whole(0)), self.program.least(past, keys)

    def panels_of(self, first: Value, past: Value) -> tuple[Value, Value]:
        """The first column of the panels that have these keys, and the one behind the last."""
        panel = whole(self.work.panel)
        return self.build.mul(self.build.udiv(first, panel), panel), self.program.rounded_up(past, self.work.panel)
