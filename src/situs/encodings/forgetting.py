"""Forgetting attention: each token has a gate, and a score falls by the gates of all tokens between.

Paper    Lin, Nikishin, He & Courville, Forgetting Transformer, arXiv:2503.02130, section 3.
Acts on  scores.    Learned: yes, a gate per head from hidden states.    Relative: yes, by order alone.

    score[h, i, j] = q_i . k_j / sqrt(d) + sum over l = j+1 .. i of log sigmoid(f_h,l),    f_l = W x_l + b

The sum is a difference of two cumulated numbers, c_i - c_j. A gate that is the same at every token is ALiBi with the
slope -log sigmoid(f), whence the name data-dependent ALiBi.

Departures: the feature "gate" is f, before the sigmoid. Padding, other documents and other chunks close no gate. Only
causal attention has a sum from j to i: other calls are refused. The logarithm of a gate is -1e5 at least, so that one
that is closed, even by f = -inf, forgets all before it, and later gates still count.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from situs.arguments import require_count, require_dtype, require_same_device, require_spread
from situs.encodings.base import Feature
from situs.encodings.cumulated import CumulatedScore, require_cumulated
from situs.encodings.features import projected_heads
from situs.registry import register


@final
@register(
    name="forgetting",
    paper="Lin et al. 2025, Forgetting Transformer: Softmax Attention with a Forget Gate, arXiv:2503.02130",
    formula="q_i . k_j / sqrt(d) + sum of log sigmoid(f_l) over l from j + 1 to i, f_l = W x_l + b",
    dialects={"Forgetting Transformer (Pro)": "the defaults; beside it, NoPE"},
)
class Forgetting(CumulatedScore):
    """Lower every score by the forget gates of all tokens behind the key, up to the query.

    >>> import torch, situs
    >>> layer = situs.Attention(dim=32, num_heads=4, encoding=situs.Forgetting(num_heads=4, dim=32))
    >>> layer(torch.randn(1, 6, 32)).shape
    torch.Size([1, 6, 32])
    >>> q = k = v = torch.randn(1, 4, 6, 8)
    >>> gate = torch.randn(1, 4, 6, 1)  # computed by a model of your own
    >>> situs.attend(q, k, v, encoding=situs.Forgetting(num_heads=4), causal=True, features={"gate": gate}).shape
    torch.Size([1, 4, 6, 8])
    """

    tags = frozenset({"relative", "far", "learned"})
    features = MappingProxyType({"gate": Feature(width=1, role="key")})

    def __init__(self, *, num_heads: int, dim: int | None = None, init_std: float = 0.02) -> None:
        """
        num_heads: heads of the queries, each with its own gates.
        dim: channels of the hidden states that gates are projected from; None where features are given.
        init_std: standard deviation of the projection's normal start; its bias starts at 0, gates at 1/2.
        """
        super().__init__()
        self.num_heads = require_count("num_heads", num_heads, "each head has its own gates", least=1)
        self.dim = None if dim is None else require_count("dim", dim, "it sizes the projection", least=1)
        self.init_std = require_spread(init_std)
        self.projection = None if self.dim is None else nn.Linear(self.dim, self.num_heads)
        if dim is None:
            self.tags = self.tags - {"learned"}
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the projection anew."""
        if self.projection is not None:
            self.projection.weight.normal_(std=self.init_std)
            self.projection.bias.zero_()

    def project(self, x: Float[Tensor, "batch sequence dim"]) -> dict[str, Tensor]:
        """Compute the gates of tokens, before the sigmoid."""
        return {"gate": projected_heads(self, self.projection, x)}

    def steps(
        self, feature: Float[Tensor, "batch heads key width"], dtype: torch.dtype
    ) -> Float[Tensor, "batch heads key"]:
        """Take the logarithm of each gate."""
        require_cumulated(feature)
        require_dtype(dtype, "logarithms are fractions")
        if self.projection is not None:
            require_same_device("feature", feature, "the encoding", self.projection.weight)
        if feature.shape[-1] != 1:
            raise ValueError(
                f"feature must have 1 number for each key of a head, since a gate is one; got {tuple(feature.shape)}."
            )
        # contiguous, since torch's graphs expect other strides of its derivative than its kernel gives
        return logsigmoid(feature.squeeze(-1).to(dtype).contiguous())
