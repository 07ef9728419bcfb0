"""Rotary's less common forms in transformers and ours: norms behind it, the other direction, values, two magnitudes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    BambaConfig,
    BambaModel,
    ClvpEncoderConfig,
    DynamicCache,
    HunYuanDenseV1Config,
    NanoChatConfig,
    PhimoeConfig,
    RoFormerConfig,
)
from transformers.models.clvp import modeling_clvp
from transformers.models.hunyuan_v1_dense import modeling_hunyuan_v1_dense
from transformers.models.nanochat import modeling_nanochat
from transformers.models.phimoe.modeling_phimoe import PhimoeRotaryEmbedding
from transformers.models.roformer import modeling_roformer

import situs
from situs import Positions
from tests.parity.attention_probe import Projections, SeenAttention, assert_same_attention, enliven
from tests.parity.wide_transformers import WIDE_TOLERANCE, in_float64

FAR, LENGTH = 100_000, 24
SIZES: dict[str, Any] = {
    "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "num_hidden_layers": 1,
    "rms_norm_eps": 1e-5,
}  # fmt: skip


def hidden_later(length: int) -> Tensor:
    """The mask of causal attention, as transformers adds it."""
    later = torch.ones(length, length, dtype=torch.bool).triu(1)
    return torch.zeros(1, 1, length, length, dtype=torch.float64).masked_fill(later, -1e30)


def taught(theirs: Any, rotary: situs.Rotary, norms: dict[str, Tensor]) -> situs.Attention:
    """Our layer with the weights of theirs."""
    ours = situs.Attention(dim=32, num_heads=4, num_kv_heads=2, head_dim=8, encoding=rotary, qk_norm="after").double()
    for norm in (ours.query_norm, ours.key_norm):
        assert norm is not None
        norm.eps = SIZES["rms_norm_eps"]
    names = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "out": "o_proj"}
    state = {f"{name}.weight": getattr(theirs, source).weight for name, source in names.items()}
    ours.load_state_dict({**state, **norms})
    return ours.eval()


@pytest.mark.parametrize("family", ["Hunyuan dense", "nanochat"])
def test_rotary_before_a_norm_equals_theirs_far_out_and_with_a_cache(family: str) -> None:
    hunyuan = family == "Hunyuan dense"
    modeling: Any = modeling_hunyuan_v1_dense if hunyuan else modeling_nanochat
    prefix = "HunYuanDenseV1" if hunyuan else "NanoChat"
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": 10000.0}
    if hunyuan:  # "dynamic" by its name, and the same at every length
        rope = {"rope_type": "dynamic", "rope_theta": 10000.0, "alpha": 50.0, "factor": 1.0}
    config = (HunYuanDenseV1Config if hunyuan else NanoChatConfig)(**SIZES, rope_parameters=rope)
    config._attn_implementation = "eager"
    norms = {name: torch.ones(8) for name in ("query_norm.weight", "key_norm.weight")}
    x = torch.randn(2, LENGTH, 32, dtype=torch.float64)
    with in_float64(getattr(modeling, f"{prefix}Attention")), torch.no_grad():
        module = getattr(modeling, f"{prefix}Attention")(config, 0).eval()
        angles = getattr(modeling, f"{prefix}RotaryEmbedding")(config)
        if hunyuan:
            sources = zip(norms, (module.query_layernorm, module.key_layernorm), strict=True)
            norms = {name: norm.weight.uniform_(0.5, 2) for name, norm in sources}
        ids = torch.arange(LENGTH)[None]
        near, far = (module(x, angles(x, start + ids), hidden_later(LENGTH))[0] for start in (0, FAR))
    scaling = situs.NTKScaling(factor=50.0) if hunyuan else None
    layer = taught(module, situs.Rotary(head_dim=8, scaling=scaling, reverse=not hunyuan), norms)
    with torch.no_grad():
        assert (layer(x, Positions.range(LENGTH, start=FAR)) - far).abs().max() < WIDE_TOLERANCE
        cache = layer.make_cache(batch=2, max_length=LENGTH)
        parts = [layer(part, cache=cache) for part in x.split([15, 1, 8], 1)]
    assert (torch.cat(parts, 1) - near).abs().max() < WIDE_TOLERANCE


def test_roformers_rotary_value_equals_ours() -> None:
    sizes: dict[str, Any] = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 1, "vocab_size": 8}
    config = RoFormerConfig(**sizes, rotary_value=True, max_position_embeddings=3000)
    x = torch.randn(2, LENGTH, 32, dtype=torch.float64)
    with in_float64(modeling_roformer.RoFormerSelfAttention), torch.no_grad():
        module = modeling_roformer.RoFormerSelfAttention(config).eval()
        table = modeling_roformer.RoFormerSinusoidalPositionalEmbedding(3000, 8)
        angles = table.create_weight()[2900 : 2900 + LENGTH][None, None]
        theirs = module(x, sinusoidal_pos=angles)[0]
    query, key, value = (
        getattr(module, name)(x).unflatten(-1, (4, 8)).transpose(1, 2) for name in ("query", "key", "value")
    )
    options: dict[str, Any] = {"head_dim": 8, "pairing": "interleaved"}
    both = [situs.Rotary(**options), situs.RotaryValue(**options, rotate_back=False)]
    ours = situs.attend(query, key, value, encoding=both, positions=2900, key_positions=2900)
    assert (ours.transpose(1, 2).flatten(2) - theirs).abs().max() < WIDE_TOLERANCE


def test_clvps_rotated_values_equal_ours() -> None:
    config = ClvpEncoderConfig(hidden_size=80, num_attention_heads=2, projection_dim=64)
    x = torch.randn(2, LENGTH, 80, dtype=torch.float64)
    with in_float64(modeling_clvp.ClvpSelfAttention), torch.no_grad():
        module = modeling_clvp.ClvpSelfAttention(config).eval()
        angles = modeling_clvp.ClvpRotaryPositionalEmbedding(config)(x)
        theirs = module(x, rotary_pos_emb=angles, position_ids=torch.arange(LENGTH)[None])[0]
    query, key, value = (
        getattr(module, f"{name}_proj")(x).unflatten(-1, (2, 40)).transpose(1, 2) for name in ("q", "k", "v")
    )
    options: dict[str, Any] = {"head_dim": 40, "rotary_dim": 32}
    both = [situs.Rotary(**options), situs.RotaryValue(**options, rotate_back=False)]
    ours = module.out_proj(situs.attend(query, key, value, encoding=both).transpose(1, 2).flatten(2))
    assert (ours - theirs).abs().max() < WIDE_TOLERANCE


def test_phimoes_magnitudes_equal_ours_and_its_long_factors_are_never_used() -> None:
    short, long = [1.0, 1.1, 1.3, 1.9], [2.0, 3.0, 5.0, 9.0]
    rope = {
        "rope_type": "longrope", "rope_theta": 10000.0, "short_factor": short, "long_factor": long,
        "original_max_position_embeddings": 64, "short_mscale": 1.2, "long_mscale": 1.25,
    }  # fmt: skip
    sizes: dict[str, Any] = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 1}
    config = PhimoeConfig(**sizes, max_position_embeddings=1024, rope_parameters=rope)
    options: dict[str, Any] = {"original_length": 64, "target_length": 1024, "short_mscale": 1.2, "long_mscale": 1.25}
    rotary, as_theirs = (
        situs.Rotary(head_dim=8, scaling=situs.LongRoPE(**options, short_factors=short, long_factors=beyond))
        for beyond in (long, short)
    )
    with in_float64(PhimoeRotaryEmbedding), torch.no_grad():
        module = PhimoeRotaryEmbedding(config)
        within, beyond = (module(torch.zeros(1), torch.arange(length)[None]) for length in (64, 500))
    for (cos, sin), ours, length in ((within, rotary, 64), (beyond, as_theirs, 500)):
        table = ours.table(Positions.range(length), dtype=torch.float64)
        assert (table.cos[0, 0] - cos[0, :, :4]).abs().max() < WIDE_TOLERANCE
        assert (table.sin[0, 0] - sin[0, :, :4]).abs().max() < WIDE_TOLERANCE
    table = rotary.table(Positions.range(500), dtype=torch.float64)
    assert (table.cos[0, 0] - beyond[0][0, :, :4]).abs().max() > 2.4  # of a magnitude of 1.25: the other way round


def test_bambas_attention_equals_ours_and_restarts_at_0_where_a_cache_is_continued_without_positions() -> None:
    """Without position_ids it counts the tokens of each call from 0, and forgets those that the cache holds; its
    siblings add them. ``generate`` hands positions over, so that a loop of one's own is what suffers."""
    config = BambaConfig(
        hidden_size=64, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=1, attn_layer_indices=[0],
        vocab_size=40, intermediate_size=8,
    )  # fmt: skip
    config._attn_implementation = "eager"
    rotary, prompt, length = situs.Rotary(head_dim=16, rotary_dim=8), 40, 60
    with in_float64(BambaModel):
        model: Any = enliven(BambaModel(config).eval())
        tokens = torch.randint(1, 40, (2, length))

        def continued(start: int | None) -> SeenAttention:
            cache = DynamicCache(config=config)

            def run() -> None:
                for first, end in [(0, prompt), *((at, at + 1) for at in range(prompt, length))]:
                    ids = None if start is None else start + torch.arange(first, end)[None]
                    model(tokens[:, first:end], position_ids=ids, past_key_values=cache, use_cache=True)

            return Projections("layers.0.self_attn", 16)(model, run)

        told, untold = continued(FAR), continued(None)
    assert_same_attention(told, rotary, positions=Positions.range(length, start=FAR))
    restarted = torch.arange(length).where(torch.arange(length) < prompt, 0)
    query, key = rotary.both(untold.query, untold.key, Positions.explicit(restarted))
    as_theirs = situs.attend(query, key, untold.value, causal=True)
    assert (as_theirs - untold.output).abs().max() < WIDE_TOLERANCE
    wrong = (untold.output - told.output)[:, :, prompt:]
    assert 0.3 < float(wrong.std() / told.output[:, :, prompt:].std()) < 0.55
