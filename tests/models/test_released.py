"""Released configurations: what is read of them is what their papers say, however they are spelled."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from situs import DualChunk, Positions
from situs.models import ConfigError, Layer, ModelPositions, fingerprint, read, write
from situs.models.numbers import rotation_of
from tests.models.hugging_face import config_of as made_by_transformers
from tests.models.released_models import (
    DECLARED,
    FOLDER,
    LIMITS,
    NAMES,
    ORIGINAL,
    ROTARY,
    UNROTATED,
    Rotates,
    config_of,
)
from tests.references import alibi

OTHERS = ("bert_base", "bloom", "deberta_v3_base", "gpt2", "inkling", "mpt_7b", "t5_base")
"""Models that do not rotate."""


def test_every_file_has_a_row_and_a_line_in_the_index() -> None:
    assert sorted([*ROTARY, *OTHERS]) == NAMES == sorted(DECLARED)
    index = json.loads((FOLDER / "index.json").read_text(encoding="utf-8"))
    assert sorted(index) == NAMES
    assert all(set(line) <= {"model", "seen", "unconfirmed"} for line in index.values())
    assert len(NAMES) == 42


@pytest.mark.parametrize("name", sorted(ROTARY))
def test_rotations_are_those_of_the_papers(name: str) -> None:
    model = read(config_of(name)).main
    told = {number for row in ROTARY[name] for number in row.layers} | set(UNROTATED.get(name, ()))
    assert told == set(range(len(model.layers)))
    for row in ROTARY[name]:
        (layer,) = {model.layers[number] for number in row.layers}
        _compare(layer, row)


def _compare(layer: Layer, row: Rotates) -> None:
    assert (layer.kind, layer.window, layer.chunk) == (row.kind, row.window, row.chunk)
    assert (layer.causal, layer.sinks, layer.softcap) == (row.causal, row.sinks, row.softcap)
    assert layer.scale == pytest.approx(row.head**-0.5 if row.scale is None else row.scale, rel=1e-12)
    assert layer.heads is not None
    assert (layer.heads.dim, layer.heads.keys) == (row.head, row.keys)
    assert _temperature(layer) == row.temperature
    for length in (4096, 131072):
        found = rotation_of(layer, length)
        assert found is not None
        assert (found.head_dim, found.rotary_dim, found.pairing) == (row.head, row.rotated, row.pairing)
        assert found.channels == row.channels
        assert found.factor == pytest.approx(row.magnitude, rel=1e-12)
        expected = row.frequencies(length)
        np.testing.assert_allclose(np.abs(found.frequencies), expected, rtol=1e-12, atol=0)


def _temperature(layer: Layer) -> tuple[str, int, float] | None:
    found: Any = layer.temperature
    return None if found is None else (found.dialect, found.original_length, found.factor)


@pytest.mark.parametrize("name", sorted(UNROTATED))
def test_some_layers_have_no_positions(name: str) -> None:
    layers = read(config_of(name)).main.layers
    for number in UNROTATED[name]:
        assert rotation_of(layers[number]) is None
        assert layers[number].kind == "full"
        assert _temperature(layers[number]) == (("llama4", 8192, 0.1) if name == "llama_4_scout" else None)


@pytest.mark.parametrize("name", NAMES)
def test_lengths_are_those_of_the_release(name: str) -> None:
    lengths = read(config_of(name)).main.lengths
    assert (lengths.declared, lengths.limit) == (DECLARED[name], LIMITS.get(name))
    assert lengths.original == ORIGINAL.get(name)


def test_pairs_go_by_time_height_and_width_in_turns() -> None:
    """Qwen 3 VL: 24 pairs of time, 20 of height, 20 of width; of each three, until height and width are dealt."""
    found = rotation_of(read(config_of("qwen3_vl_30b")).layer(0))
    assert found is not None
    expected = [each % 3 if each < 60 else 0 for each in range(64)]
    assert list(found.axis_of_pair) == expected
    assert [expected.count(axis) for axis in range(3)] == [24, 20, 20]


def test_values_of_deepseek_v4_are_rotated_and_rotated_back() -> None:
    for layer in read(config_of("deepseek_v4_flash")).layers:
        rotary, values = layer.calls
        assert (rotary.cls, values.cls) == ("Rotary", "RotaryValue")
        assert values.options == rotary.options


def test_chunks_of_qwen_1m_are_those_of_vllm_alone() -> None:
    config = config_of("qwen2_5_7b_1m")
    (note,) = read(config).notes
    assert str(note) == (
        "dual_chunk_attention_config: transformers and llama.cpp do not read it: beyond 262,144 tokens, distances are "
        "new to the model; vLLM and SGLang rotate by its chunks"
    )
    assert {layer.calls[0].option("scaling") for layer in read(config).layers} == {None}
    served = read(config, engine="vllm")
    assert served.lengths.served == 1_010_000
    (scaling,) = {layer.encodings[0].scaling for layer in served.layers}
    assert scaling == DualChunk(chunk_size=262144, local_size=8192)


@pytest.mark.parametrize(("name", "heads", "layers", "dim"), [("bloom", 112, 70, 128), ("mpt_7b", 32, 32, 128)])
def test_biases_are_those_of_alibi(name: str, heads: int, layers: int, dim: int) -> None:
    model = read(config_of(name))
    assert len(model.layers) == layers
    (encoding,) = model.layer(0).encodings
    bias = encoding(Positions.range(3), Positions.range(3))  # (1, heads, query, key)
    np.testing.assert_allclose(bias[0, :, 2, 0].double().numpy(), -2 * np.array(alibi.slopes(heads)), rtol=1e-6)
    assert model.layer(0).scale == dim**-0.5
    assert model.layer(0).causal


def test_t5_has_buckets_and_no_scale() -> None:
    model = read(config_of("t5_base"))
    for side, both in (("encoder", True), ("decoder", False)):
        layer = model.submodels[side].layers[0]
        (call,) = layer.calls
        assert dict(call.options) | {"bidirectional": both} == {
            "num_heads": 12, "num_buckets": 32, "max_distance": 128, "bidirectional": both,
        }  # fmt: skip
        assert call.option("bidirectional", True) == both
        assert (layer.scale, layer.causal, len(model.submodels[side].layers)) == (1.0, not both, 12)


def test_deberta_has_three_terms_under_one_scale() -> None:
    layer = read(config_of("deberta_v3_base")).layer(0)
    (call,) = layer.calls
    assert (call.option("buckets"), call.option("max_distance"), call.option("terms")) == (256, 512, ("p2c", "c2p"))
    assert call.option("share_att_key")
    assert call.option("layer_norm")
    assert layer.scale == pytest.approx(1 / math.sqrt(64 * 3), rel=1e-12)


@pytest.mark.parametrize(("name", "rows", "causal"), [("bert_base", 512, False), ("gpt2", 1024, True)])
def test_tables_are_learned(name: str, rows: int, causal: bool) -> None:
    model = read(config_of(name))
    (table,) = model.input
    assert (table.cls, table.option("max_length"), table.option("dim")) == ("Learned", rows, 768)
    assert {(layer.calls, layer.causal, layer.scale) for layer in model.layers} == {((), causal, 1 / 8)}


def test_inkling_mixes_biases_and_heats_full_layers() -> None:
    model = read(config_of("inkling")).main
    for number, layer in enumerate(model.layers):
        full = number % 6 == 5
        assert layer.kind == ("full" if full else "sliding")
        assert layer.window == (None if full else 512)
        bias = layer.calls[0]
        assert (bias.cls, bias.option("distances"), bias.option("rank")) == ("ProjectedBias", 1024 if full else 512, 16)
        assert layer.scale == 1 / 128
        assert _temperature(layer) == (("inkling", 128_000, 0.1) if full else None)
        assert layer.heads is not None
        assert (layer.heads.queries, layer.heads.keys) == (64, 8 if full else 16)


FLAT = [name for name in sorted(ROTARY) if name not in ("gpt_j_6b", "ministral_3_3b", "gemma_4_31b")]
BY_TYPE: dict[str, dict[str, Any]] = {
    "gemma_3_1b": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {"rope_type": "default", "rope_theta": 1000000.0},
    },
    "gemma_3_4b": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
    },
    "modernbert_base": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {"rope_type": "default", "rope_theta": 160000.0},
    },
    "olmo_3_7b": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0},
        "full_attention": {
            "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192, "rope_theta": 500000.0,
        },
    },
    "deepseek_v4_flash": {
        "main": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.125},
        "compress": {
            "rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 65536, "attention_factor": 1.0,
            "rope_theta": 160000.0, "partial_rotary_factor": 0.125,
        },
    },
}  # fmt: skip
"""Rope parameters of today, where types of layers have their own."""


MOVED = {
    "rope_theta": "rope_theta", "rotary_emb_base": "rope_theta", "partial_rotary_factor": "partial_rotary_factor",
    "rotary_pct": "partial_rotary_factor",
}  # fmt: skip


def renewed(name: str) -> dict[str, Any]:
    """The settings of a model in today's spelling, moved by hand."""
    config = config_of(name)
    part = config.get("text_config", config)
    scaling = part.pop("rope_scaling", None) or {}
    moved = {**scaling, "rope_type": scaling.get("rope_type") or scaling.get("type") or "default"}
    moved.pop("type", None)
    moved["rope_type"] = moved["rope_type"].replace("su", "longrope")
    for old, new in MOVED.items():
        if old in part:
            moved[new] = part.pop(old)
    for old in ("rope_local_base_freq", "global_rope_theta", "local_rope_theta", "compress_rope_theta"):
        part.pop(old, None)
    moved.setdefault("rope_theta", 10000.0)
    part["rope_parameters"] = BY_TYPE.get(name, moved)
    return config


