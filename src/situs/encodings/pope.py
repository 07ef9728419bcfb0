"""PoPE: polar coordinate position embedding, content as magnitude and position as phase.

Paper    Gopalakrishnan et al., arXiv:2509.10534, section 3.
Acts on  queries and keys.    Learned: a phase a channel and head.    Relative: yes.

    q'_i = softplus(q_i) exp(i t),   k'_j = softplus(k_j) exp(j t + delta),   t_c = base^(-c/d),  c = 0 .. d - 1
    q'_i . k'_j = sum_c softplus(q_ic) softplus(k_jc) cos((j - i) t_c + delta_c)

Rotary reads the content of a pair as a length and an angle, and adds the position to the angle, so that what and where
are mixed. Here each channel is a length alone, and the angle is the position's alone. A vector of d channels becomes d
complex numbers, which are 2d channels, cosines first.

Departures: delta is subtracted from the phase of queries instead of added to that of keys. Scores are the same, and
each query head has its own also where heads share a key. delta is not clamped to -2 pi .. 0, as released code does,
since a turn more or less changes nothing; of a checkpoint made there, load ``delta.clamp(-2 * math.pi, 0)``.
"""

from __future__ import annotations

from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from situs.arguments import require_axes_of, require_base, require_count, require_flag, require_same_device
from situs.encodings.base import QueryKeyEncoding, Role, computing_dtype, require_role
from situs.encodings.fitting import require_width
from situs.encodings.rotary import Rotary
from situs.positions import Positions, PositionsLike
from situs.registry import register


@final
@register(
    name="pope",
    paper='Gopalakrishnan et al. 2025, Decoupling the "What" and "Where" With Polar Coordinate Positional Embeddings, '
    "arXiv:2509.10534",
    formula="sum_c softplus(q_ic) softplus(k_jc) cos((j - i) base^(-c/d) + delta_hc)",
    dialects={"paper": "the defaults: delta is learned, and begins at 0", "without a learned phase": "learned=False"},
)
class PoPE(QueryKeyEncoding):
    """Make of each channel a complex number, whose length is the content and whose angle is the position.

    >>> import torch, situs
    >>> pope = situs.PoPE(head_dim=8, num_heads=2)
    >>> q = k = v = torch.randn(1, 2, 6, 8)
    >>> pope(q).shape, situs.attend(q, k, v, encoding=pope, causal=True).shape
    (torch.Size([1, 2, 6, 16]), torch.Size([1, 2, 6, 8]))
    """

    tags = frozenset({"relative", "unique", "far", "real", "learned"})
    widens = True
    takes_unplaced = True  # the position has no part in their phase
    head_dim: int

    def __init__(
        self, *, head_dim: int, num_heads: int | None = None, base: float = 10000.0, learned: bool = True
    ) -> None:
        """
        head_dim: channels of a head, before they are doubled.
        num_heads: heads of the queries, each of which learns a phase a channel; not needed if nothing is learned.
        base: sets the slowest wavelength, about ``2 pi base`` positions.
        learned: learn the phases delta; they are 0 otherwise.
        """
        super().__init__()
        self.head_dim = require_count("head_dim", head_dim, "it counts channels", least=1)
        self.base = require_base(base)
        self.learned = require_flag("learned", learned, "phases are learned or not")
        if num_heads is not None:
            num_heads = require_count("num_heads", num_heads, "each has phases", least=1)
        elif learned:
            raise ValueError(
                "num_heads must be given where phases are learned, since each head has its own; got None. Use "
                "learned=False for none."
            )
        self.num_heads = num_heads
        self.phases = Rotary(head_dim=2 * self.head_dim, base=self.base)  # whose ladder has a frequency a channel here
        self.delta = nn.Parameter(torch.empty(num_heads or 1, self.head_dim)) if learned else None
        if not learned:
            self.tags = self.tags - {"learned"}
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Begin with phases of 0, as the paper does for language."""
        if self.delta is not None:
            self.delta.zero_()

    def forward(
        self,
        x: Float[Tensor, "batch heads sequence head_dim"],
        positions: PositionsLike = None,
        *,
        role: Role = "query",
    ) -> Float[Tensor, "batch heads sequence two_head_dim"]:
        """Give queries or keys their phases: twice the channels, those with cosines first."""
        require_width(self, "head_dim", x, self.head_dim)
        require_axes_of("x", x, ("batch", "heads", "sequence", "head_dim"), "each head has a vector a token")
        require_role(role)
        if self.delta is not None:
            require_same_device("x", x, "the encoding", self.delta)
        if self.num_heads is not None and role == "query" and x.shape[1] != self.num_heads:
            raise ValueError(
                f"x must have {self.num_heads} heads, since this PoPE has phases for each; got shape {tuple(x.shape)}."
            )
        dtype = computing_dtype(x.dtype)
        where = Positions.of(positions, x.shape[-2], batch=x.shape[0], device=x.device)
        table = self.phases.table(where, dtype=dtype)
        cos, sin = table.cos, table.sin  # (batch or 1, 1, sequence, head_dim)
        if role == "query" and self.delta is not None:
            delta = self.delta.to(dtype)[:, None]  # (heads, 1, head_dim)
            of_cos, of_sin = delta.cos(), delta.sin()
            cos, sin = cos * of_cos + sin * of_sin, sin * of_cos - cos * of_sin
        if where.valid is not None:  # what padding holds may have no gradient, and softplus would pass that on
            x = x.masked_fill(~where.valid[:, None, :, None], 0)
        # in graphs strides are known ahead, and torch foretells those of softplus' gradient for whole tensors alone
        whole = x.contiguous() if torch.compiler.is_compiling() else x
        magnitude = nn.functional.softplus(whole.to(dtype))
        return torch.cat((magnitude * cos, magnitude * sin), -1).to(x.dtype)
