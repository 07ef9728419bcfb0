"""Measurements of what encodings do, one function a property.

The contract judges by them whether an encoding has what its tags claim (``checks.properties``), the lab reports them
(``lab.probing``). Shares are of the spread (standard deviation) of what is seen, so that 0 is nothing and 1 is much.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from situs.checks.bench import Bench, behind, normal
from situs.encodings.base import Encoding, InputEncoding, QueryKeyEncoding, Role
from situs.encodings.cumulated import CumulatedScore
from situs.positions import Positions

ROUNDING = 1e-5
"""The share of the spread by which two results may differ for float32's rounding."""
TOLD_APART = 1e-6
"""The share of the spread from which two positions count as told apart."""
GROWTH = 1.4
"""What grows by more from ``LONG`` to ``LONGEST`` has no bound: a logarithm grows by 1.9 or so, 1 and a tenth of it by
1.57, and cosines by 1.25 at most, since even slow ones have come round."""
LONG, LONGEST = 1 << 16, 1 << 30
COUNTED = 1 << 8, 1 << 12
"""The same where every token between counts, so that all must be there."""
FEWEST = 4
"""Positions that it takes to measure anything."""
NEAR_ZERO = 0.05
"""Parameters that are smaller on average are drawn anew, to see what a method can do and not what it does untrained."""
PARAMETERS = 1000
"""The first of their seeds, apart from those of tokens and projections."""
ROLES: dict[str, Role] = {"queries": "query", "keys": "key"}


@torch.no_grad()
def draw_small_parameters(encodings: Sequence[Encoding], *, draw: int = 0, draws: int = 1) -> None:
    """Give parameters that start at or near 0 normal numbers, one of several draws; projections get those that keep the
    size of what they project."""
    named = (parameter for each in encodings for parameter in each.named_parameters())
    for number, (name, parameter) in enumerate(named):
        if parameter.square().mean() < NEAR_ZERO**2:
            std = parameter.shape[-1] ** -0.5 if "projection" in name and parameter.ndim == 2 else 1.0
            parameter.copy_(std * normal(*parameter.shape, seed=PARAMETERS + draws * number + draw))


@torch.no_grad()
def distances_between(
    bench: Bench, query_position: Positions, positions: Positions
) -> Float64[Tensor, "positions positions"]:
    """Measure how differently any two positions look to one query that meets the same key at each of them, as shares
    of the spread over all; a position and itself are infinitely apart."""
    query, key = normal(2, 2, 1, bench.dim, seed=3)
    seen = bench.effects(query, key.expand(-1, positions.length, -1), query_position, positions)
    looks = seen.double().flatten(0, 2).T.contiguous()  # (positions, what is seen of each)
    apart = torch.cdist(looks, looks, compute_mode="donot_use_mm_for_euclid_dist") / looks.shape[1] ** 0.5
    shares: Tensor = (apart / looks.std()).fill_diagonal_(torch.inf)
    return shares


@torch.no_grad()
def change_by_shift(bench: Bench, first: Positions, later: Positions, *, causal: bool = True) -> float:
    """Measure how much the same tokens score differently at other positions, at most, as a share of the spread.

    causal: only keys that a query may see count.
    """
    x = normal(2, first.length, bench.dim, seed=4)
    here, there = (bench.effects(x, x, positions, positions) for positions in (first, later))
    if causal:
        seen = behind(first.length, first.length)
        here, there = here[..., seen], there[..., seen]
    return float((there - here).abs().max() / here.std())


class Growth(NamedTuple):
    """Hold how many times as large effects are in very long texts as in long ones."""

    near: int
    far: int
    """Tokens of these texts."""
    spread: float
    """Of the scores that one content gets at all positions."""
    vector: float
    """Of the longest query or key."""


