"""Ports that are right are said to agree, in any dtype; ports that are wrong are told their mistake."""

from __future__ import annotations

import pathlib
import random
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding
from transformers.models.qwen2.modeling_qwen2 import Qwen2RotaryEmbedding

from situs.models import Golden, ModelPositions, golden, verify
from situs.models.oracle.arrays import Computed
from situs.models.oracle.making import asked, computed_parts
from situs.models.oracle.places import POSITIONS
from situs.models.verifying.layouts import FLOAT32
from situs.models.verifying.mistake import Mistake
from situs.models.verifying.searching import CATALOGUE
from tests.models.golden_configs import ALL, CONFIGS, golden_of, model_of
from tests.models.simulated_ports import right_port

pytestmark = pytest.mark.once

DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
NEAR = (0, 1, 300, 4095, 50000)  # within float16


@pytest.mark.thin(8)
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


@pytest.mark.thin(60)
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


@pytest.mark.thin(3)
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
@pytest.mark.parametrize("name", ALL)
def test_every_mistake_is_named_in_half_precision_where_it_shows(name: str, dtype: str) -> None:
    for mistake in CATALOGUE:
        for _, port in injected(model_of(name), mistake, DTYPES[dtype], NEAR):
            verdict = verify(model_of(name), port, positions=NEAR)
            told = [each.mistakes for finding in verdict.findings for each in finding.explanations]
            assert verdict.agrees or (mistake.name,) in told, f"{mistake.name}:\n{verdict}"


def check_beside_float32_angles(name: str, mistake: Mistake) -> None:
    model = model_of(name)
    for part in computed_parts(model, asked(model, POSITIONS, None, None)):
        wrong = mistake.change(part)
        if wrong is None or not differs(part, as_port(part, wrong, torch.float32)):
            continue
        port = as_port(part, FLOAT32.change(wrong) or wrong, torch.float32)
        verdict = verify(model, port)
        told = [each.mistakes for finding in verdict.findings for each in finding.explanations]
        assert (mistake.name, "float32 angles") in told or (mistake.name,) in told, f"{mistake.name}:\n{verdict}"


PREDICTED = [each for each in CATALOGUE if "float16" not in each.name]  # others are roundings of angles themselves


@pytest.mark.parametrize("name", ["llama 3.1", "deepseek v3", "gpt-neox", "llama 4"])
def test_some_mistakes_are_named_beside_float32_angles(name: str) -> None:
    for mistake in random.Random(name).sample(PREDICTED, 12):
        check_beside_float32_angles(name, mistake)


@pytest.mark.heavy
@pytest.mark.parametrize("name", CONFIGS)
def test_all_mistakes_are_named_beside_float32_angles(name: str) -> None:
    for mistake in PREDICTED:
        check_beside_float32_angles(name, mistake)


@pytest.mark.parametrize("name", ["llama 3.1", "qwen 2.5", "phi 3.5"])
def test_the_tables_of_transformers_are_right_but_for_float32_angles(name: str) -> None:
    config = AutoConfig.for_model(**CONFIGS[name])
    kind = {"llama 3.1": LlamaRotaryEmbedding, "qwen 2.5": Qwen2RotaryEmbedding, "phi 3.5": Phi3RotaryEmbedding}[name]
    group = "layer0.long" if name == "phi 3.5" else "layer0"
    found = golden_of(name)
    ids = found[f"{group}.positions"][None]
    tables = kind(config)(torch.zeros(1, dtype=torch.float32), ids)
    cos, sin = (each[0, :, : each.shape[-1] // 2] for each in tables)
    verdict = verify(model_of(name), {f"{group}.cos": cos, f"{group}.sin": sin})
    assert verdict.mistakes == ("float32 angles",), str(verdict)


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
    angles = found["layer0.positions"].double()[:, None] * 10000.0 ** -(torch.arange(64, dtype=torch.float64) / 64)
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
    assert set(found) == {
        "agrees", "agrees_in", "compared", "differences", "dtypes", "findings", "mistakes", "model_type", "untouched",
    }  # fmt: skip


TINY = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "max_position_embeddings": 4096,
    "rope_theta": 5e5,
}


def test_a_port_that_is_right_in_a_narrower_dtype_is_told_so() -> None:
    right = golden(TINY)["layer0.cos"]
    port = {"layer0.cos": right * 1.002}
    verdict = verify(TINY, port)
    assert verdict.agrees_in == "bfloat16"
    assert str(verdict).startswith(
        "disagrees: 1 of 1 array of llama differ by more than rounding of float32\n"
        "agrees within rounding of bfloat16: give --dtype bfloat16, if the port computes\n  in bfloat16\n\n"
    )
    assert verify(TINY, port, dtype="bfloat16").agrees
    assert verify(TINY, {"layer0.cos": right * 1.0005}).agrees_in == "float16"
    assert verify(TINY, {"layer0.cos": right * 1.2}).agrees_in is None


def test_a_golden_file_that_nobody_filled_is_noticed() -> None:
    found = golden(TINY)
    verdict = verify(TINY, found)
    assert verdict.agrees
    assert verdict.untouched
    filled = {**found.arrays, "layer0.cos": found["layer0.cos"].float()}
    assert not verify(TINY, Golden(found.meta, filled)).untouched
    assert not verify(TINY, found.outputs).untouched  # a mapping is what a port computed


def test_one_array_more_is_one_array() -> None:
    names = [f"layer0.{key}" for key in ("cos", "sin", "rotated_q", "rotated_k", "scores")]
    verdict = verify(TINY, {name: golden(TINY)[name] * 1.5 for name in names})
    assert str(verdict).endswith("\n  and in 1 more array")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("arrays", [("frequencies",), ("cos", "sin"), ("cos", "sin", "rotated_q", "scores")])
def test_a_base_that_no_catalogue_lists_is_told(arrays: tuple[str, ...], dtype: str) -> None:
    other = golden({**TINY, "rope_theta": 1e6})
    halved = {f"layer0.{key}": other[f"layer0.{key}"] for key in arrays}
    port = {name: each.to(torch.float32 if "freq" in name else DTYPES[dtype]) for name, each in halved.items()}
    assert verify(TINY, port).mistakes == ("frequencies are those of base 1,000,000",)


def test_another_base_is_told_under_a_scaling_and_beside_another_mistake() -> None:
    scaled = {
        **TINY,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 512,
        },
    }
    port = golden({**scaled, "rope_theta": 1e6}).outputs
    assert verify(scaled, port).mistakes == ("frequencies are those of base 1,000,000",)
    plain = golden({**TINY, "rope_theta": 1e6}).outputs
    assert verify(scaled, plain).mistakes == ("frequencies are those of base 1,000,000", "scaling ignored")


def test_keys_that_are_not_rotated_and_tables_that_are_swapped_are_told() -> None:
    found = golden(TINY)
    port = {"layer0.rotated_q": found["layer0.rotated_q"], "layer0.rotated_k": found["layer0.k"]}
    assert verify(TINY, port).mistakes == ("keys not rotated",)
    swapped = {"layer0.cos": found["layer0.sin"], "layer0.sin": found["layer0.cos"]}
    assert verify(TINY, swapped).mistakes == ("cosines and sines swapped",)


def test_every_mistake_has_a_model_that_gives_occasion_for_it() -> None:
    parts = [
        part for name in ALL for part in computed_parts(model_of(name), asked(model_of(name), POSITIONS, None, None))
    ]
    assert [mistake.name for mistake in CATALOGUE if not any(mistake.change(part) for part in parts)] == []
    assert len({mistake.name for mistake in CATALOGUE}) == len(CATALOGUE)