@pytest.mark.parametrize("name", FLAT)
def test_both_spellings_are_read_alike(name: str) -> None:
    old, new = config_of(name), renewed(name)
    assert "rope_parameters" not in old
    found = fingerprint(old)
    assert found == fingerprint(new)
    assert found == fingerprint(write(read(old))) == fingerprint(write(read(old), form="legacy"))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_is_read_as_the_same(name: str) -> None:
    model = read(config_of(name))
    assert read(write(model)) == model
    if name != "gemma_4_31b":  # which no older transformers had
        assert read(write(model, form="legacy")) == model


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("qwen3_8b", "--rope-scaling none --rope-freq-base 1000000"),
        ("llama_2_7b", "--rope-scaling none --rope-freq-base 10000"),
        ("llama_3_1_8b", "its factors are a tensor of the file, rope_freqs"),
        ("phi_3_128k", "its lists are tensors of the file, rope_factors_long and rope_factors_short"),
        ("gemma_3_4b", "flags of llama.cpp are for all"),
        ("deepseek_v3", "it is the file's own, rope.scaling.yarn_log_multiplier"),
        ("gpt_oss_20b", "where flags do not reach"),
    ],
)
def test_flags_are_told_or_refused(name: str, said: str) -> None:
    try:
        found = write(read(config_of(name)), form="llama.cpp-flags")
    except ConfigError as problem:
        found = str(problem)
    assert said in found


def test_a_phi_beyond_its_original_length_has_the_long_factors() -> None:
    model: ModelPositions = read(config_of("phi_3_5_mini"))
    for length, key in ((4096, "short_factor"), (4097, "long_factor")):
        found = rotation_of(model.layer(0), length)
        assert found is not None
        factors = config_of("phi_3_5_mini")["rope_scaling"][key]
        assert found.frequencies[-1] == pytest.approx(1e4 ** (-94 / 96) / factors[-1], rel=1e-12)


@pytest.mark.once
@pytest.mark.parametrize("name", NAMES)
def test_transformers_reads_the_files_alike(name: str) -> None:
    """Its configuration classes move older settings to where they are today; both are read as the same layers."""
    file = config_of(name)
    if name == "phi_3_128k":  # it cannot load the older name
        file["rope_scaling"]["type"] = "longrope"
    theirs = made_by_transformers(**file)
    assert read(theirs).main.layers == read(file).main.layers
