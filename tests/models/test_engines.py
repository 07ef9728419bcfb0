"""Engines: the same file as transformers, vLLM and llama.cpp read it, and what differs in a sentence."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from situs.models import ConfigError, ModelPositions, read
from situs.models.engines import ENGINES, readings
from situs.models.engines.conversions import ALIKE, BUNDLES, CONVERSIONS
from situs.models.engines.vllm import BY_LAYER, LATENT, NATIVE, ONE_KIND
from situs.models.engines.vllm_lengths import served_length
from situs.models.readers.facts import facts_of, model_types
from situs.models.readers.llama_cpp.architectures import ARCHITECTURES, LEFT_OUT
from tests.models.gguf_files import written
from tests.models.test_rotary_parity import SETTINGS
from tests.raising import raises_exactly

SIZES: dict[str, Any] = {"hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 2,
                         "num_hidden_layers": 4, "max_position_embeddings": 32768}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}
LONGROPE = {"rope_type": "longrope", "short_factor": [1.0] * 31 + [2.0], "long_factor": [4.0] * 32}


def told(config: Any, engine: Any) -> list[str]:
    """What an engine's reading says beside transformers'."""
    model, plain = read(config, engine=engine).main, read(config).main
    return [str(note) for note in model.notes if note not in plain.notes]


def scaling(config: Any, engine: Any) -> str:
    """The scaling of the last layer that rotates."""
    layers = read(config, engine=engine).main.layers
    calls = [call for layer in layers for call in layer.calls if call.cls == "Rotary"]
    return repr(calls[-1].option("scaling"))


def test_engines_are_known_by_name() -> None:
    assert ENGINES == ("transformers", "vllm", "llama.cpp")
    said = (
        "engine must be one of transformers, vllm, llama.cpp, since each reads files by rules of its own; got 'vlm'. "
        "Did you mean 'vllm'?"
    )
    with raises_exactly(ValueError, said):
        read({"model_type": "llama"}, engine="vlm")  # type: ignore[arg-type]


def test_readings_stand_side_by_side(tmp_path: Path) -> None:
    found = readings({"model_type": "qwen3", "rope_theta": 1e6, "rope_scaling": {**YARN, "beta_fast": 24.0}, **SIZES})
    assert list(found) == list(ENGINES)
    assert all(isinstance(each, ModelPositions) for each in found.values())
    only = readings({"model_type": "t5"})
    assert isinstance(only["vllm"], ConfigError)
    assert str(only["vllm"]) == (
        "model_type must be a decoder or an encoder alone, since vLLM runs no pairs of them; got 't5'."
    )
    keys = {"block_count": 2, "context_length": 8, "embedding_length": 8, "attention.head_count": 2}
    own = readings(written(tmp_path / "model.gguf", "qwen3", keys))
    assert [type(each).__name__ for each in own.values()] == ["ConfigError", "ConfigError", "ModelPositions"]
    wrong = readings({"model_type": "llama", "rope_theta": "x"})
    assert len({str(each) for each in wrong.values()}) == 1


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "qwen3", "rope_parameters": YARN, **SIZES},  # without a base
        {"model_type": "llama", **SIZES, "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            "full_attention": {"rope_type": "default", "rope_theta": 1e6}}},
        {"model_type": "qwen3_vl", "text_config": {"model_type": "qwen3_vl_text"}, "rope_parameters": YARN},
    ],
)  # fmt: skip
def test_files_that_no_engine_should_be_given_are_refused_in_all(config: dict[str, Any]) -> None:
    found = readings(config)
    assert all(isinstance(each, ConfigError) for each in found.values())
    assert len({str(each) for each in found.values()}) == 1


def test_engines_are_read_without_torch() -> None:
    code = (
        "import sys; from situs.models import engines; "
        "engines.readings({'model_type': 'gpt_oss'}); print('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_params_of_meta_are_not_checked_in_other_engines() -> None:
    params = {"dim": 4096, "n_layers": 2, "n_heads": 32, "rope_theta": 500000.0}
    assert read(params, engine="vllm").layers == read(params).layers
    assert told(params, "llama.cpp") == ["llama.cpp reads params.json by rules of its own, which were not checked"]


# vLLM


@pytest.mark.parametrize(
    ("config", "served"),
    [
        ({"model_type": "llama", **SIZES}, 32768),
        ({"model_type": "llama", "rope_scaling": {"type": "linear", "factor": 4.0}, **SIZES}, 131072),
        ({"model_type": "qwen3", "rope_theta": 1e6, "rope_scaling": YARN, **SIZES}, 32768),
        ({"model_type": "qwen3", "rope_theta": 1e6, "rope_scaling": YARN, "max_position_embeddings": 1}, 32768),
        ({"model_type": "llama", **SIZES, "rope_scaling": {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192}}, 32768),
        ({"model_type": "phi3", "rope_scaling": LONGROPE, "original_max_position_embeddings": 4096, **SIZES}, 4096),
        ({"model_type": "gemma3_text", "rope_scaling": {"rope_type": "linear", "factor": 8.0}, **SIZES}, 32768),
        ({"model_type": "cohere", "model_max_length": 131072, **SIZES, "max_position_embeddings": 8192}, 131072),
        ({"model_type": "gpt2", "n_positions": 1024}, 1024),
        ({"model_type": "mpt", "max_seq_len": 2048}, 2048),
        ({"model_type": "bloom"}, 2048),
        ({"model_type": "olmo3", "max_position_embeddings": 65536, "rope_parameters": {
            "full_attention": {**YARN, "rope_theta": 5e5},
            "sliding_attention": {"rope_type": "default", "rope_theta": 5e5}}}, 32768),
    ],
)  # fmt: skip
def test_vllm_serves_what_its_rule_gives(config: dict[str, Any], served: int) -> None:
    assert served_length(config, config["model_type"])[0] == served


def test_vllm_says_how_much_it_serves_and_why() -> None:
    config = {"model_type": "llama", "rope_scaling": {"type": "linear", "factor": 4.0}, **SIZES}
    assert read(config, engine="vllm").lengths.served == 131072
    assert told(config, "vllm") == [
        "vLLM serves 131,072 tokens where it is not told otherwise: it takes 32,768 for the length before scaling, "
        "times 4"
    ]
    assert told({**config, "rope_theta": 1e4, "rope_scaling": {**YARN, "factor": 8.0}}, "vllm") == [
        "vLLM serves 65,536 tokens where it is not told otherwise: the original length times 8"
    ]
    assert told({"model_type": "bloom"}, "vllm") == [
        "vLLM serves 2,048 tokens where it is not told otherwise: its configuration names no length"
    ]
    both = {"model_type": "cohere", "model_max_length": 131072, **SIZES}
    assert told({**both, "max_position_embeddings": 131072}, "vllm") == []


def test_vllm_goes_by_other_files_of_models_that_embed(tmp_path: Path) -> None:
    config = {"model_type": "bert", "position_embedding_type": "absolute", "max_position_embeddings": 512}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 384}')
    assert read(tmp_path, engine="vllm").lengths.served == 384
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 256}')
    model = read(tmp_path, engine="vllm")
    assert model.lengths.served == 256
    assert str(model.notes[-1]) == (
        "vLLM serves 256 tokens where it is not told otherwise: sentence_bert_config.json says so"
    )


def test_vllm_computes_yarns_factor_by_itself() -> None:
    config = {"model_type": "llama", "rope_scaling": {**YARN, "attention_factor": 1.0}, **SIZES}
    assert scaling(config, "vllm") == "YaRN(factor=4.0, original_length=8192)"
    assert told(config, "vllm") == [
        "attention_factor: vLLM does not read it; it would read attn_factor",
        "layers 0-3: YaRN(factor=4.0, original_length=8192), where transformers has YaRN(factor=4.0, "
        "original_length=8192, attention_factor=1.0)",
    ]


def test_vllm_reads_mscale_in_latent_attention_alone() -> None:
    ministral = {"model_type": "ministral3", "head_dim": 64, **SIZES, "rope_parameters": {
        **YARN, "rope_theta": 1e6, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}}  # fmt: skip
    found = told(ministral, "vllm")
    assert found[:2] == [
        "mscale and mscale_all_dim: vLLM does not read them for ministral3",
        "llama_4_scaling_beta: vLLM does not read it here, but at the top level as llama_4_scaling",
    ]
    assert scaling(ministral, "vllm") == "YaRN(factor=4.0, original_length=8192)"
    assert read(ministral, engine="vllm").layer(0).temperature is None
    own = {**ministral, "llama_4_scaling": {"original_max_position_embeddings": 4096, "beta": 0.2}}
    assert repr(read(own, engine="vllm").layer(0).calls[1]) == (
        "Temperature(dialect='ministral3', original_length=4096, factor=0.2)"
    )
    deepseek = {"model_type": "deepseek_v3", "rope_scaling": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0}}
    assert read(deepseek, engine="vllm").layers == read(deepseek).layers
    alone = {"model_type": "deepseek_v3", "rope_scaling": {**YARN, "mscale": 0.5}}
    assert "attention_factor=1.069" in scaling(alone, "vllm")
    rounded = {"model_type": "deepseek_v3", "rope_scaling": {**YARN, "truncate": False}}
    assert told(rounded, "vllm")[0] == "truncate: vLLM does not read it for deepseek_v3"


def test_vllm_measures_yarn_within_four_lengths_where_positions_have_coordinates() -> None:
    config = {"model_type": "qwen2_vl_text", **SIZES, "hidden_size": 1024, "rope_parameters": {
        **YARN, "rope_theta": 1e6, "mrope_section": [16, 24, 24]}}  # fmt: skip
    assert scaling(config, "vllm") == "YaRN(factor=4.0, original_length=32768)"
    assert told(config, "vllm")[0] == (
        "rope_type yarn: vLLM measures turns within four times the original length where positions have several "
        "coordinates"
    )


def test_vllm_has_no_dynamic_scaling() -> None:
    config = {"model_type": "llama", "rope_scaling": {"type": "dynamic", "factor": 2.0}, **SIZES}
    assert scaling(config, "vllm") == "None"
    assert told(config, "vllm") == [
        "rope_type dynamic: vLLM makes one table, which ends at the declared length, with frequencies as trained",
        "layers 0-3: frequencies as trained, where transformers has DynamicNTKScaling(factor=2.0, "
        "original_length=32768)",
        "vLLM serves 65,536 tokens where it is not told otherwise: it takes 32,768 for the length before scaling, "
        "times 2",
    ]


def test_vllm_chooses_one_list_of_longrope_by_what_it_serves() -> None:
    config = {"model_type": "phi3", "rope_scaling": LONGROPE, "original_max_position_embeddings": 4096, **SIZES}
    short = read(config, engine="vllm").layer(0).calls[0].option("scaling")
    assert short.option("long_factors") == tuple(LONGROPE["short_factor"])
    assert told(config, "vllm") == [
        "short_factor: serves all sequences: vLLM chooses by the length that it serves, 4,096",
        "layers 0-3: one list of factors at every length, and cosines and sines times 1.11803, where transformers has "
        "short factors up to 4,096 tokens and long ones beyond, and cosines and sines times 1.11803",
        "vLLM serves 4,096 tokens where it is not told otherwise: with longrope it goes by "
        "original_max_position_embeddings",
    ]
    inside = {"model_type": "llama", **SIZES,
              "rope_scaling": {**LONGROPE, "original_max_position_embeddings": 4096}}  # fmt: skip
    long = read(inside, engine="vllm")
    assert long.lengths.served == 32768
    assert long.layer(0).calls[0].option("scaling").option("short_factors") == (4.0,) * 32


def test_vllms_windows() -> None:
    cohere = {"model_type": "cohere2", "sliding_window": 512, **SIZES}
    assert [layer.window for layer in read(cohere, engine="vllm").layers] == [513, 513, 513, None]
    oss = {"model_type": "gpt_oss", "layer_types": ["full_attention", "sliding_attention"] * 2, **SIZES}
    assert read(oss, engine="vllm").schedule() == ("sliding", "full", "sliding", "full")
    qwen = {"use_sliding_window": True, "sliding_window": 512, "max_window_layers": 2, **SIZES}
    with pytest.raises(ConfigError) as problem:
        read({"model_type": "qwen2", **qwen}, engine="vllm")
    assert str(problem.value) == (
        "layer_types must be of one kind for vLLM, which runs no qwen2 of which some layers slide; got both."
    )
    assert told({"model_type": "qwen2_moe", **qwen}, "vllm") == [
        "layers 2-3: attention to all tokens, where transformers has a window of 512"
    ]


def test_vllm_scales_no_proportional_frequencies() -> None:
    ropes = {"full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6,
                                "factor": 2.0},
             "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}  # fmt: skip
    config = {"model_type": "gemma4_text", "rope_parameters": ropes, **SIZES}
    assert scaling(config, "vllm") == "ProportionalScaling(fraction=0.25)"
    assert told(config, "vllm")[0] == "factor: vLLM does not read it for rope_type proportional"


def test_what_was_not_checked_in_vllm_is_told() -> None:
    assert told({"model_type": "smollm3", **SIZES}, "vllm") == [
        "vLLM has no model of its own for smollm3, or it was not checked: read as transformers runs it"
    ]


def test_vllm_runs_the_rest_as_transformers_does() -> None:
    differing = {"cohere2", "cohere2_moe", "ministral3"}
    for name in sorted(NATIVE - differing):
        config = {"model_type": name, **SETTINGS.get(name, {})}
        assert read(config, engine="vllm").layers == read(config).layers, name


# llama.cpp


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


def test_rows_name_model_types_and_architectures_that_exist() -> None:
    types = set(model_types())
    assert {*CONVERSIONS, *ALIKE, *BUNDLES, *NATIVE, *BY_LAYER, *LATENT, *ONE_KIND} <= types
    assert BY_LAYER | LATENT | ONE_KIND <= NATIVE
    assert {row.architecture for row in CONVERSIONS.values()} <= {*ARCHITECTURES, *LEFT_OUT}
    for name in BUNDLES:
        facts = facts_of(name)
        assert facts is not None
        assert facts.parts


def test_readings_are_written_as_plain_data() -> None:
    config = {"model_type": "phi3", "rope_scaling": LONGROPE, "original_max_position_embeddings": 4096, **SIZES}
    for engine in ENGINES:
        assert json.loads(read(config, engine=engine).to_json())["model_type"] == "phi3"


@pytest.mark.parametrize(("given", "order"), [({}, "contiguous"), ({"mrope_interleaved": False}, "contiguous"),
                                              ({"mrope_interleaved": True}, "interleaved")])  # fmt: skip
def test_vllm_deals_pairs_in_turns_only_where_a_setting_says_so(given: dict[str, bool], order: str) -> None:
    rope = {"rope_type": "default", "rope_theta": 5e6, "mrope_section": [24, 20, 20], **given}
    config = {"model_type": "qwen3_vl_text", "hidden_size": 512, "num_attention_heads": 4, "num_key_value_heads": 4,
              "head_dim": 128, "num_hidden_layers": 1, "max_position_embeddings": 4096,
              "rope_parameters": rope}  # fmt: skip
    model = read(config, engine="vllm")
    assert model.layer(0).calls[0].option("split").option("order") == order
    told = "mrope_interleaved: vLLM deals pairs to coordinates in blocks, since it goes by this setting"
    assert (told in map(str, model.notes)) == (order == "contiguous")
