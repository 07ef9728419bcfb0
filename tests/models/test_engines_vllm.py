"""vLLM: the same file as it serves it, and what differs from transformers in a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from situs.models import ConfigError, read
from situs.models.engines.vllm import NATIVE
from situs.models.engines.vllm_lengths import served_length
from tests.models.engine_settings import LONGROPE, SIZES, YARN, scaling, told
from tests.models.test_rotary_parity import SETTINGS


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
