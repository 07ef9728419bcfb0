"""Sinks, caps and chunks of released attention layers and of ours, on the same queries, keys and values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from situs import Positions, YaRN
from situs.attention import attend
from tests.parity.attention_probe import Projections, SeenAttention, enliven
from tests.parity.released_models import HEAD_DIM, SIZES, VOCABULARY, rotary
from tests.parity.wide_transformers import WIDE_TOLERANCE, in_float64

LENGTH = 40
MASK = (torch.arange(LENGTH) >= LENGTH - torch.tensor([LENGTH, 27])[:, None]).long()


@dataclass(frozen=True)
class Released:
    """An architecture, its configuration, and the call of ours that stands for its first layer."""

    architecture: str
    config: dict[str, Any]
    call: dict[str, Any]
    sinks: str | None = None
    seen: Projections = field(default_factory=lambda: Projections("model.layers.0.self_attn", HEAD_DIM))

    def __str__(self) -> str:
        return self.architecture.lower()

    def run(self, **inputs: Any) -> tuple[SeenAttention, dict[str, Any]]:
        """What the first layer saw and made in float64, and the call that should give the same."""
        kind: Any = getattr(transformers, self.architecture)
        with in_float64(kind):
            chosen = {**SIZES, "head_dim": HEAD_DIM, **self.config}
            config = kind.config_class(**{key: value for key, value in chosen.items() if value is not ...})
            model: Any = enliven(kind(config).double().eval())
            call = dict(self.call)
            if self.sinks is not None:
                sinks: Tensor = model.get_parameter(self.sinks)
                call["sinks"] = torch.nn.init.normal_(sinks).detach()
            found = self.seen(model, lambda: model(torch.randint(1, VOCABULARY, (2, LENGTH)), **inputs))
        return found, call


RELEASED = [
    Released(
        "GptOssForCausalLM",
        {
            "num_local_experts": 2, "num_experts_per_tok": 1, "layer_types": ["sliding_attention"], "sliding_window": 9,
            "experts_implementation": "eager",
            "rope_parameters": {
                "rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
                "truncate": False, "original_max_position_embeddings": 4096,
            },
        },
        {
            "encoding": rotary(base=150000.0, scaling=YaRN(factor=32.0, original_length=4096, truncate=False)),
            "window": 9,
        },
        "model.layers.0.self_attn.sinks",
    ),
    Released(
        "GraniteSWAForCausalLM",
        {"layer_types": ["sliding_attention"], "sliding_window": 6, "attention_multiplier": 0.4, "head_dim": ...},
        {"encoding": rotary(), "window": 6, "scale": 0.4},
        "model.layers.0.self_attn.sinks",
    ),
    Released(
        "Gemma2ForCausalLM",
        {"attn_logit_softcapping": 1.5, "query_pre_attn_scalar": 9, "sliding_window": 7},
        {"encoding": rotary(), "window": 7, "softcap": 1.5, "scale": 1 / 3},
    ),
    Released(
        "Llama4ForCausalLM",
        {
            "attention_chunk_size": 12, "num_local_experts": 2, "intermediate_size_mlp": 32, "use_qk_norm": False,
            "rope_parameters": {"rope_theta": 5e5, "rope_type": "default"},
        },
        {"encoding": rotary(base=5e5, pairing="interleaved"), "chunk": 12},
    ),
]  # fmt: skip
each_model = pytest.mark.parametrize("released", RELEASED, ids=str)


def assert_same(seen: SeenAttention, call: dict[str, Any], positions: Positions | None = None) -> None:
    real = torch.ones(2, LENGTH, dtype=torch.bool) if positions is None else positions.valid
    assert real is not None
    told: dict[str, Any] = {"causal": True, "positions": positions}
    error = (attend(seen.query, seen.key, seen.value, **told, **call) - seen.output).abs().amax((1, 3))[real].max()
    assert error <= WIDE_TOLERANCE, f"off by {error:.2e}"
    for name in {"sinks", "softcap", "chunk"} & set(call):
        without = attend(seen.query, seen.key, seen.value, **told, **{**call, name: None})
        assert (without - seen.output).abs().amax((1, 3))[real].max() > 0.01, f"{name} hardly matters here"


@each_model
def test_attention_equals_ours(released: Released) -> None:
    assert_same(*released.run())


@each_model
def test_attention_equals_ours_with_left_padding(released: Released) -> None:
    position_ids = (MASK.cumsum(-1) - 1).masked_fill(MASK == 0, 0)
    seen, call = released.run(attention_mask=MASK, position_ids=position_ids)
    assert_same(seen, call, Positions.from_mask(MASK, side="left"))
