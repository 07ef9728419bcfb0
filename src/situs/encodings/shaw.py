"""Shaw's relative positions: a learned vector for each offset, added to keys, and another added to values.

Paper    Shaw, Uszkoreit & Vaswani, arXiv:1803.02155, section 3.
Acts on  scores and values.    Learned: yes, (behind + 1 + ahead) x head_dim, twice.    Relative: yes.

    score[i, j] = q_i . (k_j + a[clip(j - i, -K, K)]) / sqrt(d)
    out[i]      = sum_j softmax(score)[i, j] (v_j + r[clip(j - i, -K, K)])

The vectors are added after the projections of keys and values: some explanations write W (x_j + a), which is another
model.

Departures, each a released convention: a bound of its own for keys ahead (wav2vec2-BERT looks 64 back and 8 ahead),
no vector at all beyond the bounds instead of the last one (VITS), and tables whose rows run from the farthest key ahead
to the farthest behind, query minus key (SpeechT5, Granite Speech). With them a checkpoint's table is loaded as it is.

    max_distance=2, max_ahead=1     row    0    1    2    3
    rows="key_minus_query"       offset   -2   -1    0    1
    rows="query_minus_key"       offset    1    0   -1   -2
"""

from __future__ import annotations

from typing import Literal, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad

from situs.arguments import require_choice, require_count, require_counts, require_flags
from situs.encodings.score import OffsetScore, OffsetVectors, ValueEncoding
from situs.registry import register

ORDERS = ("key_minus_query", "query_minus_key")


@final
@register(
    name="shaw",
    paper="Shaw et al. 2018, Self-Attention with Relative Position Representations, arXiv:1803.02155",
    formula="q_i . (k_j + a[clip(j - i)]) / sqrt(d), and values v_j + r[clip(j - i)]",
    dialects={
        "tensor2tensor": "the defaults: tables shared by heads",
        "most later models": "values=False",
        "wav2vec2-BERT, SeamlessM4T v2": "values=False, max_distance=64, max_ahead=8",
        "SpeechT5": 'values=False, max_distance=159, max_ahead=160, rows="query_minus_key"',
        "Granite Speech": 'values=False, max_distance=512, rows="query_minus_key", blocks as packed documents',
        "VITS": 'max_distance=4, beyond="nothing"',
    },
)
class Shaw(OffsetScore, ValueEncoding):
    """Add to each key a learned vector of its offset from the query, and to each value another.

    >>> import situs, torch
    >>> shaw = situs.Shaw(num_heads=2, head_dim=8, max_distance=4, max_ahead=1)
    >>> query = key = value = torch.randn(1, 2, 6, 8)
    >>> situs.attend(query, key, value, encoding=shaw).shape, shaw.key_table.shape
    (torch.Size([1, 2, 6, 8]), torch.Size([1, 6, 8]))
    """

    place = "score and value"
    tags = frozenset({"relative", "bounded", "far", "learned"})
    whole = True
    span: int

    def __init__(
        self,
        *,
        num_heads: int,
        head_dim: int,
        max_distance: int = 16,
        max_ahead: int | None = None,
        keys: bool = True,
        values: bool = True,
        per_head: bool = False,
        beyond: Literal["last", "nothing"] = "last",
        rows: Literal["key_minus_query", "query_minus_key"] = "key_minus_query",
    ) -> None:
        """
        num_heads: heads of the queries.
        head_dim: channels of a head.
        max_distance: the paper's K, the farthest distance with a vector of its own; of keys behind alone, if
            ``max_ahead`` is given.
        max_ahead: the farthest distance of keys ahead with a vector of its own; None for ``max_distance``.
        keys: add vectors to the keys, and so to the scores.
        values: add vectors to the values.
        per_head: give each head vectors of its own, instead of one table for all heads.
        beyond: what offsets beyond the bounds get: the "last" vector of that side, as the paper, or "nothing".
        rows: whether the table's first row is that of the farthest key behind, "key_minus_query", or of the farthest
            ahead, "query_minus_key".
        """
        super().__init__()
        num_heads, head_dim, max_distance = require_counts(
            "it sizes the tables", num_heads=num_heads, head_dim=head_dim, max_distance=max_distance
        )
        if max_ahead is not None:
            max_ahead = require_count("max_ahead", max_ahead, "it sizes the tables", least=0)
        require_choice("beyond", beyond, ("last", "nothing"), "far offsets share the last vector or have none")
        require_choice("rows", rows, ORDERS, "tables are written from behind to ahead or the other way round")
        require_flags("the method acts on keys, on values or on both", keys=keys, values=values)
        require_flags("each head has tables of its own or all share them", per_head=per_head)
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.max_distance = max_distance
        self.max_ahead = max_ahead
        self.keys = keys
        self.values = values
        self.per_head = per_head
        self.beyond = beyond
        self.rows = rows
        self._ahead = max_distance if max_ahead is None else max_ahead
        self.span = max(max_distance, self._ahead) + (beyond == "nothing")
        if not (keys or values):
            raise ValueError("keys or values must be True, since the method acts on one of them; got neither.")
        shape = num_heads if per_head else 1, max_distance + 1 + self._ahead, head_dim
        self.key_table = nn.Parameter(torch.empty(shape)) if keys else None
        self.value_table = nn.Parameter(torch.empty(shape)) if values else None
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the tables anew, each head's by Glorot's rule."""
        for table in (self.key_table, self.value_table):
            for rows in () if table is None else table:
                nn.init.xavier_uniform_(rows)

    @property
    def acts_on_scores(self) -> bool:
        """Whether queries meet vectors."""
        return self.keys

    @property
    def acts_on_values(self) -> bool:
        """Whether values have vectors."""
        return self.values

    def vectors(self, offsets: Int[Tensor, "offsets"], dtype: torch.dtype) -> OffsetVectors:
        """Look up each offset's vector for queries."""
        return OffsetVectors() if self.key_table is None else OffsetVectors(self._rows(self.key_table, offsets, dtype))

    def value_vectors(
        self, offsets: Int[Tensor, "offsets"], dtype: torch.dtype
    ) -> Float[Tensor, "heads_or_1 offsets value_dim"]:
        """Look up each offset's vector for values."""
        if self.value_table is None:
            raise ValueError("values must be True for vectors that join the values; got values=False.")
        return self._rows(self.value_table, offsets, dtype)

    def _rows(self, table: Tensor, offsets: Tensor, dtype: torch.dtype) -> Tensor:
        behind, ahead, wide = self.max_distance, self._ahead, table.to(dtype)
        if self.beyond == "nothing":  # a row of zeros on either side
            behind, ahead, wide = behind + 1, ahead + 1, pad(wide, (0, 0, 1, 1))
        clipped = offsets.clamp(-behind, ahead)
        return wide[:, clipped + behind if self.rows == "key_minus_query" else ahead - clipped]
