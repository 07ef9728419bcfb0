"""Two-axis relative positions of SAM and ViTDet, within windows and over a whole image, and ours."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import SamVisionConfig, VitDetConfig
from transformers.models.sam.modeling_sam import SamVisionAttention, SamVisionLayer, SamVisionSdpaAttention
from transformers.models.vitdet.modeling_vitdet import VitDetAttention

from situs import Positions, ViTDet, attend
from tests.parity.attention_probe import SeenAttention, enliven
from tests.parity.score_models import assert_same
from tests.parity.wide_transformers import in_float64

HEADS, HEAD_DIM = 4, 8
WIDTH = HEADS * HEAD_DIM


def sam(window: int, side: int, kind: Any = SamVisionAttention) -> Any:
    config = SamVisionConfig(hidden_size=WIDTH, num_attention_heads=HEADS, image_size=16 * side, mlp_dim=16)
    config._attn_implementation = "eager"
    return lively(kind(config, window))


def lively(layer: Any) -> Any:
    enliven(layer.double().eval())
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if "rel_pos" in name:
                parameter.normal_()
    return layer


def ours_from(layer: Any) -> ViTDet:
    window = tuple((len(each) + 1) // 2 for each in (layer.rel_pos_h, layer.rel_pos_w))
    ours = ViTDet(num_heads=HEADS, head_dim=HEAD_DIM, window=window).double()  # type: ignore[arg-type]
    ours.load_state_dict({"down_table": layer.rel_pos_h, "across_table": layer.rel_pos_w})
    return ours


def seen(layer: Any, x: Tensor) -> Any:
    """Queries, keys, values and outputs of the heads, a row for each window."""
    kept: dict[str, Tensor] = {}
    handles = [
        layer.qkv.register_forward_hook(lambda module, given, out: kept.update(qkv=out.flatten(1, 2))),
        layer.proj.register_forward_pre_hook(lambda module, given: kept.update(out=given[0].flatten(1, 2))),
    ]
    with torch.no_grad(), in_float64(SamVisionAttention):
        layer(x)
    for handle in handles:
        handle.remove()
    heads = [each.unflatten(-1, (-1, HEAD_DIM)).transpose(1, 2) for each in (*kept["qkv"].chunk(3, -1), kept["out"])]
    return SeenAttention(*heads)


@pytest.mark.parametrize("kind", [SamVisionAttention, SamVisionSdpaAttention], ids=["eager", "sdpa"])
@pytest.mark.parametrize("window", [3, 0], ids=["window", "global"])
def test_sams_attention_equals_ours(kind: Any, window: int) -> None:
    layer = sam(window, 5, kind)
    side = window or 5
    x = torch.randn(2, side, side, WIDTH, dtype=torch.float64)
    assert_same(seen(layer, x), ours_from(layer), positions=Positions.grid(side, side))


@pytest.mark.parametrize("size", [(7, 7), (3, 3), (6, 4)], ids=str)
def test_sam_at_another_size_equals_our_resized_tables(size: tuple[int, int]) -> None:
    layer = sam(0, 5)
    x = torch.randn(2, *size, WIDTH, dtype=torch.float64)
    assert_same(seen(layer, x), ours_from(layer).resize(size), positions=Positions.grid(*size))


def test_sams_windows_of_an_image_are_rows_of_a_batch() -> None:
    """Windows at the edges are filled up with zeros, which take part as keys: that is no padding."""
    block = sam(3, 5, SamVisionLayer)
    layer, x = block.attn, torch.randn(1, 5, 5, WIDTH, dtype=torch.float64)
    windows, _ = block.window_partition(x, 3)
    assert_same(seen(layer, windows), ours_from(layer), positions=Positions.grid(3, 3))


@pytest.mark.parametrize("size", [(4, 6), (5, 5)], ids=str)
def test_vitdets_attention_equals_ours(size: tuple[int, int]) -> None:
    config = VitDetConfig(hidden_size=WIDTH, num_attention_heads=HEADS, use_relative_position_embeddings=True)
    layer = lively(VitDetAttention(config, input_size=size))
    x = torch.randn(2, *size, WIDTH, dtype=torch.float64)
    found = seen(layer, x)
    assert_same(found, ours_from(layer), positions=Positions.grid(*size))
    out = attend(found.query, found.key, found.value, encoding=ours_from(layer), positions=Positions.grid(*size))
    torch.testing.assert_close(out.detach(), found.output, rtol=0.0, atol=1e-12)
