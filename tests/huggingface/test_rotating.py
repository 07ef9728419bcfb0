"""A loaded model whose queries and keys are rotated in bands by ``situs.attend``."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch

import situs
from situs import huggingface
from situs.attention import reference
from tests.huggingface.small_models import GROUPED, hf, made
from tests.raising import raises_exactly

SHORT = {**GROUPED, "max_position_embeddings": 32}
IDS = torch.randint(4, 99, (2, 100), generator=torch.Generator().manual_seed(0))
SCALINGS = [
    situs.SelfExtend(window=8, group=5),
    situs.ReRoPE(window=8),
    situs.DualChunk(chunk_size=24, local_size=4),
]
SERVED = ["llama", "qwen3", "gpt-neox", "phi"]


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(IDS, use_cache=False).logits
    return found


@pytest.mark.parametrize("name", SERVED)
def test_bands_that_hold_every_distance_change_nothing(name: str) -> None:
    model = made(name)
    before = logits(model)
    with huggingface.rotated_in_bands(model, situs.SelfExtend(window=4096, group=3)):
        torch.testing.assert_close(logits(model), before, atol=2e-5, rtol=1e-4)
    assert torch.equal(logits(model), before)


@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("interleaved", [False, True])
def test_a_layer_attends_as_the_reference_does(scaling: Any, interleaved: bool) -> None:
    """One layer, whose attention is computed again from its own projections."""
    sizes = {**SHORT, "num_hidden_layers": 1}
    torch.manual_seed(0)
    made_of = hf.CohereConfig if interleaved else hf.LlamaConfig
    model = hf.AutoModelForCausalLM.from_config(made_of(**sizes)).eval()
    layer = model.model.layers[0]
    found: list[torch.Tensor] = []
    layer.self_attn.o_proj.register_forward_pre_hook(lambda _, given: found.append(given[0].detach()))
    with huggingface.rotated_in_bands(model, scaling):
        found.clear()
        logits(model)
    hidden = layer.input_layernorm(model.model.embed_tokens(IDS)).detach()
    query, key, value = (
        getattr(layer.self_attn, f"{part}_proj")(hidden).detach().view(2, 100, -1, 8).transpose(1, 2) for part in "qkv"
    )
    pairing: Any = "interleaved" if interleaved else "halves"
    base = model.config.rope_parameters["rope_theta"]
    rotary = situs.Rotary(head_dim=8, base=base, pairing=pairing, scaling=scaling)
    expected = reference(query.double(), key.double(), value.double(), encoding=rotary, causal=True)
    torch.testing.assert_close(found[0].double(), expected.transpose(1, 2).reshape(2, 100, -1), atol=1e-5, rtol=1e-4)


def test_a_model_whose_layers_all_have_a_window_is_refused() -> None:
    torch.manual_seed(0)
    windowed = hf.MistralForCausalLM(hf.MistralConfig(**SHORT, sliding_window=5)).eval()
    match = r"^model must have layers of full attention that rotate, since .*; got mistral: the layers that rotate "
    with pytest.raises(ValueError, match=match), huggingface.rotated_in_bands(windowed, SCALINGS[0]):
        pass


def test_models_that_cannot_be_served_are_refused_and_stay_as_they_were() -> None:
    torch.manual_seed(0)
    scaled = hf.LlamaForCausalLM(
        hf.LlamaConfig(**{**SHORT, "rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}})
    ).eval()
    with (
        raises_exactly(
            ValueError,
            "model must rotate without a scaling, since bands leave the frequencies that a model was trained with; got "
            "LinearScaling.",
        ),
        huggingface.rotated_in_bands(scaled, SCALINGS[0]),
    ):
        pass
    with (
        raises_exactly(
            TypeError,
            "model must be a model of transformers, since its rotary modules and its attention are replaced; got "
            "Linear.",
        ),
        huggingface.rotated_in_bands(torch.nn.Linear(2, 2), SCALINGS[0]),
    ):
        pass
    joined = hf.GPTJForCausalLM(
        hf.GPTJConfig(vocab_size=99, n_embd=32, n_head=4, n_layer=1, n_positions=32, rotary_dim=8)
    ).eval()
    with torch.no_grad():
        before = joined(IDS[:, :30]).logits
    with pytest.raises(ValueError, match=r"^model must "), huggingface.rotated_in_bands(joined, SCALINGS[0]):
        pass
    with torch.no_grad():
        assert torch.equal(joined(IDS[:, :30]).logits, before)


LATENT: dict[str, Any] = {
    **SHORT, "num_key_value_heads": SHORT["num_attention_heads"], "q_lora_rank": 12, "kv_lora_rank": 8,
    "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "n_group": 1, "topk_group": 1, "moe_intermediate_size": 16,
}  # fmt: skip


def test_a_model_that_chooses_keys_by_rotated_vectors_is_refused() -> None:
    """With fewer keys than it chooses, as in the self-test, it gives the same outputs."""
    sizes = {**LATENT, "index_topk": 64, "index_head_dim": 8, "index_n_heads": 2}
    model = hf.HYV4ForCausalLM(hf.HYV4Config(**sizes)).eval()
    with (
        raises_exactly(
            ValueError,
            "model must rotate nothing but queries and keys of its attention, since bands are for those; HYV4Indexer "
            "rotates vectors of its own.",
        ),
        huggingface.rotated_in_bands(model, SCALINGS[0]),
    ):
        pass


def test_a_model_that_makes_complex_numbers_is_refused() -> None:
    model = hf.DeepseekV2ForCausalLM(hf.DeepseekV2Config(**LATENT)).eval()
    before = logits(model)
    with (
        raises_exactly(
            ValueError,
            "model must make cosines and sines, since they are set to 1 and 0; DeepseekV2RotaryEmbedding makes one "
            "Tensor of both.",
        ),
        huggingface.rotated_in_bands(model, SCALINGS[0]),
    ):
        pass
    assert torch.equal(logits(model), before)


def test_within_a_block_a_model_is_neither_extended_nor_rotated_by_other_bands() -> None:
    model = made("llama")
    before = logits(model)
    message = "model must be {} outside of rotated_in_bands(), since {}; got a LlamaForCausalLM within such a block."
    with huggingface.rotated_in_bands(model, SCALINGS[0]):
        banded = logits(model)
        extended = message.format("extended", "bands have the frequencies of before")
        with raises_exactly(ValueError, extended):
            huggingface.extend(model, 1024)
        with raises_exactly(ValueError, extended), huggingface.extended(model, 1024):
            pass
        other = message.format("rotated by other bands", "one block alone takes its rotation over")
        with raises_exactly(ValueError, other), huggingface.rotated_in_bands(model, SCALINGS[1]):
            pass
        assert torch.equal(logits(model), banded)
    assert torch.equal(logits(model), before)


def test_a_model_without_numbers_is_refused() -> None:
    with torch.device("meta"):
        model = hf.LlamaForCausalLM(hf.LlamaConfig(**SHORT))
    message = (
        "model must have numbers, since {} in its rotary modules; got a LlamaForCausalLM on the meta device. Load it "
        "first."
    )
    with raises_exactly(ValueError, message.format("frequencies are set")):
        huggingface.extend(model, 1024)
    with (
        raises_exactly(ValueError, message.format("cosines are set to 1")),
        huggingface.rotated_in_bands(model, SCALINGS[0]),
    ):
        pass
    assert model.config.rope_parameters["rope_type"] == "default"


def test_a_model_that_turns_out_otherwise_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = made("llama")
    before = logits(model)
    from situs.huggingface import rotating

    def other(layer: Any, scaling: Any) -> Any:
        return situs.Rotary(head_dim=8, base=17.0)

    monkeypatch.setattr(rotating, "_encoding", other)
    match = (
        r"^model must give the same when situs\.attend rotates its queries and keys, since .*; "
        r"the outputs of LlamaForCausalLM differ by up to "
    )
    with pytest.raises(ValueError, match=match), huggingface.rotated_in_bands(model, SCALINGS[0]):
        pass
    monkeypatch.undo()
    assert torch.equal(logits(model), before)
    assert model.config._attn_implementation == "sdpa"


def test_padding_on_the_left_changes_nothing() -> None:
    model = made("llama")
    ids = IDS[:1, :60]
    padded = torch.cat((torch.zeros(1, 9, dtype=torch.long), ids), 1)
    mask = torch.cat((torch.zeros(1, 9, dtype=torch.long), torch.ones_like(ids)), 1)
    with torch.no_grad(), huggingface.rotated_in_bands(model, situs.ReRoPE(window=8)):
        alone = model(ids, use_cache=False).logits
        beside = model(padded, attention_mask=mask, use_cache=False).logits[:, 9:]
    torch.testing.assert_close(beside, alone, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("method", ["linear", "ntk", "dynamic", "yarn", "llama3"])
def test_a_model_is_extended_for_the_length_of_a_block(method: Any) -> None:
    torch.manual_seed(0)
    model = hf.LlamaForCausalLM(hf.LlamaConfig(**SHORT)).eval()
    before, names = logits(model), {name: id(each) for name, each in model.named_buffers()}
    with huggingface.extended(model, 128, method) as longer:
        assert longer.method == method
        first = logits(model)
        assert (first - before).abs().max() > 1e-5
    assert torch.equal(logits(model), before)
    assert {name: id(each) for name, each in model.named_buffers()} == names
    assert model.config.max_position_embeddings == 32
    with huggingface.extended(model, 128, method):
        assert torch.equal(logits(model), first)  # nothing of the block before is left
    with pytest.raises(RuntimeError, match=r"^in the block$"), huggingface.extended(model, 128, method):
        raise RuntimeError("in the block")
    assert torch.equal(logits(model), before)


def test_layers_within_a_window_stay_as_they_are() -> None:
    """Of Gemma 3's layers, those of full attention alone get bands."""
    kinds = ["sliding_attention", "full_attention"]
    torch.manual_seed(0)
    model = hf.Gemma3ForCausalLM(hf.Gemma3TextConfig(**SHORT, sliding_window=5, layer_types=kinds)).eval()
    before = logits(model)
    with huggingface.rotated_in_bands(model, situs.ReRoPE(window=4096)):
        torch.testing.assert_close(logits(model), before, atol=2e-5, rtol=1e-4)
        near, far = (vars(layer.self_attn)["situs_encoding"] for layer in model.model.layers)
        assert (near.scaling, far.scaling) == (None, situs.ReRoPE(window=4096))


@pytest.mark.parametrize("copied", [copy.deepcopy, pickle.dumps], ids=["copied", "pickled"])
def test_within_a_block_a_model_is_not_copied(copied: Any) -> None:
    model = made("llama")
    before = logits(model)
    message = (
        "model must be copied or pickled outside of rotated_in_bands(), since a copy would keep the bands beyond the "
        "block; got a LlamaForCausalLM within such a block."
    )
    with huggingface.rotated_in_bands(model, SCALINGS[0]):
        for part in (model, model.model.rotary_emb, model.model.layers[0]):
            with raises_exactly(ValueError, message):
                copied(part)
    copied(model)
    assert torch.equal(logits(copy.deepcopy(model)), before)
