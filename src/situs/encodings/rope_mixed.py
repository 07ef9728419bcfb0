"""RoPE-Mixed: rotary of two coordinates whose frequencies learn, per head.

Paper    Heo et al., arXiv:2403.13298, section 3.2.
Acts on  queries and keys.    Learned: yes.    Relative: yes.

    q'_p = R(p) q_p,   k'_p = R(p) k_p,   R(p) rotates pair i of head h by  y f^y_hi + x f^x_hi,   p = (y, x)

Axial frequencies look along the rows or the columns; mixed ones look in any direction. At first the pairs of a head lie
along a random direction and across it, with frequencies ``init_base^(-4i/d)``, as the authors' code has it.

Departures: angles are formed in float64. Coordinates are (row, column), as everywhere here, and so are the rows of
``frequencies``; the authors' and timm's ``freqs`` have x first, so that a checkpoint's
``freqs[:, layer].view(2, heads, pairs).flip(0)`` belongs here. A [CLS] token stands at (0, 0), where nothing is rotated
(``Positions.prefixed``).
"""

from __future__ import annotations

import math
from typing import final

import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn

from situs.arguments import require_base, require_count
from situs.encodings.base import Role
from situs.encodings.fitting import check_head, require_axes
from situs.encodings.rotation import RotationEncoding
from situs.functional.angles import reduced_angles, widest
from situs.functional.frequencies import rotary_frequencies
from situs.functional.rotation import Pairing
from situs.positions import Positions
from situs.registry import register


@final
@register(
    name="rope_mixed",
    paper="Heo et al. 2024, Rotary Position Embedding for Vision Transformer, arXiv:2403.13298",
    formula="q'_p = R(p) q_p, k'_p = R(p) k_p; R(y, x) rotates pair i of head h by y f^y_hi + x f^x_hi",
    dialects={
        "rope-vit, timm": "the defaults; their freqs have x first: freqs[:, layer].view(2, heads, pairs).flip(0)",
    },
)
class RoPEMixed(RotationEncoding):
    """Rotate queries and keys of image patches by learned frequencies along both coordinates.

    >>> import torch
    >>> from situs import Positions, RoPEMixed
    >>> mixed = RoPEMixed(head_dim=16, num_heads=2)
    >>> mixed(torch.randn(1, 2, 12, 16), Positions.grid(3, 4)).shape, tuple(mixed.frequencies.shape)
    (torch.Size([1, 2, 12, 16]), (2, 2, 8))
    """

    takes_unplaced = True  # they are not rotated

    learns_frequencies = True
    of_a_head = "frequencies"
    axes = 2
    tags = frozenset({"relative", "bounded", "unique", "far", "real", "norm", "learned"})

    def __init__(
        self, *, head_dim: int, num_heads: int, init_base: float = 10.0, pairing: Pairing = "interleaved"
    ) -> None:
        """
        head_dim: channels of a head, a multiple of 4.
        num_heads: heads, each with its own frequencies.
        init_base: sets the slowest frequency that learning starts from; 10 in the paper.
        pairing: "interleaved" (the authors, timm) or "halves".
        """
        super().__init__()
        head_dim, _ = check_head(head_dim, None, pairing)
        if head_dim % 4:
            raise ValueError(
                f"head_dim must be a multiple of 4, since half of the pairs lie across the others at first; got "
                f"{head_dim}."
            )
        self.head_dim = self.rotary_dim = head_dim
        self.num_heads = num_heads = require_count("num_heads", num_heads, "each has frequencies", least=1)
        self.init_base = require_base(init_base, "init_base")
        self.pairing = pairing
        # an object of its own: encodings of the same options have other parameters
        self.identity = (type(self), head_dim, num_heads, self.init_base, pairing, object())
        self.frequencies = nn.Parameter(torch.empty(2, num_heads, head_dim // 2))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw a direction for each head; half of its pairs lie along it, the others across."""
        ladder = rotary_frequencies(self.head_dim // 2, self.init_base)
        along = torch.rand(self.frequencies.shape[1], 1, device=self.frequencies.device) * math.tau
        direction = along + torch.tensor((0.0, math.pi / 2), device=along.device).repeat_interleave(len(ladder))
        lengths = ladder.repeat(2).to(direction)
        self.frequencies.copy_(torch.stack((direction.sin(), direction.cos())) * lengths)

    def coordinates_at(self, positions: Positions) -> Float[Tensor, "batch heads sequence pairs"]:
        """Compute the angles, to which both coordinates add."""
        frequencies, ids = self.frequencies.to(positions.device), positions.ids[:, None]  # ids (batch, 1, sequence, 2)
        wide = widest(positions.device)
        down, right = (
            (ids[..., axis, None], frequencies[axis].unsqueeze(-2).to(wide)) for axis in range(2)
        )  # (batch, 1, sequence, 1) and (heads, 1, pairs)
        if wide == torch.float64:
            return down[0].double() * down[1] + right[0].double() * right[1]
        return reduced_angles(*down) + reduced_angles(*right)

    def frequencies_at(self, positions: Positions) -> Float64[Tensor, "1 1 1 pairs"]:
        """Give ones, since coordinates are multiplied by their frequencies before they are added."""
        require_axes(self, positions)
        return torch.ones(1, 1, 1, self.head_dim // 2, dtype=torch.float64, device="cpu")

    def magnitude_of(self, positions: Positions, role: Role) -> float:
        """Give 1: vectors keep their length."""
        return 1.0

    def require_agreement(self, query: Positions, key: Positions) -> None:
        """Take any queries and keys: all are rotated alike."""
