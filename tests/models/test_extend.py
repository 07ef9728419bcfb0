"""Configurations extended to longer texts: numbers that follow from two others, files that are read again, refusals."""

import copy
import math
from typing import Any

import numpy as np
import pytest

from situs.models import ConfigError, extend, read
from situs.models.extendable import METHODS
from situs.models.numbers import rotation_of
from situs.models.scores import Change
from tests.models.released_models import NAMES, config_of

SIZES = {"hidden_size": 512, "num_attention_heads": 4, "num_hidden_layers": 6}
LLAMA = {"model_type": "llama", **SIZES, "max_position_embeddings": 4096, "rope_theta": 1e6}
LLAMA31 = {
    **LLAMA, "max_position_embeddings": 131072, "rope_theta": 5e5,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                     "original_max_position_embeddings": 8192},
}  # fmt: skip
GEMMA = {"model_type": "gemma3_text", "head_dim": 128, **SIZES, "max_position_embeddings": 32768}


def refused(source: object, **options: Any) -> str:
    with pytest.raises(ConfigError) as problem:
        extend(source, **options)
    return str(problem.value)


def frequencies(config: Any, layer: int = -1, length: int | None = None) -> np.ndarray:
    rotation = rotation_of(read(config).layer(layer), length)
    assert rotation is not None
    return np.array(rotation.frequencies)


@pytest.mark.parametrize("method", [each for each in METHODS if each != "longrope"])
@pytest.mark.parametrize("config", [LLAMA, GEMMA], ids=["llama", "gemma3"])
def test_each_method_is_written_and_read_again(config: dict[str, Any], method: Any) -> None:
    length = config["max_position_embeddings"]
    longer = extend(config, target=4 * length, method=method)
    assert (longer.factor, longer.original, longer.target) == (4.0, length, 4 * length)
    assert read(longer.config) == longer.positions
    before, after = frequencies(config), frequencies(longer.config, length=4 * length)
    assert after[0] >= before[0] / 4 * (1 - 1e-12)
    assert after[-1] <= before[-1] / 4 * (1 + 1e-12)


def test_ntk_is_a_larger_base() -> None:
    longer = extend(LLAMA, target=16384, method="ntk")
    assert longer.config["rope_parameters"] == {"rope_type": "default", "rope_theta": 1e6 * 4 ** (128 / 126)}
    assert longer.change.frequency == pytest.approx(0.75)


def test_dynamic_leaves_short_texts_and_the_declared_length_alone() -> None:
    longer = extend(LLAMA, target=16384, method="dynamic")
    assert longer.config["max_position_embeddings"] == 4096
    assert longer.change.frequency == longer.change.score == 0


def test_any_two_of_original_target_and_factor_give_the_third() -> None:
    assert extend(LLAMA, factor=8).target == 32768
    assert extend(LLAMA, target=32768).factor == 8
    assert extend(LLAMA, target=32768, factor=8).original == 4096
    assert extend(LLAMA, target=32768, original=2048).factor == 16
    assert extend(LLAMA, original=2048, factor=4).target == 8192


