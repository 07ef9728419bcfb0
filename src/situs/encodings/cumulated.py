"""Scores that fall from token to token: each token has a number, and a score gets the sum of those between.

    g(i, j) = sum of s_l over the tokens l behind key j, up to query i  =  c_i - c_j,    c cumulated over s <= 0

The numbers come from a feature of the keys. Kernels take c, one number per token, and never form a matrix of sums.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from situs.arguments import require_axes_of, require_floating
from situs.encodings.base import computing_dtype, without_autocast
from situs.encodings.features import feature_of
from situs.encodings.score import ScoreEncoding, require_terms
from situs.functional.angles import widest
from situs.functional.cumulation import cumulated_over_range, cumulated_over_tokens
from situs.positions import Positions, PositionsLike, own_slots, query_slots

LOWEST = -1e5  # of a token's number: no weight is left behind it, and later ones keep their digits in the sum


class CumulatedScore(ScoreEncoding):
    """Add to every score the sum of the numbers of all tokens behind the key, up to the query.

    Positions enter by order alone. Padding adds nothing, nor do tokens of other documents, or of other chunks where
    attention has chunks: what a query gives depends on none of them.
    """

    by_order = True
    causal_only = True
    by_features_alone = True

    @abstractmethod
    def steps(
        self, feature: Float[Tensor, "batch heads key width"], dtype: torch.dtype
    ) -> Float[Tensor, "batch heads key"]:
        """Compute the number of each key from its feature; none is above 0."""

    @without_autocast
    def forward(
        self,
        query: Float[Tensor, "batch heads query head_dim"],
        key: Float[Tensor, "batch kv_heads key head_dim"],
        query_positions: PositionsLike = None,
        key_positions: PositionsLike = None,
        *,
        scale: float | None = None,
        visible: Bool[Tensor, "#batch #heads #query key"] | None = None,
        features: Mapping[str, Tensor] | None = None,
    ) -> Float[Tensor, "batch heads query key"]:
        """Form ``c_i - c_j``, and 0 for keys behind the query; neither ``scale`` nor ``visible`` matters."""
        both = require_terms(self, query, key, query_positions, key_positions, scale, visible)
        feature = feature_of(self, features, key.shape[2], query)
        of_queries, of_keys = cumulated(self, feature, *both)
        apart = of_queries.unsqueeze(-1) - of_keys.unsqueeze(-2)
        return apart.clamp(max=0).to(computing_dtype(query.dtype))


@without_autocast
def cumulated(
    encoding: CumulatedScore,
    feature: Float[Tensor, "batch heads key width"],
    query_positions: Positions,
    key_positions: Positions,
) -> tuple[Float[Tensor, "batch heads query"], Float[Tensor, "batch heads key"]]:
    """Cumulate the numbers of all keys, in float64: c_i of the queries and c_j of the keys. None counts as less than
    -1e5, be it -inf."""
    query, key = query_positions, key_positions
    steps = encoding.steps(feature, widest(feature.device)).clamp(min=LOWEST)
    if key.valid is not None:
        steps = steps.masked_fill(~key.valid[:, None], 0)
    start, key_start = query.first_slot, key.first_slot
    if start is not None and key_start is not None:
        return cumulated_over_range(steps, start - key_start, query.length)
    slots = query_slots(query, key), own_slots(key)
    return cumulated_over_tokens(steps, *slots, query.documents, key.documents)


def require_cumulated(feature: Tensor) -> None:
    """Raise unless a feature has numbers for each key of each head."""
    require_floating("feature", feature, "it is cumulated over tokens")
    require_axes_of("feature", feature, ("batch", "heads", "key", "width"), "each key of each head has its own")
