"""xPos: rotary with a decay.

Paper    Sun et al., arXiv:2212.10554, section 2.
Acts on  queries and keys.    Learned: no.    Relative: yes.

    q'_m = z^((m - c)/B) R(m) q_m,   k'_n = z^(-(n - c)/B) R(n) k_n,   z_i = (2i/d + g) / (1 + g)
    q'_m . k'_n = sum over pairs of z_i^((m - n)/B) q_m,i . R(n - m) k_n,i

The centre c cancels in the scores; it only keeps the two factors within a number's range, which is exp(88) in
float32 and bfloat16 and exp(9.7) in float16 (``reach_in``). The released code takes the middle of the current call,
so keys cached from a shorter call no longer fit. Here ``centre`` is "origin" (the paper's, c = 0), "middle" (the
released code's ceil(L/2), but of the whole sequence, by ``Positions.sequence_length``) or a number.
"""

from __future__ import annotations

from typing import Literal, final

import torch
from jaxtyping import Float64, Num
from torch import Tensor

from situs.arguments import is_deferred, is_word, require_base, require_number, told
from situs.encodings.base import Role
from situs.encodings.fitting import check_head, have_lengths_apart, require_axes, require_length, require_same_length
from situs.encodings.rotation import RotationEncoding
from situs.functional.angles import widest
from situs.functional.frequencies import rotary_frequencies
from situs.functional.rotation import Pairing
from situs.positions import Positions
from situs.registry import register

# exp(88) is the largest power of e that float32 holds
LARGEST_EXPONENT = 88.0

# exp(-9.7) is the smallest that float16 holds with all its digits; exp(9.7) leaves room for entries up to 4
LARGEST_EXPONENT_OF_FLOAT16 = 9.7


@final
@register(
    name="xpos",
    paper="Sun et al. 2022, A Length-Extrapolatable Transformer, arXiv:2212.10554",
    formula="q'_m = z^(m/B) R(m) q_m, k'_n = z^(-n/B) R(n) k_n; z_i = (2i/d + g)/(1 + g)",
    dialects={
        "stable while decoding": "the defaults: centre at the origin",
        "torchscale": 'centre="middle" of the whole sequence, which must be known',
    },
)
class XPos(RotationEncoding):
    """Rotate queries and keys, and make their products smaller with distance, most in the fastest pairs. For causal
    attention."""

    treats_roles_apart = True

    def __init__(
        self,
        *,
        head_dim: int,
        base: float = 10000.0,
        gamma: float = 0.4,
        scale_base: float = 512.0,
        pairing: Pairing = "interleaved",
        centre: Literal["origin", "middle"] | float = "origin",
    ) -> None:
        """
        head_dim: channels of a head.
        base: sets the slowest wavelength, about ``2 pi base`` positions.
        gamma: the larger, the slower the decay; 0.4 in the paper.
        scale_base: positions over which the product of a pair is multiplied by its z; 512 in the paper.
        pairing: "interleaved" (the paper, torchscale) or "halves".
        centre: where the factors are 1: "origin", "middle" of the whole sequence, or a position.
        """
        super().__init__()
        head_dim, _ = check_head(head_dim, None, pairing)
        if not is_word(centre, ("origin", "middle")):
            if isinstance(centre, (str, bool, type(None))) or not hasattr(centre, "__float__"):
                raise ValueError(
                    f'centre must be "origin", "middle" or a number, since it is a position; got {told(centre)}.'
                )
            centre = require_number("centre", centre, "it is a position")
        self.head_dim = self.rotary_dim = head_dim
        self.base = base = require_base(base)
        self.gamma = gamma = require_number("gamma", gamma, "it sets the decay", above=0)
        self.scale_base = scale_base = require_number("scale_base", scale_base, "it sets the decay", above=0)
        self.pairing = pairing
        self.centre = centre
        self.by_length = centre == "middle"
        self.identity = (type(self), head_dim, base, gamma, scale_base, pairing, centre)
        # host constants, not buffers: no cast, move, meta device or checkpoint can touch them
        self._frequencies = rotary_frequencies(head_dim, base)[None, None, None]
        zeta = (torch.arange(0, head_dim, 2, dtype=torch.float64, device="cpu") / head_dim + gamma) / (1 + gamma)
        self._log_decay = zeta.log() / scale_base
        fastest = -float(self._log_decay.min())
        self.reach = LARGEST_EXPONENT / fastest
        self.reaches = {torch.float16: LARGEST_EXPONENT_OF_FLOAT16 / fastest}
        self.reaches_in_words = {dtype: f"{self.reach_in(dtype):.0f}" for dtype in (torch.float32, torch.float16)}
        self.tags = frozenset({"relative", "unique", "real", "fading"})
        self.resolved = {
            "reach": self.reach,
            "reach_in_float16": self.reach_in(torch.float16),
            "dialect": centre if isinstance(centre, str) else "fixed centre",
        }

    def coordinates_at(self, positions: Positions) -> Num[Tensor, "batch 1 sequence 1"]:
        """Shape positions, one for all pairs."""
        return positions.ids[:, None, :, None]

    def frequencies_at(self, positions: Positions) -> Float64[Tensor, "1 1 1 pairs"]:
        """Give the plain rotary ladder."""
        require_axes(self, positions)
        return self._frequencies

    def magnitude_of(self, positions: Positions, role: Role) -> Float64[Tensor, "#batch 1 sequence pairs"]:
        """Compute ``z^((n - c)/B)`` for queries, its inverse for keys."""
        distance = positions.ids.to(widest(positions.device)) - self._centre(positions)
        exponent = distance[:, None, :, None] * self._log_decay.to(distance)
        return exponent.exp() if role == "query" else (-exponent).exp()

    def require_agreement(self, query: Positions, key: Positions) -> None:
        """Raise if the middle is taken of two different sequences."""
        if self.centre == "middle" and query is not key:
            differs = have_lengths_apart(query, key, lambda ours, theirs: ours != theirs)
            require_same_length(query, key, 'XPos(centre="middle")', differs)

    def farthest_of(self, positions: Positions) -> float | int | Tensor:
        """Find how far from the centre positions go. A range is judged by its ends."""
        centre, start = self._centre(positions), positions.start
        if start is not None and not isinstance(centre, Tensor) and not torch.compiler.is_compiling():
            ends = (start, start + positions.length - 1) if positions.length else ()
            return max((abs(end - centre) for end in ends), default=0.0)
        distances = (positions.ids.to(widest(positions.device)) - centre).abs()
        if is_deferred(distances):
            return distances
        return float(distances.max()) if distances.numel() else 0.0

    def _centre(self, positions: Positions) -> float | int | Tensor:
        if self.centre == "origin":
            return 0.0
        if self.centre == "middle":
            return (require_length(positions, 'XPos(centre="middle")') + 1) // 2
        return float(self.centre)
