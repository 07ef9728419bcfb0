"""UDOP's encoder: T5's buckets of offsets in the text, and of offsets of boxes across and down the page.

Boxes lie anywhere, so that the bias stays one of all pairs, which the encoder makes once for all layers. Its own code
looks each axis up for itself, adds the three up and leaves heads last, which every layer then turns round. Here the
tables are added up before, for all buckets of all axes together, so that a pair is looked up once, heads first.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from jaxtyping import Int, Num
from torch import Tensor

from situs.functional.buckets import t5_rows
from situs.huggingface.families import Expects, Family
from situs.huggingface.families.borrowing import is_plain

COMBINED = 1 << 17
"""Buckets of all axes together, up to which a table of them stays in the processor's cache."""
AXES: dict[str, tuple[int, int] | None] = {
    "RelativePositionBias1D": None,
    "RelativePositionBiasHorizontal": (0, 2),
    "RelativePositionBiasVertical": (1, 3),
}
"""The classes of biases, and the edges of a box whose middle they go by; None for the place in the text."""


class UdopBias(Family):
    """The sum of the encoder's biases."""

    expects: ClassVar[Expects] = {"forward": ("self", "attention_mask", "bbox")}

    def forward(self: Any, attention_mask: Tensor | None = None, bbox: Tensor | None = None) -> Any:
        """The bias of all pairs, (batch or 1, heads, query, key)."""
        biases = list(self.biases)
        if attention_mask is None or not biases or not all(_is_plain(each, bbox) for each in biases):
            return super().forward(attention_mask, bbox)
        if math.prod(each.relative_attention_num_buckets for each in biases) > COMBINED:
            return super().forward(attention_mask, bbox)
        table: Tensor | None = None
        rows: Tensor | None = None
        for each in biases:
            own = each.relative_attention_bias.weight.float()
            found = _rows(each, _positions(each, attention_mask, bbox))
            # (buckets before, 1, heads) + (1, buckets, heads) -> (buckets together, heads)
            table = own if table is None else (table.unsqueeze(1) + own).flatten(0, 1)
            rows = found if rows is None else rows * len(own) + found
        assert table is not None
        assert rows is not None
        by_head = table.T.to(biases[0].relative_attention_bias.weight.dtype)
        return by_head[:, rows].transpose(0, 1)


def _is_plain(bias: Any, bbox: Tensor | None) -> bool:
    """Whether a bias goes by buckets alone, of both directions, in no random way."""
    name = type(bias).__name__
    return (
        name in AXES
        and is_plain(bias.relative_attention_bias)
        and (AXES[name] is None or bbox is not None)
        and (bias.scaling_factor == 1 if AXES[name] is None else bias.scaling_factor > 1)
        and bias.bidirectional
        and not bias.prefix_bucket
        and not (bias.augmentation and bias.training)
    )


def _positions(bias: Any, mask: Tensor, bbox: Tensor | None) -> Num[Tensor, "batch sequence"]:
    """Where tokens are on a bias' axis, in the dtype of boxes."""
    edges = AXES[type(bias).__name__]
    if edges is None:
        return torch.arange(mask.shape[1], device=mask.device)[None]
    assert bbox is not None
    return bbox[:, :, list(edges)].mean(-1)


def _rows(bias: Any, positions: Tensor) -> Int[Tensor, "batch query key"]:
    """The bucket of each pair on one axis; steps are counted in float32, as the model counts them."""
    far = bias.max_distance
    offsets = (positions[:, None, :] - positions[:, :, None]).float().mul_(bias.scaling_factor).long()
    by_offset = t5_rows(bias.relative_attention_num_buckets, far, True).to(offsets.device)
    return by_offset[offsets.clamp_(-far, far).add_(far)]