def test_a_model_keeps_the_method_that_it_has() -> None:
    longer = extend(LLAMA31, target=262144)
    assert (longer.method, longer.factor) == ("llama3", 16.0)
    rope = longer.config["rope_parameters"]
    assert (rope["original_max_position_embeddings"], rope["low_freq_factor"], rope["rope_theta"]) == (8192, 1.0, 5e5)
    gemma = {**GEMMA, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    longer = extend(gemma, target=65536)
    assert (longer.method, longer.factor) == ("linear", 16.0)


def test_deepseek_keeps_its_ramp_and_its_softmax_scale_grows() -> None:
    config = {
        "model_type": "deepseek_v3", "hidden_size": 512, "num_attention_heads": 4, "num_hidden_layers": 2,
        "max_position_embeddings": 163840, "rope_theta": 1e4,
        "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32,
                         "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0},
    }  # fmt: skip
    longer = extend(config, target=327680)
    assert longer.factor == 80
    scale = longer.positions.layer(0).scale
    assert scale == pytest.approx(192**-0.5 * (0.1 * math.log(80) + 1) ** 2)


def test_layers_with_a_window_stay_as_they_are_where_the_file_can_say_so() -> None:
    longer = extend(GEMMA, target=131072)
    before, after = read(GEMMA), longer.positions
    assert after.layer(0) == before.layer(0)
    assert after.layer(5) != before.layer(5)
    assert longer.notes == ()


def test_layers_with_a_window_change_where_one_object_serves_all() -> None:
    gemma2 = {"model_type": "gemma2", "head_dim": 128, **SIZES, "sliding_window": 1024}
    longer = extend(gemma2, target=32768)
    assert longer.notes == (
        "sliding layers change too, since this model type has one set of frequencies for all layers",
    )


def test_a_window_that_is_wider_than_training_grows_with_the_text() -> None:
    config = {**LLAMA, "model_type": "mistral", "sliding_window": 8192}
    assert extend(config, target=8192).factor == 2
    assert "nothing to set" in refused({**config, "sliding_window": 4096}, target=8192)


def test_the_text_of_a_whole_is_extended_in_its_place() -> None:
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24], "mrope_interleaved": False}
    whole = {"model_type": "qwen2_vl", "text_config": {
        "model_type": "qwen2_vl_text", **SIZES, "max_position_embeddings": 32768, "rope_parameters": rope}}  # fmt: skip
    longer = extend(whole, target=131072)
    text = longer.config["text_config"]
    assert text["rope_parameters"]["mrope_section"] == [16, 24, 24]
    assert text["rope_parameters"]["mrope_interleaved"] is False
    assert text["rope_parameters"]["factor"] == 4.0
    assert "rope_parameters" not in longer.config
    assert longer.notes == (
        "positions of images advance by less than one per token: texts with images need a smaller factor",
    )


@pytest.mark.parametrize("name", NAMES)
def test_what_changed_can_be_put_into_the_released_file(name: str) -> None:
    released = config_of(name)
    try:
        longer = extend(released, target=10_000_000)
    except ConfigError:
        return  # nothing to extend
    pasted, config = longer.pasted(), copy.deepcopy(released)
    new, old = pasted, config
    while len(new) == 1 and isinstance(part := next(iter(new.values())), dict) and "rope_parameters" not in new:
        old, new = old[next(iter(new))], part
    for key in longer.replaces:
        del old[key]
    old.update(new)
    assert read(config) == longer.positions


@pytest.mark.parametrize(
    ("config", "replaces", "words"),
    [
        (LLAMA31, ("rope_theta", "rope_scaling"), "in place of rope_theta and rope_scaling"),
        (LLAMA, ("rope_theta",), "in place of rope_theta"),
        (LLAMA | {"rope_scaling": None, "partial_rotary_factor": 1.0}, ("rope_theta", "partial_rotary_factor"),
         "in place of rope_theta and partial_rotary_factor"),
        ({"model_type": "gemma3", "text_config": GEMMA | {"rope_local_base_freq": 1e4, "rope_theta": 1e6,
          "rope_scaling": {"rope_type": "linear", "factor": 8.0}}},
         ("rope_local_base_freq", "rope_theta", "rope_scaling"),
         "in place of rope_local_base_freq, rope_theta and rope_scaling"),
        (GEMMA, (), ""),
    ],
    ids=["llama 3.1", "llama", "null", "a part", "nothing"],
)  # fmt: skip
def test_settings_that_the_new_ones_take_the_place_of_are_named(
    config: dict[str, Any], replaces: tuple[str, ...], words: str
) -> None:
    longer = extend(config, target=1_000_000)
    assert longer.replaces == replaces
    assert longer.instead() == words


def test_the_source_stays_as_it_is() -> None:
    config = copy.deepcopy(LLAMA31)
    model = read(config)
    extend(config, target=262144)
    extend(model, target=262144)
    assert config == LLAMA31
    assert model == read(LLAMA31)


def test_another_method_than_the_models_own_is_told() -> None:
    assert extend(LLAMA31, target=262144, method="yarn").notes == (
        "yarn replaces llama3, which the model was trained with",
    )


