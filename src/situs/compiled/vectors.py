"""Arithmetic of a program with vectors of float32, as many numbers as a register of the machine holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from llvmlite import binding as llvm
from llvmlite import ir

from situs.compiled.program import FLOAT, INT32, Program, Value

LOWEST = -3.4028234663852886e38
"""The lowest finite float32."""
NOTHING = -math.inf
"""The score of a key that is not seen."""

# exp(x) = 2^n exp(r), where x = n log(2) + r: log(2) in two parts, so that n times the first is exact, and a polynomial
# for (exp(r) - 1 - r) / r^2 (Cephes, expf).
LOG2_E, LOG_2 = 1.4426950408889634, (0.693145751953125, 1.428606820309417e-06)
POWERS = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
ROUNDING = 1.5 * 2**23
"""What is added to a float32 to round it to a whole number, which then are its lowest bits."""
LEAST_POWER = -87.3
"""Below it exp(x) is not a normal float32."""


class Vectors:
    """Vectors of a program. Addresses are whole numbers, and offsets of them are in bytes."""

    def __init__(self, program: Program, lanes: int) -> None:
        """
        lanes: numbers of a vector.
        """
        self.program, self.build, self.lanes = program, program.build, lanes
        self.kind = ir.VectorType(FLOAT, lanes)
        self.words = ir.VectorType(INT32, lanes)
        self.bytes = 4 * lanes

    def of(self, number: float) -> Value:
        """A constant in every lane."""
        return ir.Constant(self.kind, [number] * self.lanes)

    def _words(self, number: int) -> Value:
        return ir.Constant(self.words, [number] * self.lanes)

    def load(self, address: Value, offset: int = 0) -> Value:
        """Numbers that lie together."""
        return self.program.load(FLOAT, self.lanes, address, offset)

    def store(self, vector: Value, address: Value, offset: int = 0) -> None:
        """The inverse of ``load``."""
        self.program.store(vector, address, offset)

    def load_some(self, chosen: Value, address: Value, offset: int = 0) -> Value:
        """Numbers that lie together, those of chosen lanes, and 0 in others, whose memory is not read."""
        pointer = self.program.pointer(self.kind, address, offset)
        return self.build.call(self._masked_load, [pointer, ir.Constant(INT32, 4), chosen, self.of(0.0)])

    def store_some(self, chosen: Value, vector: Value, address: Value, offset: int = 0) -> None:
        """The inverse of ``load_some``."""
        pointer = self.program.pointer(self.kind, address, offset)
        self.build.call(self._masked_store, [vector, pointer, ir.Constant(INT32, 4), chosen])

    def between(self, first: Value, past: Value) -> Value:
        """Choose the lanes from ``first`` on, before ``past``; any whole numbers of 32 bits."""
        lanes = ir.Constant(self.words, list(range(self.lanes)))
        after = self.build.icmp_signed(">=", lanes, self.spread(first))
        return self.build.and_(after, self.build.icmp_signed("<", lanes, self.spread(past)))

    def spread(self, number: Value) -> Value:
        """One number in every lane."""
        kind = ir.VectorType(number.type, self.lanes)
        first = self.build.insert_element(ir.Constant(kind, ir.Undefined), number, ir.Constant(INT32, 0))
        return self.program.shuffle(first, first, [0] * self.lanes)

    def fma(self, one: Value, other: Value, added: Value) -> Value:
        """``one * other + added``, rounded once."""
        return self.build.call(self._fma, [one, other, added])

    def greater(self, one: Value, other: Value) -> Value:
        """The greater of two numbers, or of each two; the second where the first is none."""
        return self.build.select(self.build.fcmp_ordered(">", one, other), one, other)

    def reduced(self, vector: Value, joined: Callable[[Value, Value], Value]) -> Value:
        """One number made of all lanes, two at a time."""
        width = self.lanes
        while width > 1:
            width //= 2
            lower, upper = (self.program.shuffle(vector, vector, range(first, first + width)) for first in (0, width))
            vector = joined(lower, upper)
        return self.build.extract_element(vector, ir.Constant(INT32, 0))

    def exp(self, x: Value) -> Value:
        """exp(x) for x of at most 88, with an error of about one unit in the last place; 0 below -87.3."""
        build = self.build
        low = build.fcmp_ordered("<", x, self.of(LEAST_POWER))
        x = build.select(low, self.of(LEAST_POWER), x)
        rounded = self.fma(x, self.of(LOG2_E), self.of(ROUNDING))
        whole = build.fsub(rounded, self.of(ROUNDING))
        rest = x
        for part in LOG_2:
            rest = self.fma(whole, self.of(-part), rest)
        polynomial = self.of(POWERS[0])
        for power in POWERS[1:]:
            polynomial = self.fma(polynomial, rest, self.of(power))
        found = build.fadd(self.fma(polynomial, build.fmul(rest, rest), rest), self.of(1.0))
        exponent = build.shl(build.bitcast(rounded, self.words), self._words(23))
        power_of_two = build.bitcast(build.add(exponent, self._words(127 << 23)), self.kind)
        return build.select(low, self.of(0.0), build.fmul(found, power_of_two))

    def transposed(self, rows: Sequence[Value]) -> list[Value]:
        """As many vectors as there are lanes, of what stands in the first lane of each, in the second, and so on.

        Blocks of 1, 2, 4, ... rows and columns are exchanged in turn.
        """
        found, size = list(rows), 1
        while size < self.lanes:
            for row in range(self.lanes):
                if not row & size:
                    one, other = found[row], found[row | size]
                    columns = range(self.lanes)
                    upper = [column if not column & size else self.lanes + (column ^ size) for column in columns]
                    lower = [column | size if not column & size else self.lanes + column for column in columns]
                    found[row] = self.program.shuffle(one, other, upper)
                    found[row | size] = self.program.shuffle(one, other, lower)
            size *= 2
        return found

    @cached_property
    def _fma(self) -> Any:
        kind = ir.FunctionType(self.kind, [self.kind] * 3)
        return ir.Function(self.program.module, kind, f"llvm.fma.v{self.lanes}f32")

    @cached_property
    def _masked_load(self) -> Any:
        seen = ir.VectorType(ir.IntType(1), self.lanes)
        kind = ir.FunctionType(self.kind, [self.kind.as_pointer(), INT32, seen, self.kind])
        return ir.Function(self.program.module, kind, f"llvm.masked.load.v{self.lanes}f32.p0")

    @cached_property
    def _masked_store(self) -> Any:
        seen = ir.VectorType(ir.IntType(1), self.lanes)
        kind = ir.FunctionType(ir.VoidType(), [self.kind, self.kind.as_pointer(), INT32, seen])
        return ir.Function(self.program.module, kind, f"llvm.masked.store.v{self.lanes}f32.p0")


def lanes() -> int:
    """How many float32 numbers a register of this machine holds, if attention can be compiled for it; otherwise 0."""
    has = llvm.get_host_cpu_features().get
    if has("avx512f", False):
        return 16
    return 8 if has("avx2", False) and has("fma", False) else 0
