"""Biases of windows with [CLS] (BEiT, Data2Vec) and of distances (LeViT) in released models, and ours."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import BeitConfig, BeitModel, Data2VecVisionConfig
from transformers.models.beit.modeling_beit import BeitRelativePositionBias
from transformers.models.data2vec.modeling_data2vec_vision import Data2VecVisionRelativePositionBias
from transformers.models.levit.modeling_levit import LevitAttention, LevitAttentionSubsample

from situs import Positions, SwinBias
from tests.parity.attention_probe import Projections, enliven
from tests.parity.score_models import assert_same
from tests.parity.wide_transformers import in_float64

HEADS = 4
TABLES: dict[str, Any] = {
    "beit": (BeitConfig, BeitRelativePositionBias),
    "data2vec": (Data2VecVisionConfig, Data2VecVisionRelativePositionBias),
}


def released(kind: str, window: tuple[int, int]) -> Any:
    """A released table in float64, drawn at random."""
    config, table = TABLES[kind]
    size = (4 * window[0], 4 * window[1])
    made = config(image_size=size, patch_size=4, num_attention_heads=HEADS, hidden_size=32)
    bias = (table(made) if kind == "beit" else table(made, window_size=window)).double()
    with torch.no_grad():
        bias.relative_position_bias_table.normal_()
    return bias


def ours_from(bias: Any) -> SwinBias:
    ours = SwinBias(num_heads=HEADS, window=bias.window_size, cls=True).double()
    ours.load_state_dict({"table": bias.relative_position_bias_table})
    return ours


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("window", [(5, 5), (3, 3), (7, 4)], ids=str)
def test_beits_bias_at_any_window_equals_ours(kind: str, window: tuple[int, int]) -> None:
    bias = released(kind, (5, 5))
    ours = ours_from(bias).resize(window, mode="bilinear")
    theirs = bias(window, dim_size=1 + window[0] * window[1])
    found = ours(Positions.grid(*window, prefix=1))
    torch.testing.assert_close(found.detach(), theirs.detach().reshape(found.shape), rtol=0.0, atol=1e-12)


def test_attention_of_beit_equals_ours() -> None:
    config = BeitConfig(
        image_size=20, patch_size=4, num_attention_heads=HEADS, hidden_size=32, num_hidden_layers=1,
        intermediate_size=16, use_relative_position_bias=True,
    )  # fmt: skip
    config._attn_implementation = "eager"
    model = enliven(BeitModel(config).double().eval())
    layer: Any = model.get_submodule("layers.0")
    with torch.no_grad():
        layer.relative_position_bias.relative_position_bias_table.normal_()
    image = torch.randn(2, 3, 20, 20, dtype=torch.float64)
    with in_float64(BeitModel):
        seen = Projections("layers.0.attention", 8)(model, lambda: model(image))
    assert_same(seen, ours_from(layer.relative_position_bias), positions=Positions.grid(5, 5, prefix=1))


def test_transformers_scrambles_beits_tables_of_windows_that_are_not_square() -> None:
    """It reads a table of (2 Wh - 1, 2 Ww - 1) as one of (2 Ww - 1, 2 Wh - 1), and resizes that to the first, also
    where nothing is to be resized. The authors' own code looks the table up as it is, as ours does."""
    window = (6, 10)
    bias = released("beit", window)
    theirs = bias(window, dim_size=61)[0].detach()
    ours = ours_from(bias)(Positions.grid(*window, prefix=1))[0].detach()
    wrong = (theirs - ours).abs() > 1e-9
    assert not wrong[:, 0].any()  # [CLS] is as it should be
    assert not wrong[:, :, 0].any()
    assert float(wrong[:, 1:, 1:].double().mean()) > 0.98
    # off by about as much as two unrelated numbers of unit spread are
    assert 0.9 < float((theirs - ours)[:, 1:, 1:].std()) < 1.4


@pytest.mark.parametrize("stride", [None, 2])
def test_levits_bias_equals_ours(stride: int | None) -> None:
    side = 5
    if stride is None:
        layer: Any = LevitAttention(32, 8, HEADS, 2, side)
        queries = Positions.grid(side, side)
    else:
        layer = LevitAttentionSubsample(32, 32, 8, HEADS, 2, stride, side, 3)
        queries = Positions.explicit(stride * Positions.grid(3, 3).ids)
    with torch.no_grad():
        layer.attention_biases.normal_()
    ours = SwinBias(num_heads=HEADS, window=(side, side), signed=False)
    ours.load_state_dict({"table": layer.attention_biases.T})
    theirs = layer.attention_biases[:, layer.attention_bias_idxs]
    assert torch.equal(ours(queries, Positions.grid(side, side))[0], theirs)
