"""Settings of GGUF files: what llama.cpp's architectures make of them, and what cannot be."""

from __future__ import annotations

from typing import Any

import gguf
import pytest

from situs.models.readers.llama_cpp.architectures import ARCHITECTURES, LEFT_OUT
from situs.models.readers.llama_cpp.scaling import llama3
from situs.models.readers.llama_cpp.settings import KEYS, read_gguf
from tests.models.gguf_files import keys, refused


def test_llama_3s_divisors_are_recognised_and_others_kept() -> None:
    scaled = read_gguf(keys("llama", rope__freq_base=5e5), {"rope_freqs.weight": llama3(32.0, 5e5, 8)})
    assert repr(scaled.layer(0).calls[0].option("scaling")) == (
        "Llama3Scaling(factor=32.0, original_length=8192, low_frequency_factor=1.0, high_frequency_factor=4.0)"
    )
    assert scaled.lengths.original == 8192
    own = read_gguf(keys("llama"), {"rope_freqs.weight": [1.0, 1.5, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0]})
    found = own.layer(0).calls[0].option("scaling")
    assert (found.cls, found.option("attention_factor")) == ("LongRoPE", 1.0)
    assert found.option("short_factors") == found.option("long_factors") == (1.0, 1.5, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0)
    assert read_gguf(keys("llama"), {"rope_freqs.weight": [1.0] * 8}).layer(0).calls[0].option("scaling") is None


def test_the_list_of_factors_goes_by_the_context() -> None:
    tensors = {"rope_factors_long.weight": [4.0] * 8, "rope_factors_short.weight": [1.0] * 8}
    long = read_gguf(keys("phi3", rope__scaling__original_context_length=4096), tensors)
    assert long.layer(0).calls[0].option("scaling").option("short_factors") == (4.0,) * 8
    assert [str(note) for note in long.notes] == [
        "rope_factors_long.weight: serves all sequences: llama.cpp chooses by the size of its context, and 32,768 is "
        "more than 4,096"
    ]
    short = read_gguf(keys("phi3"), tensors)
    assert short.layer(0).calls[0].option("scaling") is None
    assert [str(note) for note in short.notes] == [
        "rope_factors_short.weight: serves all sequences: llama.cpp chooses by the size of its context, and 32,768 is "
        "not more than 32,768"
    ]


