"""Extension without training: scalings of rotary whose positions, not frequencies, differ by band of distance.

A trained model knows distances within its training length only. These methods leave near pairs as they were trained
and give far ones a distance that the model knows. So queries and keys have several rotations, one for each band, and
every pair is scored with those of its own band:

    lag    = i // size - j // size             of the query's position i and the key's j; size 1 is the distance
    score  = R(f_b(i)) q_i . R(g_b(j)) k_j     in the band b whose lags, lowest to highest, hold this lag

No vector has a rotation by itself, so that only attention can apply them: ``attend``, ``Attention`` and the cache.

    >>> import torch, situs
    >>> q, k, v = (torch.randn(1, 2, 100, 16) for _ in range(3))
    >>> for scaling in (SelfExtend(window=32, group=4), ReRoPE(window=32), DualChunk(chunk_size=48, local_size=8)):
    ...     rotary = situs.Rotary(head_dim=16, scaling=scaling)
    ...     situs.attend(q, k, v, encoding=rotary, causal=True).shape
    torch.Size([1, 2, 100, 16])
    torch.Size([1, 2, 100, 16])
    torch.Size([1, 2, 100, 16])

Papers   SelfExtend: Jin et al., arXiv:2401.01325, algorithm 1.
         ReRoPE: Su 2023, https://kexue.fm/archives/9708 (a post, no paper).
         DualChunk: An et al., arXiv:2402.17463, section 3, with the numbers of the released code (Qwen2.5-1M).

Departures: keys ahead of a query, which causal models never see, have the same distances with the sign turned. Bands
go by positions, never by the index in a tensor: padding and packing change nothing. Released code of all three also
multiplies queries by a logarithm of the position or of the length; that is an encoding of its own, and is not in here.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple, TypeAlias, final

import torch
from jaxtyping import Bool, Num
from torch import Tensor

from situs.arguments import refuse, require_count, require_flag, require_number, require_real, require_same_device
from situs.encodings.stretch import ScaledFrequencies, Scaling, require_ladder
from situs.functional.angles import widest
from situs.functional.frequencies import rotary_frequencies
from situs.positions import Positions

__all__ = ["Band", "Bands", "DualChunk", "ReRoPE", "SelfExtend"]

_STAY = "pairs at smaller distances stay as trained"

Move: TypeAlias = "partial[Tensor]"
"""Takes positions, and gives those that vectors are rotated by. A function with its options, so that what was made of
positions can be found by it."""


class Band(NamedTuple):
    """Hold some lags of a query behind a key, and what positions become for pairs of these lags."""

    lowest: int | None
    """The lowest lag; None where there is no end."""
    highest: int | None
    query: Move | None
    """What the positions of queries become; None where they stay."""
    key: Move | None

    def holds(self, lags: Num[Tensor, "*pairs"]) -> Bool[Tensor, "*pairs"]:
        """Tell which lags are in the band."""
        inside = torch.ones_like(lags, dtype=torch.bool) if self.lowest is None else lags >= self.lowest
        return inside if self.highest is None else inside & (lags <= self.highest)

    def of_queries(self, positions: Positions) -> Positions:
        """Give the positions that queries are rotated by, made once for each `Positions` object."""
        return positions if self.query is None else _moved(positions, self.query)

    def of_keys(self, positions: Positions) -> Positions:
        """Give the positions that keys are rotated by, made once for each `Positions` object."""
        return positions if self.key is None else _moved(positions, self.key)

    def queries_at(self, ids: Num[Tensor, "*tokens"]) -> Num[Tensor, "*tokens"]:
        """Give the positions that queries are rotated by."""
        return ids if self.query is None else self.query(ids)

    def keys_at(self, ids: Num[Tensor, "*tokens"]) -> Num[Tensor, "*tokens"]:
        """Give the positions that keys are rotated by."""
        return ids if self.key is None else self.key(ids)


class Bands(Scaling):
    """Rotate queries and keys by other positions in each band of distance; frequencies stay as trained."""

    @property
    def claims(self) -> frozenset[str]:
        """Tags that rotary keeps with these bands, of those that depend on them."""
        return frozenset()

    @property
    def size(self) -> int:
        """Positions of a chunk, where lags count chunks; 1 where they are distances."""
        return 1

    @property
    def by_chunk(self) -> bool:
        """Whether lags count chunks; of fractions, chunks of one position are not distances."""
        return self.size > 1

    @property
    @abstractmethod
    def exact(self) -> int:
        """The distance below which all pairs are as trained."""

    @abstractmethod
    def bands(self, *, causal: bool) -> tuple[Band, ...]:
        """List the bands, which together hold every lag once; with ``causal``, those of 0 and above."""

    def lags(self, query: Num[Tensor, "*queries"], key: Num[Tensor, "*keys"]) -> Num[Tensor, "*pairs"]:
        """Compute how far queries are behind keys, in positions or in chunks, for ids that broadcast."""
        _require_ids(query, key)
        if self.by_chunk:
            return query.div(self.size, rounding_mode="floor") - key.div(self.size, rounding_mode="floor")
        lags = query - key
        return lags.trunc() if lags.is_floating_point() else lags

    def distances(self, query: Num[Tensor, "*queries"], key: Num[Tensor, "*keys"]) -> Num[Tensor, "*pairs"]:
        """Compute the distance that each pair is rotated by, for ids that broadcast.

        >>> import torch, situs
        >>> ids = torch.arange(8)
        >>> situs.SelfExtend(window=2, group=3).distances(ids[7], ids).tolist()
        [4, 4, 4, 3, 3, 3, 1, 0]
        """
        _require_ids(query, key)
        lags = self.lags(query, key)
        found = query - key
        for band in self.bands(causal=False):
            if band.query is not None or band.key is not None:
                apart = band.queries_at(query) - band.keys_at(key)
                found = torch.where(band.holds(lags), apart, found.to(apart.dtype))
        return found

    def resolve(self, dim: int, base: float | Tensor, sequence_length: int | Tensor | None = None) -> ScaledFrequencies:
        require_ladder(dim, base, sequence_length)
        return ScaledFrequencies(rotary_frequencies(dim, base))


@final
@dataclass(frozen=True, kw_only=True)
class SelfExtend(Bands):
    """Let tokens beyond a window share positions in groups. Jin et al. 2024, arXiv:2401.01325.

    A text of ``(L0 - window) group + window`` tokens has no distance beyond the training length ``L0``.
    """

    scaling_name: ClassVar[str] = "selfextend"
    paper: ClassVar[str] = (
        "Jin et al. 2024, LLM Maybe LongLM: Self-Extend LLM Context Window Without Tuning, arXiv:2401.01325"
    )
    formula: ClassVar[str] = "w_i; distance i - j below the window, i // G - j // G + W - W // G from it on"

    window: int
    group: int

    def __post_init__(self) -> None:
        _keep(self, "window", require_count("window", self.window, _STAY, least=1))
        _keep(self, "group", require_count("group", self.group, "it counts tokens that share a position", least=1))

    @property
    def exact(self) -> int:
        """The distance below which all pairs are as trained: the window."""
        return self.window

    def bands(self, *, causal: bool) -> tuple[Band, ...]:
        """List the window, and what lies beyond."""
        require_flag("causal", causal, "keys ahead are listed or not")
        shift = self.window - self.window // self.group
        group = partial(_grouped, size=self.group)
        behind, ahead = (partial(_grouped, size=self.group, shift=each) for each in (shift, -shift))
        return _near_and_far(self.window, behind, ahead, group, causal)


@final
@dataclass(frozen=True, kw_only=True)
class ReRoPE(Bands):
    """Clip distances at a window, or let them grow slower beyond it (Leaky ReRoPE). Su 2023."""

    scaling_name: ClassVar[str] = "rerope"
    paper: ClassVar[str] = "Su 2023, Rectified Rotary Position Embeddings (a post, no paper)"
    formula: ClassVar[str] = "w_i; distance i - j below the window, W + leak (i - j - W) from it on"

    window: int
    leak: float = 0.0

    def __post_init__(self) -> None:
        _keep(self, "window", require_count("window", self.window, _STAY, least=1))
        leak = require_number("leak", self.leak, "distances grow by it beyond the window", least=0, most=1)
        _keep(self, "leak", float(leak))

    @property
    def claims(self) -> frozenset[str]:
        """It goes by distances alone; without a leak all far ones are alike."""
        return frozenset({"relative", "unique"} if self.leak else {"relative"})

    @property
    def exact(self) -> int:
        """The distance below which all pairs are as trained: the window."""
        return self.window

    def bands(self, *, causal: bool) -> tuple[Band, ...]:
        """List the window, and what lies beyond."""
        require_flag("causal", causal, "keys ahead are listed or not")
        shift = self.window * (1 - self.leak)
        behind, ahead, key = (partial(_slowed, leak=self.leak, shift=each) for each in (shift, -shift, 0.0))
        return _near_and_far(self.window, behind, ahead, key, causal)


@final
@dataclass(frozen=True, kw_only=True)
class DualChunk(Bands):
    """Count positions anew in every chunk, and clip distances between chunks. An et al. 2024, arXiv:2402.17463.

    Chunks have ``chunk_size - local_size`` tokens. As in the released code, no distance is beyond ``chunk_size``; the
    paper has one less.
    """

    scaling_name: ClassVar[str] = "dualchunk"
    paper: ClassVar[str] = (
        "An et al. 2024, Training-Free Long-Context Scaling of Large Language Models, arXiv:2402.17463"
    )
    formula: ClassVar[str] = (
        "w_i; distance i - j within a chunk of s = C - local tokens, min(i % s + s, C) - j % s to the chunk before, "
        "C - j % s to earlier ones"
    )

    chunk_size: int
    local_size: int

    def __post_init__(self) -> None:
        _keep(self, "chunk_size", require_count("chunk_size", self.chunk_size, "no distance is beyond it", least=1))
        local = require_count("local_size", self.local_size, "it counts tokens of the chunk before", least=0)
        _keep(self, "local_size", local)
        if 2 * self.local_size >= self.chunk_size:
            raise ValueError(
                f"local_size must be less than half of chunk_size={self.chunk_size}, since chunks have "
                f"chunk_size - local_size tokens and lie behind one another; got {self.local_size}."
            )

    @property
    def size(self) -> int:
        """Tokens of a chunk."""
        return self.chunk_size - self.local_size

    @property
    def by_chunk(self) -> bool:
        """Lags always count chunks."""
        return True

    @property
    def exact(self) -> int:
        """The distance below which all pairs are as trained."""
        return self.local_size + 1

    def bands(self, *, causal: bool) -> tuple[Band, ...]:
        """List the chunk itself, the one before, and all earlier ones; those ahead with queries and keys exchanged."""
        require_flag("causal", causal, "keys ahead are listed or not")
        own = partial(_within, size=self.size)
        beside = partial(_beside, size=self.size, most=self.chunk_size)
        far = partial(torch.full_like, fill_value=self.chunk_size)
        behind = Band(0, 0, own, own), Band(1, 1, beside, own), Band(2, None, far, own)
        return behind if causal else (*behind, Band(-1, -1, own, beside), Band(None, -2, own, far))


def refuse_bands(name: str, scaling: object, by: str) -> None:
    """Raise for a scaling that changes positions by pair, where only frequencies can be changed."""
    if isinstance(scaling, Bands):
        refuse(
            ValueError, name, f"change frequencies with {by}",
            "bands of distance change positions, by the pair of a query and a key", repr(scaling),
            "Bands are for situs.Rotary(scaling=...).",
        )  # fmt: skip


def _moved(positions: Positions, move: Move) -> Positions:
    """Move positions; what was made for an object is cached with it, as tables are."""
    if torch.compiler.is_compiling() and not positions.in_graph:
        return Positions.explicit(move(positions.ids))  # a graph leaves nothing in an object from outside
    inference = not torch.compiler.is_compiling() and torch.is_inference_mode_enabled()
    key = (move.func, *sorted(move.keywords.items()), inference, positions.version)
    if key not in positions.tables:
        positions.tables[key] = Positions.explicit(move(positions.ids))
    moved: Positions = positions.tables[key]
    return moved


def _keep(scaling: Bands, name: str, value: float | int) -> None:
    """Write an option as Python's own number into a frozen dataclass."""
    object.__setattr__(scaling, name, value)


