"""What pairs of channels meet at a length, against the formulas of wavelengths."""

import math

import numpy as np
import pytest

from situs.models import extend, inspect, read
from situs.models.inspecting.pairs import Pair, angle_errors, pairs_of
from situs.models.numbers import rotation_of
from situs.models.training import Training, training_of

QWEN = {
    "model_type": "qwen2", "hidden_size": 3584, "num_attention_heads": 28, "num_key_value_heads": 4,
    "num_hidden_layers": 2, "max_position_embeddings": 32768, "rope_theta": 1e6,
}  # fmt: skip
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 2,
    "max_position_embeddings": 131072, "rope_theta": 5e5,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                     "original_max_position_embeddings": 8192},
}  # fmt: skip
GEMMA = {
    "model_type": "gemma3_text", "hidden_size": 1152, "num_attention_heads": 4, "head_dim": 256,
    "num_hidden_layers": 6, "sliding_window": 512, "max_position_embeddings": 32768,
}  # fmt: skip


def pairs(config: dict, target: int, layer: int = 0) -> tuple[Pair, ...]:
    model = read(config)
    training = training_of(model)
    assert training is not None
    return pairs_of(model.layer(layer), training, target)


def states(found: tuple[Pair, ...]) -> list[str]:
    return [pair.state for pair in found]


def wavelengths(base: float, dim: int) -> np.ndarray:
    return 2 * math.pi * base ** (np.arange(0, dim, 2) / dim)


def test_pairs_that_made_no_whole_turn_in_training_meet_new_angles_beyond_it() -> None:
    found = pairs(QWEN, 131072)
    slow = wavelengths(1e6, 128) > 32768
    assert states(found) == ["never seen" if each else "seen" for each in slow]
    assert {pair.since for pair in found if pair.since} == {32768}
    np.testing.assert_allclose([pair.wavelength for pair in found], wavelengths(1e6, 128), rtol=1e-12)
    np.testing.assert_allclose([pair.turns for pair in found], 32768 / wavelengths(1e6, 128), rtol=1e-12)


@pytest.mark.parametrize("target", [1, 512, 32767, 32768])
def test_within_training_every_angle_is_seen(target: int) -> None:
    assert set(states(pairs(QWEN, target))) == {"seen"}


def test_yarn_by_the_ratio_of_lengths_leaves_no_angle_unseen() -> None:
    found = pairs({**QWEN, "rope_scaling": YARN}, 131072)
    assert set(states(found)) == {"seen", "interpolated"}
    assert states(found)[-1] == "interpolated"


def test_beyond_its_factor_yarn_meets_new_angles() -> None:
    found = pairs({**QWEN, "rope_scaling": YARN}, 262144)
    assert found[-1].state == "never seen"
    assert found[-1].since == 131072


def test_a_model_that_declares_more_than_the_original_length_was_made_for_it() -> None:
    assert training_of(read(LLAMA)) == Training(8192, 131072)
    assert set(states(pairs(LLAMA, 131072))) == {"seen"}
    found = pairs(LLAMA, 262144)
    assert [pair.state for pair in found if pair.turns < 1] == ["never seen"] * sum(pair.turns < 1 for pair in found)
    assert "never seen" not in [pair.state for pair in found if pair.turns >= 1]


def test_a_model_that_was_trained_with_its_scaling_interpolates_nothing_within_it() -> None:
    assert states(pairs(LLAMA, 262144))[:39] == ["seen"] * 39


def test_a_declared_length_that_hardly_exceeds_the_original_is_no_training_with_yarn() -> None:
    """As in Qwen 3: 40,960 declared, and 32,768 the original length of the factor that people add."""
    found = pairs({**QWEN, "max_position_embeddings": 40960, "rope_scaling": YARN}, 131072)
    assert "never seen" not in states(found)
    assert states(found)[-1] == "interpolated"


