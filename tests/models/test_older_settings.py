"""Settings that releases have and transformers' classes move elsewhere: read as they are meant, or refused."""

from __future__ import annotations

from typing import Any

import pytest

from situs.models import extend, read
from tests.models.test_read import SIZES, llama, refused

YARN: dict[str, Any] = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}


def bases(config: dict[str, Any]) -> list[float]:
    """The base of each layer."""
    return [layer.calls[0].option("base") for layer in read(config).layers]


def test_deepseek_v4_scales_compressed_layers_alone() -> None:
    config = {"model_type": "deepseek_v4", "num_hidden_layers": 4, "compress_ratios": [0, 4, 128, 4, 0],
              "rope_theta": 1e4, "compress_rope_theta": 16e4, "qk_rope_head_dim": 32, "rope_scaling": YARN}  # fmt: skip
    model = read(config)
    assert bases(config) == [1e4, 16e4, 16e4, 16e4]
    assert [layer.kind for layer in model.layers] == ["sliding", "full", "full", "full"]
    plain, scaled = (model.layer(index).calls[0] for index in (0, 1))
    assert (plain.option("scaling"), plain.option("rotary_dim")) == (None, 32)
    assert scaled.option("scaling").option("attention_factor") == 1.0
    flat = {**config, "rope_parameters": {**YARN, "rope_theta": 1e4}}
    del flat["rope_scaling"]
    assert read(flat) == model
    assert refused({**config, "compress_ratios": [0, 3, 128, 4]}) == (
        "compress_ratios must have one of 0, 4, 128 for each of 4 layers; got [0, 3, 128, 4]."
    )


def test_step_lists_a_base_and_a_share_for_each_layer() -> None:
    types = ["full_attention", "sliding_attention"] * 2
    config = {"model_type": "step3p5", "num_hidden_layers": 4, "layer_types": types, "sliding_window": 8,
              "rope_theta": [5e6, 1e4, 5e6, 1e4, 7.0], "partial_rotary_factors": [0.5, 1.0, 0.5, 1.0]}  # fmt: skip
    assert bases(config) == [5e6, 1e4, 5e6, 1e4]
    assert [layer.calls[0].option("rotary_dim") for layer in read(config).layers] == [64, None, 64, None]
    assert bases({**config, "rope_theta": 2e4}) == [2e4] * 4
    assert refused({**config, "rope_theta": [5e6, 1e4, 1e6, 1e4]}) == (
        "rope_theta must have a number for each of 4 layers, and one for all of full_attention, since transformers has "
        "one for each type; got [5000000.0, 10000.0, 1000000.0, 10000.0]."
    )


def test_hunyuan_alone_has_alpha() -> None:
    scaling = {"type": "dynamic", "alpha": 1000.0, "factor": 1.0, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0,
               "mscale_all_dim": 1.0}  # fmt: skip
    model = read({"model_type": "hunyuan_v1_dense", **SIZES, "head_dim": 16, "rope_scaling": scaling})
    assert repr(model.layer(0).calls[0].option("scaling")) == "NTKScaling(factor=1000.0)"
    assert refused(llama(rope_scaling={"type": "dynamic", "alpha": 1000.0, "factor": 1.0})) == (
        "rope_scaling.alpha must be a key that rope_type dynamic has, since no other is read; got 1000.0."
    )


