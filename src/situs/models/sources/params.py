"""params.json, as Meta and Mistral release it beside weights of their own: translated into settings of transformers.

Their checkpoints pair neighbouring channels, where transformers' copies of the same models pair halves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from situs.models.readers.view import View, told
from situs.models.sources.strict import ConfigError

SCALED = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}  # fmt: skip
"""What use_scaled_rope stands for in Llama 3.1."""

_OTHERS = """
    vocab_size multiple_of ffn_dim_multiplier norm_eps hidden_dim max_batch_size ffn_exp moe quantization_args lora_args
    tie_word_embeddings tied_embeddings vision_encoder vision_chunk_size vision_max_num_chunks
    vision_num_cross_attention_layers causal model_type q_lora_rank qk_norm
    """
OTHERS = frozenset(_OTHERS.split())
"""Settings that do not speak of positions."""


def translated(params: Mapping[str, Any]) -> dict[str, Any]:
    """The same settings under the names of transformers."""
    view = View(params)
    found: dict[str, Any] = {
        "model_type": "llama",
        "hidden_size": view.count("dim", reason="it counts channels"),
        "num_hidden_layers": view.count("n_layers", reason="it counts layers"),
        "num_attention_heads": view.count("n_heads", reason="it counts heads"),
        "num_key_value_heads": view.count("n_kv_heads", reason="it counts heads"),
        "head_dim": view.count("head_dim", reason="it counts channels"),
        "sliding_window": view.count("sliding_window", "_sliding_window", reason="it counts keys"),
        "max_position_embeddings": view.count("max_seq_len", "max_position_embeddings", reason="it counts tokens"),
    }
    rope: dict[str, Any] = {
        "rope_theta": view.number("rope_theta", reason="it is the base of the frequencies", default=10000.0, above=0)
    }
    if view.flag("use_scaled_rope"):
        rope |= SCALED
        for key, name in (("rope_scaling_factor", "factor"), ("rope_high_freq_factor", "high_freq_factor")):
            number = view.number(key, reason="frequencies are divided by it", above=0)
            rope |= {} if number is None else {name: number}
    yarn = view.part("yarn")
    if yarn is not None:
        rope |= {
            "rope_type": "yarn",
            "factor": yarn.number("factor", reason="positions are stretched by it", least=1),
            "original_max_position_embeddings": yarn.count(
                "original_max_position_embeddings", reason="it counts tokens"
            ),
            "beta_fast": yarn.number("beta", reason="it bounds the pairs that are interpolated", above=0),
            "beta_slow": yarn.number("alpha", reason="it bounds the pairs that are interpolated", above=0),
        }
        if not yarn.flag("apply_scale", default=True):
            rope["attention_factor"] = 1.0
        _require_read(yarn)
    _require_read(view)
    return {name: each for name, each in {**found, "rope_parameters": rope}.items() if each is not None}


def _require_read(view: View) -> None:
    for key, value in view.unread().items():
        if key not in OTHERS:
            raise ConfigError(
                f"{view.name(key)} must be a setting that is known of params.json, since it might speak of positions; "
                f"got {told(value)}."
            )
