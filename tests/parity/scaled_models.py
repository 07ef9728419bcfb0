"""Released architectures with a scaled context, as tiny random models, each with the encoding that should match.

The original lengths are small, so that within a few dozen positions every branch of a scaling is taken.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from situs import DynamicNTKScaling, LinearScaling, Llama3Scaling, LongRoPE, ProportionalScaling, YaRN
from tests.parity.attention_probe import FusedProjection, Projections, Run, SeenAttention
from tests.parity.released_models import HEAD_DIM, LLAMA_LAYER, ReleasedModel, catch_latent, rotary

SHORT_FACTORS = [1.0, 1.05, 1.1, 1.2, 1.5, 2.0, 2.5, 3.0]
LONG_FACTORS = [1.1, 1.7, 2.9, 4.4, 7.3, 12.9, 24.3, 40.1]

LATENT: dict[str, Any] = {
    "num_key_value_heads": 4,
    "q_lora_rank": 24,
    "kv_lora_rank": 20,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 12,
    "first_k_dense_replace": 1,
    "max_position_embeddings": 163840,
}


def deepseek(name: str, mscale: float, mscale_all_dim: float) -> ReleasedModel:
    """DeepSeek-V3's YaRN, which puts a factor on cosines and sines and another on the softmax scale."""
    scaling: dict[str, Any] = {"factor": 40.0, "beta_fast": 32.0, "beta_slow": 1.0}
    factors: dict[str, Any] = {"mscale": mscale, "mscale_all_dim": mscale_all_dim}
    return ReleasedModel(
        f"DeepseekV3 {name}",
        rotary(
            head_dim=24, rotary_dim=8, pairing="interleaved", scaling=YaRN(original_length=4096, **scaling, **factors)
        ),
        catch_latent,
        {
            **LATENT,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "original_max_position_embeddings": 4096,
                **scaling,
                **factors,
            },
        },
    )


def yarn(name: str, **options: Any) -> ReleasedModel:
    """Qwen2.5's YaRN, with further options under the names they share with ours."""
    return ReleasedModel(
        f"Qwen2 {name}",
        rotary(base=1e6, scaling=YaRN(factor=4.0, original_length=512, **options)),
        LLAMA_LAYER,
        {
            "max_position_embeddings": 2048,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 1e6,
                "factor": 4.0,
                "original_max_position_embeddings": 512,
                **options,
            },
        },
    )


def gemma3(layer: int) -> ReleasedModel:
    """Gemma 3's first layer looks back a window at base 10,000; its second is global, stretched 8 times at 1e6."""
    scaling = LinearScaling(factor=8.0) if layer else None
    return ReleasedModel(
        f"Gemma3 {'global' if layer else 'local'}",
        rotary(base=1e6 if layer else 1e4, scaling=scaling),
        Projections(f"model.layers.{layer}.self_attn", HEAD_DIM, query="q_norm", key="k_norm"),
        {
            "num_hidden_layers": 2,
            "head_dim": HEAD_DIM,
            "query_pre_attn_scalar": 9,
            "sliding_window": 7,
            "layer_types": ["sliding_attention", "full_attention"],
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            },
        },
        scale=1 / 3,
        window=None if layer else 7,
    )


def catch_without_sinks(model: nn.Module, run: Run) -> SeenAttention:
    """gpt-oss's extra logit, which no token has, is lowered until it takes no weight."""
    layer = model.get_submodule("model.layers.0.self_attn")
    torch.nn.init.constant_(layer.get_parameter("sinks"), -1e9)
    return LLAMA_LAYER(model, run)


PHI3 = ReleasedModel(
    "Phi3 longrope",
    rotary(
        scaling=LongRoPE(
            original_length=32,
            target_length=1024,
            short_factors=tuple(SHORT_FACTORS),
            long_factors=tuple(LONG_FACTORS),
        )
    ),
    FusedProjection("model.layers.0.self_attn", HEAD_DIM, "qkv_proj", "o_proj", kv_heads=2),
    {
        "max_position_embeddings": 1024,
        "original_max_position_embeddings": 32,
        "rope_parameters": {"rope_type": "longrope", "short_factor": SHORT_FACTORS, "long_factor": LONG_FACTORS},
    },
)

DYNAMIC = ReleasedModel(
    "Llama dynamic",
    rotary(scaling=DynamicNTKScaling(factor=2.0, original_length=32)),
    LLAMA_LAYER,
    {
        "max_position_embeddings": 32,
        "rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0},
    },
)

BY_LENGTH = [PHI3, DYNAMIC]

SCALED = [
    ReleasedModel(
        "Llama linear",
        rotary(scaling=LinearScaling(factor=4.0)),
        LLAMA_LAYER,
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}},
    ),
    ReleasedModel(
        "Llama 3.1",
        rotary(base=5e5, scaling=Llama3Scaling(factor=8.0, original_length=512)),
        LLAMA_LAYER,
        {
            "max_position_embeddings": 4096,
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 5e5,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 512,
            },
        },
    ),
    yarn("yarn"),
    yarn("yarn with an attention factor of 1", attention_factor=1.0),
    yarn("yarn untruncated", truncate=False, beta_fast=8.0, beta_slow=0.5),
    ReleasedModel(
        "GPTNeoX partial yarn",
        rotary(rotary_dim=8, scaling=YaRN(factor=4.0, original_length=512)),
        FusedProjection("gpt_neox.layers.0.attention", HEAD_DIM, "query_key_value", "dense"),
        {
            "num_key_value_heads": ...,
            "max_position_embeddings": 2048,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 0.5,
                "factor": 4.0,
                "original_max_position_embeddings": 512,
            },
        },
    ),
    deepseek("yarn", 1.0, 1.0),
    deepseek("yarn with unequal mscales", 0.707, 1.3),
    gemma3(0),
    gemma3(1),
    ReleasedModel(
        "Gemma4 proportional",
        rotary(base=1e6, scaling=ProportionalScaling(fraction=0.25)),
        Projections("model.layers.0.self_attn", HEAD_DIM, query="q_norm", key="k_norm", value="v_norm"),
        {
            "head_dim": HEAD_DIM,
            "global_head_dim": HEAD_DIM,
            "layer_types": ["full_attention"],
            "hidden_size_per_layer_input": 0,
        },
        scale=1.0,
    ),
    ReleasedModel(
        "GptOss",
        rotary(base=150000.0, scaling=YaRN(factor=32.0, original_length=4096, truncate=False)),
        catch_without_sinks,
        {
            "head_dim": HEAD_DIM,
            "num_local_experts": 2,
            "num_experts_per_tok": 1,
            "layer_types": ["full_attention"],
            "experts_implementation": "eager",
        },
    ),
]
