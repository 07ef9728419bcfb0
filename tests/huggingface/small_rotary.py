"""Small rotary models with random weights, biases and norms, in any dtype, and in float64 with exact angles."""

from __future__ import annotations

from typing import Any

import torch

from tests.huggingface.small_models import hf

WORDS = 99
SIZES: dict[str, Any] = {
    "vocab_size": WORDS, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "num_hidden_layers": 2, "intermediate_size": 48, "max_position_embeddings": 3000, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
PLAIN = {key: value for key, value in SIZES.items() if key not in ("num_key_value_heads", "head_dim")}
GEMMA = {**SIZES, "query_pre_attn_scalar": 16, "sliding_window": 5}
MODERN = {
    **PLAIN, "local_attention": 8, "cls_token_id": 1, "sep_token_id": 2, "embedding_dropout": 0.0, "mlp_dropout": 0.0,
}  # fmt: skip
FALCON = {
    "vocab_size": WORDS, "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "alibi": False,
    "new_decoder_architecture": True, "num_kv_heads": 2,
}  # fmt: skip
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {**SIZES, "attention_bias": True}),
    "mistral": ("mistral", {**SIZES, "sliding_window": 5}),
    "qwen2": ("qwen2", {key: value for key, value in SIZES.items() if key != "head_dim"}),
    "qwen3": ("qwen3", SIZES),
    "gemma": ("gemma", SIZES),
    "gemma 2": ("gemma2", GEMMA),
    "gemma 3": ("gemma3_text", {**GEMMA, "layer_types": ["sliding_attention", "full_attention"]}),
    "gpt-neox": ("gpt_neox", {**PLAIN, "rotary_pct": 0.5}),
    "phi": ("phi", {**PLAIN, "partial_rotary_factor": 0.5}),
    "phi 3": ("phi3", {**PLAIN, "num_key_value_heads": 2}),
    "modernbert": ("modernbert", MODERN),
    "olmo": ("olmo", {**PLAIN, "num_key_value_heads": 2}),
    "olmo 2": ("olmo2", {**PLAIN, "num_key_value_heads": 2}),
    "stablelm": ("stablelm", {**PLAIN, "num_key_value_heads": 2, "partial_rotary_factor": 0.25}),
    "granite": ("granite", {**PLAIN, "num_key_value_heads": 2}),
    "cohere": ("cohere", {**PLAIN, "num_key_value_heads": 2}),
    "glm": ("glm", {**SIZES, "partial_rotary_factor": 0.5}),
    "gpt-oss": ("gpt_oss", {**SIZES, "num_local_experts": 2, "num_experts_per_tok": 1, "sliding_window": 6}),
    "falcon": ("falcon", FALCON),
}  # fmt: skip
DECODERS = [name for name in SETTINGS if name != "modernbert"]
WITH_FLOAT64 = [name for name in SETTINGS if name != "gpt-oss"]  # whose experts take none
LAYOUTS = {"cohere": lambda each: each.repeat_interleave(2, -1)}
"""How cosines of pairs are laid out, where not twice in a row."""


def config_of(name: str, **settings: Any) -> Any:
    """The configuration of a small model."""
    model_type, sizes = SETTINGS[name]
    return hf.AutoConfig.for_model(model_type, **{**sizes, **settings})


def made(name: str, dtype: torch.dtype = torch.float32, *, sharper: float = 1.0, **settings: Any) -> Any:
    """A model whose weights, biases and norms are all random, and rounded to bfloat16 in any dtype. Frequencies are
    float32, as in models that were loaded in a dtype. Random weights look at everything; ``sharper`` ones at
    little, as trained ones do, where layers tell their scale."""
    config = config_of(name, **settings)
    auto = hf.AutoModelForMaskedLM if name == "modernbert" else hf.AutoModelForCausalLM
    torch.manual_seed(0)
    model = auto.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    rounded = {key: each.bfloat16() for key, each in model.state_dict().items()}
    model = auto.from_config(config, dtype=dtype)
    model.load_state_dict(rounded)
    for module in model.modules():
        if isinstance(getattr(module, "scaling", None), float):
            module.scaling *= sharper
    return model.eval()


def exact(name: str, **settings: Any) -> Any:
    """The same model in float64, whose rotary modules compute in float64 too; transformers' own never do."""
    model = made(name, torch.float64, **settings)
    lay = LAYOUTS.get(name, lambda each: torch.cat((each, each), -1))

    def give(module: Any) -> None:
        def forward(x: Any, position_ids: Any, layer_type: str | None = None) -> Any:
            kind = "" if layer_type is None else f"{layer_type}_"
            angles = position_ids[..., None].double() * getattr(module, f"{kind}inv_freq").double()
            return tuple(
                lay(each) * getattr(module, f"{kind}attention_scaling") for each in (angles.cos(), angles.sin())
            )

        module.forward = forward

    for module in model.modules():
        if "RotaryEmbedding" in type(module).__name__:
            give(module)
    return model


def logits(model: Any, ids: torch.Tensor, **given: Any) -> torch.Tensor:
    """What a model gives, without gradients."""
    with torch.no_grad():
        found: torch.Tensor = model(input_ids=ids, **given)[0]
    return found


def places(offset: int, tokens: int) -> torch.Tensor:
    """Positions in a row, behind an offset."""
    return offset + torch.arange(tokens)[None]
