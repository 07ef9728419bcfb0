"""What engines take beside a model: vLLM's overrides and llama.cpp's flags, and what neither can be told."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from typing import Any

import pytest

from situs.models import ModelPositions, read, write
from situs.models.calls import Call
from tests.models.written import PARAMS, QWEN, SIZES, YARN, refused, scaled


def overridden(model: ModelPositions) -> tuple[dict[str, Any], list[str]]:
    """What vLLM is told: the object of overrides, and the words behind it."""
    flag, told, *others = shlex.split(write(model, form="vllm-overrides"))
    assert flag == "--hf-overrides"
    return json.loads(told), others


def test_vllm_is_told_the_base_again() -> None:
    told, others = overridden(scaled(read(QWEN), YARN))
    assert told == {
        "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 32768,
        }
    }  # fmt: skip
    assert others == []
    longer = replace(read(QWEN), lengths=replace(read(QWEN).lengths, declared=131072))
    told, _ = overridden(longer)
    assert told["max_position_embeddings"] == 131072


def test_vllm_finds_the_part_that_rotates_and_nothing_is_left_there() -> None:
    text = {"model_type": "qwen3_vl_text", **SIZES, "head_dim": 128, "rope_theta": 5e6}
    yarn = {"rope_type": "yarn", "factor": 3.0, "original_max_position_embeddings": 262144, "beta_fast": 16.0}
    sections = {"mrope_section": [24, 20, 20], "mrope_interleaved": True}
    model = read({"model_type": "qwen3_vl", "text_config": {**text, "rope_scaling": {**yarn, **sections}}})
    plain = replace(model, submodels={"text": scaled(model.submodels["text"], None)})
    told, _ = overridden(plain)
    assert told == {
        "text_config": {
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 5e6, **sections, "factor": 1.0, "beta_fast": 32.0,
            }
        }
    }  # fmt: skip


def test_vllm_has_other_names_for_magnitudes() -> None:
    told, _ = overridden(scaled(read(QWEN), YARN.replace(attention_factor=1.0)))
    assert told["rope_parameters"]["attn_factor"] == pytest.approx(1 / 1.1386294361119891)
    lists = {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
    phi = {"model_type": "phi3", **SIZES, "max_position_embeddings": 8192, "original_max_position_embeddings": 4096}
    told, others = overridden(read({**phi, "rope_scaling": {"type": "longrope", **lists, "attention_factor": 1.5}}))
    assert (told["rope_parameters"]["short_mscale"], told["rope_parameters"]["long_mscale"]) == (1.5, 1.5)
    assert others == ["--max-model-len", "8192"]


def test_vllm_is_asked_for_a_length_where_it_stretches_one_again() -> None:
    model = scaled(read({**QWEN, "max_position_embeddings": 16384}), Call.of("LinearScaling", factor=4.0))
    assert overridden(model)[1] == []
    known = replace(model, lengths=replace(model.lengths, original=4096))
    assert overridden(known)[1] == ["--max-model-len", "16384"]


def test_what_vllm_cannot_be_told_is_refused() -> None:
    model = scaled(read(QWEN), Call.of("DynamicNTKScaling", factor=2.0, original_length=40960))
    assert refused(model, "vllm-overrides") == (
        "scaling must give texts of all lengths the same frequencies, since vLLM has one table for all; got "
        "dynamic. Take yarn or ntk."
    )
    assert refused(read({"model_type": "t5"}), "vllm-overrides") == (
        "t5 must have rope parameters, since nothing else of positions is set by overrides; got a model without."
    )


@pytest.mark.parametrize(
    ("scaling", "told"),
    [
        (None, "none"),
        (YARN, "yarn --rope-scale 4 --yarn-orig-ctx 32768"),
        (YARN.replace(beta_fast=16.0, factor=2.5), "yarn --rope-scale 2.5 --yarn-orig-ctx 32768 --yarn-beta-fast 16"),
        (Call.of("LinearScaling", factor=8.0), "linear --rope-scale 8"),
    ],
)
def test_flags_of_llama_cpp(scaling: Call | None, told: str) -> None:
    model = scaled(read(QWEN), scaling)
    assert write(model, form="llama.cpp-flags") == f"--rope-scaling {told} --rope-freq-base 1000000"


CONVERT = "Write it into a config.json, and convert that with convert_hf_to_gguf.py."


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (
            read({"model_type": "gemma3_text"}),
            f"base and scaling must be those of all layers, since flags of llama.cpp are for all; got 2 that differ. "
            f"{CONVERT}",
        ),
        (
            read({"model_type": "gemma2"}),
            f"layers must all attend alike, since llama.cpp takes the base and the scale of sliding layers from its "
            f"file, where flags do not reach; got full and sliding that rotate. {CONVERT}",
        ),
        (
            scaled(read(QWEN), YARN.replace(truncate=False)),
            f"truncate of YaRN must be true, since llama.cpp rounds the ends of the ramp to whole pairs; got false. "
            f"{CONVERT}",
        ),
        (
            scaled(read(QWEN), YARN.replace(attention_factor=1.0)),
            f"attention_factor of YaRN must be 1.13863, or left out, since llama.cpp computes it from the factor, "
            f"whatever --yarn-attn-factor says; got 1.0. {CONVERT}",
        ),
        (
            scaled(read(QWEN), YARN.replace(mscale=1.0, mscale_all_dim=1.0)),
            f"mscale_all_dim of YaRN must be left out, since it is the file's own, rope.scaling.yarn_log_multiplier; "
            f"got 1.0. {CONVERT}",
        ),
        (
            read({**PARAMS, "use_scaled_rope": True}),
            f"scaling must be one that flags of llama.cpp can set or replace, since its factors are a "
            f"tensor of the file, rope_freqs; got llama3. {CONVERT}",
        ),
        (
            scaled(read({**PARAMS, "use_scaled_rope": True}), YARN),
            f"scaling must be one that flags of llama.cpp can set or replace, since its factors are a "
            f"tensor of the file, rope_freqs; got llama3. {CONVERT}",
        ),
        (
            scaled(read(QWEN), Call.of("DynamicNTKScaling", factor=2.0, original_length=40960)),
            "scaling must be one that flags of llama.cpp can say, which are linear and yarn, since it rotates by one "
            "base at all lengths and distances; got dynamic.",
        ),
        (
            read({"model_type": "bloom"}),
            "bloom must rotate, since no other positions are set by flags of llama.cpp; got a model without rotary.",
        ),
    ],
)  # fmt: skip
def test_what_flags_of_llama_cpp_cannot_say_is_refused(model: ModelPositions, said: str) -> None:
    assert refused(model, "llama.cpp-flags") == said
