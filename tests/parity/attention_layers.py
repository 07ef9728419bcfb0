"""Attention layers of transformers, tiny and with random weights, each with the Situs call that should match it.

A layer alone is built, not its model: what it is given are hidden states, cosines and sines from the model's own rotary
module, and a mask. ``heads`` makes queries, keys and values as they are before positions come in.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import situs
from situs import Encoding
from tests.parity.wide_transformers import in_float64

DIM, HEADS, KV_HEADS, HEAD_DIM = 32, 4, 2, 8
ORIGINAL = 16  # tokens, so that a temperature has taken several steps within a short text

Heads = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class Layer:
    """A released attention layer, and what it is in Situs."""

    name: str
    """The module of transformers and the start of its classes: "llama4:Llama4Text"."""
    options: dict[str, Any]
    encodings: Callable[[], list[Encoding]]
    heads: Callable[[Any, Tensor], Heads]
    scale: float | None = None
    config: str = ""
    """The start of the configuration's class, where it is another."""
    layer_index: int = 0
    extra: Callable[[Any, Tensor], dict[str, Any]] = lambda module, ids: {}
    rotary_type: str | None = None
    project: Callable[[Any, Tensor, Tensor], Tensor] = lambda module, out, x: module.o_proj(out.flatten(2))
    far: bool = True
    """Whether it takes positions at all; Llama 4's layers without rotary count tokens themselves."""

    def __str__(self) -> str:
        return self.name.partition(":")[2]

    def build(self) -> tuple[nn.Module, nn.Module | None]:
        """The layer in float64, with random weights everywhere, and its model's rotary module."""
        package, _, prefix = self.name.partition(":")
        modeling = importlib.import_module(f"transformers.models.{package}.modeling_{package}")
        configuration = importlib.import_module(f"transformers.models.{package}.configuration_{package}")
        sizes = {
            "hidden_size": DIM, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM,
            "num_hidden_layers": 2, "vocab_size": 16, "intermediate_size": 8, "max_position_embeddings": 1 << 20,
        }  # fmt: skip
        config = getattr(configuration, f"{self.config or prefix}Config")(**{**sizes, **self.options})
        config._attn_implementation = "eager"
        torch.manual_seed(0)
        with in_float64(getattr(modeling, f"{prefix}Attention")):
            module = getattr(modeling, f"{prefix}Attention")(config, self.layer_index).double().eval()
            rotary = getattr(modeling, f"{prefix}RotaryEmbedding", None)
            made = None if rotary is None else rotary(config=config)
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                parameter.uniform_(0.5, 1.5) if parameter.ndim == 1 and "bias" not in name else parameter.normal_()
                if parameter.ndim > 1:
                    parameter.div_(parameter.shape[-1] ** 0.5)
                if name == "sinks":  # which take no part here
                    parameter.fill_(-1e30)
        return module, made

    def run(self, module: Any, rotary: Any, x: Tensor, ids: Tensor, seen: Tensor) -> Tensor:
        """What transformers makes of hidden states at these positions; ``seen`` is true where a query sees a key."""
        mask = torch.zeros(seen.shape, dtype=torch.float64).masked_fill(~seen, -1e30)
        with in_float64(type(module)), torch.no_grad():
            angles: Any = None
            if rotary is not None and self.rotary_type != "none":
                angles = rotary(x, ids) if self.rotary_type is None else rotary(x, ids, self.rotary_type)
            given = {"position_embeddings": angles, "attention_mask": mask, "position_ids": ids}
            if self.rotary_type == "main":
                given["position_embeddings"] = {"main": angles}
            result: Tensor = module(x, **{**given, **self.extra(module, ids)})[0]
            return result

    @torch.no_grad()
    def ours(self, module: Any, x: Tensor, positions: situs.Positions, chunks: list[int] | None = None) -> Tensor:
        """What Situs makes of the same, at once or in chunks through a cache."""
        encodings = self.encodings()
        with in_float64(type(module)):
            query, key, value = self.heads(module, x)
        rules: dict[str, Any] = {"causal": True, "scale": self.scale}
        if chunks is None:
            out = situs.attend(query, key, value, encoding=encodings, positions=positions, **rules)
            return self.project(module, out.transpose(1, 2), x)
        sizes: dict[str, Any] = {
            "batch": len(x),
            "num_heads": key.shape[1],
            "head_dim": key.shape[-1],
            "value_dim": value.shape[-1],
        }
        cache = situs.KVCache(**sizes, max_length=x.shape[1], dtype=x.dtype)
        outs, first = [], 0
        for size in chunks:
            part = slice(first, first + size)
            step = cache.extend(query[:, :, part], key[:, :, part], value[:, :, part], positions[part], encodings)
            outs.append(
                situs.attend(
                    step.query, step.key, step.value, encoding=list(step.encodings), positions=step.query_positions,
                    key_positions=step.key_positions, causal=True, scale=step.scale,
                )
            )  # fmt: skip
            first += size
        return self.project(module, torch.cat(outs, 2).transpose(1, 2), x)


def projected(module: Any, x: Tensor) -> Heads:
    """Queries, keys and values of plain projections, normalised first where the layer does that."""
    query, key, value = (getattr(module, name)(x) for name in ("q_proj", "k_proj", "v_proj"))
    query, key, value = (each.unflatten(-1, (-1, HEAD_DIM)).transpose(1, 2) for each in (query, key, value))
    return query, key, value


def normed(module: Any, x: Tensor) -> Heads:
    """The same with norms before positions come in."""
    query, key, value = projected(module, x)
    return module.q_norm(query), module.k_norm(key), value


