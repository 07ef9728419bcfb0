"""Writing: what was written is read as the same positions, or the reason is told why it cannot be said."""

from __future__ import annotations

import contextlib
import copy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from situs.models import ConfigError, ModelPositions, fingerprint, read, write
from situs.models.calls import Call
from situs.models.readers.facts import facts_of, model_types
from situs.models.readers.families import FAMILIES
from tests.models.configurations import configurations, pairs_of, read_or_none, scaling_calls
from tests.models.written import PARAMS, QWEN, SIZES, YARN, refused, scaled

pytestmark = pytest.mark.once


@pytest.mark.thin(4)
@pytest.mark.parametrize("model_type", sorted(model_types()))
def test_defaults_of_all_model_types_are_written_and_read_again(model_type: str) -> None:
    facts = facts_of(model_type)
    assert facts is not None
    parts = {key: {"model_type": part} for key, part in facts.parts.items() if part}
    model = read_or_none({"model_type": model_type, **parts})
    if model is None:  # of which nothing is known
        return
    assert read(write(model)) == model
    family = FAMILIES.get(model_type)
    told = [each.model_type for each in (model, *model.submodels.values())]
    older = [each for each in told if each in FAMILIES and FAMILIES[each].by_type and not _has_older(each)]
    if older or (family is not None and family.by_type and not _has_older(model_type)):
        assert refused(model, "legacy").endswith("for which it has no older settings; got 'legacy'.")
    else:
        assert read(write(model, form="legacy")) == model


def _has_older(model_type: str) -> bool:
    return bool(FAMILIES[model_type].bases) or FAMILIES[model_type].per_layer


@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@given(configurations())
def test_what_was_read_is_written_and_read_again(config: dict[str, Any]) -> None:
    model = read_or_none(config)
    if model is None:
        return
    before = copy.deepcopy(config)
    assert read(write(model)) == model
    try:
        older = write(model, form="legacy")
    except ConfigError as problem:
        assert str(problem).endswith((".", "?"))  # noqa: PT017
    else:
        assert read(older) == model
        assert "rope_parameters" not in older or not any(layer.calls for layer in model.layers)
    for form in ("vllm-overrides", "llama.cpp-flags"):
        with contextlib.suppress(ConfigError):
            assert write(model, form=form).startswith("--")
    assert config == before


@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@given(configurations(), st.data())
def test_what_was_changed_is_written_as_it_is_now(config: dict[str, Any], data: st.DataObject) -> None:
    model = read_or_none(config)
    if model is None or not pairs_of(model):
        return
    changed = scaled(model, data.draw(scaling_calls(pairs_of(model))))
    try:
        found = read(write(changed))
    except ConfigError as problem:
        assert str(problem).endswith((".", "?"))  # noqa: PT017
        return
    scaling = next((call.option("scaling") for layer in changed.layers for call in layer.calls), None)
    named = scaling is None or not (scaling.cls.startswith("NTK") or scaling.option("target_length"))
    if named:
        assert found.layers == changed.layers
    assert [layer.kind for layer in found.layers] == [layer.kind for layer in changed.layers]


def test_both_spellings_of_a_changed_model() -> None:
    model = scaled(read(QWEN), YARN)
    rest = {key: value for key, value in QWEN.items() if key != "rope_theta"}
    told = {"factor": 4.0, "original_max_position_embeddings": 32768}
    today = {**rest, "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, **told}}
    older = {**rest, "rope_theta": 1e6, "rope_scaling": {"rope_type": "yarn", "type": "yarn", **told}}
    assert write(model) == today
    assert write(model, form="legacy") == older
    assert read(today).layers == read(older).layers == model.layers
    assert fingerprint(today) == fingerprint(older) == fingerprint(model)


def test_types_of_layers_have_rope_parameters_of_their_own() -> None:
    config = {"model_type": "gemma3_text", **SIZES, "sliding_window_pattern": 2, "head_dim": 16}
    model = read({**config, "rope_scaling": {"rope_type": "linear", "factor": 8.0}})
    assert write(model) == {
        **config,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
        },
    }
    assert write(model, form="legacy") == {
        **config,
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
        "rope_scaling": {"type": "linear", "factor": 8.0},
    }


