"""Ports whose scaling has another factor than the model's are told it, and no others are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from situs.models import golden, verify

pytestmark = pytest.mark.once

LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 512}
KINDS: dict[str, dict[str, Any]] = {
    "linear": {}, "dynamic": {}, "yarn": {"original_max_position_embeddings": 512}, "llama3": LLAMA3,
}  # fmt: skip
RELEASED = Path(__file__).with_name("released")
TABLES = ("frequencies", "cos", "sin", "rotated_q", "rotated_k")


def scaled(kind: str, factor: float) -> dict[str, Any]:
    """A small model with a scaling."""
    return {
        "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2,
        "max_position_embeddings": 4096, "rope_scaling": {"rope_type": kind, "factor": factor, **KINDS[kind]},
    }  # fmt: skip


def port_of(config: dict[str, Any], arrays: tuple[str, ...], dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """Arrays of a program that does all that a configuration says."""
    return {
        name: each.to(torch.float32 if name.endswith("frequencies") else dtype)
        for name, each in golden(config).outputs.items()
        if name.rpartition(".")[2] in arrays
    }


def everywhere(config: Any, factor: float) -> Any:
    """A configuration with another factor in each of its scalings."""
    if isinstance(config, dict):
        return {key: factor if key == "factor" else everywhere(each, factor) for key, each in config.items()}
    return config


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("arrays", [("frequencies",), ("cos", "sin"), ("cos", "sin", "rotated_q", "scores")], ids=str)
@pytest.mark.parametrize(("right", "wrong"), [(8.0, 4.0), (4.0, 32.0), (8.0, 2.5)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_factor_that_is_not_the_models_is_told(
    kind: str, right: float, wrong: float, arrays: tuple[str, ...], dtype: torch.dtype
) -> None:
    verdict = verify(scaled(kind, right), port_of(scaled(kind, wrong), arrays, dtype))
    (finding,) = verdict.findings
    assert [each.mistakes for each in finding.explanations] == [(f"frequencies are those of factor {wrong:g}",)]
    assert f"factor={right}" in finding.explanations[0].cures[0]


def test_a_factor_of_frequencies_alone_is_told_apart() -> None:
    right, wrong = scaled("yarn", 8.0), scaled("yarn", 4.0)
    by_both = 0.1 * torch.tensor(8.0, dtype=torch.float64).log() + 1
    settings = {**wrong["rope_scaling"], "attention_factor": float(by_both)}
    port = port_of({**wrong, "rope_scaling": settings}, ("cos", "sin", "scores"))
    told = ("frequencies are those of factor 4, though cosines have the right one",)
    assert verify(right, port).mistakes == told


@pytest.mark.parametrize("name", ["gemma_3_4b", "gpt_oss_20b", "llama_3_1_8b", "olmo_3_7b", "deepseek_v2_lite"])
def test_released_models_with_another_factor_are_told_it(name: str) -> None:
    config = json.loads((RELEASED / f"{name}.json").read_text())
    assert verify(config, port_of(config, TABLES)).agrees
    verdict = verify(config, port_of(everywhere(config, 6.0), TABLES))
    assert verdict.mistakes == ("frequencies are those of factor 6",)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_frequencies_of_no_factor_are_accused_of_none(kind: str, seed: int) -> None:
    port = port_of(scaled(kind, 8.0), ("frequencies", "cos", "sin"))
    random = torch.Generator().manual_seed(seed)
    off = {
        name: each * (1 + 1e-2 * torch.randn(each.shape, generator=random)) if name.endswith("frequencies") else each
        for name, each in port.items()
    }
    verdict = verify(scaled(kind, 8.0), off)
    assert not verdict.agrees
    assert not any("factor" in each for each in verdict.mistakes)
