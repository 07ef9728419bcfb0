"""Rotary models, accelerated: the same outputs, gradients and texts in float32, less error in bfloat16 and far away."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import situs
from situs.huggingface import accelerate, accelerated, describe, restore
from tests.huggingface.small_models import expect_close, expect_same_gradients, gradients, padding, texts
from tests.huggingface.small_rotary import DECODERS, SETTINGS, WITH_FLOAT64, exact, logits, made, places

pytestmark = pytest.mark.once

FLOAT32 = ["modernbert", "olmo", "olmo 2"]
"""Models that rotate in float32 themselves."""
ROUNDING = [name for name in WITH_FLOAT64 if name not in (*FLOAT32, "falcon")]
"""Models that round cosines to bfloat16, whose layers tell their scale."""
STATIC = {"cache_implementation": "static", "disable_compile": True}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 32}
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 1e4, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip
LONGROPE = {
    "rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 8, "factor": 4.0,
    "long_factor": [float(each) for each in range(1, 9)], "original_max_position_embeddings": 32,
}  # fmt: skip
SCALINGS = {
    "linear": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0},
    "yarn": YARN,
    "llama3": LLAMA3,
    "longrope": LONGROPE,
}


@pytest.mark.parametrize("name", SETTINGS)
def test_every_family_is_rotated_exactly_and_said_to_be(name: str) -> None:
    model = made(name)
    said = describe(accelerate(model))
    assert "RotaryEmbedding: exact angles, cosines in float32, its class replaced" in said
    assert ("by transformers' interface, rotated in float32" in said) == (name != "falcon")
    assert "left as it is" not in said


def test_the_whole_description_of_a_llama() -> None:
    assert describe(accelerate(made("llama"))) == (
        "LlamaForCausalLM, accelerated\n"
        "2 x LlamaAttention: on situs.attend, by transformers' interface, rotated in float32\n"
        "1 x LlamaRotaryEmbedding: exact angles, cosines in float32, its class replaced"
    )


@pytest.mark.thin(4)
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("tokens", [1, 7, 130])
def test_outputs_are_the_same_in_float32(name: str, tokens: int) -> None:
    model, ids = made(name), texts(2, tokens)
    masks = [None, *(padding(ids, side) for side in ("left", "right") if tokens > 1)]

    def outputs() -> list[torch.Tensor]:
        found = []
        for mask in masks:
            counted = None if mask is None else (mask.cumsum(1) - 1).clamp(min=0)
            out = logits(model, ids, attention_mask=mask, position_ids=counted)
            found.append(out if mask is None else out[mask.bool()])
        return found

    expected = outputs()
    with accelerated(model):
        for found, before in zip(outputs(), expected, strict=True):
            expect_close(found, before, 1e-5)
    assert all(map(torch.equal, outputs(), expected))


@pytest.mark.thin(4)
@pytest.mark.parametrize("name", SETTINGS)
def test_gradients_are_the_same_in_float32(name: str) -> None:
    model, ids = made(name), texts(2, 30)
    mask = padding(ids, "right")
    given = {"input_ids": ids, "attention_mask": mask}
    before = gradients(model, given, mask.bool())
    with accelerated(model):
        expect_same_gradients(gradients(model, given, mask.bool()), before)


@pytest.mark.thin(4)
@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("way", [{}, STATIC], ids=["dynamic", "static"])
def test_greedy_texts_are_the_same_in_float32(name: str, way: dict[str, Any]) -> None:
    model, ids = made(name), texts(2, 9)
    options = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0, "eos_token_id": None, **way}
    expected = model.generate(ids, attention_mask=padding(ids, "left"), **options)
    with accelerated(model):
        assert torch.equal(model.generate(ids, attention_mask=padding(ids, "left"), **options), expected)


# there transformers' own angles are off by 1e-4, and its outputs by up to 3e-5
@pytest.mark.heavy
@pytest.mark.parametrize("name", [name for name in SETTINGS if name in WITH_FLOAT64])
def test_long_texts_give_what_exact_angles_give(name: str) -> None:
    model, ids = made(name), texts(2, 2049)
    expected = logits(exact(name), ids)
    with accelerated(model):
        expect_close(logits(model, ids).double(), expected, 1e-5)


def errors(name: str, offset: int, sharper: float) -> tuple[float, float]:
    """Of logits in bfloat16 against float64: accelerated, and unmodified."""
    ids, where = texts(8, 60), places(offset, 60)
    model = made(name, torch.bfloat16, sharper=sharper)
    expected = logits(exact(name, sharper=sharper), ids, position_ids=where)
    before = float((logits(model, ids, position_ids=where) - expected).abs().mean())
    with accelerated(model, check=False):  # bfloat16 itself errs by more than the self-test allows where all is sharp
        now = float((logits(model, ids, position_ids=where) - expected).abs().mean())
    print(f"{name} at {offset}: error {now:.3g}, unmodified {before:.3g}, ratio {now / before:.2f}")
    return now, before


@pytest.mark.thin(5)
@pytest.mark.parametrize("name", ROUNDING)
@pytest.mark.parametrize("offset", [4_200, 65_536])
def test_logits_in_bfloat16_err_less_at_far_positions(name: str, offset: int) -> None:
    now, before = errors(name, offset, 8.0)
    assert now < 0.99 * before


@pytest.mark.parametrize("name", [*FLOAT32, "falcon"])
def test_models_that_rotate_in_float32_err_no_more_in_bfloat16(name: str) -> None:
    now, before = errors(name, 65_536, 1.0)
    assert now < 1.02 * before


@pytest.mark.parametrize("name", [name for name in DECODERS if name in WITH_FLOAT64])
def test_cached_keys_in_bfloat16_are_rounded_once(name: str) -> None:
    """Those of the first layer, which are the same bfloat16 numbers before they are rotated."""
    ids, where = texts(2, 40), places(65_536, 40)
    model = made(name, torch.bfloat16)

    def keys(model: Any, where: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            found: torch.Tensor = (
                model(input_ids=ids, position_ids=where, use_cache=True).past_key_values.layers[0].keys
            )
        return found

    still = keys(model, torch.zeros_like(where)).double()  # rotated by angles of 0
    rotary = next(each for each in exact(name).modules() if "RotaryEmbedding" in type(each).__name__)
    kinds = [model.config.layer_types[0]] if name == "gemma 3" else []
    cos, sin = rotary.forward(still, where, *kinds)
    pairing: Any = "interleaved" if name in ("cohere", "glm") else "halves"
    narrow = [each[..., ::2] if name == "cohere" else each[..., : each.shape[-1] // 2] for each in (cos, sin)]
    narrow = [each[:, None, -still.shape[2] :] for each in narrow]  # windows have the last keys alone
    expected = situs.functional.rotate_real(still, narrow[0], narrow[1], pairing)
    before = (keys(model, where).double() - expected).abs()
    with accelerated(model):
        found = keys(model, where)
        assert found.dtype == torch.bfloat16
        now = (found.double() - expected).abs()
    largest = torch.maximum(expected.abs(), found.double().abs())
    assert bool((now <= 2**-8 * largest + 1e-6).all())
    assert now.mean() < (1.0 if name in FLOAT32 else 0.8) * before.mean()


@pytest.mark.parametrize("name", ["llama", "gemma 3", "phi", "cohere"])
@pytest.mark.parametrize("offset", [65_536, 1_000_000])
def test_float32_errs_far_less_at_far_positions(name: str, offset: int) -> None:
    ids, where = texts(2, 40), places(offset, 40)
    model = made(name)
    expected = logits(exact(name), ids, position_ids=where)
    before = float((logits(model, ids, position_ids=where) - expected).abs().max())
    with accelerated(model):
        now = float((logits(model, ids, position_ids=where) - expected).abs().max())
    assert now < 0.2 * before


@pytest.mark.parametrize("scaling", SCALINGS)
def test_frequencies_follow_the_text_as_they_did(scaling: str) -> None:
    settings: dict[str, Any] = {
        "rope_parameters": SCALINGS[scaling],
        "max_position_embeddings": 32 if scaling == "dynamic" else 128,
    }
    own, ours = (made("llama", **settings) for _ in range(2))
    accelerate(ours)
    for tokens in (20, 100, 60, 10, 33):  # frequencies grow, and go back
        ids = texts(2, tokens)
        expect_close(logits(ours, ids), logits(own, ids), 1e-5)
        for name, buffer in own.named_buffers():
            assert torch.equal(ours.get_buffer(name), buffer)


def test_layer_types_have_their_own_scalings() -> None:
    kinds = {
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
    }
    model, ids = made("gemma 3", rope_parameters=kinds), texts(2, 50)
    expected = logits(model, ids)
    expect_close(logits(accelerate(model), ids), expected, 1e-5)


@pytest.mark.parametrize("name", ["llama", "gemma 3", "cohere", "gpt-oss"])
def test_a_hundred_cycles_leave_a_model_as_it_was(name: str) -> None:
    model, ids = made(name), texts(1, 5)
    expected = logits(model, ids)
    before = [(path, type(module), dict(vars(module))) for path, module in model.named_modules()]
    names, settings = list(model.state_dict()), model.config.to_dict()
    for _ in range(100):
        restore(accelerate(model, check=False))
    logits(accelerate(model, check=False), ids)
    assert list(model.state_dict()) == names
    restore(model)
    after = [(path, type(module), dict(vars(module))) for path, module in model.named_modules()]
    assert [each[:2] for each in after] == [each[:2] for each in before]
    assert [each[2].keys() for each in after] == [each[2].keys() for each in before]
    assert model.config.to_dict() == settings
    assert torch.equal(logits(model, ids), expected)