def _require_ids(query: Tensor, key: Tensor) -> None:
    """Raise unless these are positions of queries and keys that meet."""
    require_real("query", query, "they are positions")
    require_real("key", key, "they are positions")
    require_same_device("key", key, "query", query)
    sizes = zip(reversed(query.shape), reversed(key.shape), strict=False)
    if any(one != other and 1 not in (one, other) for one, other in sizes):
        refuse(
            ValueError, "query and key", "broadcast", "each pair has a distance",
            f"shapes {tuple(query.shape)} and {tuple(key.shape)}", "Use query[:, None] for all pairs.",
        )  # fmt: skip


def _near_and_far(window: int, behind: Move, ahead: Move, key: Move, causal: bool) -> tuple[Band, ...]:
    """List the pairs within a window, which stay, and those beyond it on either side."""
    bands = Band(0 if causal else 1 - window, window - 1, None, None), Band(window, None, behind, key)
    return bands if causal else (*bands, Band(None, -window, ahead, key))


def _grouped(ids: Tensor, size: int, shift: int = 0) -> Tensor:
    return ids.div(size, rounding_mode="floor") + shift


def _slowed(ids: Tensor, leak: float, shift: float) -> Tensor:
    if not leak:
        return torch.full_like(ids, int(shift))
    return ids.to(widest(ids.device)) * leak + shift


def _within(ids: Tensor, size: int) -> Tensor:
    return ids.remainder(size)


def _beside(ids: Tensor, size: int, most: int) -> Tensor:
    return (ids.remainder(size) + size).clamp(max=most)
