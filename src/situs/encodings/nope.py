"""NoPE: no position encoding, the control.

Paper    Haviv et al., arXiv:2203.16634; Kazemnejad et al., arXiv:2305.19466.
Acts     nowhere.    Learned: no.

    score[i, j] = q_i . k_j / sqrt(d)

Without a causal mask, attention is permutation *equivariant*: shuffled tokens give outputs shuffled the
same way. (Often called invariant, which would mean the same outputs whatever the order.) Under a causal
mask a model can still infer positions from how many tokens it sees.
"""

from __future__ import annotations

from typing import final

from jaxtyping import Shaped
from torch import Tensor

from situs.arguments import require_tensor
from situs.encodings.base import Encoding, Role, require_role
from situs.positions import Positions, PositionsLike
from situs.positions.require import like as require_like
from situs.registry import register


@final
@register(
    name="none",
    paper="Kazemnejad et al. 2023, The Impact of Positional Encoding on Length Generalization, arXiv:2305.19466",
    formula="score[i, j] = q_i . k_j / sqrt(d)",
)
class NoPE(Encoding):
    """Give attention no positions: the control in a comparison."""

    place = "nowhere"
    tags = frozenset({"relative", "bounded", "far"})

    def forward(
        self, x: Shaped[Tensor, "*shape"], positions: PositionsLike = None, *, role: Role = "query"
    ) -> Shaped[Tensor, "*shape"]:
        """Leave ``x`` as it is, whether embeddings, queries or keys: it can stand where another encoding does."""
        require_tensor("x", x, "it is handed back")
        if x.ndim > 1:
            require_like("positions", positions, x.shape[-2], Positions)
        require_role(role)
        return x
