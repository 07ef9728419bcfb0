"""Transformer-XL's relative positions: sinusoids of the distance, projected, and two learned biases.

Paper    Dai et al., arXiv:1901.02860, section 3.3.
Acts on  scores.    Learned: yes, a projection and two vectors per head.    Relative: yes.

    score[i, j] = (q_i . k_j + q_i . W r_{i-j} + u . k_j + v . W r_{i-j}) / sqrt(d)
                   (a)         (b)               (c)       (d)

r is sinusoidal, all sines before all cosines. Conformers (wav2vec2, Parakeet) interleave them
(``layout="interleaved"``). Gemma 3n's audio encoder reaches the slowest wavelength (``spacing="inclusive"``) and has no
biases (``biases=False``); it computes in chunks, but a frame sees a fixed number of frames, which is a sliding window.

Segment memory needs nothing of its own: pass more keys than queries, and queries are the last of them. Distances may be
negative, so encoders (XLNet) need no other formula, and no shift that assumes a causal mask. Pairs with a token that
has no position keep (a) and (c) alone, as Funnel's [CLS] does: ``Positions.explicit(ids, placed=...)``.

Departures: ``clamp_len`` bounds distances on both sides, as XLNet does; Transformer-XL's code meets only distances
behind. The biases belong to this encoding; a model that shares u and v among layers assigns the same parameters.
"""

from __future__ import annotations

from typing import final

import torch
from jaxtyping import Num
from torch import Tensor, nn

from situs.arguments import (
    require_base,
    require_choice,
    require_count,
    require_counts,
    require_flags,
    require_spread,
)
from situs.encodings.score import OffsetScore, OffsetVectors
from situs.functional.angles import unit_circle
from situs.functional.frequencies import Spacing
from situs.functional.sinusoids import LAYOUTS, SinusoidLayout, frequencies_of, sinusoids
from situs.registry import register


@final
@register(
    name="transformer_xl",
    paper="Dai et al. 2019, Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context, arXiv:1901.02860",
    formula="(q_i . k_j + q_i . W r_{i-j} + u . k_j + v . W r_{i-j}) / sqrt(d)",
    dialects={
        "Transformer-XL": "the defaults; its evaluation scripts set clamp_len to 400 .. 1000",
        "XLNet": "the same; its segment term is no position encoding",
        "wav2vec2-conformer, Parakeet, FastSpeech2-conformer": 'layout="interleaved"',
        "Funnel": "the same, with positions that say that [CLS] has none; its token types are no position encoding",
        "Gemma 3n audio": 'spacing="inclusive", biases=False; its chunks are a sliding window',
    },
)
class TransformerXL(OffsetScore):
    """Add products of queries with projected sinusoids of the distance, and two learned biases.

    >>> import situs, torch
    >>> conformer = situs.TransformerXL(dim=16, num_heads=2, head_dim=8, layout="interleaved")
    >>> query = key = value = torch.randn(1, 2, 6, 8)
    >>> situs.attend(query, key, value, encoding=conformer).shape
    torch.Size([1, 2, 6, 8])
    """

    takes_unplaced = True

    def __init__(
        self,
        *,
        dim: int,
        num_heads: int,
        head_dim: int,
        clamp_len: int | None = None,
        base: float = 10000.0,
        layout: SinusoidLayout = "concatenated",
        spacing: Spacing = "exclusive",
        biases: bool = True,
        init_std: float = 0.02,
    ) -> None:
        """
        dim: channels of the sinusoids, the model's width in the paper.
        num_heads: heads of the queries.
        head_dim: channels of a head.
        clamp_len: distances beyond it count as it; None for no bound.
        base: sets the slowest wavelength, about ``2 pi base`` positions.
        layout: "concatenated", all sines before all cosines, or "interleaved", as conformers.
        spacing: whether the slowest wavelength is ``2 pi base`` ("inclusive") or just below ("exclusive").
        biases: have u and v; without them (b) is the only term.
        init_std: standard deviation of the normal start of all parameters.
        """
        super().__init__()
        dim = require_count("dim", dim, "every frequency has a sine and a cosine")
        num_heads, head_dim = require_counts("it sizes the projection", num_heads=num_heads, head_dim=head_dim)
        if clamp_len is not None:
            clamp_len = require_count("clamp_len", clamp_len, "it bounds distances", least=1)
        base = require_base(base)
        require_choice("layout", layout, LAYOUTS, "sines alternate with cosines or precede them")
        require_choice("spacing", spacing, ("exclusive", "inclusive"), "the slowest wavelength is left out or reached")
        require_flags("u and v are added or not", biases=biases)
        init_std = require_spread(init_std)
        self.dim = dim
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.clamp_len = clamp_len
        self.base = base
        self.layout = layout
        self.spacing = spacing
        self.biases = biases
        self.init_std = init_std
        self.span = clamp_len
        if dim < 2 or dim % 2:
            raise ValueError(f"dim must be even, since every frequency has a sine and a cosine; got {dim}.")
        self._frequencies = frequencies_of(dim, base, layout, spacing)
        self.projection = nn.Parameter(torch.empty(num_heads * head_dim, dim))
        self.content_bias = nn.Parameter(torch.empty(num_heads, head_dim)) if biases else None
        self.position_bias = nn.Parameter(torch.empty(num_heads, head_dim)) if biases else None
        bounded = {"bounded"} if clamp_len is not None else set()
        self.tags = frozenset({"relative", "far", "real", "learned"} | bounded)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw W, u and v anew."""
        for parameter in self.parameters():
            parameter.normal_(std=self.init_std)

    def vectors(self, offsets: Num[Tensor, "offsets"], dtype: torch.dtype) -> OffsetVectors:
        """Project to ``W r`` for queries, ``v . W r`` alone, and u for every key."""
        distances = -offsets if self.clamp_len is None else (-offsets).clamp(-self.clamp_len, self.clamp_len)
        cos, sin = unit_circle(distances.unsqueeze(-1), self._frequencies, dtype)
        waves = sinusoids(cos, sin, self.dim, self.layout)
        flat = nn.functional.linear(waves, self.projection.to(dtype))
        projected = flat.view(-1, self.num_heads, self.head_dim).transpose(0, 1)
        if self.content_bias is None or self.position_bias is None:
            return OffsetVectors(for_query=projected)
        return OffsetVectors(
            for_query=projected,
            alone=(projected @ self.position_bias.to(dtype).unsqueeze(-1)).squeeze(-1),
            for_every_key=self.content_bias.to(dtype),
        )
