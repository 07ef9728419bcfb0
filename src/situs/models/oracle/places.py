"""Where tokens stand in golden files: positions, coordinates on several axes, offsets, and a batch of three rows.

    row 0   padding on the left       . . . a b c d e          positions count the tokens, padding has none
    row 1   padding on the right      a b c d e . . .
    row 2   two documents, packed     a b c A B C D E          positions begin anew with each

Rows are long where a temperature needs it, so only a few of their tokens are written, each with its index in the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from situs.models.calls import Call
from situs.models.positions import ModelPositions
from situs.models.readers.stack import COUNTS_PADDING
from situs.models.readers.table_rows import RESTARTS

Coordinates = tuple[tuple[float | int, ...], ...]

POSITIONS = (0, 1, 4095, 65536, 1000000)
"""What golden numbers are made for, if nothing else is said."""

NEAR = (0, 1, 2, 5, 17, 60, 130, 520)
"""Positions whose offsets tell biases apart, beside those that were asked for."""

AXES = ((1, 0), (2, 3), (5, 7))
"""The coordinates of a position p on several axes: p // divisor + addend, one of these for each axis."""

SHORT = 5
"""Tokens that stand for a length where no method has one of its own."""


@dataclass(frozen=True)
class Batch:
    """Hold some tokens of three rows, and what a program does with them.

    index: of each token in its row; valid: whether it is no padding; start: the index of its document's first token.
    counts_padding: whether positions count padding as tokens.
    joins_documents: whether positions go on through documents.
    """

    index: tuple[tuple[int, ...], ...]
    valid: tuple[tuple[bool, ...], ...]
    start: tuple[tuple[int, ...], ...]
    counts_padding: bool = False
    joins_documents: bool = False

    def ids(self) -> list[list[int]]:
        """The position of each token; 0 for padding."""
        rows = []
        for number, (index, valid, start) in enumerate(zip(self.index, self.valid, self.start, strict=True)):
            packed = number == 2
            counted = self.joins_documents if packed else self.counts_padding
            firsts = (0,) * len(start) if counted else start
            rows.append([each - first if real else 0 for each, real, first in zip(index, valid, firsts, strict=True)])
        return rows


def batch_of(model: ModelPositions) -> Batch | None:
    """Some tokens of a padded and a packed batch; None for models of images, and where chunks begin anew."""
    if any(note.text == RESTARTS for note in model.notes) or not (model.layers or model.input):
        return None
    calls = [*model.input, *(call for layer in dict.fromkeys(model.layers) for call in layer.calls)]
    if any(call.cls in ("LearnedGrid", "SwinBias", "ViTDet", "Boxes", "RoPEMixed") for call in calls):
        return None
    splits = [call.option("split") for call in calls if call.cls == "Rotary"]
    if any(split is not None and split.cls != "Sections" for split in splits):
        return None
    s = max((call.option("original_length", SHORT) for call in calls if _is_heated(call)), default=SHORT)
    real = 2 * s + 3
    left = (0, s - 1, s, s + 1, 2 * s - 1, 2 * s, s + real - 1)
    right = (0, 1, s - 1, s, real - 1, real, real + s - 1)
    packed = (0, 1, s - 1, s, s + 1, 2 * s, s + real - 1)
    return Batch(
        index=(left, right, packed),
        valid=(tuple(each >= s for each in left), tuple(each < real for each in right), (True,) * len(packed)),
        start=((s,) * len(left), (0,) * len(right), tuple(0 if each < s else s for each in packed)),
        counts_padding=COUNTS_PADDING in model.notes,
    )


def _is_heated(call: Call) -> bool:
    return call.cls == "Temperature" and call.option("dialect", "llama4") not in ("ssmax", "power")


def positions_in(positions: Sequence[int], limit: int | None) -> tuple[int, ...]:
    """The positions below a limit, and the last one before it where some lie beyond."""
    if limit is None or max(positions) < limit:
        return tuple(positions)
    return tuple(sorted({each for each in positions if each < limit} | {limit - 1}))


def coordinates_of(
    positions: Sequence[int], axes: int, *, near: bool, text: bool, fractions: bool
) -> tuple[tuple[float | int, ...], ...]:
    """The coordinates of tokens.

    near: with positions whose offsets tell biases apart.
    text: with tokens of text first, whose coordinates are all alike.
    fractions: of 64, in 0 .. 1, for coordinates that are shares.
    """
    if fractions:
        return tuple(tuple((11 * n + 7 * axis * n + 3 * axis) % 64 / 64 for axis in range(axes)) for n in range(6))
    where = sorted({*positions, *NEAR}) if near else list(positions)
    if axes == 1:
        return tuple((each,) for each in where)
    alike = [(each,) * axes for each in where] if text else []
    parts = [AXES[axis % len(AXES)] for axis in range(axes)]
    return (*alike, *(tuple(each // divisor + addend for divisor, addend in parts) for each in where))


def cells_of(size: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    """Some cells of a grid: its corners, and others between them."""
    height, width = size
    listed = [
        (0, 0), (0, 1), (1, 0), (height // 2, width // 3), (height // 3, width // 2), (height - 1, 0), (0, width - 1),
        (height - 1, width - 1),
    ]  # fmt: skip
    return tuple(dict.fromkeys((row % height, column % width) for row, column in listed))


def offsets_of(call: Call, coordinates: Coordinates) -> Coordinates:
    """The offsets between tokens, key minus query, and those around the distance from which on all are alike."""
    pairs = {
        tuple(there - here for there, here in zip(key, query, strict=True))
        for query in coordinates
        for key in coordinates
    }
    far = call.option("max_distance", 128 if call.cls == "T5Bias" else None)
    if isinstance(far, int):
        pairs |= {(sign * each,) for sign in (-1, 1) for each in (far // 4, far // 2, far - 1, far, far + 1)}
    return tuple(sorted(pairs))
