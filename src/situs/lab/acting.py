"""Encodings at work in one attention layer with random projections, so that what they do can be looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from situs.attention.reference import reference, scores_of, softmax_scale
from situs.encodings.base import Encoding, InputEncoding, QueryKeyEncoding
from situs.encodings.score import ValueEncoding
from situs.positions import Positions

NEAR_ZERO = 0.05
"""Parameters that are smaller on average are drawn anew, to see what a method can do and not what it does untrained."""

PARAMETERS = 1000
"""The first of their seeds, apart from those of tokens and projections."""


class Acting:
    """One attention layer, and all that encodings do in it and before it."""

    def __init__(self, encodings: Sequence[Encoding], *, dim: int, heads: int) -> None:
        self.encodings, self.dim, self.heads = list(encodings), dim, heads
        self.projections = normal(3, dim, dim, seed=1) / dim**0.5

    def of_kind(self, kind: type[Encoding]) -> list[Any]:
        """Its encodings that act in one place."""
        return [each for each in self.encodings if isinstance(each, kind)]

    def embedded(self, x: Tensor, places: Positions) -> Float[Tensor, "rows count dim"]:
        """Tokens as the layer meets them."""
        for each in self.of_kind(InputEncoding):
            x = each(x, places)
        return x

    def projected(self, x: Tensor, which: int) -> Float[Tensor, "rows heads count head_dim"]:
        """Queries (0), keys (1) or values (2) of tokens."""
        return torch.matmul(x, self.projections[which]).view(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def turned(self, vectors: Tensor, places: Positions, role: str) -> Float[Tensor, "rows heads count head_dim"]:
        """Queries or keys with their positions in them."""
        for each in self.of_kind(QueryKeyEncoding):
            vectors = each(vectors, places, role=role)
        return vectors

    def scores(
        self,
        query: Tensor,
        key: Tensor,
        of_queries: Positions,
        of_keys: Positions,
        *,
        keys_like: int = 1,
        causal: bool = True,
    ) -> Float[Tensor, "rows heads query key"]:
        """Scores of tokens as queries that are the last of the keys. ``keys_like`` 0 gives keys the projection of the
        queries. Scores of keys that a query may not see are there too, but those that count keys do not count them."""
        q = self.projected(self.embedded(query, of_queries), 0)
        k = self.projected(self.embedded(key, of_keys), keys_like)
        scale = softmax_scale(self.encodings, q.shape[-1], None)
        visible = behind(q.shape[-2], k.shape[-2])[None, None] | (not causal)
        return scores_of(q, k, self.encodings, of_queries, of_keys, scale=scale, visible=visible)

    def effects(
        self, query: Tensor, key: Tensor, of_queries: Positions, of_keys: Positions
    ) -> Float[Tensor, "rows heads_and_more query key"]:
        """All that attention can tell of positions: scores, and after those of all heads what values bring along."""
        seen = self.scores(query, key, of_queries, of_keys)
        offsets = of_keys.ids[:, None, :] - of_queries.ids[:, :, None]
        for each in (each for each in self.of_kind(ValueEncoding) if each.acts_on_values):
            brought = each.value_vectors(offsets.flatten(), seen.dtype).transpose(-2, -1)
            along = brought.reshape(1, -1, *offsets.shape[1:]).expand(len(seen), -1, -1, -1)
            seen = torch.cat((seen, along), 1)
        return seen

    def output(self, x: Tensor, places: Positions, *, causal: bool) -> Float[Tensor, "rows heads count head_dim"]:
        """What attention gives for whole texts."""
        q, k, v = (self.projected(self.embedded(x, places), which) for which in range(3))
        return reference(q, k, v, encoding=self.encodings, causal=causal, positions=places, key_positions=places)


@torch.no_grad()
def draw_what_is_near_zero(encodings: Sequence[Encoding], *, draw: int = 0, draws: int = 1) -> None:
    """Give parameters that start at or near 0 normal numbers, one of several draws. Projections get those that keep the
    size of what they project."""
    named = (parameter for each in encodings for parameter in each.named_parameters())
    for number, (name, parameter) in enumerate(named):
        if parameter.square().mean() < NEAR_ZERO**2:
            std = parameter.shape[-1] ** -0.5 if "projection" in name and parameter.ndim == 2 else 1.0
            parameter.copy_(std * normal(*parameter.shape, seed=PARAMETERS + draws * number + draw))


def normal(*shape: int, seed: int) -> Float[Tensor, "..."]:
    """Random numbers of a generator of their own."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def behind(queries: int, keys: int) -> Bool[Tensor, "queries keys"]:
    """Which keys are not later than a query, where queries are the last of the keys."""
    return torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