def test_a_factor_without_an_original_length_reached_the_declared_one() -> None:
    """As in Gemma 3: linear by 8, 131,072 declared."""
    config = {**LLAMA, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    assert training_of(read(config)) == Training(16384, 131072, inferred=True)
    assert set(states(pairs(config, 131072))) == {"seen"}
    assert pairs(config, 262144)[-1].since == 131072


def test_a_window_keeps_distances_as_they_were() -> None:
    assert set(states(pairs(GEMMA, 10**6, layer=0))) == {"seen"}
    assert "never seen" in states(pairs(GEMMA, 10**6, layer=5))


def test_a_window_that_is_wider_than_training_does_not() -> None:
    config = {**GEMMA, "sliding_window": 65536}
    assert "never seen" in states(pairs(config, 10**6, layer=0))


def test_a_scaling_by_length_is_asked_for_the_target() -> None:
    config = {**QWEN, "rope_scaling": {"type": "dynamic", "factor": 4.0}}
    assert set(states(pairs(config, 32768))) == {"seen"}
    found = pairs(config, 131072)
    assert found[-1].state == "interpolated"
    assert found[-1].frequency < pairs(config, 32768)[-1].frequency / 4


def test_channels_without_a_frequency_hold_no_position() -> None:
    rope = {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25}
    config = {
        "model_type": "gemma4_text", "hidden_size": 64, "num_attention_heads": 2, "head_dim": 32,
        "num_hidden_layers": 6, "global_head_dim": 32, "max_position_embeddings": 4096,
        "rope_parameters": {"full_attention": rope, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}},
    }  # fmt: skip
    found = pairs(config, 8192, layer=5)
    assert states(found)[4:] == ["not rotated"] * 12
    assert math.isinf(found[-1].wavelength)


def test_a_reversed_rotation_has_the_states_of_the_other() -> None:
    sizes = {"hidden_size": 256, "num_attention_heads": 2, "num_hidden_layers": 2, "max_position_embeddings": 2048}
    reversed_, plain = (pairs({"model_type": name, "rope_theta": 1e4, **sizes}, 8192) for name in ("nanochat", "llama"))
    assert states(reversed_) == states(plain)
    assert reversed_[0].frequency == -plain[0].frequency


def test_errors_of_angles_are_those_of_numpy() -> None:
    rotation = rotation_of(read(QWEN).layer(0))
    assert rotation is not None
    found = angle_errors(rotation, 60000)
    exact = np.array(rotation.frequencies)
    positions = np.linspace(0, 59999, 8192).round()[:, None]
    for name in ("float32", "float16"):
        rounded = positions.astype(name) * exact.astype(name)
        assert found[name] == pytest.approx(np.abs(rounded.astype(float) - positions * exact).max(), rel=1e-12)
    assert found["float32"] < 0.01 < 100 < found["bfloat16"]


def test_positions_that_overflow_have_no_angle() -> None:
    rotation = rotation_of(read(QWEN).layer(0))
    assert rotation is not None
    assert math.isinf(angle_errors(rotation, 131072)["float16"])


def test_a_length_that_no_setting_says_is_told_to_be_inferred() -> None:
    """Gemma 3 4B: 131,072 tokens by a linear factor of 8, and no original length."""
    scaled = {**GEMMA, "max_position_embeddings": 131072, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    assert training_of(read(scaled)) == Training(16384, 131072, inferred=True)
    report = inspect(scaled)
    text = " ".join(report.render().split())
    assert "(trained on 16,384 before scaling, inferred from its factor)" in text
    part = report.to_dict()["parts"][0]
    assert (part["original_length"], part["original_length_is_inferred"]) == (16384, True)
    assert extend(scaled, target=262144).notes[0] == (
        "the original length is inferred: 16,384 is the declared 131,072 divided by the factor"
    )
    assert training_of(read({**QWEN, "rope_scaling": YARN})) == Training(32768, 32768)
    assert not inspect(QWEN).to_dict()["parts"][0]["original_length_is_inferred"]
