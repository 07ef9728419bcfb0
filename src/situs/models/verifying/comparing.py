"""Numbers compared: within rounding or not, and where they first are not.

unit        roundoff of the port's dtype: float64 2^-53, float32 2^-24, float16 2^-11, bfloat16 2^-8
of angles   2^-53; 2^-24 where angles of float32 are forgiven, as a mistake that is told
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from situs.models.oracle.arrays import IGNORED_IN_PADDING, Computed
from situs.models.oracle.parts import Group, Part
from situs.models.oracle.rotated import Numbers

UNITS = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}
EXACT, FLOAT32 = 2.0**-53, 2.0**-24


@dataclass(frozen=True, eq=False)
class Given:
    """Hold one array of a port, and the dtype that it was computed in."""

    value: Tensor
    dtype: str

    @property
    def unit(self) -> float:
        """The roundoff of its dtype."""
        return UNITS[self.dtype]


@dataclass(frozen=True)
class Difference:
    """Hold where a port's array first differs: the smallest position, then the first channel."""

    array: str
    where: str
    port: float
    right: float

    def __str__(self) -> str:
        return f"{self.array}, {self.where}: {self.port:.9g} in the port, {self.right:.9g} is right"


def misses(part: Part, name: str, given: Given, numbers: Numbers, of_angles: float) -> Tensor:
    """Where a port's numbers lie farther off than rounding takes them."""
    off = (given.value - numbers.value).abs() > numbers.within(given.unit, of_angles)
    if part.batch is not None and name.rpartition(".")[2] in IGNORED_IN_PADDING:
        valid = torch.tensor(part.batch.valid)
        off = off & valid.reshape(*valid.shape, *[1] * (off.ndim - valid.ndim))
    return off


def agree(part: Part, name: str, given: Given, numbers: Numbers, of_angles: float) -> bool:
    """Whether a port's array is right, but for rounding."""
    return not bool(misses(part, name, given, numbers, of_angles).any())


def differences(part: Part, port: Mapping[str, Given]) -> list[Difference]:
    """The first difference of each array of a part that a port has wrong."""
    computed = Computed(part)
    found = []
    for name in computed.names:
        if name not in port:
            continue
        numbers, given = computed.numbers(name), port[name]
        off = misses(part, name, given, numbers, EXACT)
        if bool(off.any()):
            index = _first(part, name, off)
            found.append(
                Difference(name, described(part, name, index), float(given.value[index]), float(numbers.value[index]))
            )
    return found


def _first(part: Part, name: str, off: Tensor) -> tuple[int, ...]:
    """The index of the first difference, which lies at the smallest position or offset."""
    listed = [tuple(int(each) for each in index) for index in off.nonzero()]
    group, axis = _group(part, name), _axis_of_positions(name)
    if group is None or axis is None or axis >= off.ndim:
        return listed[0]
    along = group.offsets if name.endswith((".bias", ".rows", ".value_vectors")) else group.coordinates
    return min(listed, key=lambda index: (max(map(abs, along[index[axis]])), index))


def _axis_of_positions(name: str) -> int | None:
    key = name.rpartition(".")[2]
    if key in ("cos", "sin", "rotated_q", "rotated_k", "rotated_v", "rotated_o", "temperature", "term", "rows",
               "value_vectors"):  # fmt: skip
        return 0
    return 1 if key == "bias" else None


def _group(part: Part, name: str) -> Group | None:
    return next((group for group in part.groups if name.rpartition(".")[0] == part.name(group)), None)


def described(part: Part, name: str, index: tuple[int, ...]) -> str:
    """An index of an array in words: position 4095, channel 3."""
    key = name.rpartition(".")[2]
    if ".schedule." in f".{name}":
        return f"layer {index[0]}"
    if key == "ids" or key.startswith("batch_"):
        row = ("padded on the left", "padded on the right", "packed")[index[0]]
        token = part.batch.index[index[0]][index[1]] if part.batch is not None else index[1]
        return f"the row {row}, token {token}" + (f", channel {index[2]}" if len(index) > 2 else "")
    group = _group(part, name)
    if group is None:  # a table of the input
        table = next(table for table in part.tables if name.startswith(f"{part.name(table)}."))
        return f"position {_told(table.coordinates[index[0]])}" + (f", channel {index[1]}" if len(index) > 1 else "")
    if key in ("scale", "factor"):
        return "the one number"
    if key in ("frequencies", "axis_of_pair"):
        return f"pair {index[-1]}"
    if key in ("slopes", "cls_bias"):
        return f"head {index[0]}"
    if key in ("bias", "rows", "value_vectors"):
        head = f"head {index[0]}, " if key == "bias" else ""
        offset = group.offsets[index[1] if key == "bias" else index[0]]
        return f"{head}offset {_told(offset)}" + (f", channel {index[1]}" if key == "value_vectors" else "")
    if key in ("scores", "term"):
        head = f"head {index[0]}, " if len(index) == 3 else ""
        query, other = (_told(group.coordinates[each]) for each in index[-2:])
        return f"{head}query at position {query}, key at {other}"
    place = f"position {_told(group.coordinates[index[0]])}"
    if len(index) == 1:
        return place
    return f"{place}, {'pair' if key in ('cos', 'sin') else 'channel'} {index[1]}"


def _told(coordinates: tuple[float | int, ...]) -> str:
    return f"{coordinates[0]:,}" if len(coordinates) == 1 else f"({', '.join(f'{each:,}' for each in coordinates)})"
