"""Models whose rotations are changed, and what is said of those that a form cannot say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from situs.models import ConfigError, ModelPositions, write
from situs.models.calls import Call

SIZES: dict[str, Any] = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 4}
QWEN = {"model_type": "qwen3", **SIZES, "rope_theta": 1e6, "max_position_embeddings": 40960, "vocab_size": 7}
YARN = Call.of("YaRN", factor=4.0, original_length=32768)
PARAMS = {"dim": 4096, "n_layers": 2, "n_heads": 32, "n_kv_heads": 8, "rope_theta": 5e5}


def scaled(model: ModelPositions, scaling: Call | None) -> ModelPositions:
    """A model all of whose rotations have another scaling."""

    def changed(call: Call) -> Call:
        return call.replace(scaling=scaling) if call.cls in ("Rotary", "RotaryValue", "LeRoPE") else call

    return replace(model, layers=tuple(replace(each, calls=tuple(map(changed, each.calls))) for each in model.layers))


def refused(model: ModelPositions, form: Any = "transformers", **options: Any) -> str:
    """What is said of a model that a form cannot say."""
    with pytest.raises(ConfigError) as problem:
        write(model, form=form, **options)
    return str(problem.value)
