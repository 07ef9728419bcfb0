"""From where on a mistake matters: the first position, distance, layer or row at which its numbers differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor

from situs.models.oracle.arrays import Computed
from situs.models.oracle.parts import Group, Part
from situs.models.oracle.rotated import Numbers
from situs.models.oracle.scored import Scored
from situs.models.positions import spans
from situs.models.verifying.comparing import EXACT, Given

# every position up to 64, then steps of a sixteenth, each with the next: halves of precision hold every second alone
_STEPS = [2**n * step // 16 for n in range(6, 21) for step in range(16, 32)]
GRID = tuple(sorted({*range(65), *_STEPS, *(each + 1 for each in _STEPS)}))


def matters(right: Part, wrong: Part, evidence: Mapping[str, Given]) -> str:
    """Say from where on a mistake matters, to a port of the dtype that the evidence is of."""
    name, unit = min(((each.dtype, each.unit) for each in evidence.values()), key=lambda each: each[1])
    found = [
        position
        for before, after in zip(right.groups, wrong.groups, strict=True)
        if (position := _first_position(right, before, after, unit)) is not None
    ]
    if found:
        where = f"from position {min(found):,} on" if min(found) else "at every position"
        return f"matters {where}, in {name}"
    distances = [
        distance
        for before, after in zip(right.groups, wrong.groups, strict=True)
        if (distance := _first_distance(right, before, after, unit)) is not None
    ]
    if distances:
        return f"matters from distance {min(distances):,} on, in {name}"
    return _elsewhere(right, wrong, evidence)


def _first_position(part: Part, right: Group, wrong: Group, unit: float) -> int | None:
    """The first position of the grid at which vectors or temperatures differ."""
    if right.rotation is None and wrong.rotation is None and right.temperature is None and wrong.temperature is None:
        return None
    if right.axes > 1:
        places = right.coordinates
    else:
        places = tuple((each,) for each in GRID if right.length is None or each < right.length)
    both = [Scored(part.name(right), replace(group, coordinates=places), part.batch) for group in (right, wrong)]
    pairs: list[tuple[Numbers, Numbers]] = [(both[0].temperature, both[1].temperature)]
    if right.shows_rotation:
        pairs += [(both[0].rotated_q, both[1].rotated_q), (both[0].rotated_k, both[1].rotated_k)]
    if both[0].rule is not None and both[1].rule is not None and both[0].rule.pairs == both[1].rule.pairs:
        pairs += [(both[0].cos(), both[1].cos()), (both[0].sin(), both[1].sin())]
    firsts = [row for before, after in pairs if (row := _first_row(before, after, unit)) is not None]
    return None if not firsts else min(int(max(places[row])) for row in firsts)


def _first_row(right: Numbers, wrong: Numbers, unit: float) -> int | None:
    off: Tensor = (right.value - wrong.value).abs() > right.within(unit, EXACT)
    rows = off.reshape(len(off), -1).any(1).nonzero()
    return int(rows[0]) if len(rows) else None


def _first_distance(part: Part, right: Group, wrong: Group, unit: float) -> int | None:
    """The smallest distance at which biases, or else terms, differ."""
    if not right.biases + right.terms:
        return None
    both = [Scored(part.name(right), group, part.batch) for group in (right, wrong)]
    found: list[int] = []
    if right.biases and wrong.adds and not wrong.absolute:
        before, after = both[0].bias(), both[1].bias()
        off = ((before.value - after.value).abs() > before.within(unit, EXACT)).any(0)
        found = [int(max(map(abs, right.offsets[int(index)]))) for index in off.nonzero()]
    if not found:
        before, after = both[0].scores(), both[1].scores()
        off = (before.value - after.value).abs() > before.within(unit, EXACT)
        pairs = off.any(0) if off.ndim == 3 else off
        places = right.coordinates
        found = [
            int(max(abs(there - here) for there, here in zip(places[int(key)], places[int(query)], strict=True)))
            for query, key in pairs.nonzero()
        ]
    return min(found, default=None)


def _elsewhere(right: Part, wrong: Part, evidence: Mapping[str, Given]) -> str:
    """Where a mistake matters that is none of single positions: layers, rows of a batch, all scores."""
    layers = tuple(
        index for index, (before, after) in enumerate(zip(right.layers, wrong.layers, strict=True)) if before != after
    )
    if layers:
        return f"matters in layer{'s' * (len(layers) > 1)} {spans(layers)}"
    if right.batch != wrong.batch or any(group.heat_by_index for group in wrong.groups):
        return "matters in rows that are padded or packed"
    if right.tables != wrong.tables:
        return "matters for what is added to the input"
    differing = [name for name in evidence if _differs(right, wrong, name, evidence[name].unit)]
    return f"matters in {', '.join(differing)}" if differing else "matters at the positions of the port"


def _differs(right: Part, wrong: Part, name: str, unit: float) -> bool:
    before, after = Computed(right).numbers(name), Computed(wrong, right).numbers(name)
    if after.value.shape != before.value.shape:
        return True
    return bool(((before.value - after.value).abs() > before.within(unit, EXACT)).any())
