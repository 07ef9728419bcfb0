"""How vectors are rotated, as tensors that a mistake can change: frequencies, pairs, channels, factors, direction.

angle[n, i] = coordinate[n, axis of pair i] * frequency[i]         or the sum over axes, where they are mixed
a' = f (a cos - b sin),   b' = f (a sin + b cos)                    (a, b) a pair, f the factor
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from situs.encodings.blocks import joined_halves, parted_halves
from situs.functional.rotation import Channels, Pairing, rotate_by_real_form
from situs.models.calls import Call
from situs.models.numbers import Rotation, rotation_by
from situs.models.oracle.probes import probe


@dataclass(frozen=True, eq=False)
class Rule:
    """Hold how vectors of one head are rotated.

    frequencies: of each pair, (pairs,); of each axis and pair, (axes, pairs), where all axes rotate every pair.
    factor: of cosines and sines as tables hold them; of_queries, of_keys: what else multiplies these vectors.
    reverse: rotate by minus the angle.
    swaps: take sines for cosines, and cosines for sines.
    positions_in: the dtype that positions are rounded to before they are multiplied; None for none.
    angles_in: the dtype that positions, frequencies and angles are rounded to.
    """

    frequencies: Tensor
    axis_of_pair: tuple[int, ...]
    head_dim: int
    pairing: Pairing
    channels: Channels
    blocks: tuple[int, ...] = ()
    factor: float = 1.0
    of_queries: float = 1.0
    of_keys: float = 1.0
    reverse: bool = False
    swaps: bool = False
    positions_in: torch.dtype | None = None
    angles_in: torch.dtype | None = None

    @property
    def pairs(self) -> int:
        """How many pairs are rotated."""
        return self.frequencies.shape[-1]

    @property
    def mixed(self) -> bool:
        """Whether all axes rotate every pair."""
        return self.frequencies.ndim == 2

    def angles(self, coordinates: Tensor) -> Tensor:
        """Multiply coordinates, (tokens, axes), with the frequencies: (tokens, pairs)."""
        if self.positions_in is not None:
            coordinates = coordinates.to(self.positions_in).double()
        if self.mixed:
            return coordinates @ self.frequencies
        chosen = coordinates[:, list(self.axis_of_pair)]
        if self.angles_in is None:
            return chosen * self.frequencies
        return (chosen.to(self.angles_in) * self.frequencies.to(self.angles_in)).double()

    def rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Rotate vectors by tables of cosines and sines."""
        sin = -sin if self.reverse else sin
        laid = joined_halves(x, self.blocks)
        return parted_halves(rotate_by_real_form(laid, cos, sin, self.pairing, self.channels), self.blocks)

    def weights(self, x: Tensor, of_pairs: Tensor) -> Tensor:
        """Weigh both channels of each pair by ``(|a| + |b|)`` times a number of the pair; 0 for other channels."""
        sizes = joined_halves(x.abs(), self.blocks)
        if 2 * self.pairs < x.shape[-1]:
            still = (
                slice(0, x.shape[-1] - 2 * self.pairs) if self.channels == "trailing" else slice(2 * self.pairs, None)
            )
            sizes[..., still] = 0
        sums = rotate_by_real_form(sizes, of_pairs, of_pairs, self.pairing, self.channels)
        # the second channel of a pair is a sin + b cos now, which is what the first shall be too
        rotated = sums[..., -2 * self.pairs :] if self.channels == "trailing" else sums[..., : 2 * self.pairs]
        if self.pairing == "interleaved":
            rotated[..., 0::2] = rotated[..., 1::2]
        else:
            rotated[..., : self.pairs] = rotated[..., self.pairs :]
        return parted_halves(sums, self.blocks)


@functools.lru_cache(maxsize=4096)
def rotation_at(call: Call, length: int | None) -> Rotation:
    """Ask `numbers` once for each call and length."""
    return rotation_by(call, length)


def rule_of(call: Call, length: int | None, name: str) -> Rule:
    """The rule of a call; parameters that frequencies learn are the probe numbers of their names."""
    if call.cls == "RoPEMixed":
        head_dim = int(call.option("head_dim"))
        learned = probe(f"{name}.frequencies", 2, head_dim // 2)
        return Rule(learned, (), head_dim, call.option("pairing", "interleaved"), "leading")
    found = rotation_at(call, length)
    rule = _as_rule(found, reverse=bool(call.option("reverse", False)))
    if call.cls == "LeRoPE":
        alpha = probe(f"{name}.alpha", rule.pairs)
        rule = replace(rule, frequencies=rule.frequencies * alpha.exp())
    return rule


def _as_rule(found: Rotation, *, reverse: bool) -> Rule:
    """Tables of cosines and sines are the same for both directions, so frequencies are positive here."""
    frequencies = torch.tensor(found.frequencies, dtype=torch.float64)
    pairing: Pairing = "interleaved" if found.pairing == "interleaved" else "halves"
    channels: Channels = "trailing" if found.channels == "trailing" else "leading"
    return Rule(
        -frequencies if reverse else frequencies, found.axis_of_pair, found.head_dim, pairing, channels, found.blocks,
        found.factor, reverse=reverse,
    )  # fmt: skip


def as_tensor(numbers: Sequence[Sequence[float | int]]) -> Tensor:
    """Coordinates of tokens as they are computed with, (tokens, axes)."""
    return torch.tensor(numbers, dtype=torch.float64)


def as_written(numbers: Sequence[Sequence[float | int]]) -> Tensor:
    """Coordinates or offsets as they are written: whole numbers where all are, (tokens, axes)."""
    whole = all(isinstance(each, int) for row in numbers for each in row)
    return torch.tensor(numbers, dtype=torch.int64 if whole else torch.float64)
