"""Rotary models, accelerated: copied, cast, compiled, extended, rotated in bands; and models that rotate otherwise."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch

import situs
from situs.huggingface import accelerate, accelerated, describe, extend, extended, restore, rotated_in_bands
from situs.huggingface.classes import original
from situs.huggingface.families.rotary import rotation
from situs.huggingface.families.rotary_forms import Form, form_of, laid_out
from tests.huggingface.small_models import expect_close, expect_same_gradients, gradients, hf, padding, texts
from tests.huggingface.small_rotary import SIZES, logits, made, places
from tests.raising import raises_exactly

pytestmark = pytest.mark.once


@pytest.mark.parametrize("name", ["llama", "gemma 3", "cohere"])
def test_copies_and_pickles_rotate_exactly_too(name: str) -> None:
    model, ids = accelerate(made(name)), texts(2, 30)
    expected = logits(model, ids, position_ids=places(65_536, 30))
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert describe(copied) == describe(model)
        assert torch.equal(logits(copied, ids, position_ids=places(65_536, 30)), expected)
        assert not torch.equal(logits(restore(copied), ids, position_ids=places(65_536, 30)), expected)


def test_a_model_that_is_cast_later_runs_in_that_dtype() -> None:
    """Frequencies are cast with the model, by transformers too."""
    model, other, ids = made("llama"), made("llama").to(torch.bfloat16), texts(2, 30)
    expected = logits(made("llama"), ids)
    found = logits(accelerate(model).to(torch.bfloat16), ids)
    assert found.dtype == torch.bfloat16
    error = float((found - logits(other, ids)).abs().mean())
    assert error <= 2 * float((logits(other, ids) - expected).abs().mean())


def test_half_precision_by_autocast_gives_what_it_gave() -> None:
    model, ids = made("llama"), texts(2, 30)
    expected = logits(model, ids)
    with torch.autocast("cpu", torch.bfloat16):
        before = float((logits(model, ids) - expected).abs().mean())
        with accelerated(model, check=False):
            assert float((logits(model, ids) - expected).abs().mean()) <= 1.5 * before


@pytest.mark.thin(3)
@pytest.mark.compiled
@pytest.mark.parametrize(
    ("name", "dtype"), [("llama", torch.bfloat16), ("gemma 3", torch.float32), ("cohere", torch.bfloat16)], ids=str
)
def test_compiled_models_give_the_same(name: str, dtype: torch.dtype) -> None:
    model, ids = accelerate(made(name, dtype)), texts(2, 20)
    given = {"attention_mask": padding(ids, "right"), "position_ids": places(5000, 20)}
    real = given["attention_mask"].bool()
    expected = logits(model, ids, **given)[real]
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager")
    expect_close(logits(compiled, ids, **given)[real], expected, 1e-5 if dtype == torch.float32 else 2e-2)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_layers_have_the_same_gradients(reentrant: bool) -> None:
    model, ids = accelerate(made("gemma 3")).train(), texts(2, 20)
    given = {"input_ids": ids, "use_cache": False}
    expected = gradients(model, given)
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    expect_same_gradients(gradients(model, given), expected)


def test_a_model_can_be_extended_before_and_after() -> None:
    own, before, after, ids = made("llama"), made("llama"), made("llama"), texts(2, 100)
    extend(own, 6000, "yarn")
    extend(before, 6000, "yarn")
    accelerate(before)
    extend(accelerate(after), 6000, "yarn")
    for model in (before, after):
        assert "exact angles" in describe(model)
        expect_close(logits(model, ids), logits(own, ids), 1e-5)
    assert torch.equal(logits(restore(after), ids), logits(own, ids))


def test_leaving_a_block_of_an_extension_undoes_what_happened_within() -> None:
    model, ids = made("llama"), texts(2, 30)
    expected = logits(model, ids)
    with extended(model, 6000, "yarn"):
        accelerate(model)
    assert "not accelerated" in describe(model)
    assert torch.equal(logits(model, ids), expected)
    accelerate(model)
    exactly = logits(model, ids)
    with extended(model, 6000, "yarn"):
        restore(model)
    assert "not accelerated" not in describe(model)
    assert torch.equal(logits(model, ids), exactly)
    assert torch.equal(logits(restore(model), ids), expected)


def test_an_accelerated_model_can_be_rotated_in_bands() -> None:
    model, ids = made("llama", max_position_embeddings=32), texts(2, 80)
    bands = situs.SelfExtend(window=8, group=5)
    with rotated_in_bands(model, bands):
        expected = logits(model, ids, use_cache=False)
    accelerate(model)
    exactly = logits(model, ids)
    with rotated_in_bands(model, bands):
        expect_close(logits(model, ids, use_cache=False), expected, 1e-5)
    assert torch.equal(logits(model, ids), exactly)


def test_nothing_is_accelerated_or_restored_within_bands() -> None:
    model = made("llama", max_position_embeddings=32)
    message = (
        "model must be accelerated or restored outside of rotated_in_bands(), since both set its attention; got a "
        "LlamaForCausalLM within such a block."
    )
    bands = situs.SelfExtend(window=8, group=5)
    with rotated_in_bands(model, bands), raises_exactly(ValueError, message):
        accelerate(model)
    accelerate(model)
    with rotated_in_bands(model, bands), raises_exactly(ValueError, message):
        restore(model)


def test_the_name_alone_leaves_the_rotation_to_transformers() -> None:
    model, ids = made("llama"), texts(2, 30)
    model.set_attn_implementation("situs")
    assert "not accelerated" in describe(model)
    assert not any(original(each) for each in model.modules())
    own, given = made("llama"), {"position_ids": places(65_536, 30)}
    expect_close(logits(model, ids, **given), logits(own, ids, **given), 1e-5)


def test_cosines_that_were_copied_on_their_way_are_read() -> None:
    """As devices of layers that differ make it necessary."""
    model, ids = accelerate(made("cohere")), texts(2, 30)
    expected = logits(model, ids)

    def copied(module: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        cos, sin = kwargs["position_embeddings"]
        return args, {**kwargs, "position_embeddings": (cos.clone(), sin.clone())}

    for layer in model.model.layers:
        layer.self_attn.register_forward_pre_hook(copied, with_kwargs=True)
    expect_close(logits(model, ids), expected, 1e-6)


@pytest.mark.parametrize("layout", ["twice", "neighbours", "once"])
@pytest.mark.parametrize("pairing", ["halves", "interleaved"])
def test_what_rotates_takes_any_cosines_of_its_layout(layout: Any, pairing: Any) -> None:
    query, key = torch.randn(2, 3, 5, 12), torch.randn(2, 1, 5, 12)
    angles = torch.randn(2, 5, 4)
    cos, sin = (laid_out(each, layout) for each in (angles.cos(), angles.sin()))
    form = Form(pairing, layout)
    assert form_of(rotation(form)) == form
    for factors, sign in (((cos, sin), 1), ((cos, -sin), -1)):
        found = rotation(form)(query, key, *factors)
        for x, each in zip((query, key), found, strict=True):
            expected = situs.functional.rotate_real(x, angles.cos()[:, None], sign * angles.sin()[:, None], pairing)
            torch.testing.assert_close(each, expected)
    moved = rotation(form)(query.transpose(1, 2), key.transpose(1, 2), cos, sin, unsqueeze_dim=2)
    torch.testing.assert_close(moved[0].transpose(1, 2), rotation(form)(query, key, cos, sin)[0])


def test_functions_that_do_anything_else_are_not_taken_for_rotations() -> None:
    def swapped(q: Any, k: Any, cos: Any, sin: Any) -> Any:
        return rotation(Form("halves", "twice"))(q, k, sin, cos)

    def trailing(q: Any, k: Any, cos: Any, sin: Any, unsqueeze_dim: int = 1) -> Any:
        turned = rotation(Form("halves", "twice"))(q.flip(-1), k.flip(-1), cos.flip(-1), -sin.flip(-1))
        return tuple(each.flip(-1) for each in turned)

    def alone(x: Any, cos: Any, sin: Any) -> Any:
        return x

    assert form_of(swapped) is form_of(trailing) is form_of(alone) is form_of(print) is None


def test_a_layer_whose_code_was_replaced_keeps_its_rotation() -> None:
    model, ids = made("llama", torch.bfloat16), texts(2, 30)
    expected = logits(model, ids)
    layer = model.model.layers[0].self_attn
    layer.forward = layer.forward  # as hooks that move tensors between devices do
    assert "LlamaRotaryEmbedding: left as it is, since forward of LlamaAttention was replaced" in describe(model)
    assert logits(accelerate(model), ids).dtype == expected.dtype


@pytest.mark.parametrize(
    ("model_type", "reason"),
    [
        ("deepseek_v3", "DeepseekV3Attention rotates in a way of its own"),
        ("llama4_text", "Llama4TextRotaryEmbedding does"),
    ],
)
def test_models_that_rotate_otherwise_keep_their_own_code_and_say_so(model_type: str, reason: str) -> None:
    latent = {
        **SIZES, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16,
        "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "moe_intermediate_size": 16,
        "num_key_value_heads": 4, "num_local_experts": 2, "head_dim": 8,
    }  # fmt: skip
    torch.manual_seed(0)
    model = hf.AutoModelForCausalLM.from_config(hf.AutoConfig.for_model(model_type, **latent)).eval()
    ids = texts(2, 20)
    expected = logits(model, ids)
    assert reason in describe(model)
    expect_close(logits(accelerate(model), ids), expected, 1e-5)
