"""Released architectures as tiny random models, each with the encoding that should match it."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import nn

import situs
from situs import Encoding
from tests.parity.attention_probe import FusedProjection, Projections, Run, SeenAttention, as_heads, enliven, watch
from tests.parity.wide_transformers import in_float64

HEAD_DIM = 16
FAR = 70_000  # past every released training length below, and past 65,536
VOCABULARY = 50

# names that most configurations share
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "attn_implementation": "eager",
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": None,
}


@dataclass(frozen=True)
class ReleasedModel:
    """An architecture and what should match it."""

    name: str
    encoding: Encoding
    catch: Callable[[nn.Module, Run], SeenAttention]
    config: dict[str, Any]
    scale: float | None = None
    window: int | None = None

    def __str__(self) -> str:
        return self.name.lower()

    @property
    def architecture(self) -> Any:
        """The class of the language model."""
        return getattr(transformers, f"{self.name.split()[0]}ForCausalLM")

    def build(self) -> Any:
        """A model with random weights: as released, or in float64 where built and run within ``widened()``."""
        chosen = {key: value for key, value in {**SIZES, **self.config}.items() if value is not ...}
        config = self.architecture.config_class(**deepcopy(chosen))  # it completes dictionaries in place
        return enliven(self.architecture(config).to(torch.get_default_dtype()).eval())

    def widened(self) -> Any:
        """A context in which the model is built and run in float64."""
        return in_float64(self.architecture)


def rotary(**options: Any) -> situs.Rotary:
    """Rotary of these models' heads."""
    return situs.Rotary(**{"head_dim": HEAD_DIM, **options})


def catch_latent(model: nn.Module, run: Run) -> SeenAttention:
    """DeepSeek's latent attention: 8 channels a head turn, kept last there and first here; keys share theirs."""
    names = ("q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj")
    seen = watch(model.get_submodule("model.layers.0.self_attn"), run, returned=names, received="o_proj")
    still, turning, value_dim = 16, 8, 12
    query = as_heads(seen["q_b_proj"], still + turning).roll(turning, -1)
    latent = seen["kv_b_proj"].squeeze(1)[:, -query.shape[2] :]  # each call expands the whole cache: take the last
    key, value = as_heads(latent, still + value_dim).split((still, value_dim), -1)
    shared = seen["kv_a_proj_with_mqa"][:, None, :, -turning:].expand(-1, key.shape[1], -1, -1)
    return SeenAttention(query, torch.cat((shared, key), -1), value, as_heads(seen["o_proj"], value_dim))


LLAMA_LAYER = Projections("model.layers.0.self_attn", HEAD_DIM)

PLAIN = [
    ReleasedModel("Llama", rotary(), LLAMA_LAYER, {"attention_bias": True}),
    ReleasedModel(
        "Mistral",
        rotary(base=1e6),
        LLAMA_LAYER,
        {"rope_parameters": {"rope_theta": 1e6}, "sliding_window": 7},
        window=7,
    ),
    ReleasedModel(
        "GPTNeoX",
        rotary(rotary_dim=4),
        FusedProjection("gpt_neox.layers.0.attention", HEAD_DIM, "query_key_value", "dense"),
        {"num_key_value_heads": ..., "rope_parameters": {"partial_rotary_factor": 0.25, "rope_theta": 10000.0}},
    ),
    ReleasedModel(
        "GPTJ",
        rotary(rotary_dim=8, pairing="interleaved"),
        Projections("transformer.h.0.attn", HEAD_DIM, output="out_proj"),
        {"num_key_value_heads": ..., "intermediate_size": ..., "rotary_dim": 8, "n_positions": FAR},
    ),
    ReleasedModel(
        "Cohere", rotary(base=5e5, pairing="interleaved"), LLAMA_LAYER, {"rope_parameters": {"rope_theta": 5e5}}
    ),
    ReleasedModel(
        "Glm",
        rotary(rotary_dim=8, pairing="interleaved"),
        LLAMA_LAYER,
        {"head_dim": HEAD_DIM, "rope_parameters": {"partial_rotary_factor": 0.5, "rope_theta": 10000.0}},
    ),
    ReleasedModel(
        "Phi",
        rotary(rotary_dim=8),
        Projections("model.layers.0.self_attn", HEAD_DIM, output="dense"),
        {"rope_parameters": {"partial_rotary_factor": 0.5, "rope_theta": 10000.0}},
    ),
    ReleasedModel(
        "Qwen3",
        rotary(base=1e6),
        Projections("model.layers.0.self_attn", HEAD_DIM, query="q_norm", key="k_norm"),
        {"head_dim": HEAD_DIM, "rope_parameters": {"rope_theta": 1e6}},
    ),
]
