"""Rotary models, accelerated: the same outputs, gradients and texts in float32, and less error in bfloat16 and far away."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch

import situs
from situs.huggingface import accelerate, accelerated, describe, extend, extended, restore, rotated_in_bands
from situs.huggingface.families.rotary import rotation
from situs.huggingface.families.rotary_forms import Form, form_of, laid_out
from situs.huggingface.planning import plan
from tests.huggingface.small_models import expect_close, expect_same_gradients, gradients, hf, padding, texts
from tests.huggingface.small_rotary import DECODERS, SETTINGS, SIZES, WITH_FLOAT64, exact, logits, made
from tests.raising import raises_exactly

pytestmark = pytest.mark.once

FAR = {"offset": 65_536, "tokens": 40}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 32}
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 1e4, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip
LONGROPE = {
    "rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 8, "long_factor": [float(n) for n in range(1, 9)],
    "factor": 4.0, "original_max_position_embeddings": 32,
}  # fmt: skip
SCALINGS = {
    "linear": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0},
    "yarn": YARN,
    "llama3": LLAMA3,
    "longrope": LONGROPE,
}


def places(offset: int, tokens: int) -> torch.Tensor:
    return offset + torch.arange(tokens)[None]


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


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("tokens", [1, 7, 130, pytest.param(2049, marks=pytest.mark.heavy)])
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


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", SETTINGS)
def test_gradients_are_the_same_in_float32(name: str) -> None:
    model, ids = made(name), texts(2, 30)
    mask = padding(ids, "right")
    given = {"input_ids": ids, "attention_mask": mask}
    before = gradients(model, given, mask.bool())
    with accelerated(model):
        expect_same_gradients(gradients(model, given, mask.bool()), before)


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("way", [{}, {"cache_implementation": "static", "disable_compile": True}], ids=["dynamic", "static"])
def test_greedy_texts_are_the_same_in_float32(name: str, way: dict[str, Any]) -> None:
    model, ids = made(name), texts(2, 9)
    options = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0, "eos_token_id": None, **way}
    expected = model.generate(ids, attention_mask=padding(ids, "left"), **options)
    with accelerated(model):
        assert torch.equal(model.generate(ids, attention_mask=padding(ids, "left"), **options), expected)


@pytest.mark.parametrize("name", WITH_FLOAT64)
@pytest.mark.parametrize("offset", [4_200, 65_536])
def test_bfloat16_errs_less_at_far_positions(name: str, offset: int, capsys: pytest.CaptureFixture[str]) -> None:
    ids, where = texts(4, 40), places(offset, 40)
    model = made(name, torch.bfloat16)
    expected = logits(exact(name), ids, position_ids=where)
    before = float((logits(model, ids, position_ids=where) - expected).abs().mean())
    with accelerated(model):
        now = float((logits(model, ids, position_ids=where) - expected).abs().mean())
    with capsys.disabled():
        print(f"\n{name} at {offset}: error {now:.3g}, unmodified {before:.3g}, ratio {now / before:.2f}")
    assert now < before


@pytest.mark.parametrize("name", [name for name in DECODERS if name in WITH_FLOAT64])
def test_cached_keys_in_bfloat16_are_rounded_once(name: str) -> None:
    """Those of the first layer, which are the same bfloat16 numbers before they are rotated."""
    ids, where = texts(2, 40), places(65_536, 40)
    model = made(name, torch.bfloat16)

    def keys(model: Any, where: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            found: torch.Tensor = model(input_ids=ids, position_ids=where, use_cache=True).past_key_values.layers[0].keys
        return found

    still = keys(model, torch.zeros_like(where)).double()  # rotated by angles of 0
    rotary = next(each for each in exact(name).modules() if "RotaryEmbedding" in type(each).__name__)
    kinds = [model.config.layer_types[0]] if name == "gemma 3" else []
    cos, sin = rotary.forward(still, where, *kinds)
    pairing: Any = "interleaved" if name in ("cohere", "glm") else "halves"
    narrow = [each[..., ::2] if name == "cohere" else each[..., : each.shape[-1] // 2] for each in (cos, sin)]
    expected = situs.functional.rotate_real(still, *(each[:, None] for each in narrow), pairing)
    before = (keys(model, where).double() - expected).abs()
    with accelerated(model):
        found = keys(model, where)
        assert found.dtype == torch.bfloat16
        now = (found.double() - expected).abs()
    largest = torch.maximum(expected.abs(), found.double().abs())
    assert bool((now <= 2**-8 * largest + 1e-6).all())
    assert now.mean() < 0.7 * before.mean()


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
    settings = {"rope_parameters": SCALINGS[scaling], "max_position_embeddings": 32 if scaling == "dynamic" else 128}
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


@pytest.mark.compiled
@pytest.mark.parametrize("name", ["llama", "gemma 3", "cohere"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
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
    assert [type(each).__name__ for each, _ in plan(model).rotating] == ["LlamaAttention"] * 2 + ["LlamaRotaryEmbedding"]
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
    [("deepseek_v3", "DeepseekV3Attention rotates in a way of its own"), ("llama4_text", "Llama4TextRotaryEmbedding does")],
)
def test_models_that_rotate_otherwise_keep_their_own_code_and_say_so(model_type: str, reason: str) -> None:
    latent = {
        **SIZES, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16,
        "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "moe_intermediate_size": 16,
        "num_key_value_heads": 4, "num_local_experts": 2,
    }  # fmt: skip
    torch.manual_seed(0)
    model = hf.AutoModelForCausalLM.from_config(hf.AutoConfig.for_model(model_type, **latent)).eval()
    ids = texts(2, 20)
    expected = logits(model, ids)
    assert reason in describe(model)
    expect_close(logits(accelerate(model), ids), expected, 1e-5)