def test_change_is_that_of_scores_and_frequencies() -> None:
    longer = extend(LLAMA, target=8192, method="linear")
    before = frequencies(LLAMA)
    distances = np.arange(4096)[:, None]
    change = np.abs(np.cos(distances * before / 2).mean(-1) - np.cos(distances * before).mean(-1))
    assert longer.change.frequency == pytest.approx(0.5)
    assert longer.change.score == pytest.approx(change.max())
    assert longer.change.distance == change.argmax()


def test_a_change_is_told_in_a_sentence() -> None:
    assert str(extend(LLAMA, target=16384, method="dynamic").change) == "Below 4,096 tokens, nothing changes."
    assert str(Change(0.75, 0.3, 18_285, 32_768)) == (
        "Below 32,768 tokens, frequencies change by up to 75 % and scores by up to 0.3 (at distance 18,285; a token "
        "with itself has 1)."
    )
    assert "frequencies change by up to 31 times and scores" in str(Change(31.2, 0.3, 1, 2))


def test_a_factor_that_is_not_target_by_original_is_told_where_it_comes_from() -> None:
    longer = extend(LLAMA31, target=1_000_000)
    assert longer.notes == ("the factor grows as the declared length does: it is 8 for 131,072 tokens",)
    assert extend(LLAMA31, target=1_000_000, method="yarn").notes == (
        "yarn replaces llama3, which the model was trained with",
    )
    assert extend(LLAMA31, factor=16.0).notes == ()


def test_longrope_takes_divisors_and_refuses_to_guess_them() -> None:
    assert refused(LLAMA, target=16384, method="longrope") == (
        "factors must hold short_factor and long_factor, 64 numbers each, since longrope divides each frequency by a "
        "number that a search found for one model and length; got none. Without them, choose yarn."
    )
    assert refused(LLAMA, target=16384, method="longrope", factors={"short_factor": [1.0], "long_factor": [1.0]}) == (
        "factors['short_factor'] must be 64 numbers, one for each pair; got 1."
    )
    lists = {"short_factor": [1.0] * 64, "long_factor": list(np.linspace(1, 4, 64))}
    longer = extend(LLAMA, target=16384, method="longrope", factors=lists)
    np.testing.assert_allclose(frequencies(longer.config, length=16384), frequencies(LLAMA) / lists["long_factor"])


def test_a_model_type_that_reads_no_other_type_is_extended_by_its_base() -> None:
    phi = {"model_type": "phi3", **SIZES, "max_position_embeddings": 4096}
    longer = extend(phi, target=8192)
    assert longer.method == "ntk"
    assert refused(phi, target=8192, method="yarn") == (
        "method must be ntk or longrope for phi3, since it reads no other rope_type; got 'yarn'."
    )


REFUSED = "source must have layers of full attention that rotate by rope parameters; got "


@pytest.mark.parametrize(("config", "message"), [
    ({"model_type": "gpt2"}, "gpt2: its positions are a learned table of 1,024 rows, which no setting makes longer. "
     "Extend the table and train on: situs.Learned.extend."),
    ({"model_type": "bloom"}, "bloom: its scores go by ALiBi, which is defined for every distance. There is nothing to "
     "set."),
    ({"model_type": "t5"}, "t5: its scores go by T5Bias, which is defined for every distance. There is nothing to "
     "set."),
    ({"model_type": "cohere2", **SIZES, "num_hidden_layers": 4, "sliding_window": 4096},
     "cohere2: the layers that rotate see a window or a chunk alone, so that no distance grows with the text, and "
     "those of full attention do not rotate. There is nothing to set."),
    ({"model_type": "mistral", **SIZES, "sliding_window": 4096},
     "mistral: the layers that rotate see a window or a chunk alone, so that no distance grows with the text. There is "
     "nothing to set."),
    ({"model_type": "gptj"}, "gptj: its frequencies are computed by a fixed formula, which no setting changes."),
    ({"model_type": "jamba"}, "jamba: its layers have no positions that a scaling could change. There is nothing to "
     "set."),
    ({"model_type": "whisper"}, "whisper decoder: its positions are a learned table of 448 rows, which no setting "
     "makes longer. Extend the table and train on: situs.Learned.extend."),
])  # fmt: skip
def test_what_no_scaling_extends_is_refused_and_told_what_would(config: dict[str, Any], message: str) -> None:
    assert refused(config, target=10**7) == REFUSED + message