@pytest.mark.parametrize("name", ["su", "yarn", "longrope"])
def test_phi_3_calls_longrope_by_three_names(name: str) -> None:
    lists = {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
    config = {"model_type": "phi3", **SIZES, "max_position_embeddings": 8192, "rope_scaling": {"type": name, **lists}}
    model = read(config)
    assert model.layer(0).calls[0].option("scaling").cls == "LongRoPE"
    told = ["rope_scaling.type 'su' is longrope, and fails in transformers 5.22"] * (name == "su")
    assert [str(note) for note in model.notes] == told
    assert refused({**config, "rope_scaling": {"type": "linear", "factor": 2.0}}) == (
        "rope_scaling.type must be one of default, longrope, since each is computed by its own formula; got 'linear'."
    )


def test_command_r_has_two_lengths() -> None:
    model = read({"model_type": "cohere", **SIZES, "max_position_embeddings": 8192, "model_max_length": 131072})
    assert model.lengths.declared == 131072
    assert [str(note) for note in model.notes] == [
        "max_position_embeddings: 8,192 bounds nothing: model_max_length is 131,072, which vLLM and llama.cpp serve"
    ]
    for engine in ("vllm", "llama.cpp"):
        assert read(model.config, engine=engine).lengths.served == 131072
    longer = extend(model, target=262144)
    assert (longer.original, longer.positions.lengths.declared) == (131072, 262144)
    assert longer.config["max_position_embeddings"] == longer.config["model_max_length"] == 262144
    assert read({"model_type": "cohere", **SIZES, "max_position_embeddings": 8192}).lengths.declared == 8192
    other = read({"model_type": "llama", **SIZES, "max_position_embeddings": 8192, "model_max_length": 131072})
    assert other.lengths.declared == 8192
    assert str(other.notes[0]) == "model_max_length: 131,072 changes nothing: max_position_embeddings is 8,192"


@pytest.mark.parametrize(
    ("settings", "keys"),
    [
        ({"multi_query": True, "num_kv_heads": 4}, 1),
        ({"multi_query": False}, 4),
        ({"new_decoder_architecture": True, "num_kv_heads": 2}, 2),
    ],
)
@pytest.mark.parametrize("alibi", [True, False])
def test_queries_of_falcon_share_keys(settings: dict[str, Any], keys: int, alibi: bool) -> None:
    heads = read({"model_type": "falcon", **SIZES, **settings, "alibi": alibi}).layer(0).heads
    assert heads is not None
    assert (heads.queries, heads.keys) == (4, keys)


def test_layouts_of_coordinates_that_are_another_models_are_told() -> None:
    sections = {"rope_type": "default", "mrope_section": [24, 20, 20], "mrope_interleaved": True}
    text = {**SIZES, "head_dim": 128, "rope_theta": 1e6, "rope_scaling": sections}
    assert not read({"model_type": "qwen3_vl_text", **text}).notes
    assert [str(note) for note in read({"model_type": "qwen2_5_vl_text", **text}).notes] == [
        "rope_scaling.mrope_interleaved: transformers ignores it, vLLM deals pairs by it"
    ]


def test_a_ramp_by_type_of_layer_is_read_and_told() -> None:
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096, "truncate": False}
    full = {"full_attention": {**yarn, "rope_theta": 5e5}, "sliding_attention": {"rope_theta": 5e5}}
    model = read({"model_type": "olmo3", **SIZES, "rope_parameters": full})
    assert model.layer(3).calls[0].option("scaling").option("truncate") is False
    assert [str(note) for note in model.notes] == [
        "rope_parameters.full_attention.truncate: transformers 5.22 ignores it where types of layers differ"
    ]


def test_parts_with_a_type_of_their_own_may_call_themselves_otherwise() -> None:
    """As the vision of Qwen 3 VL does."""
    parts = {"text_config": {"model_type": "qwen3_vl_text"}, "vision_config": {"model_type": "qwen3_vl"}}
    assert read({"model_type": "qwen3_vl", **parts}).submodels["vision"].model_type == "qwen3_vl_vision"


def test_layers_of_nemotron_h_are_letters() -> None:
    config = {"model_type": "nemotron_h", "num_hidden_layers": 52, "hybrid_override_pattern": "M-M*ME"}
    assert [layer.kind[0] for layer in read(config).layers] == ["l", "n", "l", "f", "l", "n"]
    assert refused({**config, "hybrid_override_pattern": "M?"}) == (
        "hybrid_override_pattern must be made of M, E, *, -, a letter for each layer; got 'M?'."
    )


def test_shares_are_at_most_one() -> None:
    assert refused({"model_type": "glm4", "rotary_pct": 1e308}) == (
        "rotary_pct must be more than 0 and at most 1, since it is a share of the channels; got 1e+308."
    )
