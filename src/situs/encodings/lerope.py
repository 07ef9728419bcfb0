"""LeRoPE: rotary whose frequencies learn.

Paper    Mistral AI, Mistral Large 4 (released code, no paper).
Acts on  queries and keys.    Learned: yes.    Relative: yes.

    q'_m = R(m) q_m,   k'_n = R(n) k_n,   R(m) rotates pair i by m w_i exp(a_i),   w_i = base^(-2i/d), scaled or not

The logarithm keeps frequencies positive and lets slow pairs learn as fast as fast ones. ``alpha`` starts at 0, which is
plain rotary, and goes by the name that it has in checkpoints.

Departures: angles are formed in float64 from the float32 parameter, where released code has float32 throughout, so that
they are exact at far positions for the very numbers that a checkpoint holds. The released code holds ``alpha`` as a
buffer, without gradients; here it is a parameter, and ``requires_grad_(False)`` freezes it.

Gradients of ``alpha`` weigh the rounding of each token's gradient by its position, which cancels between queries and
keys only as far as digits go: over 256 tokens from position 100,000 on they are off by 6e-5 of the largest in float32,
and lost in bfloat16, whose error from position 0 on is 1 %. Begin at 0 to train it in half precision.
"""

from __future__ import annotations

from typing import final

import torch
from jaxtyping import Float, Float64, Num
from torch import Tensor, nn

from situs.arguments import require_base
from situs.encodings.bands import refuse_bands
from situs.encodings.base import Role
from situs.encodings.rotary import Rotary
from situs.encodings.rotation import RotationEncoding
from situs.encodings.scaling import Scaling
from situs.encodings.split import Split
from situs.functional.angles import widest
from situs.functional.rotation import Channels, Pairing
from situs.positions import Positions
from situs.registry import register


@final
@register(
    name="lerope",
    paper="Mistral AI 2026, Mistral Large 4 (released code, no paper)",
    formula="q'_m = R(m) q_m, k'_n = R(n) k_n; R(m) rotates pair i by m base^(-2i/d) exp(a_i)",
    dialects={
        "Mistral Large 4": 'channels="trailing", rotary_dim=64, '
        "scaling=YaRN(factor=2048.0, original_length=512, attention_factor=1.0); its checkpoints "
        "hold alpha",
    },
)
class LeRoPE(RotationEncoding):
    """Rotate queries and keys as rotary does, each frequency multiplied by a learned factor.

    >>> import torch
    >>> from situs import LeRoPE, Rotary
    >>> learned, plain = LeRoPE(head_dim=16), Rotary(head_dim=16, pairing="interleaved")
    >>> x = torch.randn(1, 2, 5, 16)
    >>> torch.equal(learned(x), plain(x))
    True
    >>> learned(x).sum().backward()
    >>> learned.alpha.grad.shape
    torch.Size([8])
    """

    takes_unplaced = True  # they are not rotated

    learns_frequencies = True

    def __init__(
        self,
        *,
        head_dim: int,
        base: float = 10000.0,
        rotary_dim: int | None = None,
        pairing: Pairing = "interleaved",
        channels: Channels = "leading",
        scaling: Scaling | None = None,
        split: Split | None = None,
    ) -> None:
        """
        head_dim: channels of a head.
        base: sets the frequencies that learning starts from, as for `Rotary`.
        rotary_dim: channels that are rotated; the rest pass unchanged. All by default.
        pairing: "interleaved" (Mistral Large 4) or "halves".
        channels: where the rotated ones stand: "leading" or "trailing" (Mistral Large 4).
        scaling: how the frequencies are changed for a longer context, before the learned factors.
        split: how pairs are shared among coordinates: `Axial` or `Sections`.
        """
        super().__init__()
        refuse_bands("scaling", scaling, "LeRoPE")
        rotary = Rotary(
            head_dim=head_dim,
            base=require_base(base),
            rotary_dim=rotary_dim,
            pairing=pairing,
            channels=channels,
            scaling=scaling,
            split=split,
        )
        # in a tuple, so that it is no module of this one: it has neither parameters nor buffers
        self._plain = (rotary,)
        self.head_dim, self.rotary_dim = rotary.head_dim, rotary.rotary_dim
        self.base, self.pairing, self.channels = rotary.base, pairing, channels
        self.scaling, self.split = scaling, split
        self.axes, self.text_has_one, self.blocks = rotary.axes, rotary.text_has_one, rotary.blocks
        self.by_length, self.softmax_factor = rotary.by_length, rotary.softmax_factor
        # an object of its own: encodings of the same options have other parameters
        self.identity = (type(self), rotary.identity, object())
        self.tags = rotary.tags | {"learned"}
        self.resolved = {**rotary.resolved, "wavelengths": "learned"}
        self.alpha = nn.Parameter(torch.empty(rotary.frequencies.shape[-1]))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Make it plain rotary."""
        self.alpha.zero_()

    @property
    def frequencies(self) -> Float64[Tensor, "1 pairs"]:
        """Radians per position for each pair as they are now, before any choice by sequence length."""
        return self._learned(self._plain[0].frequencies).detach()

    def coordinates_at(self, positions: Positions) -> Num[Tensor, "batch 1 sequence pairs_or_1"]:
        """Shape positions, one for all pairs or each pair's own."""
        return self._plain[0].coordinates_at(positions)

    def frequencies_at(self, positions: Positions) -> Float[Tensor, "#batch #heads #sequence pairs"]:
        """Compute the scaled ladder times the learned factors."""
        return self._learned(self._plain[0].frequencies_at(positions))

    def magnitude_of(self, positions: Positions, role: Role) -> float | Float64[Tensor, "#batch 1 #sequence 1"]:
        """Give the scaling's factor of cosine and sine."""
        return self._plain[0].magnitude_of(positions, role)

    def require_agreement(self, query: Positions, key: Positions) -> None:
        """Raise if a scaling that chooses by length was given two lengths that it treats differently."""
        self._plain[0].require_agreement(query, key)

    def _learned(self, ladder: Tensor) -> Tensor:
        wide = widest(self.alpha.device)
        return ladder.to(self.alpha.device, wide) * self.alpha.to(wide).exp()