@pytest.mark.parametrize(("options", "message"), [
    ({}, "target or factor must be given, since one of them says how long texts become; got neither."),
    ({"target": 4096}, "target must be more than 4,096, since the model is made for texts of that length as it is; got "
     "4,096."),
    ({"target": 16384, "factor": 2}, "target must be what the factor makes of the original length, since any two of "
     "the three give the third; got target=16,384, factor=2 and original=4,096, which reach 8,192. Leave out one."),
    ({"factor": 0.5}, "factor must be a number, 1 or more and at most 2^53, since texts become longer; got 0.5."),
    ({"factor": math.nan}, "factor must be a number, 1 or more and at most 2^53, since texts become longer; got nan."),
    ({"target": 0.5}, "target must be a whole number of tokens, 1 or more and at most 2^53, since texts become "
     "longer; got 0.5."),
    ({"target": True}, "target must be a whole number of tokens, 1 or more and at most 2^53, since texts become "
     "longer; got True."),
    ({"target": 10**400}, "target must be a whole number of tokens, 1 or more and at most 2^53, since texts become "
     "longer; got 100000000000000000000000000000000000000000000000000000000000."),
    ({"factor": 1e308}, "factor must be a number, 1 or more and at most 2^53, since texts become longer; got 1e+308."),
    ({"target": 8192, "factors": {}}, "factors must be left out with yarn, since only longrope divides by them; got "
     "some."),
    ({"target": 8192, "method": "longrope", "factors": 3}, "factors must hold short_factor and long_factor, 64 numbers "
     "each, since longrope divides each frequency by a number that a search found for one model and length; got 3. "
     "Without them, choose yarn."),
    ({"target": 8192, "method": "longrope", "factors": {"short_factor": 3, "long_factor": 3}},
     "factors['short_factor'] must be 64 numbers, one for each pair; got 3."),
    ({"target": 16384, "method": "yarm"}, "method must be one of linear, ntk, dynamic, yarn, llama3, longrope, since "
     "each changes frequencies by its own formula; got 'yarm'. Did you mean 'yarn'?"),
])  # fmt: skip
def test_numbers_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    assert refused(LLAMA, **options) == message


def test_the_length_is_written_under_the_name_that_a_file_has_for_it() -> None:
    dbrx = {"model_type": "dbrx", "d_model": 512, "n_heads": 4, "n_layers": 2, "max_seq_len": 4096}
    longer = extend(dbrx, target=16384)
    assert longer.config["max_seq_len"] == 16384
    assert "max_position_embeddings" not in longer.config
    assert longer.positions.lengths.declared == 16384


def test_ntk_raises_the_base_of_every_layer_where_each_has_its_own() -> None:
    """rope_theta has no effect beside them; layers with a window keep theirs, and those without rotation their 0."""
    bases = [1e4, 5e5, 0, 1e6]
    kinds = ["full_attention", "sliding_attention", "full_attention", "full_attention"]
    config = {"model_type": "granite_swa", **SIZES, "num_hidden_layers": 4, "max_position_embeddings": 4096}
    longer = extend({**config, "layer_rope_theta": bases, "layer_types": kinds}, factor=4.0, method="ntk")
    larger = 4.0 ** (128 / 126)
    assert longer.config["layer_rope_theta"] == pytest.approx([1e4 * larger, 5e5, 0, 1e6 * larger])
    assert longer.change.frequency == pytest.approx(0.75)


@pytest.mark.parametrize("method", ["ntk", "dynamic"])
def test_a_base_is_not_raised_for_a_single_pair(method: Any) -> None:
    config = {"model_type": "gpt_neox", **SIZES, "max_position_embeddings": 4096, "rotary_pct": 2 / 128}
    assert refused(config, factor=4.0, method=method) == (
        "method must leave the base as it is where one pair of channels is rotated, since its frequency is 1 with any "
        f"base; got {method!r}. Choose linear or yarn."
    )
