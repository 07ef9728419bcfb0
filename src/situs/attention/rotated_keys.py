"""Keys and values that are cached rotated: by what, whether new ones are rotated alike, and how they are moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from situs.encodings.base import Encoding, QueryKeyEncoding
from situs.encodings.rotation import RotationEncoding
from situs.encodings.score import ScoreEncoding
from situs.encodings.value_map import ValueMap
from situs.functional.angles import widest
from situs.positions import Positions
from situs.rotation import RotationTable

STEPS = 64  # of a generation, whose angles are made at once

Rotation: TypeAlias = QueryKeyEncoding | ValueMap


class StepTables:
    """Cosines and sines of the next tokens of a generation, made for many at once."""

    def __init__(self) -> None:
        self._made: dict[object, tuple[int, list[RotationTable]]] = {}

    def find(self, encoding: RotationEncoding, positions: Positions, dtype: torch.dtype) -> RotationTable | None:
        """Those of one next token; None where queries and keys, or lengths, have their own."""
        start = positions.start
        if start is None or positions.length != 1 or torch.is_grad_enabled() or torch.compiler.is_compiling():
            return None
        if encoding.treats_roles_apart or encoding.by_length:
            return None
        name = (encoding.identity, dtype, torch.is_inference_mode_enabled())
        first, tables = self._made.get(name, (0, []))
        if not first <= start < first + len(tables):
            whole = encoding.table(Positions.range(STEPS, start=start, device=positions.device), dtype=dtype)
            first, tables = start, [whole.at(step) for step in range(STEPS)]
            self._made[name] = first, tables
        return tables[start - first]

    def clear(self) -> None:
        """Forget everything."""
        self._made.clear()


def rotations_and_others(encodings: Sequence[Encoding]) -> tuple[Sequence[Rotation], Sequence[Encoding]]:
    """Tell what rotates queries, keys and values before the latter are cached from what acts in every step. Terms by
    content meet keys that are not rotated, keys that become wider would not fit, and in bands of distance a key has
    several rotations: with these, everything is done anew in each step."""
    rotations: list[Rotation] = []
    others: list[Encoding] = []
    for each in encodings:
        by_content = isinstance(each, ScoreEncoding) and not each.by_features_alone
        if by_content or (isinstance(each, QueryKeyEncoding) and (each.widens or each.by_pair)):
            return (), encodings
        if isinstance(each, QueryKeyEncoding):
            rotations.append(each)
        elif isinstance(each, ValueMap):
            rotations.append(each)
            if each.maps_output:
                others.append(each.output_alone)
        else:
            others.append(each)
    return rotations, others


def of_cached(rotations: Sequence[Rotation]) -> tuple[Rotation, ...]:
    """Leave out what changes queries alone, of which a cache holds nothing."""
    return tuple([each for each in rotations if isinstance(each, ValueMap) or each.changes_keys])


def require_same_rotations(rotations: Sequence[Rotation], rotated_by: Sequence[Rotation] | None) -> None:
    """Raise if cached keys and values were rotated otherwise than new ones would be, as far as the cache knows."""
    rotations = of_cached(rotations)
    held = rotations if rotated_by is None else rotated_by
    if len(rotations) == len(held) and all(map(_rotate_alike, rotations, held)):
        return
    raise ValueError(
        f"encodings must rotate new keys as those in the cache were, since their products would mix two rotations; "
        f"got {_told(rotations)} for keys rotated by {_told(held)}. Use a cache for each layer, or "
        f"reset()."
    )


def moved_values(values: Tensor, rotated_by: Sequence[Rotation], before: Positions, after: Positions) -> Tensor:
    """Rotate values on from where they stood to where they stand."""
    maps = [each for each in rotated_by if isinstance(each, ValueMap)]
    if len(maps) > 1:
        raise TypeError(
            f"values must be changed by one map to be moved, since several need not commute; got {_told(maps)}."
        )
    return maps[0].moved(values, before, after) if maps else values


def moved_keys(keys: Tensor, rotated_by: Sequence[Rotation], before: Positions, after: Positions) -> Tensor:
    """Rotate keys on from where they stood to where they stand."""
    rotations = [each for each in rotated_by if isinstance(each, RotationEncoding)]
    others = [each for each in rotated_by if not isinstance(each, (RotationEncoding, ValueMap))]
    if others:
        raise TypeError(
            f"keys must be rotated by a RotationEncoding to be moved, since others cannot be rotated on; got "
            f"{type(others[0]).__name__}."
        )
    if not rotations:
        return keys
    if len(rotations) == 1:
        return rotations[0].rerotate(keys, before, after)
    moved = keys.to(widest(keys.device))  # of several rotations the last is undone first, since they do not commute
    for each in reversed(rotations):
        moved = each.inverse(moved, before, role="key")
    for each in rotations:
        moved = each(moved, after, role="key")
    return moved.to(keys.dtype)


def _rotate_alike(one: Rotation, other: Rotation) -> bool:
    """Whether two encodings of rotation have the same options."""
    if one is other:
        return True
    if isinstance(one, ValueMap) and isinstance(other, ValueMap):
        return one.identity is not None and one.identity == other.identity
    both = isinstance(one, RotationEncoding) and isinstance(other, RotationEncoding)
    return both and one.identity == other.identity


def _told(rotations: Sequence[Rotation]) -> str:
    return " and ".join(f"{type(each).__name__}({each.extra_repr()})" for each in rotations) or "none"