def latent(module: Any, x: Tensor) -> Heads:
    """Queries, keys and values of latent attention, whose last key channels are the same in every head."""
    query = module.q_b_proj(module.q_a_layernorm(module.q_a_proj(x))).unflatten(-1, (HEADS, -1)).transpose(1, 2)
    compressed, shared = module.kv_a_proj_with_mqa(x).split([module.kv_lora_rank, module.qk_rope_head_dim], -1)
    both = module.kv_b_proj(module.kv_a_layernorm(compressed)).unflatten(-1, (HEADS, -1)).transpose(1, 2)
    plain, value = both.split([module.qk_nope_head_dim, module.v_head_dim], -1)
    return query, torch.cat((plain, shared[:, None].expand(-1, HEADS, -1, -1)), -1), value


def one_vector(module: Any, x: Tensor) -> Heads:
    """DeepSeek-V4's queries, and the one vector that is key and value."""
    query = module.q_b_proj(module.q_a_norm(module.q_a_proj(x))).unflatten(-1, (HEADS, -1)).transpose(1, 2)
    shared = module.kv_norm(module.kv_proj(x))[:, None]
    return module.q_b_norm(query), shared, shared


def grouped(module: Any, out: Tensor, x: Tensor) -> Tensor:
    """DeepSeek-V4's output projection."""
    result: Tensor = module.o_b_proj(module.o_a_proj(out.reshape(*x.shape[:2], module.config.o_groups, -1)).flatten(2))
    return result


def gated(module: Any, out: Tensor, x: Tensor) -> Tensor:
    """beam's gate and output projection."""
    gate = module.gate_proj(x).view_as(out) + module.gate_bias[:, None]
    result: Tensor = module.o_proj((out * gate.sigmoid()).flatten(2))
    return result


LATENT = {
    "num_key_value_heads": HEADS, "q_lora_rank": 12, "kv_lora_rank": 10, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8,
    "v_head_dim": 6, "head_dim": 4,
}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 16.0, "original_max_position_embeddings": ORIGINAL}
MSCALES = {"mscale": 1.0, "mscale_all_dim": 1.0}


def yarn(**options: Any) -> situs.YaRN:
    return situs.YaRN(factor=16.0, original_length=ORIGINAL, mscale=1.0, mscale_all_dim=1.0, **options)


def mla(pairing: Any, scaling: situs.Scaling | None, *more: Encoding) -> list[Encoding]:
    rotary = situs.Rotary(head_dim=12, rotary_dim=4, channels="trailing", pairing=pairing, scaling=scaling)
    return [rotary, *more]


def by_beta() -> situs.Temperature:
    return situs.Temperature(dialect="ministral3", original_length=ORIGINAL, factor=0.3)


def beams_scaling(module: Any, ids: Tensor) -> dict[str, Any]:
    from transformers.models.beam.modeling_beam import compute_attention_scaling

    return {"attention_scaling": compute_attention_scaling(ids)}  # type: ignore[arg-type]


LAYERS = [
    Layer(
        "llama4:Llama4Text",
        {"attn_scale": 0.3, "floor_scale": ORIGINAL, "no_rope_layers": [0, 1], "attn_temperature_tuning": True},
        lambda: [situs.Temperature(dialect="llama4", original_length=ORIGINAL, factor=0.3)],
        projected,
        far=False,
    ),
    Layer(
        "ministral3:Ministral3",
        {"rope_parameters": {**YARN, **MSCALES, "llama_4_scaling_beta": 0.3}, "sliding_window": None},
        lambda: [situs.Rotary(head_dim=HEAD_DIM, scaling=yarn(mscale_dialect="ministral3")), by_beta()],
        projected,
    ),
    Layer(
        "mistral4:Mistral4",
        {
            **LATENT, "head_dim": 12, "rope_parameters": {**YARN, **MSCALES, "llama_4_scaling_beta": 0.3},
            "rope_interleave": True,
        },
        lambda: mla("interleaved", yarn(), by_beta()),
        latent,
    ),
    Layer(
        "deepseek_v2:DeepseekV2",
        {**LATENT, "rope_parameters": {**YARN, **MSCALES}},
        lambda: mla("interleaved", yarn()),
        latent,
    ),
    Layer(
        "deepseek_v3:DeepseekV3",
        {**LATENT, "rope_parameters": {**YARN, **MSCALES}, "rope_interleave": True},
        lambda: mla("interleaved", yarn()),
        latent,
    ),
    Layer(
        "minicpm3:MiniCPM3",
        {**LATENT, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
        lambda: mla("halves", None),
        latent,
    ),
    Layer(
        "deepseek_v4:DeepseekV4",
        {
            "num_key_value_heads": 1, "q_lora_rank": 12, "o_groups": 2, "o_lora_rank": 6, "head_dim": HEAD_DIM,
            "partial_rotary_factor": 0.5, "layer_types": ["sliding_attention"] * 2, "sliding_window": 1 << 20,
        },
        lambda: [
            situs.Rotary(head_dim=HEAD_DIM, rotary_dim=4, channels="trailing", pairing="interleaved"),
            situs.RotaryValue(head_dim=HEAD_DIM, rotary_dim=4, channels="trailing", pairing="interleaved"),
        ],
        one_vector,
        rotary_type="main",
        project=grouped,
    ),
    Layer(
        "beam:Beam",
        {"layer_types": ["full_attention"] * 2},
        lambda: [situs.Temperature(dialect="power", original_length=2048)],
        normed,
        extra=beams_scaling,
        rotary_type="none",
        project=gated,
    ),
]  # fmt: skip
