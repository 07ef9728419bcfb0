"""Ports that are right are said to agree, in any dtype; ports that are wrong are told their mistake."""

from __future__ import annotations

import functools
import math
import pathlib
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from situs import models
from situs.models import Golden, ModelPositions, golden, verify
from situs.models.oracle.arrays import Computed
from situs.models.oracle.making import asked, computed_parts
from situs.models.oracle.places import POSITIONS
from situs.models.verifying.mistake import Mistake
from situs.models.verifying.searching import CATALOGUE
from tests.models.golden_configs import CONFIGS, OTHERS
from tests.models.simulated_ports import right_port, rotated
from tests.references import scaling

ALL = {**CONFIGS, **OTHERS}
DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
NEAR = (0, 1, 300, 4095, 50000)  # within float16


@functools.cache
def model_of(name: str) -> ModelPositions:
    return models.read(ALL[name])


@functools.cache
def golden_of(name: str, positions: tuple[int, ...] = POSITIONS) -> Golden:
    return golden(model_of(name), positions=positions)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ALL)
def test_a_right_port_is_not_accused(name: str, dtype: str) -> None:
    positions = NEAR if dtype == "float16" else POSITIONS
    port = right_port(golden_of(name, positions), DTYPES[dtype])
    verdict = verify(model_of(name), port, positions=positions)
    assert verdict.agrees, str(verdict)
    assert verdict.mistakes == ()
    stated = verify(model_of(name), port, positions=positions, dtype=dtype)
    assert stated.agrees, str(stated)


@pytest.mark.parametrize("name", ["llama 3.1", "deepseek v3", "qwen2-vl", "gpt-oss"])
def test_float32_angles_are_told_where_they_matter(name: str) -> None:
    port = right_port(golden_of(name), torch.float32, float32_angles=True)
    verdict = verify(model_of(name), port)
    assert not verdict.agrees
    assert verdict.mistakes == ("float32 angles",)
    # at the lengths that bfloat16 is used for, nobody can tell
    near = golden_of(name, NEAR)
    half = right_port(near, torch.bfloat16, float32_angles=True)
    assert verify(model_of(name), half, positions=NEAR).agrees


def injected(model: ModelPositions, mistake: Mistake, dtype: torch.dtype, positions: tuple[int, ...]) -> Any:
    """What a program with a mistake gives for each part of a model, or None where there is no occasion for it."""
    for part in computed_parts(model, asked(model, positions, None, None)):
        wrong = mistake.change(part)
        if wrong is not None:
            yield part, as_port(part, wrong, dtype)


def as_port(part: Any, wrong: Any, dtype: torch.dtype) -> dict[str, Tensor]:
    right, computed = Computed(part), Computed(wrong, part)
    port: dict[str, Tensor] = {}
    for name in right.names:
        value, shape = computed.numbers(name).value, right.numbers(name).value.shape
        if value.shape != shape:  # which no golden file has room for
            continue
        wide = name.endswith((".frequencies", ".slopes"))
        port[name] = value.to(torch.float32 if wide else dtype) if value.is_floating_point() else value
    return port


def differs(part: Any, port: dict[str, Tensor]) -> bool:
    """Whether a port's arrays are at all others than they should be, but for the rounding of their dtype."""
    right = Computed(part)
    for name in right.names:
        value = right.numbers(name).value
        if name in port and not torch.equal(port[name], value.to(port[name].dtype)):
            return True
    return False


CASES = [pytest.param(name, mistake, id=f"{name}: {mistake.name}") for name in ALL for mistake in CATALOGUE]


@pytest.mark.thin(12)
@pytest.mark.parametrize(("name", "mistake"), CASES)
def test_every_mistake_is_named(name: str, mistake: Mistake) -> None:
    positions = NEAR if "float16" in mistake.name else POSITIONS
    for part, port in injected(model_of(name), mistake, torch.float32, positions):
        if not differs(part, port):
            continue
        verdict = verify(model_of(name), port, positions=positions)
        assert not verdict.agrees
        (finding,) = verdict.findings
        told = [each.mistakes for each in finding.explanations]
        assert (mistake.name,) in told, str(verdict)
        assert all(len(each) == 1 for each in told)
        assert all(len(line) <= 80 for line in str(verdict).splitlines())
        assert all(each.cures and each.matters.startswith("matters ") for each in finding.explanations)


PAIRED = (
    "llama 3.1",
    "deepseek v3",
    "gemma 3",
    "llama 4",
    "t5",
    "bloom",
    "deberta v3",
    "gpt-neox",
    "qwen2-vl",
    "phi 3.5",
)


def pairs_of(model: ModelPositions) -> list[Any]:
    """Every two mistakes of different aspects that a model gives occasion for, with the part that makes both."""
    found = []
    for part in computed_parts(model, asked(model, POSITIONS, None, None)):
        for index, first in enumerate(CATALOGUE):
            once = None if "float16" in first.name else first.change(part)
            for second in CATALOGUE[index + 1 :] if once is not None else ():
                apart = first.aspect != second.aspect and "float16" not in second.name
                wrong = second.change(once) if apart and once is not None and second.change(part) is not None else None
                if wrong is not None:
                    found.append((part, first.name, second.name, wrong))
    return found


def check_pair(model: ModelPositions, part: Any, first: str, second: str, wrong: Any) -> None:
    port = as_port(part, wrong, torch.float32)
    if not differs(part, port):
        return
    verdict = verify(model, port)
    told = [each.mistakes for finding in verdict.findings for each in finding.explanations]
    alone = [each for each in told if len(each) == 1]  # one hides the other, or there is a name for both
    assert (first, second) in told or alone, f"{first} and {second}:\n{verdict}"


