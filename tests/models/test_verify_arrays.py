"""Ports whose arrays have mistakes of their own are told each; angles of float32 are none where float32 holds them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from situs.models import golden, verify
from tests.models.golden_configs import golden_of, model_of
from tests.models.simulated_ports import right_port, rotated

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2,
    "max_position_embeddings": 4096, "rope_theta": 5e5,
}  # fmt: skip
NEAR = (0, 1, 2, 3, 5, 7)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["llama 3.1", "deepseek v3", "qwen2-vl", "gpt-oss"])
def test_float32_angles_within_the_first_turn_are_no_mistake(name: str, dtype: str) -> None:
    port = right_port(golden_of(name, NEAR), DTYPES[dtype], float32_angles=True)
    verdict = verify(model_of(name), port, positions=NEAR)
    assert verdict.agrees, str(verdict)


@pytest.mark.parametrize("base", [1e4, 5e5, 1e7])
def test_frequencies_that_a_program_forms_in_float32_are_no_mistake_near_0(base: float) -> None:
    """As released programs do: exponents, powers and products in float32, not the golden file's frequencies."""
    config = {**LLAMA, "hidden_size": 512, "rope_theta": base}
    positions = torch.arange(8)
    angles = positions.float()[:, None] / base ** (torch.arange(0, 128, 2).float() / 128)
    port = {"layer0.cos": angles.cos(), "layer0.sin": angles.sin()}
    verdict = verify(config, port, positions=positions.tolist())
    assert verdict.agrees, str(verdict)
    far = torch.tensor([4095, 65536])
    angles = far.float()[:, None] / base ** (torch.arange(0, 128, 2).float() / 128)
    port = {"layer0.cos": angles.cos(), "layer0.sin": angles.sin()}
    assert verify(config, port, positions=far.tolist()).mistakes == ("float32 angles",)


def _port() -> dict[str, Tensor]:
    """Tables of base 10,000, and vectors that right tables rotated in neighbouring pairs."""
    right, wrong = golden(LLAMA), golden({**LLAMA, "rope_theta": 1e4})
    said = dict(right.groups())["layer0"]["rotation"]
    tables = right["layer0.cos"], right["layer0.sin"]
    swapped = {
        f"layer0.rotated_{each}": rotated(right[f"layer0.{each}"], *tables, {**said, "pairing": "interleaved"})
        for each in "qk"
    }
    return {**swapped, "layer0.cos": wrong["layer0.cos"], "layer0.sin": wrong["layer0.sin"]}


def test_two_arrays_with_different_mistakes_are_told_each() -> None:
    port = {name: each.float() for name, each in _port().items()}
    verdict = verify(LLAMA, port)
    assert not verdict.agrees
    first, second = verdict.findings
    assert (first.where, first.arrays) == ("layers 0-1, cos and sin", ("layer0.cos", "layer0.sin"))
    assert first.explanations[0].mistakes == ("base left at 10,000",)
    assert (second.where, second.arrays) == (
        "layers 0-1, rotated_k and rotated_q", ("layer0.rotated_k", "layer0.rotated_q")
    )  # fmt: skip
    assert second.explanations[0].mistakes == ("pairing swapped: halves for neighbours, or the reverse",)
    assert verdict.mistakes == (
        "base left at 10,000", "pairing swapped: halves for neighbours, or the reverse"
    )  # fmt: skip
    assert "\nlayers 0-1, cos and sin:\n  base left at 10,000\n" in str(verdict)


def test_an_array_that_nothing_explains_stands_by_itself() -> None:
    torch.manual_seed(0)
    port = {name: each.float() for name, each in _port().items() if name.endswith((".cos", ".sin"))}
    port["layer0.rotated_q"] = torch.randn_like(golden(LLAMA)["layer0.rotated_q"]).float()
    first, second = verify(LLAMA, port).findings
    assert first.explanations[0].mistakes == ("base left at 10,000",)
    assert (second.where, second.explanations) == ("layers 0-1, rotated_q", ())


def test_numbers_that_nothing_explains_are_told_once() -> None:
    torch.manual_seed(0)
    port = {f"layer0.{key}": torch.rand_like(golden(LLAMA)[f"layer0.{key}"]).float() for key in ("cos", "sin")}
    (finding,) = verify(LLAMA, port).findings
    assert (finding.where, finding.explanations) == ("layers 0-1", ())
