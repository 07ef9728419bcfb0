"""All arrays of a part by name: what a program is given, and what it computes of that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

import torch
from torch import Tensor

from situs.models.oracle.parts import Group, Part
from situs.models.oracle.probes import probe
from situs.models.oracle.rotated import Numbers
from situs.models.oracle.rules import as_written
from situs.models.oracle.scored import Scored
from situs.models.oracle.tabled import COLUMNS, Tabled, batch_ids, schedule

IGNORED_IN_PADDING = ("ids", "batch_rotated_q", "batch_temperature")
"""Arrays whose numbers at padding are nobody's business: attention never sees them."""


class Computed:
    """Compute the arrays of one part, each when it is asked for.

    right: the part as it should be, which tells the names; arrays that a wrong part does not have are its.
    """

    def __init__(self, part: Part, right: Part | None = None) -> None:
        self.part = part
        self.right = part if right is None else right

    @cached_property
    def inputs(self) -> dict[str, Tensor]:
        """What a program is given."""
        found: dict[str, Tensor] = {}
        part = self.right
        if part.batch is not None:
            for key in ("index", "start"):
                found[f"{part.prefix}batch.{key}"] = torch.tensor(getattr(part.batch, key))
            found[f"{part.prefix}batch.valid"] = torch.tensor(part.batch.valid).long()
        for table in part.tables:
            found[f"{part.name(table)}.positions"] = _positions(table.coordinates)
        for group in part.groups:
            found |= {f"{part.name(group)}.{key}": each for key, each in _given(part, group)}
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """What a program computes, in the order in which one follows from another."""
        return tuple(self._outputs)

    def numbers(self, name: str) -> Numbers:
        """Compute one array; a wrong program that has no such array has the right one."""
        found = self._outputs[name]()
        return Computed(self.right).numbers(name) if found is None else found

    @cached_property
    def _outputs(self) -> dict[str, Callable[[], Numbers | None]]:
        part = self.part
        found: dict[str, Callable[[], Numbers | None]] = {}
        if part.layers:
            for column in COLUMNS:
                found[f"{part.prefix}schedule.{column}"] = _later(schedule, part, column)
        if part.batch is not None:
            found[f"{part.prefix}batch.ids"] = _later(batch_ids, part)
        for table, right in zip(part.tables, self.right.tables, strict=True):
            tabled = Tabled(part.name(table), table, part.batch)
            kind = "encoded" if right.call.cls == "Sinusoidal" else "rows"
            for key in (kind, f"batch_{kind}") if right.has_batch else (kind,):
                found[f"{part.name(table)}.{key}"] = getattr(tabled, key)
        for group, right_one in zip(part.groups, self.right.groups, strict=True):
            scored = Scored(part.name(group), group, part.batch)
            for key in _computed(right_one):
                found[f"{part.name(group)}.{key}"] = _later(_one, scored, key)
        return found


def _later(function: Callable[..., Numbers | None], *arguments: object) -> Callable[[], Numbers | None]:
    return lambda: function(*arguments)


def _one(scored: Scored, key: str) -> Numbers | None:
    if scored.rule is None and key in ("frequencies", "factor", "cos", "sin", "axis_of_pair"):
        return None
    if key == "axis_of_pair":
        assert scored.rule is not None
        return Numbers(torch.tensor(scored.rule.axis_of_pair))
    found = getattr(scored, key)
    numbers: Numbers = found if isinstance(found, Numbers) else found()
    return numbers


def _computed(group: Group) -> Iterator[str]:
    """The names of what is computed in a group."""
    relative = group.biases + group.terms
    if group.rotation is not None:
        if group.rotation.cls != "RoPEMixed":
            yield from ("frequencies", "factor")
            if group.axes > 1:
                yield "axis_of_pair"
        yield from ("cos", "sin")
    if group.shows_rotation:
        yield from ("rotated_q", "rotated_k")
    if group.values is not None:
        yield "rotated_v"
        if group.rotates_back:
            yield "rotated_o"
    if group.temperature is not None:
        yield "temperature"
    yield "scale"
    if relative and relative[0].cls in ("T5Bias", "Deberta"):
        yield "rows"
    if group.biases:
        if group.biases[0].cls == "ALiBi":
            yield "slopes"
        if group.biases[0].option("cls"):
            yield "cls_bias"
        yield "bias"
    if group.terms:
        if group.terms[0].cls == "Shaw" and group.terms[0].option("values", True):
            yield "value_vectors"
        yield "term"
    yield "scores"
    if group.has_batch and group.rotation is not None:
        yield "batch_rotated_q"
    if group.has_batch and group.temperature is not None:
        yield "batch_temperature"


def _given(part: Part, group: Group) -> Iterator[tuple[str, Tensor]]:
    """What a program is given in a group: positions, probe vectors, offsets and parameters."""
    name = part.name(group)
    scored = Scored(name, group, part.batch)
    heads = group.layer.heads
    assert heads is not None
    yield "positions", _positions(group.coordinates)
    yield from (("q", scored.q), ("k", scored.k))
    for key, there in (("v", group.values is not None), ("o", group.rotates_back)):
        if there:
            yield key, probe(f"{name}.{key}", len(group.coordinates), heads.values)
    if group.offsets:
        yield "offsets", _positions(group.offsets)
    if group.has_batch and group.rotation is not None and part.batch is not None:
        rows, tokens = len(part.batch.index), len(part.batch.index[0])
        yield "batch_q", probe(f"{name}.batch_q", rows * tokens, heads.dim).reshape(rows, tokens, heads.dim)
    rotation, heat = group.rotation, group.temperature
    if rotation is not None and rotation.cls in ("LeRoPE", "RoPEMixed"):
        key, shape = ("alpha", ()) if rotation.cls == "LeRoPE" else ("frequencies", (2,))
        assert scored.rule is not None
        yield key, probe(f"{name}.{key}", *shape, scored.rule.pairs)
    if heat is not None and heat.option("dialect") == "ssmax":
        yield from ((key, probe(f"{name}.{key}", 1)) for key in ("s", "b"))
    for index, (_, made) in enumerate(scored.relative):
        before = f"{index}." if index else ""
        yield from ((f"{before}{key}", each.detach()) for key, each in made.named_parameters())
        for key, feature in made.features.items():
            yield key, probe(f"{name}.{key}", len(group.coordinates), feature.width)


def _positions(given: tuple[tuple[float | int, ...], ...]) -> Tensor:
    """Positions as they are written: a number each, or a row of coordinates."""
    found = as_written(given)
    return found[:, 0] if found.shape[1] == 1 else found
