"""GGUF files of many architectures: layers as those of the config.json that they come from."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from situs.models import Layer, ModelPositions, read
from situs.models.numbers import rotation_of
from situs.models.readers.llama_cpp.scaling import llama3
from tests.models.gguf_files import written

LONG = 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 48.0, 64.0
SHORT = 1.0, 1.0, 1.1, 1.2, 1.3, 1.5, 2.0, 3.0


@dataclass(frozen=True)
class Case:
    """Hold a configuration, and what llama.cpp's converter writes of it."""

    config: dict[str, Any]
    architecture: str
    settings: dict[str, Any]
    tensors: dict[str, Any] = field(default_factory=dict)


SIZES: dict[str, Any] = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 4,
                         "max_position_embeddings": 32768}  # fmt: skip
KEYS: dict[str, Any] = {"embedding_length": 64, "attention.head_count": 4, "attention.head_count_kv": 2,
                        "block_count": 4, "context_length": 32768}  # fmt: skip
HEAD: dict[str, Any] = {"attention.key_length": 16, "attention.value_length": 16}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}
YARN_KEYS: dict[str, Any] = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
                             "rope.scaling.original_context_length": 8192}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}  # fmt: skip
LATENT = {"q_lora_rank": None, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16}
LATENT_KEYS: dict[str, Any] = {
    "attention.head_count_kv": 1, "attention.kv_lora_rank": 32, "attention.key_length": 40,
    "attention.value_length": 32, "attention.key_length_mla": 24, "attention.value_length_mla": 16,
    "rope.dimension_count": 8,
}  # fmt: skip

