"""Wrong ports, written by hand from formulas of their own: each is told its mistake, and from where on it matters."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from situs.models import verify
from tests.models.golden_configs import golden_of, model_of
from tests.models.simulated_ports import rotated
from tests.references import scaling


def ladder(dim: int, base: float) -> Tensor:
    return torch.from_numpy(scaling.ladder(dim, base))


def turned(
    name: str, frequencies: Tensor, *, factor: float = 1.0, group: str = "layer0", **wrong: Any
) -> dict[str, Tensor]:
    """Cosines, sines and rotated vectors as a float32 program computes them of some frequencies."""
    found = golden_of(name)
    said = {**found.meta["groups"][group]["rotation"], **wrong}
    angles = found[f"{group}.positions"][:, None] * frequencies
    cos, sin = (angles.cos() * factor).float(), (angles.sin() * factor).float()
    port = {f"{group}.cos": cos, f"{group}.sin": sin}
    for key in ("q", "k"):
        port[f"{group}.rotated_{key}"] = rotated(found[f"{group}.{key}"].float(), cos, sin, said)
    return port


def llama_frequencies() -> Tensor:
    return golden_of("llama 3.1")["layer0.frequencies"]


def inverted_yarn() -> Tensor:
    """litgpt's: extrapolated and interpolated frequencies the wrong way round."""
    plain = scaling.ladder(64, 150000.0)
    kept = (scaling.by_parts(64, 150000.0, 32.0, 4096, 32, 1, "hf", False)[0] - plain / 32) / (plain - plain / 32)
    return torch.from_numpy(kept * plain / 32 + (1 - kept) * plain)


def swapped_betas() -> Tensor:
    plain, dim = scaling.ladder(128, 1e6), 128
    low, high = (dim * math.log(32768 / (beta * 2 * math.pi)) / (2 * math.log(1e6)) for beta in (1, 32))
    ramp = np.clip((np.arange(64) - math.floor(low)) / (math.ceil(high) - math.floor(low)), 0, 1)
    return torch.from_numpy(plain / 4 * ramp + plain * (1 - ramp))


def keras_hub() -> dict[str, Tensor]:
    ratio = 4 * 1000001 / 4096 - 3
    return turned("dynamic", ladder(64, 10000.0) / ratio ** (64 / 62), group="layer0.long")


def temperature_by_index() -> dict[str, Tensor]:
    index = golden_of("llama 4")["batch.index"].double()
    return {"layer3.batch_temperature": (1 + 0.1 * torch.log1p(((index + 1) / 8192).floor())).float()}


def wrong_slopes() -> dict[str, Tensor]:
    return {"layer0.slopes": 2.0 ** (-8 * torch.arange(1, 13, dtype=torch.float64) / 12)}


def t5_other_direction() -> dict[str, Tensor]:
    """An encoder whose buckets are a decoder's: keys ahead count as distance 0."""
    found = golden_of("t5")
    rows = []
    for offset in found["encoder.layer0.offsets"].tolist():
        distance = max(-offset, 0)
        far = 16 + int(np.log(np.float32(max(distance, 1) / 16)) / math.log(128 / 16) * 16)
        rows.append(distance if distance < 16 else min(far, 31))
    return {"encoder.layer0.bias": found["encoder.layer0.table"][rows].T.float()}


def mirrored_p2c() -> dict[str, Tensor]:
    """p2c read at the row of key minus query."""
    found = golden_of("deberta v3")
    get = {key.removeprefix("layer0."): each for key, each in found.arrays.items() if key.startswith("layer0.")}
    table = torch.nn.functional.layer_norm(get["table"], (64,), get["norm.weight"], get["norm.bias"], 1e-7)
    of_key = table @ get["key_projection.weight"].T + get["key_projection.bias"]
    of_query = table @ get["query_projection.weight"].T + get["query_projection.bias"]
    offsets = get["positions"][None] - get["positions"][:, None]
    rows = {int(offset): int(row) for offset, row in zip(get["offsets"], get["rows"], strict=True)}
    term = torch.zeros(offsets.shape, dtype=torch.float64)
    for i, j in np.ndindex(*offsets.shape):
        offset = int(offsets[i, j])
        term[i, j] = get["q"][i] @ of_key[rows[offset]] + get["k"][j] @ of_query[rows[-offset]]
    return {"layer0.term": (term / math.sqrt(3 * 64)).float()}


def padding_counted() -> dict[str, Tensor]:
    found = golden_of("cohere2")
    ids = found["batch.ids"].clone()
    ids[0] = found["batch.index"][0]
    return {"batch.ids": ids}


def bfloat16_positions() -> dict[str, Tensor]:
    found = golden_of("llama 3.1")
    angles = found["layer0.positions"].bfloat16().double()[:, None] * llama_frequencies()
    return {"layer0.cos": angles.cos().float(), "layer0.sin": angles.sin().float()}


