"""Image coordinates and frequencies that learn, against Gemma 4's and DINOv3's vision, ERNIE 4.5 VL and Mistral
Large 4."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from transformers import (
    DINOv3ViTConfig,
    DINOv3ViTModel,
    Ernie4_5_VLMoeTextConfig,
    Gemma4VisionConfig,
    MistralLarge4TextConfig,
)
from transformers.models.dinov3_vit import modeling_dinov3_vit as dinov3
from transformers.models.ernie4_5_vl_moe import modeling_ernie4_5_vl_moe as ernie
from transformers.models.gemma4 import modeling_gemma4 as gemma4
from transformers.models.mistral_large4 import modeling_mistral_large4 as mistral

from situs import Axial, LeRoPE, Positions, Rotary, Sections, Vision, YaRN
from situs.functional import stretches
from tests.parity.attention_probe import Projections, assert_same_attention, enliven
from tests.parity.wide_transformers import WIDE_TOLERANCE, in_float64

each_precision = pytest.mark.parametrize("precision", ["as released", "in float64"])


def within(precision: str, *sources: Any) -> Any:
    return in_float64(*sources) if precision == "in float64" else nullcontext()


@each_precision
def test_attention_of_gemma_4_vision_pairs_halves_of_each_axis(precision: str) -> None:
    config = Gemma4VisionConfig(
        hidden_size=48, intermediate_size=32, num_hidden_layers=1, num_attention_heads=3, num_key_value_heads=3,
        head_dim=16,
    )  # fmt: skip
    config._attn_implementation = "eager"
    cells = [Positions.grid(3, 4), Positions.grid(2, 3)]
    ours = Positions.batch([Positions.explicit(each.ids.flip(-1)) for each in cells])  # theirs are (x, y)
    assert ours.valid is not None
    with within(precision, gemma4.Gemma4VisionEncoder):
        encoder: Any = gemma4.Gemma4VisionEncoder(config).to(torch.get_default_dtype()).eval()
        enliven(encoder)
        for norm in (encoder.layers[0].self_attn.q_norm, encoder.layers[0].self_attn.k_norm):
            torch.nn.init.uniform_(norm.weight, 0.5, 1.5)
        x = torch.randn(2, 12, 48)
        names = {"query": "q_norm", "key": "k_norm", "value": "v_norm"}
        layer = Projections("layers.0.self_attn", 16, **names)
        seen = layer(encoder, lambda: encoder(x, ours.valid, ours.ids))
    encoding = Rotary(head_dim=16, base=100.0, split=Axial(halves="axis"))
    assert_same_attention(seen, encoding, positions=ours, causal=False, scale=1.0)


def dinov3_model() -> Any:
    config = DINOv3ViTConfig(
        hidden_size=48, intermediate_size=32, num_hidden_layers=1, num_attention_heads=3, num_register_tokens=4,
        image_size=32, patch_size=4, layerscale_value=1.0, pos_embed_shift=0.3, pos_embed_jitter=1.2,
        pos_embed_rescale=2.0,
    )  # fmt: skip
    config._attn_implementation = "eager"
    model: Any = DINOv3ViTModel(config)
    return enliven(model.to(torch.get_default_dtype()).eval())


DINOV3 = Rotary(head_dim=16, base=100.0, split=Axial(axes=2))


@each_precision
def test_attention_of_dinov3_has_coordinates_between_minus_one_and_one(precision: str) -> None:
    with within(precision, dinov3.DINOv3ViTModel):
        model = dinov3_model()
        pixels = torch.randn(1, 3, 20, 28)
        seen = Projections("model.layer.0.attention", 16)(model, lambda: model(pixels))
    positions = Positions.grid(5, 7, normalised="each").scaled(math.tau).prefixed(5)
    assert_same_attention(seen, DINOV3, positions=positions, causal=False)


@pytest.mark.parametrize("seed", [0, 1])
def test_augmented_coordinates_are_dinov3s_of_the_same_draws(seed: int) -> None:
    options: dict[str, float] = {"shift": 0.3, "jitter": 1.2, "rescale": 2.0}
    draws = [
        stretches(2, seed, shift=0.3)[0],
        stretches(2, seed, jitter=1.2)[1].log(),
        stretches(2, seed, rescale=2.0)[1].log()[:1],
    ]

    def uniform(tensor: Tensor, low: float, high: float) -> Tensor:
        drawn = draws.pop(0).view(tensor.shape)
        assert bool(((low <= drawn) & (drawn <= high)).all())
        return tensor.copy_(drawn)

    cells = Positions.grid(5, 7, normalised="each")
    with patch.object(torch.Tensor, "uniform_", uniform):
        theirs = dinov3.augment_patches_center_coordinates(cells.ids[0], **options)
    assert not draws
    torch.testing.assert_close(cells.augmented(seed=seed, **options).ids[0], theirs, rtol=1e-12, atol=1e-12)


ERNIE = {"rope_type": "default", "rope_theta": 5e5, "mrope_section": [3, 3, 2]}


@each_precision
def test_attention_of_ernie_deals_height_and_width_in_turns_and_time_last(precision: str) -> None:
    config: Any = Ernie4_5_VLMoeTextConfig(
        hidden_size=64, num_attention_heads=4, num_key_value_heads=2, rope_parameters=dict(ERNIE)
    )
    config._attn_implementation = "eager"
    rows = [Positions.mixed([3, Vision(1, 3, 4), 2]), Positions.mixed([2, Vision(2, 2, 2)])]
    positions = Positions.batch(rows)
    assert positions.valid is not None
    with within(precision, ernie.Ernie4_5_VLMoeTextModel):
        layer: Any = torch.nn.ModuleDict({"attention": ernie.Ernie4_5_VLMoeTextAttention(config, 0)})
        enliven(layer.to(torch.get_default_dtype()).eval())
        x = torch.randn(2, positions.length, 64)
        circle = ernie.Ernie4_5_VLMoeTextRotaryEmbedding(config)(x, positions.ids.permute(2, 0, 1))
        causal = torch.ones(positions.length, positions.length, dtype=torch.bool).tril()
        seen_by = causal & positions.valid[:, None, None, :]
        mask = torch.zeros(seen_by.shape).masked_fill(~seen_by, torch.finfo(x.dtype).min)
        probe = Projections("attention", 16)
        seen = probe(layer, lambda: layer["attention"](x, circle, mask))
    split = Sections(sizes=(2, 3, 3), order="time_last")
    encoding = Rotary(head_dim=16, base=5e5, pairing="interleaved", split=split)
    assert_same_attention(seen, encoding, positions=positions)


def test_far_coordinates_of_ernie_equal_ours_at_the_released_size() -> None:
    ids = torch.randint(1 << 17, (3, 2, 32))
    with in_float64(ernie.Ernie4_5_VLMoeTextModel):
        config = Ernie4_5_VLMoeTextConfig(
            hidden_size=256, num_attention_heads=2, rope_parameters=ERNIE | {"mrope_section": [22, 22, 20]}
        )
        x = torch.randn(2, 2, 32, 128)
        cos, sin = ernie.Ernie4_5_VLMoeTextRotaryEmbedding(config)(x, ids)
        theirs, _ = ernie.apply_rotary_pos_emb(x, x, cos, sin)
    split = Sections(sizes=(20, 22, 22), order="time_last")
    ours = Rotary(head_dim=128, base=5e5, pairing="interleaved", split=split)
    found = ours(x, Positions.explicit(ids.permute(1, 2, 0)))
    torch.testing.assert_close(found, theirs, rtol=0.0, atol=WIDE_TOLERANCE)


@each_precision
def test_rotation_of_mistral_large_4_is_lerope_with_its_checkpoints_alpha(precision: str) -> None:
    ids = torch.randint(100 if precision == "as released" else 1 << 17, (2, 32))
    with within(precision, mistral.MistralLarge4TextRotaryEmbedding):
        module = mistral.MistralLarge4TextRotaryEmbedding(MistralLarge4TextConfig(num_hidden_layers=1))
        module.alpha.normal_(std=0.2)
        x = torch.randn(2, 3, 32, 64)
        theirs, _ = mistral.apply_rotary_pos_emb_interleave(x, None, *module(x, ids))
    ours = LeRoPE(head_dim=64, scaling=YaRN(factor=2048.0, original_length=512, attention_factor=1.0)).to(x.dtype)
    ours.load_state_dict(module.state_dict())
    rotated = ours(x, Positions.explicit(ids)).detach()
    found = torch.cat((rotated[..., 0::2], rotated[..., 1::2]), -1)  # theirs leaves the pairs as two halves
    tolerance = 2e-5 if precision == "as released" else WIDE_TOLERANCE  # 100 radians in float32 are good to 4e-6
    torch.testing.assert_close(found, theirs, rtol=0.0, atol=tolerance)
