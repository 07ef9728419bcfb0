"""llama.cpp: what its converter writes of a file, and what differs from transformers in a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from situs.models import ConfigError, read
from situs.models.engines.conversions import ALIKE, CONVERSIONS
from tests.models.engine_settings import LONGROPE, SIZES, YARN, scaling, told
from tests.models.test_rotary_parity import SETTINGS


def test_llama_cpp_runs_most_as_transformers_does() -> None:
    differing = {"exaone4", "gpt_oss", "mistral", "mistral4", "muse_glimmer_text", "qwen3_vl_text", "qwen3_vl_moe_text"}
    without_window = {"step3p5"}
    alike = {*CONVERSIONS, *ALIKE} - differing - without_window
    assert len(alike) == 99
    for name in sorted(alike):
        config = {"model_type": name, **SETTINGS.get(name, {})}
        assert read(config, engine="llama.cpp").layers == read(config).layers, name
    for name in sorted(differing):
        assert read({"model_type": name}, engine="llama.cpp").layers != read({"model_type": name}).layers, name


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "llama", "rope_scaling": {"type": "dynamic", "factor": 2.0}},
         ["llama.cpp's converter writes nothing of DynamicNTKScaling(factor=2.0, original_length=32768) for llama",
          "layers 0-3: frequencies as trained, where transformers has DynamicNTKScaling(factor=2.0, "
          "original_length=32768)"]),
        ({"model_type": "mistral", "sliding_window": 4096},
         ["layers 0-3: attention to all tokens, where transformers has a window of 4,096"]),
        ({"model_type": "qwen3", "head_dim": 64, "rope_theta": 1e6, "rope_scaling": {**YARN, "beta_fast": 24.0}},
         ["qwen3.rope.scaling.yarn_beta_fast: 24.0 changes nothing: llama.cpp does not read it for qwen3",
          "layers 0-3: YaRN(factor=4.0, original_length=8192), where transformers has YaRN(factor=4.0, "
          "original_length=8192, beta_fast=24.0)"]),
        ({"model_type": "gpt_neox", "num_key_value_heads": 8, "rotary_emb_base": 25000.0},
         ["layers 0-3: base 10,000, where transformers has 25,000"]),
        ({"model_type": "stablelm", "rope_theta": 1e6},
         ["layers 0-3: base 10,000, where transformers has 1e+06"]),
        ({"model_type": "granite", "head_dim": 32},
         ["layers 0-3: heads of 64 channels, where transformers has 32"]),
        ({"model_type": "gemma2", "head_dim": 64, "query_pre_attn_scalar": 256},
         ["layers 0-3: a softmax scale of 0.125, where transformers has a softmax scale of 0.0625"]),
        ({"model_type": "nemotron", "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}},
         ["layers 0-3: LinearScaling(factor=2.0), where transformers has DynamicNTKScaling(factor=2.0, "
          "original_length=32768)"]),
        ({"model_type": "llama4_text", "head_dim": 64, "attention_chunk_size": 4096, "floor_scale": 4096},
         ["layers 0-2: chunks of 8,192, where transformers has chunks of 4,096",
          "layer 3: Temperature(dialect='llama4', original_length=8192, factor=0.1), where transformers has "
          "Temperature(dialect='llama4', original_length=4096, factor=0.1)"]),
        ({"model_type": "smollm3", "no_rope_layers": [1, 0, 1, 1]},
         ["layer 1: rotates with base 2,000,000, where transformers does not rotate",
          "layer 3: does not rotate, where transformers does with base 2,000,000"]),
        ({"model_type": "falcon", "num_key_value_heads": None, "alibi": True},
         ["layers 0-3: rotates with base 10,000, where transformers does not rotate",
          "layers 0-3: no temperature or bias, where transformers has ALiBi(num_heads=8, factor=0.125)"]),
    ],
)  # fmt: skip
def test_llama_cpp_ignores_what_it_does_not_know(config: dict[str, Any], said: list[str]) -> None:
    whole = {**SIZES, **config}
    assert told({key: each for key, each in whole.items() if each is not None}, "llama.cpp") == said


def test_llama_cpp_takes_long_factors_at_every_length() -> None:
    config = {"model_type": "phi3", "rope_scaling": LONGROPE, "original_max_position_embeddings": 4096, **SIZES}
    assert read(config, engine="llama.cpp").layer(0).calls[0].option("scaling").option("short_factors") == (4.0,) * 32
    assert told(config, "llama.cpp") == [
        "rope_factors_long.weight: serves all sequences: llama.cpp chooses by the size of its context, and 32,768 is "
        "more than 4,096",
        "layers 0-3: one list of factors at every length, and cosines and sines times 1.11803, where transformers has "
        "short factors up to 4,096 tokens and long ones beyond, and cosines and sines times 1.11803",
    ]


def test_llama_cpp_rounds_the_ramp_of_gpt_oss() -> None:
    assert told({"model_type": "gpt_oss", **SIZES}, "llama.cpp") == [
        "truncate: llama.cpp rounds the ends of the ramp to whole pairs whatever it says",
        "layers 0-3: YaRN(factor=32.0, original_length=4096), where transformers has YaRN(factor=32.0, "
        "original_length=4096, beta_fast=32.0, beta_slow=1.0, truncate=False)",
    ]


def test_llama_cpp_puts_yarns_factor_on_the_softmax_of_latent_attention() -> None:
    assert told({"model_type": "deepseek_v3", "rope_scaling": YARN}, "llama.cpp") == [
        "layers 0-60: a softmax scale of 0.0935652, where transformers has a softmax scale of 0.0721688"
    ]
    weighted = {"model_type": "deepseek_v3", "rope_scaling": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0}}
    assert read(weighted, engine="llama.cpp").layers == read(weighted).layers
    other = {"model_type": "deepseek_v3", "rope_scaling": {**YARN, "mscale": 1.0, "mscale_all_dim": 0.5}}
    assert "attention_factor=1.0" in scaling(other, "llama.cpp")


def test_llama_cpp_serves_the_length_that_is_written() -> None:
    served = {name: read({"model_type": name, **SIZES}, engine="llama.cpp").lengths.served for name in ("llama", "glm")}
    assert served == {"llama": 32768, "glm": 512}
    falcon = {"model_type": "falcon", "hidden_size": 512, "num_attention_heads": 8}
    assert read(falcon, engine="llama.cpp").lengths.served == 2048
    hunyuan = {"model_type": "hunyuan_v1_dense", "head_dim": 128, **SIZES,
               "rope_scaling": {"type": "dynamic", "factor": 1.0, "alpha": 1000.0}}  # fmt: skip
    model = read(hunyuan, engine="llama.cpp")
    assert model.lengths.served == 262144


def test_hunyuans_alpha_comes_to_the_same_in_llama_cpp() -> None:
    config = {"model_type": "hunyuan_v1_dense", "head_dim": 128, **SIZES,
              "rope_scaling": {"type": "dynamic", "factor": 1.0, "alpha": 1000.0}}  # fmt: skip
    assert read(config, engine="llama.cpp").layers == read(config).layers


def test_t5_has_a_farthest_distance_of_its_own_in_llama_cpp() -> None:
    config = {"model_type": "t5", "relative_attention_max_distance": 256}
    model = read(config, engine="llama.cpp")
    assert str(model.submodels["encoder"].notes[-1]) == (
        "layers 0-5: T5Bias(num_heads=8, num_buckets=32, max_distance=128), where transformers has "
        "T5Bias(num_heads=8, num_buckets=32, max_distance=256)"
    )
    assert read({"model_type": "t5"}, engine="llama.cpp").submodels["encoder"].notes == (
        read({"model_type": "t5"}).submodels["encoder"].notes
    )


def test_parts_of_a_model_are_read_as_its_text_is() -> None:
    text = {"model_type": "qwen3_vl_text", "head_dim": 128, **SIZES}
    model = {"model_type": "qwen3_vl", "text_config": text, "vision_config": {"model_type": "qwen3_vl_vision"}}
    found = read(model, engine="llama.cpp")
    assert found.submodels["text"] == read(text, engine="llama.cpp")
    assert found.submodels["vision"] == read(model).submodels["vision"]
    mistral = {"model_type": "mistral3", "text_config": {"model_type": "mistral", "sliding_window": None, **SIZES},
               "vision_config": {"model_type": "pixtral"}}  # fmt: skip
    assert read(mistral, engine="llama.cpp").main.layers == read(mistral).main.layers


def test_what_llama_cpp_has_no_architecture_for_is_refused() -> None:
    for config in ({"model_type": "helium"}, {"model_type": "vit"}):
        with pytest.raises(ConfigError) as problem:
            read(config, engine="llama.cpp")
        assert str(problem.value) == (
            f"model_type must be one that llama.cpp converts, since it has no architecture for others; got "
            f"'{config['model_type']}'."
        )
    with pytest.raises(ConfigError) as problem:
        read({"model_type": "smollm3", "rope_theta": 1e6, **SIZES, "rope_scaling": {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192}}, engine="llama.cpp")  # fmt: skip
    assert str(problem.value) == (
        "rope_freqs.weight must be left out, since llama.cpp loads no file of smollm3 that has it; got 32 numbers."
    )
    assert told({"model_type": "deepseek_v4"}, "llama.cpp") == [
        "llama.cpp runs it as deepseek4, which was not checked: read as transformers runs it"
    ]


def test_granites_of_states_do_not_rotate_in_llama_cpp() -> None:
    config = {"model_type": "granitemoehybrid", "position_embedding_type": "rope", **SIZES,
              "layer_types": ["mamba", "attention", "mamba", "attention"]}  # fmt: skip
    assert told(config, "llama.cpp") == ["layers 1, 3: does not rotate, where transformers does with base 10,000"]