@torch.no_grad()
def growth(bench: Bench) -> Growth:
    """Measure how positions spread the scores of one content, and lengthen vectors, as texts grow to the longest."""
    long, longest = COUNTED if bench.of_kind(CumulatedScore) else (LONG, LONGEST)
    end = int(min(longest, bench.end()))
    near, far = min(long, end // 2), end
    (near_spread, near_vector), (far_spread, far_vector) = (_largest(bench, count) for count in (near, far))
    return Growth(near, far, (far_spread + ROUNDING) / (near_spread + ROUNDING), far_vector / near_vector)


def _largest(bench: Bench, longest: int) -> tuple[float, float]:
    """Measure the mean spread and the longest vector, with keys at near and far distances, or at every one where all
    count; in shorter texts too, since what one position has by chance is no growth."""
    spreads, lengths = [], []
    for count in (longest - longest * part // 8 for part in range(4)):
        distances = torch.logspace(0, math.log10(count), 16).long()[:, None] + torch.arange(-1, 31)
        ids = count - 1 - torch.unique(distances.clamp(0, count - 1)).flip(0)
        if bench.of_kind(CumulatedScore):
            ids = torch.arange(count)
        last, positions = (_on_all_axes(bench, each, count) for each in (ids[-4:], ids))
        keys = normal(4, 1, bench.dim, seed=5).expand(-1, len(ids), -1)
        seen = bench.effects(normal(4, last.length, bench.dim, seed=10), keys, last, positions)
        spreads.append(float((seen.amax(-1) - seen.amin(-1)).mean()))
        vectors = bench.project(bench.embed(keys, positions), 0)
        for role in ROLES.values():  # in float64, since xPos's squares would leave float32
            lengths.append(float(bench.rotate(vectors, positions, role).double().norm(dim=-1).max()))
    return sum(spreads) / len(spreads), max(lengths)


def _on_all_axes(bench: Bench, ids: Tensor, count: int) -> Positions:
    """Make explicit positions, the same in every coordinate that the encodings take."""
    axes = max((each.axes for each in bench.encodings), default=1)
    return Positions.explicit(ids if axes == 1 else ids[None, :, None].expand(1, -1, axes), sequence_length=count)


@torch.no_grad()
def change_of_norms(bench: Bench, positions: Positions, dtype: torch.dtype = torch.float32) -> dict[str, float]:
    """Measure by what share of their length inputs, queries and keys change at most; without those that nothing acts
    on."""
    x = normal(1, positions.length, bench.dim, seed=6).to(dtype)
    vectors = x.view(1, positions.length, bench.heads, -1).transpose(1, 2)
    pairs = {"inputs": (bench.embed(x, positions), x)} if bench.of_kind(InputEncoding) else {}
    for name, role in ROLES.items() if bench.of_kind(QueryKeyEncoding) else ():
        pairs[name] = bench.rotate(vectors, positions, role), vectors
    lengths = {name: [each.double().norm(dim=-1) for each in pair] for name, pair in pairs.items()}
    return {name: float((after / before - 1).abs().max()) for name, (after, before) in lengths.items()}


@torch.no_grad()
def scores_by_distance(
    bench: Bench,
    query: Float[Tensor, "contents 1 dim"],
    key: Float[Tensor, "contents 1 dim"],
    query_position: Positions,
    positions: Positions,
    *,
    keys_like: int = 0,
) -> Float[Tensor, "contents heads positions"]:
    """Score a query at one position against the same key at each of others behind it, the nearest first."""
    keys = key.expand(-1, positions.length, -1)
    return bench.scores(query, keys, query_position, positions, keys_like=keys_like)[:, :, 0].flip(-1)


@torch.no_grad()
def change_by_order(bench: Bench, positions: Positions, *, causal: bool) -> float:
    """Measure how far outputs of permuted tokens are from permuted outputs, as a share of the outputs' spread."""
    order = torch.randperm(positions.length, generator=torch.Generator().manual_seed(9))
    x = normal(2, positions.length, bench.dim, seed=8)
    one, other = (bench.attend(each, positions, causal=causal) for each in (x[:, order], x))
    return float((one - other[:, :, order]).abs().max() / other.std())


def behind_the_last(distances: Sequence[int]) -> tuple[Positions, Positions]:
    """Make the last position of a text, and those that lie at these distances behind it, given in rising order."""
    text = Positions.range(distances[-1] + 1)
    return text[-1:], Positions.explicit(distances[-1] - torch.tensor(distances).flip(0), sequence_length=text.length)
