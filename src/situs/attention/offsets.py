"""Biases and vectors over offsets: made for one call, or cached for the steps of a generation.

A step of decoding needs those of all offsets so far, and one more than the step before. They are made for half as many
again, and found by the encoding itself, dtype, device and the state of its parameters: whoever changes a parameter gets
new ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from situs.encodings.base import Encoding
from situs.encodings.bias import OffsetBias, PositionProduct
from situs.encodings.score import OffsetScore, OffsetVectors, ValueEncoding
from situs.positions import Positions

Made = TypeVar("Made")
State = Sequence[tuple[object, object]]
"""Parameters and how often each was written to; plain attributes by name, where they may be assigned to."""
PLAIN = (int, float, str, bool, tuple, torch.dtype, type(None))


class OffsetCache:
    """Biases and vectors of earlier steps. Nothing is cached while gradients are recorded, or in a graph."""

    def __init__(self) -> None:
        self._made: dict[Any, tuple[State, int, int, Any]] = {}

    def __reduce__(self) -> tuple[type[OffsetCache], tuple[()]]:
        """Copy and pickle it empty: what it holds is found by encodings, which a copy of a cache leaves alone."""
        return OffsetCache, ()

    def find(
        self,
        name: tuple[Any, ...],
        encodings: Sequence[nn.Module],
        lowest: int,
        highest: int,
        wider: tuple[int, int],
        make: Callable[[int, int], Made],
        part: Callable[[Made, slice], Made],
    ) -> Made:
        """What ``make`` makes of ``lowest .. highest``, out of what it made before of a ``wider`` range."""
        if torch.is_grad_enabled() or torch.compiler.is_compiling():
            return make(lowest, highest)
        state: State = [state for encoding in encodings for state in _state_of(encoding)]
        before, first, last, made = self._made.get(name, ([], 0, -1, None))
        if made is None or lowest < first or highest > last or not _same(before, state):
            first, last = wider
            made = make(first, last)
            self._made[name] = state, first, last, made
        return part(made, slice(lowest - first, highest - first + 1))

    def clear(self) -> None:
        """Forget everything."""
        self._made.clear()


def _state_of(module: nn.Module) -> Iterator[tuple[object, object]]:
    """List all that a module computes with, as far as it can be seen to change."""
    for each in (*module.parameters(), *module.buffers()):
        # torch does not count what is written to tensors of inference mode: they are never taken for the same
        yield each, math.nan if each.is_inference() else each._version
    if isinstance(module, Encoding) and not module.settled:
        for name, value in vars(module).items():
            if isinstance(value, PLAIN):
                yield name, value


def _same(before: State, state: State) -> bool:
    return len(before) == len(state) and all(
        one[0] is other[0] and one[1] == other[1] for one, other in zip(before, state, strict=True)
    )


def bias_over_offsets(
    biases: Sequence[OffsetBias | PositionProduct],
    lowest: int,
    highest: int,
    dtype: torch.dtype,
    device: torch.device,
    cache: OffsetCache | None,
) -> Float[Tensor, "heads_or_1 offsets"]:
    """The sum of what biases add for each offset from ``lowest`` to ``highest``."""

    def make(first: int, last: int) -> Tensor:
        offsets = torch.arange(first, last + 1, device=device)
        total: Tensor | None = None
        for each in biases:
            added = each.by_offset(offsets, dtype=dtype)
            total = added if total is None else total if added is None else total + added
        return torch.zeros(1, offsets.shape[0], dtype=dtype, device=device) if total is None else total

    if not biases:
        return torch.zeros(1, highest - lowest + 1, dtype=dtype, device=device)
    if cache is None:
        return make(lowest, highest)
    name = ("bias", *biases, dtype, device)
    wider = _wider(lowest, highest)
    return cache.find(name, biases, lowest, highest, wider, make, _part)


def vectors_over_offsets(
    encoding: OffsetScore,
    lowest: int,
    highest: int,
    dtype: torch.dtype,
    device: torch.device,
    cache: OffsetCache | None,
) -> OffsetVectors:
    """The vectors that an encoding has for each offset from ``lowest`` to ``highest``."""

    def make(first: int, last: int) -> OffsetVectors:
        return encoding.vectors(torch.arange(first, last + 1, device=device), dtype)

    if cache is None:
        return make(lowest, highest)
    name = ("vectors", encoding, dtype, device)
    modules, wider = (encoding, *encoding.borrowed), _wider(lowest, highest)
    return cache.find(name, modules, lowest, highest, wider, make, OffsetVectors.part)


def value_vectors_over_offsets(
    encoding: ValueEncoding,
    lowest: int,
    highest: int,
    dtype: torch.dtype,
    device: torch.device,
    cache: OffsetCache | None,
) -> Float[Tensor, "heads_or_1 offsets value_dim"]:
    """The vectors that an encoding adds to values, for each offset from ``lowest`` to ``highest``."""

    def make(first: int, last: int) -> Tensor:
        return encoding.value_vectors(torch.arange(first, last + 1, device=device), dtype)

    if cache is None:
        return make(lowest, highest)
    name, wider = ("values", encoding, dtype, device), _wider(lowest, highest)
    return cache.find(name, (encoding,), lowest, highest, wider, make, _rows)


def _part(made: Tensor, part: slice) -> Tensor:
    return made[..., part]


def _rows(made: Tensor, part: slice) -> Tensor:
    return made[:, part]


def _positions(made: Tensor, part: slice) -> Tensor:
    return made[:, :, part]


def _wider(lowest: int, highest: int) -> tuple[int, int]:
    """Half as many offsets again, so that the next steps, whose keys lie farther back, find theirs."""
    return lowest - (highest - lowest) // 2 - 64, highest


def key_vectors(
    encoding: PositionProduct, positions: Positions, dtype: torch.dtype, cache: OffsetCache | None
) -> Float[Tensor, "#batch heads key channels"]:
    """The vectors of the keys' positions; those of all positions that there are, where a cache keeps them."""
    known, start = encoding.usable_length, positions.start
    if cache is None or start is None or known is None or start + positions.length > known:
        return encoding.key_vectors(positions, dtype)

    def make(first: int, last: int) -> Tensor:
        return encoding.key_vectors(Positions.range(last - first + 1, start=first, device=positions.device), dtype)

    name = ("positions", encoding, dtype, positions.device)
    last = start + positions.length - 1
    return cache.find(name, (encoding,), start, last, (0, known - 1), make, _positions)