def test_older_names_are_those_of_the_model_type() -> None:
    neox = read({"model_type": "gpt_neox", **SIZES, "rotary_pct": 0.5})
    older = write(neox, form="legacy")
    assert (older["rotary_emb_base"], older["rotary_pct"]) == (1e4, 0.5)
    assert write(neox)["rope_parameters"] == {
        "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5,
    }  # fmt: skip
    dbrx = {"model_type": "dbrx", "d_model": 64, "n_heads": 4, "n_layers": 2, "attn_config": {"rope_theta": 5e5}}
    assert write(read(dbrx), form="legacy") == dbrx
    assert write(read(dbrx))["rope_parameters"]["rope_theta"] == 5e5
    phi = {"model_type": "phi3", **SIZES, "max_position_embeddings": 8192, "original_max_position_embeddings": 4096}
    lists = {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
    older = write(read({**phi, "rope_scaling": {**lists, "type": "su"}}), form="legacy")
    assert older["rope_scaling"] == lists
    assert older["original_max_position_embeddings"] == 4096


def test_schedules_windows_and_lengths_are_written_by_the_layers() -> None:
    model = read({"model_type": "mistral", **SIZES, "sliding_window": 8})
    full = replace(model.layers[0], kind="full", window=None)
    mixed = replace(model, layers=(full, *(replace(each, window=32) for each in model.layers[1:])))
    mixed = replace(mixed, lengths=replace(mixed.lengths, declared=1234))
    written = write(mixed)
    assert written["layer_types"] == ["full_attention", *["sliding_attention"] * 3]
    assert (written["sliding_window"], written["max_position_embeddings"]) == (32, 1234)
    assert read(written) == mixed
    bert = read({"model_type": "modernbert", **SIZES})
    wide = replace(bert, layers=tuple(replace(each, window=each.window and 101) for each in bert.layers))
    assert write(wide)["local_attention"] == 200
    smol = read({"model_type": "smollm3", **SIZES})
    none = replace(smol, layers=tuple(replace(each, calls=()) for each in smol.layers[:2]) + smol.layers[2:])
    assert write(none)["no_rope_layers"] == [0, 0, 1, 0]


def test_scalings_without_a_name_are_written_as_what_rotates_alike() -> None:
    model = read(QWEN)
    ntk = write(scaled(model, Call.of("NTKScaling", factor=4.0)))
    assert ntk["rope_parameters"] == {"rope_type": "default", "rope_theta": 1e6 * 4 ** (128 / 126)}
    assert fingerprint(ntk) == fingerprint(scaled(model, Call.of("NTKScaling", factor=4.0)))
    parts = scaled(model, Call.of("NTKByPartsScaling", original_length=32768, target_length=131072))
    assert write(parts)["rope_parameters"] == {
        "rope_type": "yarn", "rope_theta": 1e6, "original_max_position_embeddings": 32768, "factor": 4.0,
        "attention_factor": 1.0,
    }  # fmt: skip
    hunyuan = read({"model_type": "hunyuan_v1_dense", **SIZES, "head_dim": 16})
    alpha = write(scaled(hunyuan, Call.of("NTKScaling", factor=1000.0)))
    assert alpha["rope_parameters"] == {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 1.0, "alpha": 1000.0}


def test_metas_own_models_are_written_for_converted_weights() -> None:
    model = read(PARAMS)
    assert refused(model) == (
        "pairing of layers 0-1 must be 'halves', since llama of transformers has no other, and no setting says it; got "
        "'interleaved'. Convert the weights with situs.convert_pairing, and write with pairing='halves'."
    )
    written = write(model, pairing="halves")
    assert written["model_type"] == "llama"
    assert written["rope_parameters"] == {"rope_type": "default", "rope_theta": 5e5}
    assert write(model, form="llama.cpp-flags") == "--rope-scaling none --rope-freq-base 500000"
    assert "500000.0" in write(model, form="vllm-overrides")


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (
            scaled(read(QWEN), Call.of("SelfExtend", window=8, group=2)),
            "scaling must be one that settings can say, such as YaRN, since no configuration has a rope type for "
            "others; got SelfExtend.",
        ),
        (
            scaled(read(QWEN), YARN.replace(dialect="paper")),
            "dialect of YaRN must be 'hf', since released models ramp over pairs and no setting says otherwise; got "
            "'paper'.",
        ),
        (
            replace(read(QWEN), layers=read(QWEN).layers[:2]),
            "layers must be 4, as many as qwen3 was read with, since each has weights; got 2.",
        ),
        (
            replace(read(QWEN), config={}),
            "config of qwen3 must be the settings that it was read from, since all but positions is taken from there; "
            "got none. Read the model with situs.models.read.",
        ),
        (
            replace(read(QWEN), layers=tuple(replace(each, sinks=True) for each in read(QWEN).layers)),
            "layers 0-3 must do what settings of qwen3 can say, since anything else would be lost; got "
            "Rotary(head_dim=128, base=1000000.0), sinks, which would be read as Rotary(head_dim=128, base=1000000.0).",
        ),
        (
            replace(read({"model_type": "bert"}), input=()),
            "input must have what settings of bert can say, since anything else would be lost; got nothing, which "
            "would be read as Learned(dim=768, max_length=512).",
        ),
        (
            replace(read({"model_type": "bert"}), lengths=read(QWEN).lengths),
            "lengths.declared must be one that settings of bert can say; got 40960, which would be read as 512.",
        ),
        (
            replace(read(QWEN), layers=tuple(replace(each, calls=(each.calls[0].replace(base=(1e4, 1e5)),))
                                             for each in read(QWEN).layers)),
            "base must be a number, since rope_theta is one for all heads; got 2 of them.",
        ),
    ],
)  # fmt: skip
def test_what_settings_cannot_say_is_refused(model: ModelPositions, said: str) -> None:
    assert refused(model) == said


def test_older_settings_cannot_say_everything() -> None:
    assert refused(read({"model_type": "gemma4_text"}), "legacy") == (
        "form must be 'transformers', since gemma4_text rotates each type of layer by rope parameters of its own, for "
        "which it has no older settings; got 'legacy'."
    )
    model = scaled(read(QWEN), Call.of("ProportionalScaling", fraction=0.5))
    assert refused(model, "legacy") == (
        "rope_type must be one that transformers had before version 5, since the older spelling is for that; got "
        "'proportional'. Write form='transformers'."
    )


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(TypeError) as problem:
        write(QWEN)  # type: ignore[call-overload]
    assert str(problem.value).startswith("model_positions must be what situs.models.read gives; got {'model_type':")
    with pytest.raises(ValueError, match=r"^form must be one of .*; got 'transformer'. Did you mean 'transformers'\?$"):
        write(read(QWEN), form="transformer")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match=r"^pairing must be 'halves', 'interleaved' or None; got 'half'.$"):
        write(read(QWEN), pairing="half")  # type: ignore[call-overload]
