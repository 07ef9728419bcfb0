"""Projected bias: each token mixes a bank of learned profiles of distance into the bias of its own query.

Model    Inkling (released code in transformers, no paper).
Acts on  scores.    Learned: yes, rank x distances, and a projection of hidden states.    Relative: yes.

    score[h, i, j] = scale q_i . k_j + r_h,i . P[:, i - j]   for 0 <= i - j < distances, and nothing added elsewhere
    r_i = W x_i, of ``rank`` numbers for each head

All heads share the profiles P. The bias is not scaled, and there is no rotation beside it: it is all that tells order.

Departures: none. Inkling divides q . k by head_dim, since queries and keys are normalised (``softmax_scale``), and its
global layers multiply q and this bias by a temperature (``tempered``).
"""

from __future__ import annotations

from typing import final

import torch
from jaxtyping import Float, Num
from torch import Tensor, nn

from situs.arguments import require_count, require_counts, require_flag, require_number, require_spread
from situs.encodings.base import Feature
from situs.encodings.features import projected_heads
from situs.encodings.score import OffsetScore, OffsetVectors
from situs.registry import register


@final
@register(
    name="projected",
    paper="Inkling (released code, no paper)",
    formula="q_i . k_j / sqrt(d) + W x_i . P[:, i - j] for 0 <= i - j < distances",
    dialects={
        "Inkling, sliding layers": "distances=sliding_window_size, rank=d_rel, softmax_scale=1 / head_dim",
        "Inkling, global layers": "distances=rel_extent, tempered=True, beside a Temperature",
    },
)
class ProjectedBias(OffsetScore):
    """Add to each score a bias of the distance: learned profiles, mixed by numbers of the query's token.

    >>> import torch, situs
    >>> layer = situs.Attention(dim=32, num_heads=4, encoding=situs.ProjectedBias(num_heads=4, dim=32, distances=64))
    >>> layer(torch.randn(1, 6, 32)).shape
    torch.Size([1, 6, 32])
    >>> q = k = v = torch.randn(1, 4, 6, 8)
    >>> relative = torch.randn(1, 4, 6, 16)  # computed by a model of your own
    >>> encoding = situs.ProjectedBias(num_heads=4, rank=16)
    >>> situs.attend(q, k, v, encoding=encoding, causal=True, features={"relative": relative}).shape
    torch.Size([1, 4, 6, 8])
    """

    tags = frozenset({"relative", "bounded", "far", "learned"})
    whole = True
    meets = "relative"
    settled = frozenset({"distances", "rank", "tempered"})
    span: int

    def __init__(
        self,
        *,
        num_heads: int,
        distances: int = 1024,
        rank: int = 16,
        dim: int | None = None,
        tempered: bool = False,
        softmax_scale: float | None = None,
        init_std: float = 0.02,
    ) -> None:
        """
        num_heads: heads of the queries.
        distances: how many distances have a bias, 0 .. distances - 1; keys farther back, or ahead, get none.
        rank: profiles that all heads share, and numbers by which a token mixes them.
        dim: channels of the hidden states that these numbers are projected from; None where features are given.
        tempered: multiply the bias by what a Temperature beside it multiplies queries by.
        softmax_scale: factor of q . k; None for 1 / sqrt(head_dim).
        init_std: standard deviation of the normal start.
        """
        super().__init__()
        num_heads, distances, rank = require_counts(
            "it sizes the profiles", num_heads=num_heads, distances=distances, rank=rank
        )
        if dim is not None:
            dim = require_count("dim", dim, "it sizes the projection", least=1)
        require_flag("tempered", tempered, "a temperature multiplies the bias or not")
        if softmax_scale is not None:
            softmax_scale = require_number("softmax_scale", softmax_scale, "it multiplies q . k")
        self.num_heads = num_heads
        self.distances = distances
        self.rank = rank
        self.dim = dim
        self.tempered = tempered
        self.softmax_scale = softmax_scale
        self.init_std = require_spread(init_std)
        self.span = distances
        self.by_features_alone = not tempered
        self.features = {"relative": Feature(width=rank, role="query", tempered=tempered)}
        self.profiles = nn.Parameter(torch.empty(rank, distances))
        self.projection = None if dim is None else nn.Linear(dim, num_heads * rank, bias=False)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the profiles and the projection anew."""
        self.profiles.normal_(std=self.init_std)
        if self.projection is not None:
            self.projection.reset_parameters()

    def project(self, x: Float[Tensor, "batch sequence dim"]) -> dict[str, Tensor]:
        """Compute the numbers by which tokens mix the profiles."""
        return {"relative": projected_heads(self, self.projection, x)}

    def vectors(self, offsets: Num[Tensor, "offsets"], dtype: torch.dtype) -> OffsetVectors:
        """Look up each offset's column of the profiles, zeros where it has none."""
        distance = -offsets
        near = (distance >= 0) & (distance < self.distances)
        columns = self.profiles.to(dtype).T[distance.clamp(0, self.distances - 1)]
        return OffsetVectors(for_query=columns.masked_fill(~near.unsqueeze(-1), 0).unsqueeze(0))
