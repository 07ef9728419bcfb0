"""TUPE: untied positional encoding, a product of positions with projections of their own.

Paper    Ke, He & Liu, arXiv:2006.15595, section 3.
Acts on  scores.    Learned: yes, a table and two projections, shared by all layers.    Relative: no.

    score[i, j] = x_i W_q . x_j W_k / sqrt(2 d) + reset(p_i U_q . p_j U_k / sqrt(2 d) [+ b[j - i]], i, j)

The first position, [CLS], has no natural neighbours: ``reset`` gives one learned number per head to every pair where it
is the key, and another where it is the query. TUPE-A has no b, TUPE-R T5's buckets. One encoding serves all layers.

Departures: as in the authors' code, positions are normalised first and the projections have biases. Their code reads
the numbers of [CLS] off rows of its table, and adds b to them; here the one for the key is a parameter, as in the
paper. The one for the query is 0: it is the same for all keys, so that softmax cancels it and nothing can learn it.
"""

from __future__ import annotations

import math
from typing import final

import torch
from jaxtyping import Float, Int, Num
from torch import Tensor, nn

from situs.arguments import require_count, require_counts, require_flags, require_spread, require_whole_numbers
from situs.encodings.bias import PositionProduct, bias_dtype
from situs.encodings.fitting import require_rows
from situs.functional.buckets import t5_rows
from situs.positions import Positions
from situs.registry import register

MAX_DISTANCE = 128


