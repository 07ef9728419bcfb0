"""How much one rotation differs from another, in frequencies and in scores.

    score at distance d = factor^2 * mean over pairs of cos(frequency d)

is q . k of one content as query and as key, d tokens apart, that fills all pairs alike, divided by its square. It is 1
at distance 0 without a factor. The softmax scale multiplies scores too, so that its ratio is part of a change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from situs.models.numbers import Rotation

if TYPE_CHECKING:
    from torch import Tensor

EVERY = 2048
"""Distances up to here are all looked at, and as many beyond, at equal steps."""


Move: TypeAlias = "Callable[[Tensor], Tensor]"


@dataclass(frozen=True)
class Change:
    """Hold how much rotations differ."""

    frequency: float
    """The largest change of a frequency, relative to before."""
    score: float
    """The largest change of a score within ``length``, of which 1 is that of a token with itself."""
    distance: int
    """Where that is."""
    length: int

    def __str__(self) -> str:
        """What changes, in a sentence."""
        if not (self.frequency or self.score):
            return f"Below {self.length:,} tokens, nothing changes."
        return (
            f"Below {self.length:,} tokens, frequencies change by up to {as_share(self.frequency)} and scores by up to "
            f"{self.score:.2g} (at distance {self.distance:,}; a token with itself has 1)."
        )


def as_share(share: float) -> str:
    """Write a change relative to before: in percent, or from ten times on in times."""
    return f"{100 * share:.3g} %" if share < 10 else f"{share:,.0f} times"


def _as_is(distances: Tensor) -> Tensor:
    return distances


def change_between(
    before: Rotation,
    after: Rotation,
    length: int,
    *,
    scale: float | int = 1.0,
    moves: tuple[Move, Move] = (_as_is, _as_is),
) -> Change:
    """Measure how much one rotation differs from another within a length.

    scale: the ratio of softmax scales.
    moves: what the last token of the text is rotated against a key by, given the distance of both, in each.
    """
    import torch

    old, new = (torch.tensor(each.frequencies, dtype=torch.float64) for each in (before, after))
    moving = old != 0
    ratios = (new[moving] / old[moving] - 1).abs()
    largest = float(ratios.max()) if moving.any() else 0.0
    score, distance = 0.0, 0
    for part in distances_within(length).split(2048):  # type: ignore[no-untyped-call]
        one, other = (move(part)[:, None] for move in moves)
        first = before.factor**2 * (one * old).cos().mean(-1)
        second = scale * after.factor**2 * (other * new).cos().mean(-1)
        change, index = (second - first).abs().max(0)
        if float(change) > score:
            score, distance = float(change), int(part[index])
    return Change(largest, score, distance, length)


def distances_within(length: int) -> Tensor:
    """Distances below a length, at most twice `EVERY`."""
    import torch

    near = torch.arange(min(length, EVERY), dtype=torch.float64)
    if length <= EVERY:
        return near
    far = torch.linspace(EVERY, length - 1, min(EVERY, length - EVERY), dtype=torch.float64).round()
    return torch.cat((near, far))
