"""Numbers as memory holds them, and as they are computed with."""

from __future__ import annotations

from typing import Any

import torch
from llvmlite import ir

from situs.compiled.program import DOUBLE, FLOAT, HALF, INT16, INT32, Program, Value, like, size_of


class Numbers:
    """Vectors of a program, read from memory in one form and computed in another; indices count numbers."""

    def __init__(self, program: Program, stored: Any, computed: Any) -> None:
        self.program, self.build = program, program.build
        self.stored, self.computed = stored, computed
        self.size = size_of(stored)

    def load(self, width: int, row: Value, index: int) -> Value:
        """Numbers that lie together."""
        return self.widen(self.program.load(self.stored, width, row, index * self.size))

    def store(self, vector: Value, row: Value, index: int) -> None:
        """The inverse of ``load``."""
        self.program.store(self.narrow(vector), row, index * self.size)

    def load_neighbours(self, width: int, row: Value, index: int) -> tuple[Value, Value]:
        """The first of each two numbers, and the second."""
        both = self.program.load(self.stored, 2 * width, row, index * self.size)
        first, second = (self.program.shuffle(both, both, range(which, 2 * width, 2)) for which in (0, 1))
        return self.widen(first), self.widen(second)

    def store_neighbours(self, first: Value, second: Value, row: Value, index: int) -> None:
        """The inverse of ``load_neighbours``."""
        width = first.type.count
        order = [number + which for number in range(width) for which in (0, width)]
        both = self.program.shuffle(self.narrow(first), self.narrow(second), order)
        self.program.store(both, row, index * self.size)

    def widen(self, vector: Value) -> Value:
        """From how they are stored."""
        return vector if self.stored is self.computed else self.build.fpext(vector, _of(self.computed, vector))

    def narrow(self, vector: Value) -> Value:
        """To how they are stored, rounded to the nearest, of two equally near ones to the even."""
        return vector if self.stored is self.computed else self.build.fptrunc(vector, _of(self.stored, vector))


class BrainNumbers(Numbers):
    """bfloat16, which llvmlite has no type for: the upper 16 bits of a float32. Two neighbours are the halves of one
    word, so they need not be shuffled."""

    def __init__(self, program: Program) -> None:
        super().__init__(program, INT16, FLOAT)

    def load_neighbours(self, width: int, row: Value, index: int) -> tuple[Value, Value]:
        words = self.program.load(INT32, width, row, index * self.size, align=self.size)
        return self._float(self.build.shl(words, like(words, 16))), self._float(self._upper(words))

    def store_neighbours(self, first: Value, second: Value, row: Value, index: int) -> None:
        words = self._rounded(first)
        lower, upper = self.build.lshr(words, like(words, 16)), self._upper(self._rounded(second))
        self.program.store(self.build.or_(lower, upper), row, index * self.size, align=self.size)

    def widen(self, vector: Value) -> Value:
        words = self.build.zext(vector, _of(INT32, vector))
        return self._float(self.build.shl(words, like(words, 16)))

    def narrow(self, vector: Value) -> Value:
        words = self._rounded(vector)
        return self.build.trunc(self.build.lshr(words, like(words, 16)), _of(INT16, vector))

    def _float(self, words: Value) -> Value:
        return self.build.bitcast(words, _of(FLOAT, words))

    def _upper(self, words: Value) -> Value:
        return self.build.and_(words, like(words, 0xFFFF0000))

    def _rounded(self, vector: Value) -> Value:
        """The bits of float32 numbers, the upper 16 of them rounded; what is not a number stays none."""
        bits = self.build.bitcast(vector, _of(INT32, vector))
        odd = self.build.and_(self.build.lshr(bits, like(bits, 16)), like(bits, 1))
        nearest = self.build.add(bits, self.build.add(odd, like(bits, 0x7FFF)))
        return self.build.select(self.build.fcmp_unordered("uno", vector, vector), like(bits, 0x7FC00000), nearest)


def numbers_of(dtype: torch.dtype, program: Program) -> Numbers:
    """Tell how LLVM reads and writes numbers of this dtype, and computes with them in float32 or wider."""
    if dtype == torch.bfloat16:
        return BrainNumbers(program)
    stored = {torch.float64: DOUBLE, torch.float32: FLOAT, torch.float16: HALF}[dtype]
    return Numbers(program, stored, DOUBLE if stored is DOUBLE else FLOAT)


def _of(kind: Any, vector: Value) -> Any:
    """The type of as many others."""
    return ir.VectorType(kind, vector.type.count)