BY_HAND: list[tuple[str, Callable[[], dict[str, Tensor]], tuple[str, ...]]] = [
    ("llama 3.1", lambda: turned("llama 3.1", llama_frequencies(), pairing="interleaved"),
     ("pairing swapped: halves for neighbours, or the reverse",)),
    ("llama 3.1", lambda: turned("llama 3.1", llama_frequencies(), reverse=True), ("rotated the other way",)),
    ("llama 3.1", lambda: turned("llama 3.1", ladder(128, 5e5)), ("scaling ignored",)),
    ("llama 3.1", lambda: turned("llama 3.1", ladder(128, 1e4)), ("base left at 10,000", "scaling ignored")),
    ("llama 3.1", bfloat16_positions, ("positions rounded to bfloat16",)),
    ("llama 3.1", lambda: turned("llama 3.1", llama_frequencies().bfloat16().double()),
     ("frequencies rounded to bfloat16",)),
    ("qwen 2.5", lambda: turned("qwen 2.5", golden_of("qwen 2.5")["layer0.frequencies"]),
     ("attention factor missing",)),
    ("qwen 2.5", lambda: turned("qwen 2.5", swapped_betas(), factor=0.1 * math.log(4) + 1),
     ("bounds of the ramp swapped (beta_fast and beta_slow, or low and high)",)),
    ("gpt-oss", lambda: turned("gpt-oss", inverted_yarn(), factor=0.1 * math.log(32) + 1),
     ("scaling inverted: fast pairs divided, slow ones kept",)),
    ("dynamic", keras_hub, ("first frequency scaled too: what multiplies the base divides all frequencies",)),
    ("gpt-neox", lambda: turned("gpt-neox", ladder(96, 1e4)[:12]),
     ("frequencies over head_dim instead of rotary_dim",)),
    ("deepseek v3", lambda: turned("deepseek v3", golden_of("deepseek v3")["layer0.frequencies"], channels="leading"),
     ("leading channels rotated for trailing ones, or the reverse",)),
    ("deepseek v3", lambda: {"layer0.scale": torch.tensor(192**-0.5)},
     ("1/sqrt(head_dim) for the model's own softmax scale",)),
    ("t5", t5_other_direction, ("T5 buckets of the other direction",)),
    ("t5", lambda: {"encoder.layer0.scale": torch.tensor(0.125)},
     ("1/sqrt(head_dim) for the model's own softmax scale",)),
    ("bloom", wrong_slopes, ("ALiBi slopes by the formula for powers of two",)),
    ("deberta v3", mirrored_p2c, ("DeBERTa's p2c row mirrored",)),
    ("llama 4", temperature_by_index,
     ("temperature from the index in the row instead of the position in the document",)),
    ("cohere2", padding_counted, ("padding counted among positions, or left out, against the model",)),
    ("cohere2", lambda: {"schedule.kind": 1 - golden_of("cohere2")["schedule.kind"],
                         "schedule.rotates": 1 - golden_of("cohere2")["schedule.rotates"]},
     ("layer schedule inverted",)),
    ("roberta", lambda: {"input0.rows": golden_of("roberta")["input0.positions"]},
     ("first rows of the table not left out",)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "port", "mistakes"), BY_HAND, ids=[f"{each[0]}: {each[2][0]}" for each in BY_HAND])
def test_ports_that_were_written_wrong_are_told_so(
    name: str, port: Callable[[], dict[str, Tensor]], mistakes: tuple[str, ...]
) -> None:
    verdict = verify(model_of(name), port())
    assert not verdict.agrees
    told = [each.mistakes for finding in verdict.findings for each in finding.explanations]
    assert mistakes in told, str(verdict)
    assert all(len(each) == len(mistakes) for each in told)


def test_wrong_base_with_float32_angles_is_both() -> None:
    found = golden_of("cohere2")
    frequencies = (1.0 / 10000.0 ** (torch.arange(0, 128, 2).float() / 128)).float()
    angles = found["layer0.positions"].float()[:, None] * frequencies
    verdict = verify(model_of("cohere2"), {"layer0.cos": angles.cos(), "layer0.sin": angles.sin()})
    assert verdict.mistakes == ("base left at 10,000", "float32 angles")


def test_from_where_on_a_mistake_matters() -> None:
    def said(name: str, port: dict[str, Tensor]) -> str:
        return verify(model_of(name), port).findings[0].explanations[0].matters

    assert said("llama 3.1", turned("llama 3.1", ladder(128, 5e5))).startswith("matters from position 1 on")
    assert said("llama 3.1", bfloat16_positions()) == "matters from position 257 on, in float32"
    assert said("bloom", wrong_slopes()) == "matters from distance 1 on, in float32"
    assert said("cohere2", padding_counted()) == "matters in rows that are padded or packed"
    assert said("qwen 2.5", turned("qwen 2.5", golden_of("qwen 2.5")["layer0.frequencies"])) == (
        "matters at every position, in float32"
    )