CASES = {
    "llama": Case({"model_type": "llama", "rope_theta": 5e5, **SIZES}, "llama",
                  {**KEYS, "rope.freq_base": 5e5, "rope.dimension_count": 16}),
    "llama with llama3": Case(
        {"model_type": "llama", "rope_theta": 5e5, "rope_scaling": LLAMA3, **SIZES}, "llama",
        {**KEYS, "rope.freq_base": 5e5, "rope.dimension_count": 16}, {"rope_freqs.weight": llama3(8.0, 5e5, 8)},
    ),
    "llama with linear": Case(
        {"model_type": "llama", "rope_scaling": {"type": "linear", "factor": 2.0}, **SIZES}, "llama",
        {**KEYS, "rope.freq_base": 1e4, "rope.scaling.type": "linear", "rope.scaling.factor": 2.0},
    ),
    "qwen2 with yarn": Case(
        {"model_type": "qwen2", "rope_theta": 1e6, "rope_scaling": YARN, **SIZES}, "qwen2",
        {**KEYS, "rope.freq_base": 1e6, **YARN_KEYS},
    ),
    "qwen3": Case({"model_type": "qwen3", "rope_theta": 1e6, "head_dim": 32, **SIZES}, "qwen3",
                  {**KEYS, "rope.freq_base": 1e6, "attention.key_length": 32, "attention.value_length": 32}),
    "qwen3moe": Case({"model_type": "qwen3_moe", "rope_theta": 1e6, "head_dim": 16, **SIZES}, "qwen3moe",
                     {**KEYS, **HEAD, "rope.freq_base": 1e6}),
    "gemma2": Case(
        {"model_type": "gemma2", "head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 512, **SIZES}, "gemma2",
        {**KEYS, **HEAD, "attention.sliding_window": 512, "attn_logit_softcapping": 50.0},
    ),
    "gemma3": Case(
        {"model_type": "gemma3_text", "head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 512,
         "rope_theta": 1e6, "rope_local_base_freq": 1e4, "rope_scaling": {"rope_type": "linear", "factor": 8.0},
         **SIZES, "num_hidden_layers": 8},
        "gemma3",
        {**KEYS, **HEAD, "block_count": 8, "attention.sliding_window": 512, "rope.freq_base": 1e6,
         "rope.freq_base_swa": 1e4, "rope.scaling.type": "linear", "rope.scaling.factor": 8.0},
    ),
    "gemma4": Case(
        {"model_type": "gemma4_text", "head_dim": 16, "global_head_dim": 32, "sliding_window": 512,
         "rope_parameters": {
             "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
             "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}},
         "layer_types": ["sliding_attention"] * 3 + ["full_attention"], **SIZES},
        "gemma4",
        {**KEYS, "attention.key_length": 32, "attention.value_length": 32, "attention.key_length_swa": 16,
         "attention.value_length_swa": 16, "attention.sliding_window": 512, "rope.dimension_count": 32,
         "rope.dimension_count_swa": 16, "rope.freq_base": 1e6, "rope.freq_base_swa": 1e4,
         "attention.sliding_window_pattern": [True, True, True, False]},
        {"rope_freqs.weight": [1.0] * 4 + [1e30] * 12},
    ),
    "phi3 with longrope": Case(
        {"model_type": "phi3", "original_max_position_embeddings": 4096,
         "rope_scaling": {"type": "longrope", "short_factor": list(SHORT), "long_factor": list(LONG)}, **SIZES},
        "phi3",
        {**KEYS, "rope.dimension_count": 16, "rope.freq_base": 1e4, "rope.scaling.original_context_length": 4096,
         "rope.scaling.attn_factor": 1.118033988749895, "attention.sliding_window": 0},
        {"rope_factors_long.weight": LONG, "rope_factors_short.weight": SHORT},
    ),
    "gpt-oss": Case(
        {"model_type": "gpt_oss", "head_dim": 16, "sliding_window": 128,
         "rope_parameters": {**YARN, "rope_theta": 150000.0, "beta_fast": 32.0, "beta_slow": 1.0}, **SIZES},
        "gpt-oss",
        {**KEYS, **HEAD, **YARN_KEYS, "rope.freq_base": 150000.0, "attention.sliding_window": 128,
         "rope.scaling.yarn_beta_fast": 32.0, "rope.scaling.yarn_beta_slow": 1.0},
    ),
    "llama4": Case(
        {"model_type": "llama4_text", "head_dim": 16, "rope_theta": 5e5, "attention_chunk_size": 8192, **SIZES},
        "llama4", {**KEYS, **HEAD, "rope.freq_base": 5e5, "rope.dimension_count": 16},
    ),
    "deepseek2": Case(
        {"model_type": "deepseek_v3", **SIZES, **LATENT, "num_key_value_heads": 4,
         "rope_scaling": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0}},
        "deepseek2",
        {**KEYS, **LATENT_KEYS, **YARN_KEYS, "rope.freq_base": 1e4, "rope.scaling.yarn_log_multiplier": 0.1},
    ),
    "deepseek2 of version 2": Case(
        {"model_type": "deepseek_v2", **SIZES, **LATENT, "num_key_value_heads": 4,
         "rope_scaling": {**YARN, "mscale": 0.707, "mscale_all_dim": 0.707}},
        "deepseek2",
        {**KEYS, **LATENT_KEYS, **YARN_KEYS, "rope.freq_base": 1e4, "rope.scaling.yarn_log_multiplier": 0.0707},
    ),
    "gptneox": Case(
        {"model_type": "gpt_neox", "rotary_pct": 0.25, **SIZES, "num_key_value_heads": 4}, "gptneox",
        {**KEYS, "attention.head_count_kv": 4, "rope.dimension_count": 4},
    ),
    "mistral3": Case(
        {"model_type": "ministral3", "head_dim": 16, **SIZES,
         "rope_parameters": {**YARN, "rope_theta": 1e6, "mscale": 1.0, "mscale_all_dim": 1.0, "beta_fast": 24.0,
                             "beta_slow": 2.0, "llama_4_scaling_beta": 0.1}},
        "mistral3",
        {**KEYS, **HEAD, **YARN_KEYS, "rope.freq_base": 1e6, "rope.dimension_count": 16,
         "rope.scaling.yarn_beta_fast": 24.0, "rope.scaling.yarn_beta_slow": 2.0,
         "rope.scaling.yarn_log_multiplier": 1.0, "attention.temperature_scale": 0.1},
    ),
    "cohere2": Case(
        {"model_type": "cohere2", "sliding_window": 512, "rope_theta": 5e4, **SIZES}, "cohere2",
        {**KEYS, "attention.sliding_window": 512, "rope.freq_base": 5e4, "rope.dimension_count": 16,
         "rope.scaling.type": "none"},
    ),
    "command-r": Case({"model_type": "cohere", "rope_theta": 8e6, **SIZES}, "command-r",
                      {**KEYS, "rope.freq_base": 8e6, "rope.scaling.type": "none"}),
    "falcon": Case({"model_type": "falcon", "num_kv_heads": 2, "new_decoder_architecture": True, **SIZES}, "falcon",
                   {**KEYS, "attention.head_count_kv": 2}),
    "granite": Case({"model_type": "granite", "attention_multiplier": 0.015625, **SIZES}, "granite",
                    {**KEYS, "rope.freq_base": 1e4, "rope.dimension_count": 16, "attention.scale": 0.015625}),
    "smollm3": Case({"model_type": "smollm3", "rope_theta": 5e6, **SIZES}, "smollm3",
                    {**KEYS, "rope.freq_base": 5e6, "rope.dimension_count": 16}),
    "exaone4": Case(
        {"model_type": "exaone4", "head_dim": 16, "sliding_window": 512, "rope_theta": 1e6, **SIZES,
         "num_hidden_layers": 64},
        "exaone4", {**KEYS, **HEAD, "block_count": 64, "rope.freq_base": 1e6, "attention.sliding_window": 512},
    ),
    "olmo2": Case(
        {"model_type": "olmo3", "sliding_window": 512, **SIZES,
         "rope_parameters": {"full_attention": {**YARN, "rope_theta": 5e5},
                             "sliding_attention": {"rope_type": "default", "rope_theta": 5e5}}},
        "olmo2", {**KEYS, **YARN_KEYS, "rope.freq_base": 5e5, "attention.sliding_window": 512,
                  "attention.sliding_window_pattern": [True, True, True, False]},
    ),
    "stablelm": Case({"model_type": "stablelm", "partial_rotary_factor": 0.25, **SIZES}, "stablelm",
                     {**KEYS, "rope.dimension_count": 4}),
    "glm4": Case({"model_type": "glm4", "head_dim": 16, "partial_rotary_factor": 0.5, **SIZES}, "glm4",
                 {**KEYS, **HEAD, "rope.freq_base": 1e4, "rope.dimension_count": 8}),
    "qwen2vl": Case(
        {"model_type": "qwen2_vl_text", "rope_theta": 1e6, **SIZES,
         "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}},
        "qwen2vl", {**KEYS, "rope.freq_base": 1e6, "rope.dimension_sections": [2, 3, 3, 0]},
    ),
    "qwen3vl": Case(
        {"model_type": "qwen3_vl_text", "head_dim": 16, **SIZES,
         "rope_parameters": {"rope_type": "default", "rope_theta": 5e6, "mrope_section": [3, 3, 2]}},
        "qwen3vl", {**KEYS, **HEAD, "rope.freq_base": 5e6, "rope.dimension_sections": [3, 3, 2, 0]},
    ),
    "qwen3next": Case(
        {"model_type": "qwen3_next", "head_dim": 16, "partial_rotary_factor": 0.25, "rope_theta": 1e7, **SIZES},
        "qwen3next", {**KEYS, **HEAD, "rope.freq_base": 1e7, "rope.dimension_count": 4, "full_attention_interval": 4},
    ),
    "lfm2": Case(
        {"model_type": "lfm2", "rope_theta": 1e6, "layer_types": ["full_attention", "full_attention"] * 2, **SIZES},
        "lfm2", {**KEYS, "rope.freq_base": 1e6, "attention.head_count_kv": [2, 2, 2, 2]},
    ),
    "modern-bert": Case(
        {"model_type": "modernbert", "local_attention": 128, "global_attn_every_n_layers": 3,
         "global_rope_theta": 160000.0, "local_rope_theta": 1e4, **SIZES, "num_key_value_heads": 4},
        "modern-bert",
        {**KEYS, "attention.head_count_kv": 4, "attention.causal": False, "attention.sliding_window": 128,
         "attention.sliding_window_pattern": 3, "rope.freq_base": 160000.0, "rope.freq_base_swa": 1e4,
         "rope.scaling.type": "none"},
    ),
    "bloom": Case({"model_type": "bloom", "hidden_size": 64, "n_head": 4, "n_layer": 4}, "bloom",
                  {**KEYS, "attention.head_count_kv": 4}),
    "mpt": Case({"model_type": "mpt", "d_model": 64, "n_heads": 4, "n_layers": 4, "max_seq_len": 32768}, "mpt",
                {**KEYS, "attention.head_count_kv": 4, "attention.max_alibi_bias": 8.0}),
    "gpt2": Case({"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 4, "n_positions": 1024}, "gpt2",
                 {**KEYS, "attention.head_count_kv": 4, "context_length": 1024}),
    "bert": Case({"model_type": "bert", **SIZES, "max_position_embeddings": 512}, "bert",
                 {**KEYS, "attention.head_count_kv": 4, "context_length": 512, "attention.causal": False}),
    "t5": Case(
        {"model_type": "t5", "d_model": 64, "d_kv": 16, "num_heads": 4, "num_layers": 4, "num_decoder_layers": 2}, "t5",
        {"embedding_length": 64, "attention.head_count": 4, "attention.key_length": 16, "attention.value_length": 16,
         "block_count": 4, "decoder_block_count": 2, "context_length": 512, "attention.relative_buckets_count": 32},
    ),
    "mamba": Case({"model_type": "mamba", "num_hidden_layers": 4}, "mamba",
                  {"block_count": 4, "context_length": 1048576, "embedding_length": 64, "attention.head_count": 0}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_gguf_file_is_read_as_the_configuration_that_it_comes_from(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    sinks = {f"blk.{layer}.attn_sinks.weight": [0.0] for layer in range(4)} if case.architecture == "gpt-oss" else {}
    path = written(tmp_path / "model.gguf", case.architecture, case.settings, {**case.tensors, **sinks})
    model, expected = read(path), read(case.config)
    assert model.model_type == case.architecture
    assert model.verified
    assert set(model.submodels) == set(expected.submodels)
    _compare(model, expected)
    for part in model.submodels:
        _compare(model.submodels[part], expected.submodels[part])


def _compare(model: ModelPositions, expected: ModelPositions) -> None:
    assert [call.cls for call in model.input] == [call.cls for call in expected.input]
    assert len(model.layers) == len(expected.layers)
    for ours, theirs in zip(model.layers, expected.layers, strict=True):
        _compare_layers(ours, theirs)


def _compare_layers(ours: Layer, theirs: Layer) -> None:
    plain = "kind", "window", "chunk", "causal", "softcap", "sinks"
    assert [getattr(ours, name) for name in plain] == [getattr(theirs, name) for name in plain]
    if theirs.heads is None:
        assert ours.heads is None
        return
    assert ours.heads is not None
    assert (ours.heads.queries, ours.heads.keys, ours.heads.dim) == (
        theirs.heads.queries,
        theirs.heads.keys,
        theirs.heads.dim,
    )
    assert ours.scale == pytest.approx(theirs.scale, rel=1e-6)
    rest = [[call for call in layer.calls if call.cls != "Rotary"] for layer in (ours, theirs)]
    assert rest[0] == rest[1]
    one, other = rotation_of(ours, 20_000), rotation_of(theirs, 20_000)
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        assert one.frequencies == pytest.approx(other.frequencies, rel=1e-5, abs=1e-12)
        assert one.factor == pytest.approx(other.factor, rel=1e-6)
        assert (one.rotary_dim, one.channels, one.axis_of_pair) == (
            other.rotary_dim,
            other.channels,
            other.axis_of_pair,
        )
