"""Fingerprints: one for all spellings of a model, another for whatever changes its numbers."""

from __future__ import annotations

from typing import Any

import pytest

from situs.models import fingerprint, read

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "rope_theta": 5e5,
    "max_position_embeddings": 4096,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}


def test_spellings_do_not_matter() -> None:
    old = {**LLAMA, "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}}
    plain = {key: value for key, value in LLAMA.items() if key != "rope_theta"}
    new = {**plain, "rope_parameters": {**YARN, "rope_theta": 5e5, "beta_fast": 32, "beta_slow": 1.0, "truncate": True}}
    assert fingerprint(old) == fingerprint(new) == fingerprint(read(new))
    assert fingerprint({**LLAMA, "vocab_size": 7, "torch_dtype": "float16"}) == fingerprint(LLAMA)


def test_fingerprints_are_the_same_on_every_machine() -> None:
    assert fingerprint(LLAMA) == "bf7a469e0e1a0615"


@pytest.mark.parametrize(
    "change",
    [
        {"rope_theta": 5.00001e5},
        {"num_hidden_layers": 3},
        {"rope_scaling": {"type": "linear", "factor": 2.0}},
        {"rope_scaling": YARN},
        {"rope_scaling": {**YARN, "attention_factor": 1.0}},
        {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
        {"model_type": "cohere"},  # other pairs
        {"model_type": "nanochat"},  # the other way
        {"model_type": "mistral", "sliding_window": 8},
        {"model_type": "granite"},  # another scale
        {"head_dim": 32},
    ],
    ids=str,
)
def test_what_changes_numbers_changes_the_fingerprint(change: dict[str, Any]) -> None:
    assert fingerprint({**LLAMA, **change}) != fingerprint(LLAMA)


@pytest.mark.parametrize(
    "model_type", ["t5", "bert", "bloom", "deberta-v2", "qwen3_vl_vision", "gpt2", "swin", "vit", "lightglue"]
)
def test_every_kind_of_model_has_one(model_type: str) -> None:
    found = fingerprint({"model_type": model_type})
    assert len(found) == 16
    assert found == fingerprint({"model_type": model_type})
    assert found != fingerprint({"model_type": "llama"})
