"""Golden numbers against formulas written apart: mpmath for angles, the papers' formulas in NumPy for the rest.

Everything is computed from a file's inputs and from the settings, as a porter would.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from mpmath import mp
from numpy.typing import NDArray

from situs import Positions, models
from situs.models import Golden
from tests.models.golden_configs import ALL
from tests.references import alibi, boxes, deberta, gated, projected, shaw, sinusoidal, swin, t5, temperature, vitdet
from tests.references import rotary as rotary_reference
from tests.references import transformer_xl as xl

pytestmark = pytest.mark.once

Numbers = NDArray[np.float64]


@functools.cache
def made(name: str) -> Golden:
    return models.golden(ALL[name])


def array(name: str, key: str) -> NDArray[Any]:
    found: NDArray[Any] = made(name)[key].numpy()
    return found


# name, group, channels, base, and how the frequencies are scaled, all from the settings of golden_configs
LADDERS: list[tuple[str, str, int, float, tuple[Any, ...]]] = [
    ("llama 3.1", "layer0", 128, 5e5, ("llama3", 8, 1, 4, 8192)),
    ("qwen 2.5", "layer0", 128, 1e6, ("yarn", 4, 32, 1, 32768, True)),
    ("deepseek v3", "layer0", 64, 1e4, ("yarn", 40, 32, 1, 4096, True)),
    ("ministral 3", "layer0", 128, 1e6, ("yarn", 16, 32, 1, 16384, True)),
    ("gpt-oss", "layer0", 64, 150000, ("yarn", 32, 32, 1, 4096, False)),
    ("phi 3.5", "layer0", 96, 1e4, ("divided", [1.0 + 0.02 * pair for pair in range(48)])),
    ("phi 3.5", "layer0.long", 96, 1e4, ("divided", [1.0 + 1.3 * pair for pair in range(48)])),
    ("gemma 3", "layer0", 256, 1e4, ()),
    ("gemma 3", "layer5", 256, 1e6, ("divided", [8.0] * 128)),
    ("cohere2", "layer0", 128, 5e4, ()),
    ("gpt-neox", "layer0", 24, 1e4, ()),
    ("qwen2-vl", "layer0", 128, 1e6, ()),
    ("qwen3-vl", "text.layer0", 128, 5e6, ()),
    ("llama 4", "layer0", 128, 5e5, ()),
    ("nanochat", "layer0", 128, 1e4, ()),
    ("dynamic", "layer0", 64, 1e4, ()),
    ("dynamic", "layer0.long", 64, 1e4, ("ntk", 4, 4096, 1000001)),
]  # fmt: skip


def exact_frequencies(dim: int, base: float, scaling: tuple[Any, ...]) -> list[Any]:
    """The ladder in 60 digits."""
    plain = [mp.mpf(base) ** (-mp.mpf(2 * i) / dim) for i in range(dim // 2)]
    if not scaling:
        return plain
    kind, *options = scaling
    if kind == "divided":
        return [each / mp.mpf(factor) for each, factor in zip(plain, options[0], strict=True)]
    if kind == "ntk":
        factor, original, length = options
        ratio = mp.mpf(factor) * length / original - (factor - 1)
        return [(mp.mpf(base) * ratio ** (mp.mpf(dim) / (dim - 2))) ** (-mp.mpf(2 * i) / dim) for i in range(dim // 2)]
    if kind == "llama3":
        factor, low, high, length = options
        found = []
        for each in plain:
            turns = length * each / (2 * mp.pi)
            smooth = max(mp.mpf(0), min(mp.mpf(1), (turns - low) / (high - low)))
            found.append((1 - smooth) * each / factor + smooth * each)
        return found
    factor, fast, slow, length, truncate = options
    ends = [dim * mp.log(length / (turns * 2 * mp.pi)) / (2 * mp.log(base)) for turns in (fast, slow)]
    first, last = (mp.floor(ends[0]), mp.ceil(ends[1])) if truncate else ends
    first, last = max(first, mp.mpf(0)), min(last, mp.mpf(dim - 1))
    ramps = [max(mp.mpf(0), min(mp.mpf(1), (i - first) / (last - first))) for i in range(dim // 2)]
    return [ramp * each / factor + (1 - ramp) * each for ramp, each in zip(ramps, plain, strict=True)]


@pytest.mark.parametrize(("name", "group", "dim", "base", "scaling"), LADDERS, ids=lambda each: str(each)[:20])
def test_angles_are_within_the_bound_that_is_stated(
    name: str, group: str, dim: int, base: float, scaling: tuple[Any, ...]
) -> None:
    with mp.workdps(60):
        exact = exact_frequencies(dim, base, scaling)
        factor = float(array(name, f"{group}.factor"))
        positions = array(name, f"{group}.positions")
        positions = positions if positions.ndim == 2 else positions[:, None]
        axes = array(name, f"{group}.axis_of_pair") if positions.shape[1] > 1 else np.zeros(dim // 2, dtype=np.int64)
        cos, sin = array(name, f"{group}.cos"), array(name, f"{group}.sin")
        for row, where in enumerate(positions):
            for pair, frequency in enumerate(exact):
                position = int(where[axes[pair]])
                bound = factor * (position * 2.0**-52 + 4 * 2.0**-53)
                for table, function in ((cos, mpmath.cos), (sin, mpmath.sin)):
                    off = abs(table[row, pair] - mp.mpf(factor) * function(position * frequency))
                    assert off <= bound, (position, pair, float(off), bound)


def test_factors_are_those_of_the_formulas() -> None:
    assert float(array("qwen 2.5", "layer0.factor")) == pytest.approx(0.1 * math.log(4) + 1, rel=1e-15)
    assert float(array("deepseek v3", "layer0.factor")) == 1.0
    assert float(array("deepseek v3", "layer0.scale")) == pytest.approx(
        192**-0.5 * (0.1 * math.log(40) + 1) ** 2, rel=1e-15
    )
    assert float(array("phi 3.5", "layer0.factor")) == pytest.approx(math.sqrt(1 + math.log(32) / math.log(4096)))
    assert float(array("gemma 3", "layer0.scale")) == 168**-0.5
    assert float(array("t5", "encoder.layer0.scale")) == 1.0


UNROTATED = (
    "t5", "bloom", "falcon alibi", "deberta v3", "gpt2", "bert", "roberta", "m2m", "xlnet", "inkling_text", "wavlm",
    "swin", "swinv2", "sam_vision_model", "layoutlmv3", "udop", "vits", "wav2vec2-bert", "mamba", "qwen3_asr_encoder",
    "beit",
)  # fmt: skip
ROTATING = [name for name in ALL if name not in (*UNROTATED, "lightglue")]


def rotating_groups(name: str) -> list[str]:
    """The groups of a model that rotate."""
    found = [group for group, said in made(name).groups() if "rotation" in said]
    assert found
    return found


def test_models_that_are_said_not_to_rotate_do_not() -> None:
    assert not [name for name in UNROTATED for _, said in made(name).groups() if "rotation" in said]


@pytest.mark.parametrize("name", ROTATING)
def test_rotated_vectors_are_those_of_a_dense_matrix(name: str) -> None:
    for group in rotating_groups(name):
        check_rotated_vectors(name, group)


def check_rotated_vectors(name: str, group: str) -> None:
    said = made(name).meta["groups"][group]["rotation"]
    frequencies, factor = array(name, f"{group}.frequencies"), said["factor"]
    positions = array(name, f"{group}.positions").astype(np.float64)
    axes = array(name, f"{group}.axis_of_pair") if said["axes"] > 1 else np.zeros(len(frequencies), dtype=np.int64)
    coordinates = (positions if positions.ndim == 2 else positions[:, None])[:, axes]
    head_dim, width = said["head_dim"], said["rotary_dim"]
    order = np.arange(head_dim)
    if said["channels"] == "trailing":
        order = np.roll(order, width)  # the rotated channels first
    if len(said["blocks"]) > 1:
        halves = [np.split(each, 2) for each in np.split(np.arange(width), np.cumsum(said["blocks"])[:-1])]
        order = np.concatenate([*(first for first, _ in halves), *(second for _, second in halves), order[width:]])
    for key in ("q", "k"):
        x = array(name, f"{group}.{key}")
        for row in range(len(x)):
            angles = coordinates[row] * frequencies * (-1 if said["reverse"] else 1)
            matrix = factor * rotary_reference.matrix(1.0, angles, said["pairing"])
            laid = x[row][order].copy() if said["channels"] == "leading" else np.roll(x[row], width)
            laid[:width] = matrix @ laid[:width]
            back = np.empty_like(laid)
            if said["channels"] == "leading":
                back[order] = laid
            else:
                back = np.roll(laid, -width)
            np.testing.assert_allclose(array(name, f"{group}.rotated_{key}")[row], back, rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", ROTATING)
def test_live_encodings_compute_the_same(name: str) -> None:
    for group in rotating_groups(name):
        check_live_encoding(name, group)


def check_live_encoding(name: str, group: str) -> None:
    found, model = made(name), models.read(ALL[name])
    for part in group.split(".")[: -2 if group.endswith("long") else -1]:
        model = model.submodels[part]
    said = found.meta["groups"][group]
    encoding = next(each for each in model.layers[said["layers"][0]].encodings if hasattr(each, "rotary_dim"))
    if type(encoding).__name__ == "LeRoPE":
        encoding = encoding.double()
        encoding.alpha.data = found[f"{group}.alpha"]
    ids = found[f"{group}.positions"]
    length = said["length"]
    positions = Positions.explicit(ids[None], sequence_length=length)
    for key in ("q", "k"):
        role = "query" if key == "q" else "key"
        live = encoding(found[f"{group}.{key}"][None, None], positions, role=role)[0, 0]
        torch.testing.assert_close(live, found[f"{group}.rotated_{key}"], rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", ["llama 4", "ministral 3", "inkling_text"])
def test_temperatures_are_those_of_the_formulas(name: str) -> None:
    dialects = {"llama 4": ("layer3", "llama4", 8192), "ministral 3": ("layer0", "ministral3", 16384)}
    said = made(name).meta["groups"]
    if name == "inkling_text":
        group = next(each for each in said if f"{each}.temperature" in made(name).arrays)
        call = next(each for each in said[group]["encodings"] if each["class"] == "Temperature")
        dialect, length, weight = "inkling", call["original_length"], call["factor"]
    else:
        group, dialect, length = dialects[name]
        weight = 0.1
    positions = array(name, f"{group}.positions")
    wanted = [temperature.factor(int(each), dialect, length, weight) for each in positions]
    np.testing.assert_allclose(array(name, f"{group}.temperature"), wanted, rtol=1e-15)
    if dialect != "inkling":
        ids = array(name, "batch.ids")
        batch = [[temperature.factor(int(each), dialect, length, weight) for each in row] for row in ids]
        np.testing.assert_allclose(array(name, f"{group}.batch_temperature"), batch, rtol=1e-15)


def products(name: str, group: str) -> Numbers:
    found: Numbers = array(name, f"{group}.q") @ array(name, f"{group}.k").T
    return found


@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_t5_biases_are_those_of_the_paper(part: str) -> None:
    group, both = f"{part}.layer0", part == "encoder"
    table, positions = array("t5", f"{group}.table"), array("t5", f"{group}.positions")
    offsets = array("t5", f"{group}.offsets")
    rows = [t5.bucket(int(each), both, 32, 128) for each in offsets]
    assert array("t5", f"{group}.rows").tolist() == rows
    np.testing.assert_array_equal(array("t5", f"{group}.bias"), table[rows].T)
    scores = products("t5", group) + t5.bias(table, positions, positions, 128, both)
    np.testing.assert_allclose(array("t5", f"{group}.scores"), scores, atol=1e-13)


def test_alibi_slopes_and_biases_are_the_authors() -> None:
    slopes, positions = alibi.slopes(12), array("bloom", "layer0.positions").astype(np.float64)
    np.testing.assert_allclose(array("bloom", "layer0.slopes"), slopes, rtol=1e-15)
    offsets = array("bloom", "layer0.offsets")
    np.testing.assert_allclose(array("bloom", "layer0.bias"), -slopes[:, None] * np.abs(offsets), rtol=1e-15)
    scores = products("bloom", "layer0") * 128**-0.5 + alibi.bias(slopes, slopes, positions, positions)
    np.testing.assert_allclose(array("bloom", "layer0.scores"), scores, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(array("falcon alibi", "layer0.slopes"), alibi.slopes(71) / 8, rtol=1e-15)


def test_deberta_terms_are_those_of_the_formula() -> None:
    name, group = "deberta v3", "layer0"
    table = array(name, f"{group}.table")
    centred = table - table.mean(1, keepdims=True)
    normed = centred / np.sqrt(centred.var(1, keepdims=True) + 1e-7)
    normed = normed * array(name, f"{group}.norm.weight") + array(name, f"{group}.norm.bias")
    rows = [
        normed @ array(name, f"{group}.{key}_projection.weight").T + array(name, f"{group}.{key}_projection.bias")
        for key in ("query", "key")
    ]
    positions = array(name, f"{group}.positions")
    q, k = array(name, f"{group}.q")[None], array(name, f"{group}.k")[None]
    bucket = functools.partial(deberta.log_bucket, bucket_size=256, max_position=512)
    c2p = deberta.content_to_position(q, positions, positions, rows[1][None], bucket)
    p2c = deberta.position_to_content(k, positions, positions, rows[0][None], bucket)
    scale = deberta.scale(64, 2)
    np.testing.assert_allclose(array(name, f"{group}.term"), scale * (c2p + p2c)[0], atol=1e-11)
    np.testing.assert_allclose(
        array(name, f"{group}.scores"), scale * (products(name, group) + (c2p + p2c)[0]), atol=1e-11
    )


def test_other_terms_are_those_of_the_papers() -> None:
    positions = array("xlnet", "layer0.positions").astype(np.float64)
    q, k = array("xlnet", "layer0.q")[None], array("xlnet", "layer0.k")[None]
    u, v = array("xlnet", "layer0.content_bias"), array("xlnet", "layer0.position_bias")
    term = xl.term(q, k, positions, positions, u, v, array("xlnet", "layer0.projection"))
    np.testing.assert_allclose(array("xlnet", "layer0.term"), term[0] / 8, atol=1e-9)

    where = array("wav2vec2-bert", "layer0.positions").astype(np.float64)
    q, table = array("wav2vec2-bert", "layer0.q")[None], array("wav2vec2-bert", "layer0.key_table")[0]
    term = shaw.key_term(q, where, where, table, ahead=8)
    np.testing.assert_allclose(array("wav2vec2-bert", "layer0.term"), term[0] / 8, atol=1e-12)

    group = next(name for name, said in made("inkling_text").groups() if said["kind"] == "full")
    ids, heat = array("inkling_text", f"{group}.positions"), array("inkling_text", f"{group}.temperature")
    relative = array("inkling_text", f"{group}.relative")[None] * heat[:, None]
    term = projected.bias(relative, array("inkling_text", f"{group}.profiles"), ids, ids)
    np.testing.assert_allclose(array("inkling_text", f"{group}.term"), term[0], atol=1e-12)

    ids, table = array("wavlm", "layer0.positions"), array("wavlm", "layer0.bias_by_offset.table")
    term = gated.bias(array("wavlm", "layer0.bias_gate").T, t5.bias(table, ids, ids, 800, True))
    np.testing.assert_allclose(array("wavlm", "layer0.term"), term[0], atol=1e-12)


def test_biases_of_images_and_pages_are_those_of_the_papers() -> None:
    cells = array("swin", "layer0.positions")
    bias = swin.bias_v1(array("swin", "layer0.table"), (7, 7), cells, cells)
    scale = float(array("swin", "layer0.scale"))
    np.testing.assert_allclose(array("swin", "layer0.scores"), scale * products("swin", "layer0") + bias, atol=1e-13)

    cells = array("swinv2", "layer0.positions").astype(np.float64)
    weights = [array("swinv2", f"layer0.{key}") for key in ("hidden.weight", "hidden.bias", "out.weight")]
    bias = swin.bias_v2((7, 7), (7, 7), cells, cells, *weights)
    np.testing.assert_allclose(array("swinv2", "layer0.scores"), products("swinv2", "layer0") + bias, atol=1e-9)

    cells, q = array("sam_vision_model", "layer0.positions"), array("sam_vision_model", "layer0.q")[None]
    tables = [array("sam_vision_model", f"layer0.{key}_table") for key in ("down", "across")]
    term = vitdet.term(q, cells, cells, *tables)
    np.testing.assert_allclose(array("sam_vision_model", "layer0.term"), term[0], atol=1e-12)

    where, table = array("layoutlmv3", "layer0.positions").astype(np.float64), array("layoutlmv3", "layer0.table")
    tables = [table[:32], table[32:96], table[96:]]
    bias = boxes.bias(tables, [128, 256, 256], [1, 1, 1], 1 / 8, where, where)
    scores = products("layoutlmv3", "layer0") / 8 + bias
    np.testing.assert_allclose(array("layoutlmv3", "layer0.scores"), scores, atol=1e-12)


def test_sinusoids_and_rows_are_those_of_the_tables() -> None:
    positions = array("m2m", "encoder.input0.positions")
    table = sinusoidal.table(positions + 2.0, 256, layout="concatenated", spacing="inclusive")
    np.testing.assert_allclose(array("m2m", "encoder.input0.encoded"), table, atol=3e-10)
    batch, valid = array("m2m", "encoder.input0.batch_encoded"), array("m2m", "encoder.batch.valid")
    assert np.all(batch[valid == 0] == 0)
    ids = array("m2m", "encoder.batch.ids")[valid == 1] + 2.0
    rows = sinusoidal.table(ids, 256, layout="concatenated", spacing="inclusive")
    np.testing.assert_allclose(batch[valid == 1], rows, atol=1e-13)
    padded = array("roberta", "input0.batch_rows")[array("roberta", "batch.valid") == 0]
    assert set(padded.tolist()) == {1}


def test_values_are_rotated_and_outputs_rotated_back() -> None:
    group = next(iter(dict(made("deepseek_v4").groups())))
    cos, sin = array("deepseek_v4", f"{group}.cos"), array("deepseek_v4", f"{group}.sin")
    for key, sign in (("v", 1), ("o", -1)):
        x, found = array("deepseek_v4", f"{group}.{key}"), array("deepseek_v4", f"{group}.rotated_{key}")
        width = 2 * cos.shape[1]
        first, second = x[:, -width::2], x[:, -width + 1 :: 2]
        np.testing.assert_allclose(found[:, -width::2], first * cos - sign * second * sin, atol=1e-14)
        np.testing.assert_allclose(found[:, -width + 1 :: 2], sign * first * sin + second * cos, atol=1e-14)
        np.testing.assert_array_equal(found[:, :-width], x[:, :-width])


def test_scores_join_all_of_it() -> None:
    heat = array("llama 4", "layer3.temperature")
    scores = heat[:, None] * products("llama 4", "layer3") * 128**-0.5
    np.testing.assert_allclose(array("llama 4", "layer3.scores"), scores, atol=1e-13)
    np.testing.assert_array_equal(array("llama 4", "layer3.rotated_q"), array("llama 4", "layer3.q"))
