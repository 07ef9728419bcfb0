"""Numbers of a group that rotates: frequencies, tables, rotated probe vectors, temperatures; each with what rounding
may change in it.

A port is right if its number lies within ``u rounding + a angle + w wide`` of ours, where u is the unit roundoff of its
dtype, a that of the dtype in which it forms angles (float64, or float32 if that is forgiven), and w the smaller of u
and float32's, for what nobody may form in half precision. Angles of float32 are no mistake within the first turn, where
they are as exact as float32 is: ``wide`` holds what they change there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from situs.encodings.temperature import Temperature
from situs.models.oracle.parts import Group
from situs.models.oracle.places import Batch
from situs.models.oracle.probes import probe
from situs.models.oracle.rules import Rule, as_tensor
from situs.models.positions import Heads
from situs.positions import Positions

# In units of roundoff: a cosine or sine of a right angle; a product of two of them and a sum; a logarithm or a power.
OF_TABLES, OF_PRODUCTS, OF_POWERS = 4.0, 3.0, 6.0
TURN = 2 * math.pi


@dataclass(frozen=True, eq=False)
class Numbers:
    """Hold an array, and what rounding may change in it."""

    value: Tensor
    rounding: Tensor | float = 0.0
    angle: Tensor | float = 0.0
    wide: Tensor | float = 0.0

    def within(self, unit: float, of_angles: float) -> Tensor:
        """How far a right number may lie from each of these."""
        zero = torch.zeros_like(self.value, dtype=torch.float64)
        return zero + unit * self.rounding + of_angles * self.angle + min(unit, 2.0**-24) * self.wide


class Rotated:
    """Compute the arrays of one group that positions rotate or multiply."""

    def __init__(self, name: str, group: Group, batch: Batch | None) -> None:
        self.name = name
        self.group = group
        self.batch = batch

    @cached_property
    def rule(self) -> Rule | None:
        """How queries and keys are rotated."""
        return self.group.rule(self.name)

    @cached_property
    def positions(self) -> Tensor:
        """Coordinates as they are, (tokens, axes)."""
        return as_tensor(self.group.coordinates)

    @cached_property
    def q(self) -> Tensor:
        """The probe of queries, (tokens, head_dim)."""
        return self._probe("q", self._heads.dim)

    @cached_property
    def k(self) -> Tensor:
        """The probe of keys, (tokens, head_dim)."""
        return self._probe("k", self._heads.dim)

    @cached_property
    def rotated_q(self) -> Numbers:
        """Queries, rotated."""
        return self._rotated(self.rule, self.q, self.positions, self.rule.of_queries if self.rule else 1.0)

    @cached_property
    def rotated_k(self) -> Numbers:
        """Keys, rotated."""
        rule = self.rule if self.group.rotates_keys else None
        return self._rotated(rule, self.k, self.positions, rule.of_keys if rule else 1.0)

    def rotated_v(self) -> Numbers:
        """Values, rotated."""
        rule = self.group.rule(self.name, self.group.values)
        return self._rotated(rule, self._probe("v", self._heads.values), self.positions, 1.0)

    def rotated_o(self) -> Numbers:
        """What attention gathers, rotated back by the query's position."""
        rule = self.group.rule(self.name, self.group.values)
        return self._rotated(rule, self._probe("o", self._heads.values), -self.positions, 1.0)

    def frequencies(self) -> Numbers:
        """Radians per position of each pair."""
        rule = self._rule
        return Numbers(rule.frequencies, wide=rule.frequencies.abs() * of_powers(rule.frequencies))

    def factor(self) -> Numbers:
        """What cosines and sines are multiplied by."""
        value = torch.tensor(self._rule.factor, dtype=torch.float64)
        return Numbers(value, rounding=OF_TABLES * value.abs())

    def cos(self) -> Numbers:
        """Cosines as tables hold them, factor included."""
        return self._table(0)

    def sin(self) -> Numbers:
        """Sines as tables hold them, factor included."""
        return self._table(1)

    @cached_property
    def temperature(self) -> Numbers:
        """What queries are multiplied by."""
        return self._heated(self.positions[:, 0])

    def batch_rotated_q(self) -> Numbers:
        """Queries of a batch, rotated, (rows, tokens, head_dim)."""
        ids = self._ids()
        x = probe(f"{self.name}.batch_q", ids.numel(), self._heads.dim)
        found = self._rotated(self.rule, x, ids.reshape(-1, 1), self.rule.of_queries if self.rule else 1.0)
        shape = (*ids.shape, self._heads.dim)
        roundings = (found.rounding, found.angle, found.wide)
        rest = (each.reshape(shape) if isinstance(each, Tensor) else each for each in roundings)
        return Numbers(found.value.reshape(shape), *rest)

    def batch_temperature(self) -> Numbers:
        """What queries of a batch are multiplied by, (rows, tokens)."""
        assert self.batch is not None
        ids = torch.tensor(self.batch.index, dtype=torch.float64) if self.group.heat_by_index else self._ids()
        found = self._heated(ids.flatten())
        value = found.value.reshape(ids.shape)
        return Numbers(value, rounding=OF_TABLES * value.abs())

    @property
    def _rule(self) -> Rule:
        assert self.rule is not None
        return self.rule

    @property
    def _heads(self) -> Heads:
        assert self.group.layer.heads is not None
        return self.group.layer.heads

    def _probe(self, name: str, width: int) -> Tensor:
        return probe(f"{self.name}.{name}", len(self.group.coordinates), width)

    def _ids(self) -> Tensor:
        assert self.batch is not None
        return torch.tensor(self.batch.ids(), dtype=torch.float64)

    def _table(self, which: int) -> Numbers:
        cos, sin, angle, near = _points(self._rule, self._moved(self.positions))
        return Numbers((cos, sin)[which], rounding=OF_TABLES * abs(self._rule.factor), angle=angle, wide=near)

    def _moved(self, positions: Tensor) -> Tensor:
        for move in self.group.moves:
            positions = move(positions)
        return positions

    def _rotated(self, rule: Rule | None, x: Tensor, positions: Tensor, factor: float) -> Numbers:
        if rule is None:
            return Numbers(x, rounding=x.abs())
        cos, sin, angle, near = _points(rule, self._moved(positions))
        size = abs(rule.factor * factor)
        rounding = x.abs() + rule.weights(x, torch.full_like(cos, OF_PRODUCTS * size))
        of_angles, of_near = (rule.weights(x, abs(factor) * each) for each in (angle, near))
        return Numbers(factor * rule.rotate(x, cos, sin), rounding, of_angles, of_near)

    def _heated(self, ids: Tensor) -> Numbers:
        for move in (*self.group.moves, *self.group.heated):
            ids = move(ids)
        call = self.group.temperature
        if call is None:
            return Numbers(torch.ones_like(ids), rounding=OF_TABLES)
        learned = call.option("dialect") == "ssmax"
        made: Temperature = (call.replace(num_heads=1) if learned else call).build()
        if learned:
            made = made.double()
            for name, parameter in made.named_parameters():
                parameter.data = probe(f"{self.name}.{name}", 1)
        value = made.factors(Positions.explicit(ids), dtype=torch.float64).detach().flatten()
        return Numbers(value, rounding=OF_TABLES * value.abs())


def _points(rule: Rule, positions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Cosines and sines with the factor, and what angles that are a roundoff off change in them: whole, and as far as
    they lie within the first turn."""
    axes = 1 + max(rule.axis_of_pair, default=rule.frequencies.shape[0] - 1 if rule.mixed else 0)
    if positions.shape[1] < axes:  # text, whose one position stands for every coordinate
        positions = positions[:, :1].expand(-1, axes)
    angles, powers = rule.angles(positions), of_powers(rule.frequencies)
    if rule.mixed:
        off, powers = positions.abs() @ (rule.frequencies.abs() * powers), powers.amax(0)
    else:
        off = angles.abs() * powers
    near = torch.minimum(off, TURN * powers)
    cos, sin = rule.factor * angles.cos(), rule.factor * angles.sin()
    size = abs(rule.factor)
    return (sin if rule.swaps else cos), (cos if rule.swaps else sin), size * off, size * near


def of_powers(frequencies: Tensor) -> Tensor:
    """How many units of roundoff a frequency is off that is formed as a power: the exponent's count by the logarithm of
    the base."""
    return OF_POWERS + 2 * frequencies.abs().clamp(min=1e-300).log().abs().clamp(max=64)