@pytest.mark.parametrize("name", PAIRED)
def test_some_pairs_of_mistakes_are_named(name: str) -> None:
    drawn = random.Random(name)
    for pair in drawn.sample(pairs_of(model_of(name)), 3):
        check_pair(model_of(name), *pair)


@pytest.mark.heavy
@pytest.mark.parametrize("name", PAIRED)
def test_all_pairs_of_mistakes_are_named(name: str) -> None:
    for pair in pairs_of(model_of(name)):
        check_pair(model_of(name), *pair)


@pytest.mark.heavy
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(("name", "mistake"), CASES)
def test_every_mistake_is_named_in_half_precision_where_it_shows(name: str, mistake: Mistake, dtype: str) -> None:
    for _, port in injected(model_of(name), mistake, DTYPES[dtype], NEAR):
        verdict = verify(model_of(name), port, positions=NEAR)
        told = [each.mistakes for finding in verdict.findings for each in finding.explanations]
        assert verdict.agrees or (mistake.name,) in told, str(verdict)


# Wrong ports written by hand, from formulas of their own.


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


def test_what_nothing_explains_is_told_where_it_begins() -> None:
    port = {key: each.clone() for key, each in golden_of("llama 3.1").outputs.items()}
    port["layer0.rotated_q"][3:, 7] += 0.25
    verdict = verify(model_of("llama 3.1"), port)
    assert verdict.findings[0].explanations == ()
    right = float(golden_of("llama 3.1")["layer0.rotated_q"][3, 7])
    assert str(verdict) == (
        "disagrees: 1 of 18 arrays of llama differ by more than rounding of float32\n\n"
        "layers 0-31:\n  no mistake of the catalogue explains this, nor do two together\n\n"
        "first differences:\n"
        f"  layer0.rotated_q, position 65,536, channel 7: {right + 0.25:.9g} in the port,\n    {right:.9g} is right"
    )


def test_parts_of_a_model_are_judged_apart() -> None:
    right = golden_of("qwen3-vl")
    port = {key: each.clone() for key, each in right.outputs.items()}
    port["vision.layer0.axis_of_pair"] = 1 - port["vision.layer0.axis_of_pair"]
    for key in ("cos", "sin"):
        flipped = right["vision.layer0.positions"].double()[:, 1 - right["vision.layer0.axis_of_pair"]]
        angles = flipped * right["vision.layer0.frequencies"]
        port[f"vision.layer0.{key}"] = getattr(angles, key)()
    for key in ("rotated_q", "rotated_k", "scores"):
        del port[f"vision.layer0.{key}"]
    (finding,) = verify(model_of("qwen3-vl"), port).findings
    assert finding.where == "vision: layers 0-26"
    assert ("row and column exchanged",) in [each.mistakes for each in finding.explanations]


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


def test_a_function_is_called_with_the_inputs_of_each_group() -> None:
    seen: list[str] = []

    def port(group: dict[str, Any]) -> dict[str, Any] | None:
        seen.append(group["name"])
        if group["said"].get("rotation") is None:
            return None
        angles = group["positions"].double()[:, None] * 50000.0 ** -(torch.arange(64, dtype=torch.float64) / 64)
        return {"cos": angles.cos().numpy(), "sin": angles.sin().tolist(), "schedule.kind": [1, 1, 1, 0] * 2}

    assert verify(model_of("cohere2"), port).agrees
    assert seen == ["layer0", "layer3"]


@pytest.mark.parametrize("suffix", [".json", ".npz", ".safetensors"])
def test_a_golden_file_may_be_filled_in_part(suffix: str, tmp_path: pathlib.Path) -> None:
    found = golden(CONFIGS["cohere2"], positions=[0, 1, 999])
    path = found.save(tmp_path / f"port{suffix}")
    assert verify(CONFIGS["cohere2"], path).agrees
    angles = found["layer0.positions"].double()[:, None] * ladder(128, 10000.0)
    arrays = {**found.arrays, "layer0.cos": angles.cos(), "layer0.sin": angles.sin()}
    Golden(found.meta, arrays).save(path)
    verdict = verify(CONFIGS["cohere2"], str(path))  # positions are the file's
    assert verdict.mistakes == ("base left at 10,000",)


def test_arrays_alone_in_json_may_be_nested_lists(tmp_path: pathlib.Path) -> None:
    (tmp_path / "port.json").write_text('{"layer0.frequencies": [1.0, 0.1, 0.01, 0.001]}')
    config = {"model_type": "llama", "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2}
    assert verify(config, tmp_path / "port.json").agrees
    assert verify({**config, "rope_theta": 20000.0}, tmp_path / "port.json").mistakes == ("base left at 10,000",)


@pytest.mark.parametrize("name", ["llama 3.1", "gemma 3", "t5"])
def test_verdicts_are_plain_data_too(name: str) -> None:
    import json

    port = {key: each * 1.01 for key, each in golden_of(name).outputs.items() if key.endswith(".scores")}
    found = json.loads(verify(model_of(name), port).to_json())
    assert found["agrees"] is False
    assert found["differences"][0]["array"].endswith(".scores")
    assert set(found) == {"agrees", "compared", "differences", "dtypes", "findings", "mistakes", "model_type"}


def test_every_mistake_has_a_model_that_gives_occasion_for_it() -> None:
    parts = [
        part for name in ALL for part in computed_parts(model_of(name), asked(model_of(name), POSITIONS, None, None))
    ]
    assert [mistake.name for mistake in CATALOGUE if not any(mistake.change(part) for part in parts)] == []
    assert len({mistake.name for mistake in CATALOGUE}) == len(CATALOGUE)
