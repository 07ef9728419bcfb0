"""Dual chunks of Qwen2.5-1M: vLLM rotates by them, transformers and llama.cpp do not, and every command says so."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from situs import DualChunk, Rotary
from situs.models import ConfigError, diff, extend, golden, inspect, read, write
from situs.models.engines.vllm import CHUNKED
from tests.models.engine_settings import told
from tests.raising import raises_exactly

CHUNKS = {"chunk_size": 256, "local_size": 32, "original_max_position_embeddings": 256}
QWEN: dict[str, Any] = {
    "model_type": "qwen2", "hidden_size": 128, "num_attention_heads": 2, "num_hidden_layers": 2, "rope_theta": 1e7,
    "max_position_embeddings": 1024, "dual_chunk_attention_config": CHUNKS,
}  # fmt: skip
NOTES = [
    "dual_chunk_attention_config: vLLM's engine V1 has no attention for dual chunks and fails to load the model (vLLM "
    "issue 33470); V0 had one",
    "dual_chunk_attention_config: in sequences longer than 256 tokens, queries are multiplied by 0.1 ln(length / 256) "
    "+ 1; no encoding here does that",
]


@pytest.mark.parametrize("name", sorted(CHUNKED))
def test_vllm_rotates_by_chunks(name: str) -> None:
    config = {**QWEN, "model_type": name, "layer_types": ["full_attention"] * 2}
    for layer in read(config, engine="vllm").layers:
        (rotary,) = layer.encodings
        assert isinstance(rotary, Rotary)
        assert rotary.scaling == DualChunk(chunk_size=256, local_size=32)
    assert told(config, "vllm") == [
        *NOTES,
        "layers 0-1: DualChunk(chunk_size=256, local_size=32), where transformers has frequencies as trained",
    ]


def test_transformers_and_llama_cpp_do_not() -> None:
    plain = {key: each for key, each in QWEN.items() if key != "dual_chunk_attention_config"}
    assert read(QWEN).layers == read(QWEN, engine="llama.cpp").layers == read(plain).layers
    assert told(QWEN, "llama.cpp") == []
    assert (read(QWEN).lengths.declared, read(QWEN).lengths.original) == (1024, 256)


def test_vllm_reads_no_scaling_beside_chunks() -> None:
    scaled = {**QWEN, "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256}}
    assert told(scaled, "vllm")[2:] == [
        "dual_chunk_attention_config: vLLM reads no scaling beside it",
        "layers 0-1: DualChunk(chunk_size=256, local_size=32), where transformers has YaRN(factor=4.0, "
        "original_length=256)",
    ]


@pytest.mark.parametrize(("chunks", "said"), [
    ({"local_size": 32}, "dual_chunk_attention_config.chunk_size must be given, since no distance is beyond it; got "
     "none."),
    ({"chunk_size": 256}, "dual_chunk_attention_config.local_size must be given, since it counts tokens of the chunk "
     "before; got none."),
    ({"chunk_size": 256, "local_size": 128}, "dual_chunk_attention_config.local_size must be less than half of "
     "dual_chunk_attention_config.chunk_size, since chunks have the difference of both and lie behind one another; got "
     "128 and 256."),
    (7, "dual_chunk_attention_config must be an object, since its settings have names; got 7."),
])  # fmt: skip
def test_chunks_that_cannot_be_are_refused(chunks: Any, said: str) -> None:
    with raises_exactly(ConfigError, said):
        read({**QWEN, "dual_chunk_attention_config": chunks})


def test_inspect_tells_what_each_engine_does_beyond_training() -> None:
    plain, served = inspect(QWEN), inspect(QWEN, engine="vllm")
    assert plain.parts[0].training is not None
    assert (plain.parts[0].training.length, plain.advice.headline) == (256, "Set yarn with factor 4 for 1,024 tokens.")
    assert plain.advice.reasons[-1] == (
        "Note: dual_chunk_attention_config stays, and vLLM goes by it instead of yarn: remove it there."
    )
    (group,) = served.parts[0].groups
    assert {pair.state for pair in group.pairs} == {"seen"}
    assert group.scaling == "DualChunk counts positions anew every 224 tokens, so that no distance is beyond 256"
    assert group.errors["bfloat16"] < plain.parts[0].groups[0].errors["bfloat16"]
    assert "made for 1,024 tokens (trained on 256 before scaling)" in served.render()
    assert "made for 256 tokens; 1,024 declared" in plain.render()
    near = inspect(QWEN, engine="vllm", target=257).parts[0].groups[0].scaling
    assert near == "DualChunk changes nothing at this length: it changes distances beyond 256"
    beyond = inspect(QWEN, engine="vllm", target=4096).advice.headline
    assert beyond == (
        "No scaling of rotary is needed or would help: dual chunks let no distance grow beyond 256, however "
        "long the text is. There is nothing to set."
    )


def test_diff_tells_from_where_on_chunks_matter() -> None:
    (found,) = diff(read(QWEN), read(QWEN, engine="vllm")).differences
    assert found.fields == {"scaling": ("none", "DualChunk(chunk_size=256, local_size=32)")}
    assert found.rotated is not None
    assert found.rotated.since == {"float32": 257, "float16": 257, "bfloat16": 257}
    ids = torch.arange(1024)
    apart = (DualChunk(chunk_size=256, local_size=32).distances(ids[-1], ids) - (ids[-1] - ids)).abs().max()
    assert found.rotated.angle == float(apart)  # of the first pair, whose frequency is 1
    assert found.rotated.score > 0.1
    (near,) = diff(read(QWEN), read(QWEN, engine="vllm"), length=256).differences
    assert near.rotated is not None
    assert (near.rotated.since["float32"], near.rotated.score, near.rotated.angle) == (None, 0.0, 0.0)


def test_what_goes_by_pairs_has_no_golden_numbers_and_no_settings() -> None:
    served = read(QWEN, engine="vllm")
    with raises_exactly(
        ConfigError,
        "source must rotate each vector by its own position, since the numbers of single vectors are computed; got "
        "DualChunk, which goes by the pair of a query and a key. Read the configuration with engine='transformers'.",
    ):
        golden(served)
    with raises_exactly(
        ConfigError,
        "source must have layers of full attention that rotate by rope parameters; got qwen2: dual chunks let no "
        "distance grow beyond 256, however long the text is. There is nothing to set.",
    ):
        extend(served, target=2048)
    with raises_exactly(
        ConfigError,
        "scaling must be one that settings can say, such as YaRN, since no configuration has a rope type for others; "
        "got DualChunk.",
    ):
        write(served)
    assert write(read(QWEN))["dual_chunk_attention_config"] == CHUNKS
    with raises_exactly(
        ConfigError,
        "dual_chunk_attention_config must be removed from the file first, since vLLM rotates by it and reads no "
        "scaling beside it, and overrides remove nothing; got an object with chunk_size, local_size, "
        "original_max_position_embeddings.",
    ):
        write(extend(QWEN, target=2048).positions, form="vllm-overrides")
