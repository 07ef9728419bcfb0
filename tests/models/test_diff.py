"""Two configurations compared: what differs, where, and from which position on."""

import math

import pytest

from situs.models import ConfigError, diff, read

SIZES = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 4, "max_position_embeddings": 4096}
LLAMA = {"model_type": "llama", **SIZES}


def test_a_model_does_not_differ_from_itself() -> None:
    found = diff(LLAMA, LLAMA)
    assert not found
    assert str(found) == "No difference: both do the same with positions."
    assert found.to_dict() == {"length": 4096, "differences": []}


def test_spellings_do_not_differ() -> None:
    old = {**LLAMA, "rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}}
    new = {**LLAMA, "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5}}
    assert not diff(old, new)


def test_another_base_is_told_with_the_position_from_which_on_it_matters() -> None:
    base = 10000.0 * (1 + 1e-5)
    (found,) = diff(LLAMA, {**LLAMA, "rope_theta": base}, length=16384).differences
    frequencies = [[each ** (-index / 8) for index in range(8)] for each in (10000.0, base)]
    apart = max(abs(a - b) for a, b in zip(*frequencies, strict=True))
    assert found.layers == "0-3"
    assert found.fields == {"base": ("10000.0", str(base))}
    assert found.rotated is not None
    assert found.rotated.pairs == "1-7"
    assert found.rotated.angle == pytest.approx(apart * 16384)
    assert found.rotated.since["float32"] == math.ceil(2**-24 / apart)
    assert found.rotated.since["bfloat16"] == math.ceil(2**-8 / apart)


def test_what_is_below_rounding_within_the_length_does_not_matter() -> None:
    (found,) = diff(LLAMA, {**LLAMA, "rope_theta": 10000.0 * (1 + 1e-7)}, length=100).differences
    assert found.rotated is not None
    assert found.rotated.since["bfloat16"] is None
    told = diff(LLAMA, {**LLAMA, "rope_theta": 10000.0 * (1 + 1e-7)}, length=100)
    assert "beyond 100 in bfloat16" in " ".join(str(told).split())


def test_a_magnitude_matters_from_the_first_position_on() -> None:
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096, "rope_theta": 1e4}
    one, other = {**LLAMA, "rope_parameters": yarn}, {**LLAMA, "rope_parameters": {**yarn, "attention_factor": 1.0}}
    (found,) = diff(one, other).differences
    assert found.rotated is not None
    assert found.rotated.pairs == ""
    assert set(found.rotated.since.values()) == {0}
    assert found.rotated.score == pytest.approx((0.1 * math.log(4) + 1) ** 2 - 1)


def test_another_pairing_matters_from_position_1_on() -> None:
    (found,) = diff(LLAMA, {**LLAMA, "model_type": "cohere"}).differences
    assert found.fields["pairing"] == ("halves", "interleaved")
    assert found.rotated is not None
    assert set(found.rotated.since.values()) == {1}
    lines = str(diff(LLAMA, {**LLAMA, "situs_pairing": "interleaved"})).splitlines()
    assert lines == [
        "layers 0-3",
        "  pairing: halves and interleaved",
        "  matters in every dtype from position 1 on",
        "  other channels are rotated together: the same weights give other scores at",
        "    every distance but 0",
    ]


def test_differences_are_the_same_from_both_sides() -> None:
    deepseek = {"model_type": "deepseek_v3", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 1}
    yarn = {"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096, "rope_theta": 1e4}
    one, other = ({**deepseek, "rope_parameters": {**yarn, "mscale": 1.0, "mscale_all_dim": all_dim}}
                  for all_dim in (1.0, 0.5))  # fmt: skip
    (first,), (second,) = diff(one, other).differences, diff(other, one).differences
    assert first.rotated == second.rotated
    (first,), (second,) = (diff(*each).differences for each in (
        (LLAMA, {**LLAMA, "rope_theta": 5e5}), ({**LLAMA, "rope_theta": 5e5}, LLAMA)))  # fmt: skip
    assert first.rotated == second.rotated


def test_a_scaling_that_begins_behind_the_declared_length_is_looked_for_there() -> None:
    one, other = ({**LLAMA, "rope_scaling": {"type": "dynamic", "factor": each}} for each in (2.0, 4.0))
    found = diff(one, other)
    assert found.length == 4 * 4096
    assert found.differences[0].rotated is not None


def test_windows_schedules_and_lengths_are_told() -> None:
    gemma = {"model_type": "gemma3_text", "head_dim": 16, **SIZES, "sliding_window": 512}
    text = str(diff(gemma, {**gemma, "sliding_window": 1024, "max_position_embeddings": 8192}))
    assert "declared length: 4,096 and 8,192" in text
    assert "window: 512 and 1,024" in text
    text = str(diff(gemma, {**gemma, "layer_types": ["full_attention"] * 4}))
    assert "layers 0-3\n  kind: sliding and full" in text


def test_layers_that_rotate_on_one_side_alone_are_told() -> None:
    smol = {"model_type": "smollm3", **SIZES}
    text = str(diff({**smol, "no_rope_layers": [1, 1, 1, 1]}, {**smol, "no_rope_layers": [1, 0, 1, 1]}))
    assert text == "layer 1\n  Rotary: yes and no"


def test_other_numbers_of_layers_are_told() -> None:
    text = str(diff(LLAMA, {**LLAMA, "num_hidden_layers": 6}))
    assert text == "the model\n  layers: 4 and 6"


def test_parts_are_compared_by_name_and_a_text_alone_with_that_of_a_whole() -> None:
    sections = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [3, 3, 2]}
    text = {**SIZES, "model_type": "qwen2_vl_text", "rope_parameters": sections}
    whole = {"model_type": "qwen2_vl", "text_config": text}
    assert not diff(whole, text)
    assert str(diff(whole, {**whole, "text_config": {**text, "num_hidden_layers": 2}})) == (
        "text: the model\n  layers: 4 and 2"
    )


def test_biases_differ_by_their_options() -> None:
    text = str(diff({"model_type": "t5"}, {"model_type": "t5", "relative_attention_max_distance": 256}))
    assert "encoder: layers 0-5\n  T5Bias max_distance: 128 and 256" in text


def test_readings_can_be_compared_too() -> None:
    assert not diff(read(LLAMA), LLAMA)


@pytest.mark.parametrize("length", [0, -1, 2.5, True, "4096"])
def test_a_length_that_counts_no_tokens_is_refused(length: object) -> None:
    with pytest.raises(ConfigError, match=r"^length must be .*, since it counts tokens; got .*\.$"):
        diff(LLAMA, LLAMA, length=length)  # type: ignore[arg-type]
