"""Small configurations that engines read differently, and what their readings say of it."""

from __future__ import annotations

from typing import Any

from situs.models import read

SIZES: dict[str, Any] = {"hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 2,
                         "num_hidden_layers": 4, "max_position_embeddings": 32768}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}
LONGROPE = {"rope_type": "longrope", "short_factor": [1.0] * 31 + [2.0], "long_factor": [4.0] * 32}


def told(config: Any, engine: Any) -> list[str]:
    """What an engine's reading says beside transformers'."""
    model, plain = read(config, engine=engine).main, read(config).main
    return [str(note) for note in model.notes if note not in plain.notes]


def scaling(config: Any, engine: Any) -> str:
    """The scaling of the last layer that rotates."""
    layers = read(config, engine=engine).main.layers
    calls = [call for layer in layers for call in layer.calls if call.cls == "Rotary"]
    return repr(calls[-1].option("scaling"))