@final
@register(
    name="tupe",
    paper="Ke et al. 2021, Rethinking Positional Encoding in Language Pre-training, arXiv:2006.15595",
    formula="q_i . k_j / sqrt(2 d) + reset(p_i U_q . p_j U_k / sqrt(2 d) + b[j - i])",
    dialects={"TUPE-A": "the defaults", "TUPE-R": "relative_buckets=32"},
)
class Tupe(PositionProduct):
    """Add the product of two projected position vectors, separate from the content."""

    tags = frozenset({"unique", "learned"})
    whole = True
    usable_length: int

    def __init__(
        self,
        *,
        dim: int,
        num_heads: int,
        head_dim: int,
        max_length: int = 512,
        untie_cls: bool = True,
        relative_buckets: int | None = None,
        init_std: float = 0.02,
    ) -> None:
        """
        dim: channels of a position, the model's width.
        num_heads: heads of the queries.
        head_dim: channels of a head.
        max_length: positions in the table.
        untie_cls: treat position 0 as [CLS], outside the order; False where the first token is like the others.
        relative_buckets: rows of T5's relative bias (TUPE-R, 32 in the paper); None for none (TUPE-A).
        init_std: standard deviation of the normal start of all weights.
        """
        super().__init__()
        dim, num_heads, head_dim, max_length = require_counts(
            "it sizes the table and the projections",
            dim=dim, num_heads=num_heads, head_dim=head_dim, max_length=max_length,
        )  # fmt: skip
        require_flags("position 0 is [CLS] or like others", untie_cls=untie_cls)
        if relative_buckets is not None:
            relative_buckets = require_count(
                "relative_buckets", relative_buckets, "it counts rows of the relative bias"
            )
        init_std = require_spread(init_std)
        self.dim = dim
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.max_length = max_length
        self.untie_cls = untie_cls
        self.relative_buckets = relative_buckets
        self.init_std = init_std
        if relative_buckets is not None and (relative_buckets < 4 or relative_buckets % 4 or relative_buckets > 256):
            raise ValueError(
                f"relative_buckets must be a multiple of 4 up to 256, since each direction halves into single and "
                f"growing distances; got {relative_buckets}."
            )
        self.softmax_scale: float = 1 / math.sqrt(2 * head_dim)
        self.table = nn.Parameter(torch.empty(max_length, dim))
        self.norm = nn.LayerNorm(dim)
        self.query_projection = nn.Linear(dim, num_heads * head_dim)
        self.key_projection = nn.Linear(dim, num_heads * head_dim)
        self.to_cls = nn.Parameter(torch.empty(num_heads)) if untie_cls else None
        self.adds_by_offset = relative_buckets is not None
        self._rows = None if relative_buckets is None else t5_rows(relative_buckets, MAX_DISTANCE, True)
        self.relative = None if relative_buckets is None else nn.Parameter(torch.empty(relative_buckets, num_heads))
        self.usable_length = max_length
        self.resolved = {"usable_length": self.usable_length}
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw everything anew; the number of [CLS] starts at 0."""
        self.norm.reset_parameters()
        for weight in (self.table, self.query_projection.weight, self.key_projection.weight, self.relative):
            if weight is not None:
                weight.normal_(std=self.init_std)
        for zero in (self.query_projection.bias, self.key_projection.bias, self.to_cls):
            if zero is not None:
                zero.zero_()

    def query_vectors(self, positions: Positions, dtype: torch.dtype) -> Float[Tensor, "#batch heads query channels"]:
        """``p U / sqrt(2 d)``, and two channels for [CLS]: as the key it has its own number instead of all that it has
        as a position, and as the query nothing."""
        p = self._projected(positions, self.query_projection, dtype) * self.softmax_scale
        if self.to_cls is None:
            return p
        is_cls = _column(positions) == 0
        number = self.to_cls.to(dtype)[None, :, None, None] - self._bias_beside(-_column(positions), dtype)
        ones = torch.ones((), dtype=dtype, device=p.device)
        return torch.cat(
            (p.masked_fill(is_cls, 0), number.expand(*p.shape[:3], 1).masked_fill(is_cls, 0),
             torch.where(is_cls, ones, 0).expand(*p.shape[:3], 1)), -1,
        )  # fmt: skip

    def key_vectors(self, positions: Positions, dtype: torch.dtype) -> Float[Tensor, "#batch heads key channels"]:
        """``p U``, and the two channels."""
        p = self._projected(positions, self.key_projection, dtype)
        if self.to_cls is None:
            return p
        is_cls = _column(positions) == 0
        ones = torch.ones((), dtype=dtype, device=p.device)
        bias = self._bias_beside(_column(positions), dtype)
        return torch.cat(
            (p.masked_fill(is_cls, 0), torch.where(is_cls, ones, 0).expand(*p.shape[:3], 1),
             (-bias).expand(*p.shape[:3], 1)), -1,
        )  # fmt: skip

    def _bias_beside(self, offsets: Int[Tensor, "#batch 1 sequence 1"], dtype: torch.dtype) -> Tensor:
        """The relative bias between [CLS] and other positions, which it does not have and which is taken away."""
        bias = self.by_offset(offsets[:, 0], dtype=dtype)
        return torch.zeros((1, 1, 1, 1), dtype=dtype, device=offsets.device) if bias is None else bias.transpose(0, 1)

    def _projected(
        self, positions: Positions, projection: nn.Linear, dtype: torch.dtype
    ) -> Float[Tensor, "#batch heads sequence head_dim"]:
        """Positions as one head after another sees them, ``p U``."""
        require_rows(positions, self.usable_length, "Make it with a larger max_length.")
        start = positions.start
        rows = self.table[positions.ids] if start is None else self.table[None, start : start + positions.length]
        norm, weight, bias = self.norm, projection.weight.to(dtype), projection.bias.to(dtype)
        p = nn.functional.layer_norm(rows.to(dtype), (self.dim,), norm.weight.to(dtype), norm.bias.to(dtype), norm.eps)
        flat = nn.functional.linear(p, weight, bias)
        return flat.view(*flat.shape[:2], self.num_heads, self.head_dim).transpose(1, 2)

    def by_offset(
        self, offsets: Int[Tensor, "*pairs"], *, dtype: torch.dtype | None = None
    ) -> Float[Tensor, "heads *pairs"] | None:
        """The relative bias of each offset, key minus query; None for TUPE-A."""
        require_whole_numbers("offsets", offsets, "they are looked up in a table")
        dtype = bias_dtype(self, dtype)
        if self.relative is None or self._rows is None:
            return None
        rows = self._rows.to(offsets.device)[offsets.clamp(-MAX_DISTANCE, MAX_DISTANCE) + MAX_DISTANCE]
        return self.relative.to(dtype)[rows].movedim(-1, 0)


def _column(positions: Positions) -> Num[Tensor, "#batch 1 query 1"]:
    return positions.ids[:, None, :, None]
