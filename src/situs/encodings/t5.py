"""T5's relative bias: a learned number for each bucket of offsets.

Paper    Raffel et al., arXiv:1910.10683, section 2.1.
Acts on  scores.    Learned: yes, rows x heads.    Relative: yes.

    score[h, i, j] = q_i . k_j + table[bucket(j - i), h]

Softmax scale: T5 does not divide q . k by sqrt(d), so this encoding declares the scale 1, and ``attend`` and
``Attention`` use it. Set ``softmax_scale=None`` for the usual 1 / sqrt(d): beside other encodings, in attention of your
own that divides by sqrt(d), and in a model that is not trained as T5 is, whose weights start small enough for a scale
of 1.

Half of the rows are for single distances, the rest for distances that grow up to ``max_distance``; all beyond share the
last. T5 and mT5 have one table for all layers (use one encoding in all), UMT5 one per layer.

Departures: ``buckets="clipped"`` is the table many explanations call T5's, with a row for every offset up to
``max_distance``. It is not what T5 does, and needs 2 max_distance + 1 rows instead of 32.
"""

from __future__ import annotations

from typing import Literal, final

import torch
from torch import Tensor, nn

from situs.arguments import (
    require_choice,
    require_count,
    require_counts,
    require_flags,
    require_number,
    require_spread,
    require_whole_numbers,
)
from situs.encodings.bias import OffsetBias, Rule
from situs.functional.buckets import clipped_rows, t5_rows
from situs.registry import register


@final
@register(
    name="t5",
    paper="Raffel et al. 2020, Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer, "
    "arXiv:1910.10683",
    formula="q_i . k_j + table[bucket(j - i), h]",
    dialects={
        "T5, mT5, UMT5, LongT5": "softmax_scale=1.0; encoders bidirectional=True, decoders bidirectional=False",
        "MPNet": "softmax_scale=None, since it divides by sqrt(head_dim)",
        "tutorials": 'buckets="clipped", a row for every offset',
    },
)
class T5Bias(OffsetBias):
    """Add a learned number for each bucket of offsets.

    Sets the softmax scale to 1, as T5 does: q . k is not divided by sqrt(head_dim), also beside other encodings. Give
    softmax_scale=None to keep 1 / sqrt(head_dim), as beside rotary, or when the bias goes to attention of your own that
    divides by it.
    """

    tags = frozenset({"relative", "bounded", "far", "learned"})
    whole = True

    def __init__(
        self,
        *,
        num_heads: int,
        num_buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
        buckets: Literal["log", "clipped"] = "log",
        softmax_scale: float | None = 1.0,
        init_std: float = 0.02,
    ) -> None:
        """
        num_heads: heads, each with its own numbers.
        num_buckets: rows of the table for "log"; "clipped" has one per distance.
        max_distance: distance from which on all share a row.
        bidirectional: tell keys ahead from keys behind, as encoders do; decoders count those ahead as distance 0.
        buckets: "log" as T5, or "clipped" with a row for every distance.
        softmax_scale: factor of q . k: 1 as T5, which does not divide by sqrt(head_dim); None for 1 / sqrt(head_dim),
            as MPNet and most models.
        init_std: standard deviation of the normal start.
        """
        super().__init__()
        require_choice("buckets", buckets, ("log", "clipped"), "far distances share rows or the last one")
        num_heads, max_distance = require_counts("it sizes the table", num_heads=num_heads, max_distance=max_distance)
        least = None if buckets == "log" else 1
        num_buckets = require_count("num_buckets", num_buckets, "it sizes the table", least=least)
        require_flags("keys ahead are told from keys behind or not", bidirectional=bidirectional)
        if softmax_scale is not None:
            softmax_scale = require_number("softmax_scale", softmax_scale, "it multiplies q . k")
        init_std = require_spread(init_std)
        self.num_heads = num_heads
        self.num_buckets = num_buckets
        self.max_distance = max_distance
        self.bidirectional = bidirectional
        self.buckets = buckets
        self.softmax_scale = softmax_scale
        self.init_std = init_std
        if buckets == "log":
            fewest = 4 if bidirectional else 2
            if num_buckets < fewest:
                raise ValueError(
                    f"num_buckets must be at least {fewest}, since "
                    f"{'each direction has' if bidirectional else 'there are'} single and growing distances; got "
                    f"{num_buckets}."
                )
            if max_distance <= num_buckets // fewest:
                raise ValueError(
                    f"max_distance must be more than {num_buckets // fewest}, since that many buckets hold a single "
                    f"distance; got {max_distance}."
                )
            self._rows = t5_rows(num_buckets, max_distance, bidirectional)
        else:
            self._rows = clipped_rows(max_distance, bidirectional)
        rows = num_buckets if buckets == "log" else int(self._rows.max()) + 1
        self.span = max_distance
        self.table = nn.Parameter(torch.empty(rows, num_heads))
        self.resolved = {"rows": rows}
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the table anew."""
        self.table.normal_(std=self.init_std)

    def rows_of(self, offsets: Tensor) -> Tensor:
        """Find the row of the table that each offset, key minus query, takes."""
        require_whole_numbers("offsets", offsets, "they are looked up in a table")
        far = self.max_distance
        return self._rows.to(offsets.device)[offsets.clamp(-far, far) + far]

    def rule(self, device: torch.device, dtype: torch.dtype) -> Rule:
        """Look up ``table[bucket(offset), head]``."""
        table, rows, far = self.table.to(dtype), self._rows.to(device), self.max_distance

        def look_up(offset: Tensor, head: Tensor) -> Tensor:
            return table[rows[offset.clamp(-far, far) + far], head]

        return look_up
