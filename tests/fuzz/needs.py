"""What encodings need of sizes and positions, and how one is written: as the Python that makes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

FAR = 10**8


@dataclass(frozen=True)
class Sizes:
    """Heads and channels."""

    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    dim: int | None = None
    """Channels of hidden states that features are projected from; None where features are given."""


@dataclass(frozen=True)
class Needs:
    """What encodings ask of sizes and positions."""

    axes: tuple[int, ...] = (1,)
    """Coordinates that a position may have."""

    multiple: int = 1
    """What ``head_dim`` is a multiple of."""

    whole: bool = False
    """Whether positions are whole numbers."""

    table: int | None = None
    """Positions lie in 0 .. table - 1."""

    lengths: bool = False
    """Whether the whole sequence's length is known."""

    far: int = FAR
    """How far from 0 positions may lie."""

    same_width: bool = False
    """Whether values are as wide as keys."""

    own_keys: bool = False
    """Whether every head has its own keys."""

    causal: bool = False
    """Whether keys are no later than the query."""

    window: tuple[int, int] | None = None
    """Height and width that all positions fit into."""

    pairs: int = 1 << 21
    """Scores that the oracle can afford."""

    def with_(self, other: Needs) -> Needs:
        """What both ask for."""
        tables = [each for each in (self.table, other.table) if each is not None]
        return Needs(
            axes=tuple(axis for axis in self.axes if axis in other.axes),
            multiple=max(self.multiple, other.multiple),
            whole=self.whole or other.whole,
            table=min(tables) if tables else None,
            lengths=self.lengths or other.lengths,
            far=min(self.far, other.far),
            same_width=self.same_width or other.same_width,
            own_keys=self.own_keys or other.own_keys,
            causal=self.causal or other.causal,
            window=self.window or other.window,
            pairs=min(self.pairs, other.pairs),
        )


Recipe = tuple[Needs, Callable[[Random, Sizes], str]]
"""What an encoding needs, and the drawing of one."""


def written(name: str, options: dict[str, str]) -> str:
    """A call with these options."""
    return f"{name}({', '.join(f'{option}={value}' for option, value in options.items())})"
