"""Biases of the text and of boxes on a page in LayoutLMv3 and UDOP, and ours in one call."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LayoutLMv3Config, LayoutLMv3Model, UdopConfig, UdopEncoderModel

from situs import Boxes
from tests.parity.attention_probe import Projections, SeenAttention, enliven
from tests.parity.score_models import assert_same, padded

HEADS, HEAD_DIM, LENGTH = 4, 8, 40
WIDTH = HEADS * HEAD_DIM

with_and_without_padding = pytest.mark.parametrize("side", [None, "left", "right"])


def pages(scale: int, dtype: torch.dtype) -> Tensor:
    """Boxes of two pages, each a left, top, right and bottom edge below ``scale``."""
    corners = torch.randint(0, scale - 20, (2, LENGTH, 2))
    return torch.cat((corners, corners + torch.randint(1, 20, (2, LENGTH, 2))), -1).to(dtype)


def real(side: str | None) -> Tensor:
    return torch.ones(2, LENGTH, dtype=torch.long) if side is None else padded(LENGTH, LENGTH - 9, side)


def layoutlmv3(**options: Any) -> Any:
    config = LayoutLMv3Config(
        vocab_size=50, hidden_size=WIDTH, num_attention_heads=HEADS, num_hidden_layers=1, intermediate_size=16,
        coordinate_size=4, shape_size=8, pad_token_id=0, **options,
    )  # fmt: skip
    model: Any = enliven(LayoutLMv3Model(config).double().eval())
    with torch.no_grad():  # large, since it is divided by sqrt(head_dim)
        for each in (model.encoder.rel_pos_bias, model.encoder.rel_pos_x_bias, model.encoder.rel_pos_y_bias):
            each.weight.normal_(std=5.0)
    return model


def seen_by_layoutlmv3(model: Any, **inputs: Any) -> SeenAttention:
    probe = Projections(
        "encoder.layer.0.attention", HEAD_DIM, "self.query", "self.key", "self.value", output="output.dense"
    )
    return probe(model, lambda: model(**inputs))


def boxes_of_layoutlmv3(model: Any) -> Boxes:
    encoder, config = model.encoder, model.config
    ours = Boxes(
        num_heads=HEADS,
        num_buckets=(config.rel_pos_bins, config.rel_2d_pos_bins, config.rel_2d_pos_bins),
        max_distance=(config.max_rel_pos, config.max_rel_2d_pos, config.max_rel_2d_pos),
        factor=1 / math.sqrt(HEAD_DIM),
    ).double()
    biases = (encoder.rel_pos_bias, encoder.rel_pos_x_bias, encoder.rel_pos_y_bias)
    ours.load_state_dict({"table": torch.cat([each.weight.T for each in biases])})
    return ours


@with_and_without_padding
@pytest.mark.parametrize("options", [{}, {"rel_pos_bins": 8, "max_rel_pos": 11, "rel_2d_pos_bins": 12}], ids=str)
def test_layoutlmv3s_attention_equals_ours(side: str | None, options: dict[str, int]) -> None:
    model, boxes, mask = layoutlmv3(**options), pages(1000, torch.int64), real(side)
    ids = torch.randint(1, 50, (2, LENGTH))
    seen = seen_by_layoutlmv3(model, input_ids=ids, bbox=boxes, attention_mask=mask)
    ours = boxes_of_layoutlmv3(model)
    assert_same(seen, ours, positions=ours.positions(boxes, valid=mask.bool()))


def test_layoutlmv3s_patches_have_places_in_a_text_of_their_own() -> None:
    model = layoutlmv3(input_size=12, patch_size=4)
    boxes, ids = pages(1000, torch.int64), torch.randint(1, 50, (2, LENGTH))
    image = torch.randn(2, 3, 12, 12, dtype=torch.float64)
    seen = seen_by_layoutlmv3(model, input_ids=ids, bbox=boxes, pixel_values=image)
    patches = model.calculate_visual_bbox(ids.device, torch.int64, 2)
    text = torch.cat((torch.arange(LENGTH), torch.arange(10)))[None]
    ours = boxes_of_layoutlmv3(model)
    assert_same(seen, ours, positions=ours.positions(torch.cat((boxes, patches), 1), text=text))


def test_transformers_never_trains_layoutlmv3s_biases_and_ours_learn() -> None:
    model, boxes = layoutlmv3(), pages(1000, torch.int64)
    out = model(input_ids=torch.randint(1, 50, (2, LENGTH)), bbox=boxes).last_hidden_state
    out.square().sum().backward()
    learnt = {name for name, each in model.named_parameters() if each.grad is not None}
    assert "encoder.layer.0.attention.self.query.weight" in learnt
    assert not {name for name in learnt if "rel_pos" in name}
    ours = boxes_of_layoutlmv3(model)
    ours(ours.positions(boxes)).square().sum().backward()
    assert ours.table.grad is not None
    assert bool((ours.table.grad != 0).any(0).all())


@with_and_without_padding
def test_udops_attention_equals_ours(side: str | None) -> None:
    config = UdopConfig(
        vocab_size=50, d_model=WIDTH, d_kv=HEAD_DIM, d_ff=16, num_layers=1, num_heads=HEADS,
        max_2d_position_embeddings=64,
    )  # fmt: skip
    model: Any = enliven(UdopEncoderModel(config).double().eval())
    biases = model.encoder.relative_bias.biases
    with torch.no_grad():
        for each in biases:
            each.relative_attention_bias.weight.normal_()
    boxes, mask = pages(1000, torch.float32) / 1000, real(side)
    ids = torch.randint(1, 50, (2, LENGTH))
    probe = Projections("encoder.block.0.layer.0.SelfAttention", HEAD_DIM, "q", "k", "v", output="o")
    # boxes are float32 to the biases, as in a released model; the rest of the layer computes in float64
    seen = probe(model, lambda: model(input_ids=ids, bbox=boxes, attention_mask=mask))
    ours = Boxes(
        num_heads=HEADS, num_buckets=(32, 32, 32), max_distance=(128, 100, 100), resolution=(1, 100, 100),
        softmax_scale=1.0,
    ).double()  # fmt: skip
    ours.load_state_dict({"table": torch.cat([each.relative_attention_bias.weight for each in biases])})
    assert_same(seen, ours, positions=ours.positions(boxes, valid=mask.bool(), anchor="centre"))
