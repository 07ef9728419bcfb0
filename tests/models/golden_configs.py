"""Configurations of released models, as far as positions go, one for each way of telling them."""

from __future__ import annotations

import functools
from typing import Any

from situs import models
from situs.models import Golden, ModelPositions
from situs.models.oracle.places import POSITIONS


def _sizes(hidden: int, heads: int, layers: int, keys: int | None = None, **more: Any) -> dict[str, Any]:
    sizes: dict[str, Any] = {"hidden_size": hidden, "num_attention_heads": heads, "num_hidden_layers": layers}
    return {**sizes, **({} if keys is None else {"num_key_value_heads": keys}), **more}


CONFIGS: dict[str, dict[str, Any]] = {
    "llama 3.1": {
        "model_type": "llama", **_sizes(4096, 32, 32, 8), "rope_theta": 500000.0, "max_position_embeddings": 131072,
        "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 8192},
    },
    "qwen 2.5": {
        "model_type": "qwen2", **_sizes(3584, 28, 28, 4), "rope_theta": 1e6, "max_position_embeddings": 131072,
        "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
    },
    "deepseek v3": {
        "model_type": "deepseek_v3", **_sizes(7168, 128, 61, 128), "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "v_head_dim": 128, "kv_lora_rank": 512, "max_position_embeddings": 163840, "rope_theta": 10000.0,
        "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32,
                         "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0},
    },
    "phi 3.5": {
        "model_type": "phi3", **_sizes(3072, 32, 32, 32), "rope_theta": 10000.0, "max_position_embeddings": 131072,
        "original_max_position_embeddings": 4096, "sliding_window": 262144,
        "rope_scaling": {"type": "longrope", "short_factor": [1.0 + 0.02 * pair for pair in range(48)],
                         "long_factor": [1.0 + 1.3 * pair for pair in range(48)]},
    },
    "gemma 3": {
        "model_type": "gemma3_text", **_sizes(1152, 4, 26, 1, head_dim=256), "sliding_window": 512,
        "query_pre_attn_scalar": 168, "rope_theta": 1e6, "rope_local_base_freq": 1e4,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    },
    "cohere2": {"model_type": "cohere2", **_sizes(4096, 32, 8, 8), "sliding_window": 4096, "rope_theta": 50000.0},
    "gpt-neox": {
        "model_type": "gpt_neox", **_sizes(6144, 64, 44), "rotary_pct": 0.25, "rotary_emb_base": 10000,
        "max_position_embeddings": 2048,
    },
    "qwen2-vl": {
        "model_type": "qwen2_vl_text", **_sizes(3584, 28, 28, 4), "rope_theta": 1e6,
        "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
    },
    "qwen3-vl": {
        "model_type": "qwen3_vl",
        "text_config": {
            "model_type": "qwen3_vl_text", **_sizes(4096, 32, 36, 8, head_dim=128), "rope_theta": 5e6,
            "rope_scaling": {"rope_type": "default", "mrope_section": [24, 20, 20]},
        },
        "vision_config": {"depth": 27, "hidden_size": 1152, "num_heads": 16, "num_position_embeddings": 2304},
    },
    "llama 4": {
        "model_type": "llama4_text", **_sizes(5120, 40, 48, 8, head_dim=128), "rope_theta": 500000.0,
        "attention_chunk_size": 8192, "attn_temperature_tuning": True, "floor_scale": 8192, "attn_scale": 0.1,
        "max_position_embeddings": 10485760,
    },
    "t5": {
        "model_type": "t5", "d_model": 768, "d_kv": 64, "num_heads": 12, "num_layers": 12, "num_decoder_layers": 12,
        "relative_attention_num_buckets": 32,
    },
    "bloom": {"model_type": "bloom", "hidden_size": 1536, "n_head": 12, "n_layer": 24},
    "falcon alibi": {
        "model_type": "falcon", **_sizes(4544, 71, 32), "alibi": True, "max_position_embeddings": 2048,
    },
    "deberta v3": {
        "model_type": "deberta-v2", **_sizes(768, 12, 12), "relative_attention": True, "position_buckets": 256,
        "norm_rel_ebd": "layer_norm", "share_att_key": True, "pos_att_type": "p2c|c2p", "position_biased_input": False,
        "max_position_embeddings": 512, "max_relative_positions": -1,
    },
    "gpt2": {"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024},
    "bert": {"model_type": "bert", **_sizes(768, 12, 12), "max_position_embeddings": 512},
    "roberta": {"model_type": "roberta", **_sizes(768, 12, 12), "max_position_embeddings": 514, "pad_token_id": 1},
    "ministral 3": {
        "model_type": "ministral3", **_sizes(4096, 32, 34, 8, head_dim=128), "max_position_embeddings": 262144,
        "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "beta_fast": 32.0,
                            "original_max_position_embeddings": 16384, "beta_slow": 1.0, "mscale": 1.0,
                            "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1},
    },
    "gpt-oss": {
        "model_type": "gpt_oss", **_sizes(2880, 64, 36, 8, head_dim=64), "sliding_window": 128, "rope_theta": 150000,
        "max_position_embeddings": 131072,
        "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                         "original_max_position_embeddings": 4096},
    },
    "nanochat": {"model_type": "nanochat", **_sizes(1280, 10, 20, 10), "max_position_embeddings": 2048},
    "dynamic": {
        "model_type": "llama", **_sizes(256, 4, 2), "max_position_embeddings": 4096,
        "rope_scaling": {"type": "dynamic", "factor": 4.0},
    },
}  # fmt: skip
"""The usual ones: every mistake that they give occasion for is injected into them."""

OTHERS: dict[str, dict[str, Any]] = {
    "m2m": {"model_type": "m2m_100", "d_model": 256},
    "xlnet": {"model_type": "xlnet", "d_model": 256, "n_head": 4},
    **{
        name: {"model_type": name}
        for name in (
            "wavlm", "swin", "swinv2", "sam_vision_model", "layoutlmv3", "udop", "vits", "gemma4_text",
            "mistral_large4_text", "lightglue", "deepseek_v4", "gemma4_vision", "wav2vec2-bert", "mamba",
            "qwen3_asr_encoder",
        )
    },
    "inkling_text": {"model_type": "inkling_text", "log_scaling_n_floor": 8192},
    "unequal sections": {
        "model_type": "qwen2_vl_text", **_sizes(1024, 8, 2), "rope_theta": 1e6,
        "rope_scaling": {"type": "mrope", "mrope_section": [16, 20, 28]},
    },
    "beit": {"model_type": "beit", "use_relative_position_bias": True},
    "roformer": {"model_type": "roformer", "rotary_value": True},
}  # fmt: skip
"""Rarer kinds: biases of images and pages, terms by content, learned frequencies, rotated values."""

ALL = {**CONFIGS, **OTHERS}


@functools.cache
def model_of(name: str) -> ModelPositions:
    """A model that is read once."""
    return models.read(ALL[name])


@functools.cache
def golden_of(name: str, positions: tuple[int, ...] = POSITIONS) -> Golden:
    """Golden numbers that are made once; nobody may change them."""
    return models.golden(model_of(name), positions=positions)
