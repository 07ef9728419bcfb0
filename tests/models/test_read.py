"""Reading: every key is read or refused, what transformers gets wrong is read right and told."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

import situs
from situs.models.readers.facts import facts_of
from situs.models.reading import read
from situs.models.sources.strict import ConfigError

SIZES: dict[str, Any] = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 4}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}


def llama(**settings: Any) -> dict[str, Any]:
    """A small Llama."""
    return {"model_type": "llama", **SIZES, **settings}


def refused(config: Any) -> str:
    """What is said of a configuration that cannot be read."""
    with pytest.raises(ConfigError) as problem:
        read(config)
    return str(problem.value)


def test_a_model_says_what_each_layer_does() -> None:
    config = llama(model_type="gemma2", head_dim=16, query_pre_attn_scalar=144, sliding_window=8)
    model = read(config)
    assert repr(model) == (
        "gemma2\n"
        "  layers 0, 2: Rotary(head_dim=16, base=10000.0), window 8, scale 0.0833333, softcap 50\n"
        "  layers 1, 3: Rotary(head_dim=16, base=10000.0), scale 0.0833333, softcap 50"
    )
    layer = model.layer(2)
    assert (layer.kind, layer.window, layer.scale, layer.softcap) == ("sliding", 8, 1 / 12, 50.0)
    assert layer.encodings[0].base == 10000.0
    assert layer.encodings is layer.encodings
    assert model.schedule() == ("sliding", "full", "sliding", "full")
    assert json.loads(model.to_json())["groups"][0]["layers"] == "0, 2"
    with pytest.raises(IndexError) as problem:
        model.layer(4)
    assert str(problem.value) == "layer must be a number below 4, since gemma2 has that many layers; got 4."


def test_layers_without_rotation_may_have_a_temperature() -> None:
    model = read({"model_type": "llama4_text", **SIZES, "head_dim": 16, "attention_chunk_size": 8})
    assert [layer.kind for layer in model.layers] == ["chunked", "chunked", "chunked", "full"]
    assert model.layer(0).temperature is None
    assert model.layer(0).chunk == 8
    temperature = model.layer(3).temperature
    assert isinstance(temperature, situs.Temperature)
    assert (temperature.dialect, temperature.original_length, temperature.factor) == ("llama4", 8192, 0.1)


def test_every_source_gives_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = llama(rope_scaling={"type": "linear", "factor": 2.0})
    expected, text = read(config), json.dumps(config)
    (tmp_path / "config.json").write_text(text)
    assert read(text) == read(text.encode()) == read(tmp_path) == read(str(tmp_path / "config.json")) == expected
    with (tmp_path / "config.json").open("rb") as file:
        monkeypatch.setattr("sys.stdin", type("Standard", (), {"buffer": file}))
        assert read("-") == expected


def test_the_callers_settings_are_not_changed() -> None:
    config = llama(rope_scaling={"type": "linear", "factor": 2.0})
    before = copy.deepcopy(config)
    read(config)
    assert config == before


def test_old_and_new_spellings_are_read_alike() -> None:
    old = llama(rope_theta=5e5, rope_scaling={"type": "linear", "factor": 2.0})
    new = llama(rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5})
    assert read(old) == read(new)
    neox = {"model_type": "gpt_neox", **SIZES}
    assert read({**neox, "rotary_pct": 0.5, "rotary_emb_base": 5e4}) == read(
        {**neox, "rope_parameters": {"rope_type": "default", "rope_theta": 5e4, "partial_rotary_factor": 0.5}}
    )
    gemma = {"model_type": "gemma3_text", **SIZES, "head_dim": 16, "num_hidden_layers": 6}
    by_type = {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 2e4},
    }
    old = {"rope_theta": 1e6, "rope_local_base_freq": 2e4, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    assert read({**gemma, **old}) == read({**gemma, "rope_parameters": by_type})


def test_metas_own_file_pairs_neighbours() -> None:
    params = {"dim": 4096, "n_layers": 2, "n_heads": 32, "n_kv_heads": 8, "rope_theta": 500000.0,
              "use_scaled_rope": True, "vocab_size": 128256, "norm_eps": 1e-05}  # fmt: skip
    scaling = "Llama3Scaling(factor=8.0, original_length=8192, low_frequency_factor=1.0, high_frequency_factor=4.0)"
    assert repr(read(params)) == (
        f"llama\n  layers 0-1: Rotary(head_dim=128, base=500000.0, pairing='interleaved', scaling={scaling})"
    )
    assert refused({**params, "rope_freq": 2}) == (
        "rope_freq must be a setting that is known of params.json, since it might speak of positions; got 2."
    )


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            llama(model_type="qwen3", rope_parameters={"rope_type": "default", "rope_theta": 5e6}, rope_scaling=YARN),
            "rope_parameters and rope_scaling must not both be given, since they are two names of one setting and "
            "transformers drops the first; got two that differ. Remove rope_scaling.",
        ),
        (
            llama(model_type="qwen3", rope_parameters=YARN),
            "rope_parameters.rope_theta must be given, since it is the base of the frequencies, and rope parameters "
            "that replace others take it along; got none. Repeat the model's own, such as 10000.0.",
        ),
        (
            {"model_type": "qwen3_vl", "text_config": {"model_type": "qwen3_vl_text"}, "rope_parameters": YARN},
            "rope_parameters must stand in one of the parts of qwen3_vl, since none of them reads it from here; got an "
            "object with rope_type, factor, original_max_position_embeddings. Put it into text_config.",
        ),
        (
            llama(model_type="gemma3_text", num_hidden_layers=6, rope_parameters={"rope_theta": 1e6}),
            "rope_parameters must have an object for each of full_attention, sliding_attention, since gemma3_text "
            "rotates them differently and transformers ignores one for all; got {'rope_theta': 1000000.0}. Put "
            "it under full_attention.",
        ),
        (
            llama(partial_rotary_factor=0.5),
            "partial_rotary_factor must be left out, since llama rotates all channels, and transformers fails or "
            "ignores it; got 0.5.",
        ),
        (
            llama(rope_scaling={"rope_type": "yarm", "factor": 4.0}),
            "rope_scaling.rope_type must be one of default, linear, dynamic, yarn, longrope, llama3, proportional, "
            "axial, since each is computed by its own formula; got 'yarm'. Did you mean 'yarn'?",
        ),
        (
            llama(rope_scaling={"rope_type": "linear", "factor": 0.5}),
            "rope_scaling.factor must be at least 1, since positions are stretched by it; got 0.5.",
        ),
        (
            llama(rope_scaling={"rope_type": "linear", "facter": 2.0}),
            "rope_scaling.facter must be a key that rope_type linear has, since no other is read; got 2.0. Did you "
            "mean 'factor'?",
        ),
        (
            llama(rope_scaling={"rope_type": "linear", "factor": 2.0, "beta_fast": 32}),
            "rope_scaling.beta_fast must be a key that rope_type linear has, since no other is read; got 32. "
            "beta_fast belongs to rope_type yarn.",
        ),
        (
            llama(rope_thetta=5e5),
            "rope_thetta must be a setting that is understood, since it speaks of positions; got 500000.0. Did you "
            "mean 'rope_theta'?",
        ),
        (
            llama(rope_theta=float("nan")),
            "rope_theta must be more than 0, since it is the base of the frequencies; got nan.",
        ),
        (llama(num_hidden_layers="4"), "num_hidden_layers must be a whole number, since it counts layers; got '4'."),
        (
            {"hidden_size": 8},
            "model_type must name a model type, since settings mean different things by it; got null.",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(config: dict[str, Any], said: str) -> None:
    assert refused(config) == said


def test_what_changes_nothing_is_told() -> None:
    model = read(llama(sliding_window_pattern=3, rope_interleave=True))
    assert [str(note) for note in model.notes] == [
        "sliding_window_pattern: 3 changes nothing: llama does not read it",
        "rope_interleave: true changes nothing: llama does not read it",
    ]


def test_what_transformers_ignores_is_read_and_told() -> None:
    dbrx = {"model_type": "dbrx", "d_model": 64, "n_heads": 4, "n_layers": 2}
    model = read({**dbrx, "attn_config": {"rope_theta": 500000.0, "kv_n_heads": 2}})
    assert model.layer(0).calls[0].option("base") == 500000.0
    heads = model.layer(0).heads
    assert heads is not None
    assert heads.keys == 2
    assert [str(note) for note in model.notes] == [
        "attn_config.rope_theta: transformers 5.22 ignores it, and takes 10,000"
    ]
    olmo = read({"model_type": "olmo3", **SIZES, "rope_theta": 1e4})
    assert {layer.calls[0].option("base") for layer in olmo.layers} == {1e4}
    assert [str(note) for note in olmo.notes] == [
        "rope_theta: transformers 5.22 takes it for full layers alone, and 500,000 for sliding ones"
    ]


def test_a_length_beyond_the_scaling_is_told() -> None:
    config = llama(rope_theta=1e6, rope_scaling=YARN, max_position_embeddings=262144)
    assert [str(note) for note in read(config).notes] == [
        "max_position_embeddings: 262,144 is more than yarn by 4 covers, 131,072 from 32,768"
    ]


def test_an_unknown_type_is_read_by_the_general_rule_and_says_so() -> None:
    model = read({**llama(rope_theta=1e4), "model_type": "brand_new"})
    assert not model.verified
    assert repr(model).startswith("brand_new, not in the table: read by the general rule\n")
    assert refused({**llama(rope_theta=1e4, no_rope_layers=[1]), "model_type": "brand_new"}).startswith(
        "no_rope_layers must be a setting that is understood"
    )
    assert refused({**SIZES, "model_type": "brand_new"}).startswith(
        "model_type must be one that is known, or have rope"
    )


def test_null_is_not_the_default() -> None:
    assert read(llama(model_type="mistral")).layer(0).window == 4096
    assert read(llama(model_type="mistral", sliding_window=None)).layer(0).window is None


def test_a_base_that_is_null_is_refused() -> None:
    assert refused({"model_type": "dinov3_vit", "rope_theta": None}) == (
        "rope_theta must be given, since it is the base of the frequencies; got none."
    )


def test_parts_become_submodels() -> None:
    config = {"model_type": "llava", "text_config": llama(), "vision_config": {"model_type": "clip_vision_model"}}
    model = read(config)
    assert set(model.submodels) == {"text", "vision"}
    assert model.layer(0) == read(llama()).layer(0)
    assert model.main.model_type == "llama"


@pytest.mark.parametrize("model_type", ["llama", "gptj", "bert", "vit", "t5", "qwen3_vl_vision"])
def test_more_layers_than_any_model_has_are_refused(model_type: str) -> None:
    facts = facts_of(model_type)
    assert facts is not None
    key = next(name for name in ("num_hidden_layers", "n_layer", "num_layers", "depth") if name in facts.keys)
    assert refused({"model_type": model_type, key: 10_001}) == (
        f"{key} must be at most 10,000, since it counts layers; got 10,001."
    )


@pytest.mark.parametrize("source", ["", "a\0b", "\ud800"])
def test_what_names_no_file_is_refused(source: str) -> None:
    assert refused(source) == f"source must name a file or a folder; got {source!r}."


def test_a_file_of_golden_numbers_is_no_configuration() -> None:
    assert refused({"schema": "situs-golden", **llama()}) == (
        "source must be a configuration; got config, which holds golden numbers. Give the config.json that they were "
        "made from."
    )


@pytest.mark.parametrize("index", [None, "1", 1.5, True, 4, -5])
def test_a_layer_that_is_not_there_is_refused(index: Any) -> None:
    with pytest.raises(IndexError, match=r"^layer must be a number below 4, since llama has that many layers; got .*$"):
        read(llama()).layer(index)
