"""A live model that is extended equals one that is built from the extended configuration."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import transformers

from situs import huggingface, models
from tests.raising import raises_exactly

SIZES = {
    "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2, "vocab_size": 50,
    "intermediate_size": 32, "max_position_embeddings": 32,
}  # fmt: skip
LATENT = {
    **SIZES, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16,
    "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "moe_intermediate_size": 16,
    "num_key_value_heads": 4,
}  # fmt: skip
YARN = {
    "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 8, "mscale": 1.0,
    "mscale_all_dim": 1.0,
}  # fmt: skip
GEMMA = {**SIZES, "head_dim": 16, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8}
CASES: list[tuple[str, dict[str, Any], str]] = [
    ("llama", SIZES, "linear"),
    ("llama", SIZES, "ntk"),
    ("llama", SIZES, "dynamic"),
    ("llama", SIZES, "yarn"),
    ("llama", SIZES, "llama3"),
    ("qwen3", {**SIZES, "head_dim": 16}, "yarn"),
    ("gpt_neox", {**SIZES, "rotary_pct": 0.5}, "yarn"),
    ("stablelm", SIZES, "linear"),
    ("gemma3_text", GEMMA, "linear"),
    ("deepseek_v3", {**LATENT, "rope_parameters": YARN}, "yarn"),
    ("glm4_moe_lite", LATENT, "yarn"),
]
IDS = torch.randint(0, 50, (2, 100), generator=torch.Generator().manual_seed(0))


def made(model_type: str, settings: dict[str, Any]) -> Any:
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(model_type, **settings)
    ).eval()


@pytest.mark.parametrize(("model_type", "settings", "method"), CASES)
def test_an_extended_model_equals_one_that_is_built_so(
    model_type: str, settings: dict[str, Any], method: Any, tmp_path: Any
) -> None:
    model = made(model_type, settings)
    with torch.no_grad():
        before = model(IDS).logits
        longer = huggingface.extend(model, 128, method)
        found = model(IDS).logits
    assert longer.method == method
    config = transformers.AutoConfig.for_model(**longer.config)
    other = transformers.AutoModelForCausalLM.from_config(config).eval()
    other.load_state_dict(model.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(found, other(IDS).logits, atol=1e-6, rtol=1e-5)
    assert (found - before).abs().max() > 1e-5
    model.save_pretrained(tmp_path)
    with torch.no_grad():
        loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
        torch.testing.assert_close(loaded(IDS).logits, found, atol=1e-6, rtol=1e-5)
    assert models.read(model.config) == longer.positions


def test_the_text_of_a_model_with_images_is_extended() -> None:
    text = {**SIZES, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 2, 2]}}
    vision = {"depth": 1, "embed_dim": 16, "hidden_size": 64, "num_heads": 2, "mlp_ratio": 1}
    config = transformers.AutoConfig.for_model("qwen2_vl", text_config=text, vision_config=vision)
    model = transformers.AutoModelForImageTextToText.from_config(config).eval()
    huggingface.extend(model, 128, "yarn")
    assert model.config.text_config.rope_parameters["rope_type"] == "yarn"
    assert model.config.text_config.rope_parameters["mrope_section"] == [4, 2, 2]
    other = transformers.AutoModelForImageTextToText.from_config(model.config).eval()
    other.load_state_dict(model.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(model(IDS).logits, other(IDS).logits, atol=1e-6, rtol=1e-5)


def test_what_cannot_be_extended_is_refused_and_stays_as_it_was() -> None:
    model = made("bloom", {"hidden_size": 64, "n_head": 4, "n_layer": 2, "vocab_size": 50})
    with pytest.raises(models.ConfigError, match="ALiBi"):
        huggingface.extend(model, 128)
    llama = made("llama", SIZES)
    with pytest.raises(models.ConfigError, match=r"^target must be more than 32, since"):
        huggingface.extend(llama, 16)
    with pytest.raises(TypeError, match=r"^model must be a model of transformers, since .*; got Linear\.$"):
        huggingface.extend(torch.nn.Linear(2, 2), 128)


def test_a_failure_on_the_way_leaves_the_model_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    model = made("llama", SIZES)
    rope = model.config.rope_parameters
    with torch.no_grad():
        before = model(IDS).logits
    from situs.huggingface import extending

    def never(*_: object) -> bool:
        return False

    monkeypatch.setattr(extending, "_alike", never)
    with pytest.raises(RuntimeError, match=r"The model is as it was\. Please report its configuration\.$"):
        huggingface.extend(model, 128)
    assert model.config.rope_parameters == rope
    assert model.config.max_position_embeddings == 32
    with torch.no_grad():
        assert torch.equal(model(IDS).logits, before)


LONG = {
    "rope_type": "longrope", "rope_theta": 1e4, "factor": 2.0, "original_max_position_embeddings": 16,
    "short_factor": [1.0] * 8, "long_factor": [1.0 + number for number in range(8)],
}  # fmt: skip


@pytest.mark.parametrize(
    ("model_type", "settings", "method", "factors"),
    [
        (
            "llama",
            {**SIZES, "rope_parameters": LONG},
            "longrope",
            {"short_factor": [1.0] * 8, "long_factor": [3.0] * 8},
        ),
        ("gemma3_text", GEMMA, "dynamic", None),
    ],
)
def test_a_model_that_was_run_and_is_extended_equals_one_that_is_built_so(
    model_type: str, settings: dict[str, Any], method: Any, factors: Any
) -> None:
    """LongRoPE's frequencies of long texts, and the longest text that dynamic NTK counts from, were of the old one."""
    model = made(model_type, settings)
    with torch.no_grad():
        if method == "dynamic":
            huggingface.extend(model, 64, method)
        model(IDS)
        huggingface.extend(model, 128, method, factors=factors)
        built = type(model)(copy.deepcopy(model.config)).eval()
        built.load_state_dict(model.state_dict())
        torch.testing.assert_close(model(IDS[:, :90]).logits, built(IDS[:, :90]).logits, atol=1e-6, rtol=0.0)


def test_layers_with_bases_of_their_own_keep_them() -> None:
    bases = [1e4, 5e5]
    model = made("granite_swa", {**SIZES, "layer_rope_theta": bases, "layer_types": ["full_attention"] * 2})
    longer = huggingface.extend(model, 128, "linear")
    built = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(**longer.config),
    ).eval()
    built.load_state_dict(model.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(model(IDS).logits, built(IDS).logits, atol=1e-6, rtol=0.0)
    other = made("granite_swa", {**SIZES, "layer_rope_theta": bases})
    with raises_exactly(
        ValueError,
        "method must leave bases as they are, since layers of granite_swa find their cosines by them; got 'ntk'. Save "
        "the model, and load it with the configuration that situs.models.extend gives.",
    ):
        huggingface.extend(other, 128, "ntk")
