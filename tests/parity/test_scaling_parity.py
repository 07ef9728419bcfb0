"""Frequencies and factors of every scaling against transformers' own functions for them."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DeepseekV3Config, Gemma3TextConfig, LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.deepseek_v3.modeling_deepseek_v3 import yarn_apply_mscale

from situs import DynamicNTKScaling, LinearScaling, Llama3Scaling, LongRoPE, ProportionalScaling, Scaling, YaRN
from tests.parity.wide_transformers import in_float64

# powers and quotients in float64, a few roundings each
WIDE = 1e-12
# transformers blends in float32 with a ramp of float32; where the blend leaves little of a frequency, as far as
# factor times 2^-24 of it is lost: 1e-5 for DeepSeek's factor of 40 and the ramp's own few roundings
AS_RELEASED = 2e-5

PHI3_SHORT = [1.0 + 0.02 * pair for pair in range(48)]
PHI3_LONG = [1.05 + 1.3 * pair for pair in range(48)]

# name: (head_dim, longest, transformers' parameters, ours)
CHECKPOINTS: dict[str, tuple[int, int, dict[str, Any], Scaling]] = {
    "gemma 3 27b": (128, 131072, {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0}, LinearScaling(factor=8.0)),
    "llama 3.1 8b": (
        128,
        131072,
        {
            "rope_type": "llama3",
            "rope_theta": 5e5,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
        Llama3Scaling(factor=8.0, original_length=8192),
    ),
    "llama 3.2 1b": (
        64,
        131072,
        {
            "rope_type": "llama3",
            "rope_theta": 5e5,
            "factor": 32.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
        Llama3Scaling(factor=32.0, original_length=8192),
    ),
    "qwen 2.5": (
        128,
        131072,
        {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 32768},
        YaRN(factor=4.0, original_length=32768),
    ),
    "deepseek v3": (
        64,
        163840,
        {
            "rope_type": "yarn",
            "rope_theta": 1e4,
            "factor": 40.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "original_max_position_embeddings": 4096,
        },
        YaRN(factor=40.0, original_length=4096, mscale=1.0, mscale_all_dim=1.0),
    ),
    "gpt-oss 20b": (
        64,
        131072,
        {
            "rope_type": "yarn",
            "rope_theta": 150000.0,
            "factor": 32.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": False,
            "original_max_position_embeddings": 4096,
        },
        YaRN(factor=32.0, original_length=4096, truncate=False),
    ),
    "phi 3 mini 128k": (
        96,
        131072,
        {
            "rope_type": "longrope",
            "rope_theta": 1e4,
            "short_factor": PHI3_SHORT,
            "long_factor": PHI3_LONG,
            "original_max_position_embeddings": 4096,
        },
        LongRoPE(
            original_length=4096,
            target_length=131072,
            short_factors=tuple(PHI3_SHORT),
            long_factors=tuple(PHI3_LONG),
        ),
    ),
    "gemma 4": (
        512,
        131072,
        {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
        ProportionalScaling(fraction=0.25),
    ),
}


def theirs(
    head_dim: int, longest: int, parameters: dict[str, Any], sequence_length: int | None = None, *, wide: bool
) -> tuple[Tensor, float]:
    """Frequencies and the factor of cosine and sine, by transformers."""
    config = LlamaConfig(head_dim=head_dim, max_position_embeddings=longest, rope_parameters=dict(parameters))
    function = ROPE_INIT_FUNCTIONS[parameters["rope_type"]]
    if not wide:
        frequencies, factor = function(config, torch.device("cpu"), seq_len=sequence_length)
    else:
        with in_float64(function):
            frequencies, factor = function(config, torch.device("cpu"), seq_len=sequence_length)
        assert frequencies.dtype == torch.float64
    return frequencies.double(), factor


@pytest.mark.parametrize("name", CHECKPOINTS)
@pytest.mark.parametrize("wide", [False, True], ids=["as released", "in float64"])
@pytest.mark.parametrize("sequence_length", [None, 4095, 4096, 4097, 100_000])
def test_frequencies_of_a_checkpoint_equal_ours(name: str, wide: bool, sequence_length: int | None) -> None:
    head_dim, longest, parameters, scaling = CHECKPOINTS[name]
    frequencies, factor = theirs(head_dim, longest, parameters, sequence_length, wide=wide)
    ours = scaling.resolve(head_dim, parameters["rope_theta"], sequence_length)
    torch.testing.assert_close(ours.frequencies, frequencies, rtol=WIDE if wide else AS_RELEASED, atol=0.0)
    assert ours.rotation_factor == pytest.approx(factor, rel=1e-15)


@pytest.mark.parametrize("length", [1, 100, 2047, 2048, 2049, 5000, 70_000])
@pytest.mark.parametrize("factor", [1.0, 2.0, 7.5])
def test_frequencies_of_dynamic_ntk_equal_ours_at_every_length(length: int, factor: float) -> None:
    parameters = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": factor}
    scaling = DynamicNTKScaling(factor=factor, original_length=2048)
    for sequence_length in (length, torch.tensor([[length]])):
        frequencies, _ = theirs(128, 2048, parameters, length, wide=True)
        ours = scaling.resolve(128, 1e4, sequence_length).frequencies
        torch.testing.assert_close(ours.flatten(), frequencies, rtol=WIDE, atol=0.0)


def test_frequencies_of_yarn_equal_ours_over_many_settings() -> None:
    """Down to original lengths at which the ramp is a step, or lies outside the pairs."""
    settings = product(
        (16, 64, 96, 128), (1e4, 5e6), (1.0, 4.0, 40.0), (3, 6, 40, 4096), ((32.0, 1.0), (4.0, 0.5)), (True, False)
    )
    for head_dim, base, factor, original, (fast, slow), truncate in settings:
        parameters = {
            "rope_type": "yarn",
            "rope_theta": base,
            "factor": factor,
            "beta_fast": fast,
            "beta_slow": slow,
            "truncate": truncate,
            "original_max_position_embeddings": original,
        }
        frequencies, _ = theirs(head_dim, int(original * factor), parameters, wide=True)
        scaling = YaRN(factor=factor, original_length=original, beta_fast=fast, beta_slow=slow, truncate=truncate)
        torch.testing.assert_close(scaling.resolve(head_dim, base).frequencies, frequencies, rtol=WIDE, atol=0.0)


def test_transformers_truncates_yarns_ramp_whatever_the_parameters_of_a_layer_type_say() -> None:
    """It looks for ``truncate`` beside them, where only names of layer types are, and takes the default."""
    head_dim, longest, parameters, _ = CHECKPOINTS["gpt-oss 20b"]
    config = Gemma3TextConfig(
        head_dim=head_dim, max_position_embeddings=longest, layer_types=["full_attention"], num_hidden_layers=1,
        rope_parameters={"full_attention": dict(parameters), "sliding_attention": dict(parameters)},
    )  # fmt: skip
    yarn: Any = ROPE_INIT_FUNCTIONS["yarn"]
    with in_float64(yarn):
        frequencies, _ = yarn(config, torch.device("cpu"), layer_type="full_attention")
    asked, truncated = (
        YaRN(factor=32.0, original_length=4096, truncate=truncate).resolve(head_dim, 150000.0).frequencies
        for truncate in (False, True)
    )
    torch.testing.assert_close(frequencies, truncated, rtol=WIDE, atol=0.0)
    assert float((frequencies / asked).max()) == pytest.approx(1.76, abs=0.005)


@pytest.mark.parametrize("mscale", [None, 0.0, 0.707, 1.0])
@pytest.mark.parametrize("mscale_all_dim", [None, 0.0, 1.0, 1.3])
@pytest.mark.parametrize("attention_factor", [None, 1.0, 1.7])
@pytest.mark.parametrize("factor", [1.0, 40.0])
def test_factors_of_yarn_equal_ours_in_every_combination(
    mscale: float | None, mscale_all_dim: float | None, attention_factor: float | None, factor: float
) -> None:
    given = {"mscale": mscale, "mscale_all_dim": mscale_all_dim, "attention_factor": attention_factor}
    parameters = {
        "rope_type": "yarn",
        "rope_theta": 1e4,
        "factor": factor,
        "original_max_position_embeddings": 4096,
        **{name: value for name, value in given.items() if value is not None},
    }
    config = DeepseekV3Config(max_position_embeddings=int(4096 * factor), rope_parameters=parameters)
    _, rotation_factor = ROPE_INIT_FUNCTIONS["yarn"](config, torch.device("cpu"))
    ours = YaRN(
        factor=factor,
        original_length=4096,
        mscale=mscale,
        mscale_all_dim=mscale_all_dim,
        attention_factor=attention_factor,
    ).resolve(64, 1e4)
    assert ours.rotation_factor == pytest.approx(rotation_factor, rel=1e-15)
    assert ours.softmax_factor == pytest.approx(yarn_apply_mscale(config.rope_parameters, 1.0), rel=1e-15)
