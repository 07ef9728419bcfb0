"""Engines: the same file as transformers, vLLM and llama.cpp read it, side by side."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from situs.models import ConfigError, ModelPositions, read
from situs.models.engines import ENGINES, readings
from situs.models.engines.conversions import ALIKE, BUNDLES, CONVERSIONS
from situs.models.engines.vllm import BY_LAYER, CHUNKED, LATENT, NATIVE, ONE_KIND
from situs.models.readers.facts import facts_of, model_types
from situs.models.readers.llama_cpp.architectures import ARCHITECTURES, LEFT_OUT
from tests.models.engine_settings import LONGROPE, SIZES, YARN, told
from tests.models.gguf_files import written
from tests.raising import raises_exactly


def test_engines_are_known_by_name() -> None:
    assert ENGINES == ("transformers", "vllm", "llama.cpp")
    said = (
        "engine must be one of transformers, vllm, llama.cpp, since each reads files by rules of its own; got 'vlm'. "
        "Did you mean 'vllm'?"
    )
    with raises_exactly(ValueError, said):
        read({"model_type": "llama"}, engine="vlm")  # type: ignore[arg-type]


def test_readings_stand_side_by_side(tmp_path: Path) -> None:
    found = readings({"model_type": "qwen3", "rope_theta": 1e6, "rope_scaling": {**YARN, "beta_fast": 24.0}, **SIZES})
    assert list(found) == list(ENGINES)
    assert all(isinstance(each, ModelPositions) for each in found.values())
    only = readings({"model_type": "t5"})
    assert isinstance(only["vllm"], ConfigError)
    assert str(only["vllm"]) == (
        "model_type must be a decoder or an encoder alone, since vLLM runs no pairs of them; got 't5'."
    )
    keys = {"block_count": 2, "context_length": 8, "embedding_length": 8, "attention.head_count": 2}
    own = readings(written(tmp_path / "model.gguf", "qwen3", keys))
    assert [type(each).__name__ for each in own.values()] == ["ConfigError", "ConfigError", "ModelPositions"]
    wrong = readings({"model_type": "llama", "rope_theta": "x"})
    assert len({str(each) for each in wrong.values()}) == 1


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "qwen3", "rope_parameters": YARN, **SIZES},  # without a base
        {"model_type": "llama", **SIZES, "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            "full_attention": {"rope_type": "default", "rope_theta": 1e6}}},
        {"model_type": "qwen3_vl", "text_config": {"model_type": "qwen3_vl_text"}, "rope_parameters": YARN},
    ],
)  # fmt: skip
def test_files_that_no_engine_should_be_given_are_refused_in_all(config: dict[str, Any]) -> None:
    found = readings(config)
    assert all(isinstance(each, ConfigError) for each in found.values())
    assert len({str(each) for each in found.values()}) == 1


def test_engines_are_read_without_torch() -> None:
    code = (
        "import sys; from situs.models import engines; "
        "engines.readings({'model_type': 'gpt_oss'}); print('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_params_of_meta_are_not_checked_in_other_engines() -> None:
    params = {"dim": 4096, "n_layers": 2, "n_heads": 32, "rope_theta": 500000.0}
    assert read(params, engine="vllm").layers == read(params).layers
    assert told(params, "llama.cpp") == ["llama.cpp reads params.json by rules of its own, which were not checked"]


def test_rows_name_model_types_and_architectures_that_exist() -> None:
    types = set(model_types())
    assert {*CONVERSIONS, *ALIKE, *BUNDLES, *NATIVE, *BY_LAYER, *CHUNKED, *LATENT, *ONE_KIND} <= types
    assert BY_LAYER | LATENT | ONE_KIND | CHUNKED <= NATIVE
    assert {row.architecture for row in CONVERSIONS.values()} <= {*ARCHITECTURES, *LEFT_OUT}
    for name in BUNDLES:
        facts = facts_of(name)
        assert facts is not None
        assert facts.parts


def test_readings_are_written_as_plain_data() -> None:
    config = {"model_type": "phi3", "rope_scaling": LONGROPE, "original_max_position_embeddings": 4096, **SIZES}
    for engine in ENGINES:
        assert json.loads(read(config, engine=engine).to_json())["model_type"] == "phi3"
