"""Keys that are cached rotated: what rotates them, whether new ones are rotated alike, and how they are moved."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from situs.encodings.base import Encoding, QueryKeyEncoding
from situs.encodings.rotation import RotationEncoding
from situs.encodings.score import ScoreEncoding
from situs.functional.angles import widest
from situs.positions import Positions


def rotations_and_others(
    encodings: Sequence[Encoding],
) -> tuple[Sequence[QueryKeyEncoding], Sequence[Encoding]]:
    """Tell what rotates keys before they are cached from what acts in every step. Terms by content meet keys that are
    not rotated, and in bands of distance a key has several rotations: with them, everything is done anew in each
    step."""
    rotations: list[QueryKeyEncoding] = []
    others: list[Encoding] = []
    for each in encodings:
        if isinstance(each, ScoreEncoding) or (isinstance(each, QueryKeyEncoding) and each.by_pair):
            return (), encodings
        if isinstance(each, QueryKeyEncoding):
            rotations.append(each)
        else:
            others.append(each)
    return rotations, others


def require_same_rotations(
    rotations: Sequence[QueryKeyEncoding], rotated_by: Sequence[QueryKeyEncoding] | None
) -> None:
    """Raise if cached keys were rotated otherwise than new ones would be, as far as the cache knows."""
    held = rotations if rotated_by is None else rotated_by
    if len(rotations) == len(held) and all(map(_rotate_alike, rotations, held)):
        return
    raise ValueError(
        f"encodings must rotate new keys as those in the cache were, since their products would mix two rotations; "
        f"got {_told(rotations)} for keys rotated by {_told(held)}. Use a cache for each layer, or "
        f"reset()."
    )


def moved_keys(keys: Tensor, rotated_by: Sequence[QueryKeyEncoding], before: Positions, after: Positions) -> Tensor:
    """Rotate keys on from where they stood to where they stand."""
    rotations = [each for each in rotated_by if isinstance(each, RotationEncoding)]
    others = [each for each in rotated_by if not isinstance(each, RotationEncoding)]
    if others:
        raise TypeError(
            f"keys must be rotated by a RotationEncoding to be moved, since others cannot be rotated on; got "
            f"{type(others[0]).__name__}."
        )
    if len(rotations) == 1:
        return rotations[0].rerotate(keys, before, after)
    moved = keys.to(widest(keys.device))  # of several rotations the last is undone first, since they do not commute
    for each in reversed(rotations):
        moved = each.inverse(moved, before, role="key")
    for each in rotations:
        moved = each(moved, after, role="key")
    return moved.to(keys.dtype)


def _rotate_alike(one: QueryKeyEncoding, other: QueryKeyEncoding) -> bool:
    """Whether two encodings of rotation have the same options."""
    both = isinstance(one, RotationEncoding) and isinstance(other, RotationEncoding)
    return one is other or (both and one.identity == other.identity)


def _told(rotations: Sequence[QueryKeyEncoding]) -> str:
    return " and ".join(f"{type(each).__name__}({each.extra_repr()})" for each in rotations) or "none"