def test_settings_that_llama_cpp_does_not_read_are_told() -> None:
    yarn = {"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0, "rope__scaling__yarn_beta_fast": 24.0}
    assert [str(note) for note in read_gguf(keys("qwen3", **yarn), {}).notes] == [
        "qwen3.rope.scaling.yarn_beta_fast: 24.0 changes nothing: llama.cpp does not read it for qwen3"
    ]
    read_by_it = read_gguf(keys("mistral3", **yarn), {})
    assert read_by_it.notes == ()
    assert read_by_it.layer(0).calls[0].option("scaling").option("beta_fast") == 24.0
    window = read_gguf(keys("llama", attention__sliding_window=4096), {})
    assert window.layer(0).window is None
    assert [str(note) for note in window.notes] == [
        "llama.attention.sliding_window: 4096 changes nothing: llama.cpp does not read it for llama"
    ]


def test_a_list_of_layers_is_ignored_where_llama_cpp_has_a_period() -> None:
    pattern = [True, False, True, False]
    model = read_gguf(keys("olmo2", attention__sliding_window=512, attention__sliding_window_pattern=pattern), {})
    assert model.schedule() == ("sliding", "sliding", "sliding", "full")
    assert [str(note) for note in model.notes] == [
        "olmo2.attention.sliding_window_pattern: [True, False, True, False] changes nothing: llama.cpp does not read "
        "it for olmo2"
    ]


def test_pairs_of_a_fourth_coordinate_stand_still() -> None:
    head = {"attention__key_length": 128, "attention__value_length": 128}
    model = read_gguf(keys("qwen3vl", rope__dimension_sections=[24, 20, 20, 0], rope__freq_base=5e6, **head), {})
    factors = model.layer(0).calls[0].option("scaling").option("short_factors")
    assert [pair for pair, each in enumerate(factors) if each != 1] == [61, 62]
    assert [str(note) for note in model.notes] == [
        "qwen3vl.rope.dimension_sections: pairs 61, 62 are not rotated: llama.cpp deals them to a fourth coordinate, "
        "which is 0"
    ]


@pytest.mark.parametrize(
    ("name", "settings", "shown"),
    [
        ("gemma2", {"block_count": 46}, 16**-0.5),
        ("gemma2", {"block_count": 46, "attention__key_length": 32}, 16**-0.5),
        ("gemma2", {"attention__key_length": 32}, 32**-0.5),
        ("gemma3n", {"attention__sliding_window": 512}, 1.0),
        ("grok", {"attention__output_scale": 0.1}, 0.1),
        ("gpt-oss", {"attention__sliding_window": 128, "rope__dimension_count": 8}, 8**-0.5),
    ],
)
def test_softmax_scales_are_those_of_the_graph(name: str, settings: dict[str, Any], shown: float) -> None:
    assert read_gguf(keys(name, **{**{"attention__sliding_window": 512}, **settings}), {}).layer(0).scale == shown


def test_models_of_states_and_others_have_layers_of_their_own() -> None:
    hybrid = keys("jamba", attention__head_count_kv=[0, 2, 0, 0])
    assert read_gguf(hybrid, {}).schedule() == ("linear", "full", "linear", "linear")
    assert read_gguf(hybrid, {}).layer(1).calls == ()
    assert read_gguf(keys("deci", attention__head_count=[4, 0, 4, 4]), {}).schedule()[1] == "none"
    assert len(read_gguf(keys("glm4moe", nextn_predict_layers=1), {}).layers) == 3
    assert read_gguf(keys("baichuan", block_count=40), {}).layer(0).calls[0].cls == "ALiBi"


def test_all_architectures_have_a_row_and_unchecked_ones_say_so() -> None:
    assert not set(ARCHITECTURES) & set(LEFT_OUT)
    assert sum(each.checked for each in ARCHITECTURES.values()) == 124
    model = read_gguf(keys("talkie"), {})
    assert not model.verified
    assert repr(model).startswith("talkie, not in the table: read by the general rule\n")


def test_names_of_architectures_and_settings_are_those_of_the_package() -> None:
    names = set(gguf.MODEL_ARCH_NAMES.values())
    later = {"cohere2moe", "deepseek4", "dots3note", "granite_swa", "graniteswitch", "hunyuan_vl", "hy_v3", "kimi-k3",
             "laguna", "mellum", "minimax-01", "minimax-m3", "muse-glimmer", "nanbeige", "pockettts", "qwen3tts",
             "talkie", "bailingmoe3", "deepseek2-ocr", "deepseek32", "dflash", "eagle3",
             "gemma4-assistant"}  # fmt: skip
    assert {*ARCHITECTURES, *LEFT_OUT} - names <= later
    known = {
        value.removeprefix("{arch}.")
        for group in vars(gguf.Keys).values()
        if isinstance(group, type)
        for value in vars(group).values()
        if isinstance(value, str)
    }
    assert KEYS - known <= {"rope.scale_linear", "attention.rope_pattern", "rope.scaling.alpha",
                            "attention.compress_rope_freq_base", "attention.recurrent_layers",
                            "full_attention_interval"}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("lama", {}, "general.architecture must be one of llama.cpp's, since nothing else tells how pairs are laid "
                     "out; got 'lama'. Did you mean 'llama'?"),
        ("clip", {}, "general.architecture must be one that is read, and clip is not, since it holds an encoder of "
                     "images, which has no layers of text."),
        ("llama", {"block_count": None}, "llama.block_count must be given, since it counts layers; got none."),
        ("llama", {"block_count": 513}, "llama.block_count must be at most 512, since llama.cpp has room for that many "
                                        "layers; got 513."),
        ("llama", {"block_count": "4"}, "llama.block_count must be a whole number, since it counts layers; got '4'."),
        ("llama", {"context_length": None}, "llama.context_length must be given, since it counts tokens; got none."),
        ("llama", {"rope__freq_base": -1.0}, "llama.rope.freq_base must be more than 0, since it is the base of the "
                                             "frequencies; got -1.0."),
        ("llama", {"rope__dimension_count": 7}, "llama.rope.dimension_count must be even and lie in 2 .. 16, the "
                                                "channels of a head, since pairs are rotated; got 7."),
        ("llama", {"rope__scaling__type": "yarm"}, "llama.rope.scaling.type must be one of none, linear, yarn, "
                                                   "longrope, since each is computed by its own formula; got 'yarm'. "
                                                   "Did you mean 'yarn'?"),
        ("llama", {"rope__scaling__factor": 0.5}, "llama.rope.scaling.factor must be at least 1, since positions are "
                                                  "stretched by it; got 0.5."),
        ("llama", {"rope__freq_bass": 1.0}, "llama.rope.freq_bass must be a setting that is understood, since it "
                                            "speaks of positions; got 1.0. Did you mean 'rope.freq_base'?"),
        ("llama", {"attention__head_count": [4, 4]}, "llama.attention.head_count must be one number, or 4, one for "
                                                     "each layer; got 2."),
        ("llama", {"attention__head_count_kv": 0}, "llama.attention.head_count_kv must be 1 or more, since every layer "
                                                   "of llama attends; got 0."),
        ("glm4", {"nextn_predict_layers": 4}, "glm4.nextn_predict_layers must be less than 4, since it counts some of "
                                              "the layers; got 4."),
        ("cohere2", {}, "cohere2.attention.sliding_window must be given, since layers of cohere2 slide; got null."),
        ("llama4", {"attention__sliding_window": 0}, "llama4.attention.sliding_window must not be 0, since what "
                                                     "llama.cpp does without chunks was not checked; got 0."),
        ("mimo2", {"attention__sliding_window": 8}, "mimo2.attention.sliding_window_pattern must be given, since it "
                                                    "tells which layers of mimo2 slide; got none."),
        ("mimo2", {"attention__sliding_window": 8, "attention__sliding_window_pattern": [1, 0]},
         "mimo2.attention.sliding_window_pattern must be 4 truth values, one for each layer; got [1, 0]."),
        ("qwen2vl", {}, "qwen2vl.rope.dimension_sections must be three or four numbers, since it deals pairs to "
                        "coordinates; got null."),
        ("qwen2vl", {"rope__dimension_sections": [1, 1, 1, 0]}, "qwen2vl.rope.dimension_sections must add up to 8 over "
                                                                "three coordinates, the pairs of 16 channels; got 1, "
                                                                "1, 1, 0."),
        ("mistral3",
         {"rope__scaling__type": "yarn", "rope__scaling__factor": 2.0, "rope__scaling__yarn_beta_fast": 0.5},
         "mistral3.rope.scaling.yarn_beta_slow must be less than mistral3.rope.scaling.yarn_beta_fast, since the ramp "
         "runs between them; got 1 and 0.5."),
        ("grok", {"rope__scaling__type": "yarn", "rope__scaling__factor": 2.0, "rope__scaling__yarn_ext_factor": 0.5},
         "grok.rope.scaling.yarn_ext_factor must be 1, since Situs mixes as YaRN's paper does; got 0.5."),
        ("t5", {"attention__relative_buckets_count": 256}, "t5.attention.relative_buckets_count must be less than 256, "
                                                           "since all distances from 128 on share a bucket; got 256."),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(name: str, settings: dict[str, Any], said: str) -> None:
    assert refused(keys(name, **settings)) == said


def test_divisors_that_do_not_fit_are_refused() -> None:
    assert refused(keys("llama"), {"rope_freqs.weight": [1.0] * 4}) == (
        "rope_freqs.weight must have 8 numbers, one for each pair of channels that is rotated; got 4."
    )
    assert refused(keys("llama"), {"rope_freqs.weight": [0.0] * 8}) == (
        "rope_freqs.weight[0] must be more than 0, since it divides a frequency; got 0.0."
    )
    assert refused(keys("qwen3"), {"rope_freqs.weight": [2.0] * 8}) == (
        "rope_freqs.weight must be left out, since llama.cpp loads no file of qwen3 that has it; got 8 numbers."
    )
    yarn = keys("llama", rope__scaling__type="yarn", rope__scaling__factor=4.0)
    assert refused(yarn, {"rope_freqs.weight": [2.0] * 8}) == (
        "llama.rope.scaling.type must not be yarn where a tensor divides frequencies, since no model has both; got "
        "rope_freqs.weight beside it."
    )
