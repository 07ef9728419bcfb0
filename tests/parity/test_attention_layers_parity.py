"""Attention layers of transformers and ours, on the same hidden states: temperatures, MLA, rotated values."""

from __future__ import annotations

from typing import Literal

import pytest
import torch

from situs import Positions
from tests.parity.attention_layers import DIM, LAYERS, Layer
from tests.parity.wide_transformers import WIDE_TOLERANCE

LENGTH = 40
each_layer = pytest.mark.parametrize("layer", LAYERS, ids=str)


def hidden(rows: int = 2) -> torch.Tensor:
    return torch.randn(rows, LENGTH, DIM, dtype=torch.float64)


def causal(rows: int = 2) -> torch.Tensor:
    return torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril().expand(rows, 1, -1, -1)


@each_layer
def test_a_layer_equals_ours_at_far_positions_and_with_a_cache(layer: Layer) -> None:
    module, rotary = layer.build()
    x, start = hidden(), 100_000 if layer.far else 0
    ids = torch.arange(start, start + LENGTH)[None].expand(2, -1)
    theirs = layer.run(module, rotary, x, ids, causal())
    ours = layer.ours(module, x, Positions.explicit(ids[:1], sequence_length=start + LENGTH))
    assert (ours - theirs).abs().max() < WIDE_TOLERANCE
    if start:
        near = torch.arange(LENGTH)[None].expand(2, -1)
        theirs = layer.run(module, rotary, x, near, causal())
    cached = layer.ours(module, x, Positions.range(LENGTH), chunks=[17, 1, 1, 20, 1])
    assert (cached - theirs).abs().max() < WIDE_TOLERANCE


@each_layer
def test_a_layer_equals_ours_with_padding(layer: Layer) -> None:
    side: Literal["left", "right"] = "left" if layer.far else "right"  # Llama 4 counts padding on the left
    module, rotary = layer.build()
    x = hidden()
    slots = torch.arange(LENGTH)
    real = torch.stack((slots >= 13 if side == "left" else slots < LENGTH - 13, slots >= 0))
    ids = (real.cumsum(-1) - 1).clamp(min=0)
    theirs = layer.run(module, rotary, x, ids, causal() & real[:, None, None])
    ours = layer.ours(module, x, Positions.from_mask(real, side=side))
    assert (ours - theirs)[real].abs().max() < WIDE_TOLERANCE
