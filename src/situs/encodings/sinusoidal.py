"""Sinusoidal position encoding.

Paper    Vaswani et al., arXiv:1706.03762, section 3.5.
Acts on  the input.    Learned: no.    Relative: no, but p(n) . p(m) depends on n - m alone.

    x_n + p_n,    p_n[2i] = sin(n w_i),  p_n[2i + 1] = cos(n w_i),    w_i = base^(-2i/d)

Released tables differ in four ways, each an option:

    fairseq     its first token has position 2 (``offset=2``), since row 1 is for padding, whose vector is zero
                (``padding="zeros"``)
    MusicGen    cosines before sines (``cosines_first=True``)

The paper says wavelengths run from 2 pi to 10000 2 pi; by its formula the last is 2 pi 10000^((d-2)/d), a little
less. tensor2tensor, the authors' code, reaches it (``spacing="inclusive"``) and writes all sines before all
cosines (``layout="concatenated"``). Several axes split the channels; each gets a table of its share.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Literal, TypeAlias, final

import torch
from jaxtyping import Float, Float64, Num
from torch import Tensor
from torch.nn.functional import dropout

from situs.arguments import (
    require_base,
    require_choice,
    require_count,
    require_dropout,
    require_dtype,
    require_flags,
    require_number,
)
from situs.encodings.base import InputEncoding, computing_dtype
from situs.encodings.fitting import require_axes, require_embeddings, require_positions
from situs.encodings.points import points
from situs.functional.frequencies import Spacing
from situs.functional.sinusoids import SinusoidLayout, frequencies_of, shift_matrix, sinusoids
from situs.positions import Positions, PositionsLike
from situs.registry import register

Padding: TypeAlias = Literal["position", "zeros"]


@final
@register(
    name="sinusoidal",
    paper="Vaswani et al. 2017, Attention Is All You Need, arXiv:1706.03762",
    formula="x_n + p_n; p_n[2i] = sin(n base^(-2i/d)), p_n[2i+1] = cos(n base^(-2i/d))",
    dialects={
        "paper": "the defaults",
        "tensor2tensor, Whisper": 'layout="concatenated", spacing="inclusive"',
        "fairseq, M2M-100, NLLB-MoE, Speech2Text, FSMT": 'the same with offset=2, padding="zeros"',
        "XGLM": 'layout="concatenated", spacing="inclusive", offset=2',
        "MusicGen": 'layout="concatenated", spacing="inclusive", cosines_first=True',
        "Marian, Pegasus": 'layout="concatenated"',
    },
)
class Sinusoidal(InputEncoding):
    """Add sines and cosines of geometrically growing wavelengths.

    >>> import situs, torch
    >>> situs.Sinusoidal(dim=4)(torch.zeros(1, 2, 4)).round(decimals=2)
    tensor([[[0.0000, 1.0000, 0.0000, 1.0000],
             [0.8400, 0.5400, 0.0100, 1.0000]]])
    """

    takes_unplaced = True  # nothing is added to them, as in MAE

    def __init__(
        self,
        *,
        dim: int,
        base: float = 10000.0,
        layout: SinusoidLayout = "interleaved",
        spacing: Spacing = "exclusive",
        axes: int = 1,
        offset: int = 0,
        padding: Padding = "position",
        cosines_first: bool = False,
        scale_embeddings: bool = False,
        dropout: float = 0.0,
    ) -> None:
        """
        dim: channels of an embedding; it may be odd.
        base: sets the slowest wavelength, about ``2 pi base`` positions.
        layout: "interleaved" as the paper writes it, "concatenated" as its code does.
        spacing: whether the slowest wavelength is ``2 pi base`` ("inclusive") or just below ("exclusive").
        axes: coordinates of a position: 1 for text, 2 for images, 3 for video.
        offset: what is added to every position: 2 for fairseq's models, whose first token has position 2.
        padding: what padding gets: the "position" 0 it has, or "zeros", as fairseq's row for padding.
        cosines_first: each cosine stands before its sine, or all cosines before all sines, as MusicGen's do.
        scale_embeddings: multiply x by sqrt(dim) first, as the paper's section 3.4 does, since it draws embeddings
            with variance 1/dim.
        dropout: probability of dropping a channel of the sum, in training.
        """
        super().__init__()
        self.dim = dim = require_count("dim", dim, "it counts channels")
        self.base = base = require_base(base)
        self.layout = layout
        self.spacing = spacing
        self.axes = axes
        self.offset = offset = require_count("offset", offset, "it is added to positions")
        self.padding = padding
        self.cosines_first = cosines_first
        self.scale_embeddings = scale_embeddings
        self.dropout = dropout = require_dropout(dropout)
        require_flags("embeddings are multiplied by sqrt(dim) or not", scale_embeddings=scale_embeddings)
        require_choice(
            "layout", layout, ("interleaved", "concatenated"), "sines alternate with cosines or precede them"
        )
        require_choice("spacing", spacing, ("exclusive", "inclusive"), "the slowest wavelength is left out or reached")
        require_choice("padding", padding, ("position", "zeros"), "padding gets an encoding or none")
        require_flags("cosines precede sines or follow them", cosines_first=cosines_first)
        require_choice("axes", axes, (1, 2, 3), "positions have that many coordinates")
        if dim < 2 * axes:
            raise ValueError(f"dim must be at least {2 * axes}, since every axis needs a sine and a cosine; got {dim}.")
        self._widths = tuple(dim // axes + (axis < dim % axes) for axis in range(axes))
        # host constants, not buffers: no cast, move, meta device or checkpoint can touch them
        self._frequencies = [frequencies_of(width, base, layout, spacing) for width in self._widths]
        # a sine without its cosine, at the end of an odd width, makes products depend on more than distance
        paired = layout == "concatenated" or all(width % 2 == 0 for width in self._widths)
        self.tags = frozenset({"bounded", "unique", "far", "real"} | ({"stationary"} if paired else set()))
        self.resolved = {
            "wavelengths": tuple(2 * math.pi / w for w in (1.0, min(self.frequencies(0).tolist()))),
            "channels_per_axis": self._widths,
        }

    def frequencies(self, axis: int = 0) -> Float64[Tensor, "pairs"]:
        """Give the radians per position of each (sine, cosine) pair of an axis."""
        require_count("axis", axis, "each axis has a ladder", least=0, most=self.axes - 1)
        return self._frequencies[axis].clone()

    def encode(self, positions: Positions, dtype: torch.dtype = torch.float32) -> Float[Tensor, "#batch sequence dim"]:
        """Compute the encodings alone, p_n."""
        require_positions(positions, "it tells where tokens stand")
        require_dtype(dtype, "encodings are fractions")
        require_axes(self, positions)
        moved = positions if not self.offset else _moved(positions, self.offset)
        parts = []
        for axis, (ladder, width) in enumerate(zip(self._frequencies, self._widths, strict=True)):
            cos, sin = points(moved, partial(_coordinate, axis), ladder[None, None], dtype)
            parts.append(sinusoids(cos, sin, width, self.layout, cosines_first=self.cosines_first))
        encoded = parts[0] if len(parts) == 1 else torch.cat(parts, -1)
        for shown in (positions.placed, positions.valid if self.padding == "zeros" else None):
            if shown is not None:
                encoded = torch.where(shown.unsqueeze(-1), encoded, 0)
        return encoded

    def forward(
        self, x: Float[Tensor, "batch sequence dim"], positions: PositionsLike = None
    ) -> Float[Tensor, "batch sequence dim"]:
        """Add p to ``x``, rounded once to the dtype of ``x``."""
        require_embeddings(self, x, self.dim)
        positions = Positions.of(positions, x.shape[-2], batch=x.shape[0], device=x.device)
        wide = computing_dtype(x.dtype)
        scaled = x.to(wide) * math.sqrt(self.dim) if self.scale_embeddings else x.to(wide)
        return dropout((scaled + self.encode(positions, wide)).to(x.dtype), self.dropout, self.training)

    def shift_matrix(self, offset: float) -> Float64[Tensor, "dim dim"]:
        """Make M with ``p(n + offset) = M p(n)`` for every n: position as a linear map."""
        if self.axes > 1:
            raise ValueError(f"shift_matrix takes one axis, since an offset is one number; got axes={self.axes}.")
        if self.dim % 2 and self.layout == "interleaved":
            raise ValueError(
                f"dim must be even for shift_matrix, since the last sine of an odd one has no cosine to be rotated "
                f"with; got {self.dim}."
            )
        offset = require_number("offset", offset, "it is a distance between positions")
        return shift_matrix(offset, self.frequencies(), self.dim, self.layout, cosines_first=self.cosines_first)


def _moved(positions: Positions, offset: int) -> Positions:
    """Add ``offset`` to every position; a range stays one."""
    if positions.start is not None:
        return Positions.range(positions.length, start=positions.start + offset, device=positions.device)
    return Positions.explicit(positions.ids + offset)


def _coordinate(axis: int, positions: Positions) -> Num[Tensor, "batch sequence 1"]:
    return positions.ids.unsqueeze(-1) if positions.axes == 1 else positions.ids[..., axis, None]
