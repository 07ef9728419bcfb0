"""The oracle itself, against the NumPy references of the papers, which share no line with it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import situs
from situs import Positions
from tests.fuzz.draw_encodings import draw_parameters, make
from tests.fuzz.draw_rotations import SCALINGS
from tests.fuzz.oracle import Call, attention, softmax_scale
from tests.fuzz.oracle_biases import BIASES
from tests.fuzz.oracle_rotations import ladder, rotary, xpos
from tests.fuzz.oracle_scores import TERMS, Inputs, shaw_gathered
from tests.fuzz.oracle_tokens import Pairs, Tokens, tokens_of, visible
from tests.fuzz.rounding import Reader
from tests.references import (
    alibi,
    bands,
    boxes,
    cope,
    deberta,
    fire,
    forgetting,
    gated,
    kerple,
    projected,
    sandwich,
    scaling,
    shaw,
    swin,
    t5,
    transformer_xl,
    tupe,
    vitdet,
)
from tests.references import attention as dot_product
from tests.references import mlp as mlp_reference
from tests.references import rotary as rotation
from tests.references import xpos as xpos_reference

HEADS, WIDTH = 3, 8
QUERIES, KEYS = torch.tensor([0, 5, 130, 1000, 1001]), torch.tensor([0, 3, 5, 128, 131, 700, 1002])


def drawn(expression: str) -> Any:
    """An encoding in float64, with parameters that matter."""
    encoding = make(expression).double()
    draw_parameters([encoding], torch.Generator().manual_seed(1))
    return encoding


def array(x: Tensor) -> Any:
    return x.detach().double().numpy()


def pairs() -> Pairs:
    return Pairs(Tokens(QUERIES[None]), Tokens(KEYS[None]))


def inputs(scale: float = 0.4) -> Inputs:
    generator = torch.Generator().manual_seed(2)
    q, k = (
        torch.randn(1, HEADS, len(each), WIDTH, generator=generator, dtype=torch.float64) for each in (QUERIES, KEYS)
    )
    seen = torch.rand(1, 1, len(QUERIES), len(KEYS), generator=generator) > 0.3
    return Inputs(q, k, pairs(), scale, seen)


READ = Reader(lambda parameter: parameter)


def assert_same(actual: Tensor, wanted: Any) -> None:
    np.testing.assert_allclose(array(actual), wanted, rtol=1e-11, atol=1e-11)


def bias_of(encoding: Any) -> Tensor:
    return BIASES[type(encoding)](encoding, pairs(), READ)[0]


def test_biases_are_those_of_the_references() -> None:
    at, seen = array(QUERIES), array(KEYS)
    slopes = alibi.slopes(HEADS)
    assert_same(bias_of(drawn(f"situs.ALiBi(num_heads={HEADS})")), alibi.bias(slopes, slopes, at, seen))
    learned = drawn(f"situs.ALiBi(num_heads={HEADS}, learned=True, asymmetric=True)")
    assert_same(bias_of(learned), alibi.bias(array(learned.behind), array(learned.ahead), at, seen))
    for kernel in ("log", "power"):
        curve = drawn(f"situs.Kerple(num_heads={HEADS}, kernel={kernel!r})")
        r1, r2 = array(curve.r1).clip(0.01), array(curve.r2).clip(0.01, 2 if kernel == "power" else None)
        assert_same(bias_of(curve), kerple.bias(r1, r2, at, seen, kernel))
    assert_same(bias_of(drawn(f"situs.Sandwich(num_heads={HEADS}, cosine_dim=16)")), sandwich.bias(HEADS, at, seen, 16))
    mlp = drawn(f"situs.Fire(num_heads={HEADS}, width=4, threshold=100.3)")
    c, longest = (abs(array(each).item()) for each in (mlp.c, mlp.threshold_factor * 100.3))
    weights = array(mlp.hidden.weight)[:, 0], array(mlp.hidden.bias), array(mlp.out.weight)
    assert_same(bias_of(mlp), fire.bias(at, seen, c, longest, *weights, np.zeros(HEADS), 1e-6))
    deep = drawn(f"situs.MLPBias(num_heads={HEADS}, width=4, norm=True, log_distance=True)")
    hidden, norms = ([(array(each.weight), array(each.bias)) for each in kind] for kind in (deep.hidden, deep.norms))
    wanted = mlp_reference.bias(at[:, None], seen[:, None], hidden, norms, array(deep.out.weight), "silu", True)
    assert_same(bias_of(deep), wanted)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (8, 20), (16, 64), (4, 10)])
def test_buckets_are_those_of_the_reference(buckets: int, farthest: int, bidirectional: bool) -> None:
    options = f"num_heads={HEADS}, num_buckets={buckets}, max_distance={farthest}, bidirectional={bidirectional}"
    encoding = drawn(f"situs.T5Bias({options})")
    wanted = t5.bias(array(encoding.table), QUERIES.numpy(), KEYS.numpy(), farthest, bidirectional)
    assert_same(bias_of(encoding), wanted)


def test_windows_are_those_of_the_reference() -> None:
    grid = Positions.grid(3, 4)
    cells, both = grid.ids[0].numpy(), Pairs(tokens_of(grid), tokens_of(grid))
    table = drawn(f"situs.SwinBias(num_heads={HEADS}, window=(4, 5))")
    assert_same(BIASES[situs.SwinBias](table, both, READ)[0], swin.bias_v1(array(table.table), (4, 5), cells, cells))
    mlp = drawn(f"situs.SwinBias(num_heads={HEADS}, window=(4, 5), version='v2', width=3, trained_window=(3, 2))")
    weights = array(mlp.hidden.weight), array(mlp.hidden.bias), array(mlp.out.weight)
    wanted = swin.bias_v2((4, 5), (3, 2), cells.astype(float), cells.astype(float), *weights)
    assert_same(BIASES[situs.SwinBias](mlp, both, READ)[0], wanted)


def test_boxes_and_two_axes_are_those_of_the_references() -> None:
    grid = Positions.explicit(torch.randint(-400, 400, (1, 7, 3)))
    ids, both = grid.ids[0].double().numpy(), Pairs(tokens_of(grid), tokens_of(grid))
    made = drawn(f"situs.Boxes(num_heads={HEADS}, num_buckets=(8, 32, 12), max_distance=(20, 128, 300), factor=0.5)")
    tables = [array(each) for each in made.table.split((8, 32, 12))]
    wanted = boxes.bias(tables, [20, 128, 300], [1.0] * 3, 0.5, ids, ids)
    assert_same(BIASES[situs.Boxes](made, both, READ)[0], wanted)
    cells = Positions.grid(3, 4)
    vectors = drawn(f"situs.ViTDet(num_heads={HEADS}, head_dim=4, window=(4, 5))")
    q = torch.randn(1, HEADS, 12, 4, dtype=torch.float64)
    seen = Inputs(q, q, Pairs(tokens_of(cells), tokens_of(cells)), 0.7, torch.ones(1, 1, 12, 12, dtype=torch.bool))
    at = cells.ids[0].numpy()
    wanted = vitdet.term(q[0].numpy(), at, at, array(vectors.down_table), array(vectors.across_table))
    assert_same(TERMS[situs.ViTDet](vectors, seen, READ)[0], wanted)


def test_terms_by_content_are_those_of_the_references() -> None:
    seen = inputs()
    q, k, at, keys = array(seen.q[0]), array(seen.k[0]), QUERIES.numpy(), KEYS.numpy()
    sizes = f"num_heads={HEADS}, head_dim={WIDTH}"

    vectors = drawn(f"situs.Shaw({sizes}, max_distance=4, per_head=True)")
    wanted = seen.scale * shaw.key_term(q, at.astype(float), keys.astype(float), array(vectors.key_table))
    assert_same(TERMS[situs.Shaw](vectors, seen, READ)[0], wanted)
    weights = torch.rand(1, HEADS, len(at), len(keys), dtype=torch.float64)
    wanted = shaw.value_term(array(weights[0]), at.astype(float), keys.astype(float), array(vectors.value_table))
    assert_same(shaw_gathered(vectors, weights, seen.pairs, READ)[0], wanted)

    for clamp in (None, 7):
        waves = drawn(f"situs.TransformerXL(dim=6, {sizes}, clamp_len={clamp})")
        learned = array(waves.content_bias), array(waves.position_bias), array(waves.projection)
        wanted = seen.scale * transformer_xl.term(q, k, at.astype(float), keys.astype(float), *learned, clamp)
        assert_same(TERMS[situs.TransformerXL](waves, seen, READ)[0], wanted)

    counting = drawn(f"situs.CoPE({sizes}, max_position=3)")
    logits = seen.scale * q @ k.transpose(0, 2, 1)
    wanted = seen.scale * cope.term(q, logits, seen.visible[0, 0].numpy(), array(counting.table))
    assert_same(TERMS[situs.CoPE](counting, seen, READ)[0], wanted)


@pytest.mark.parametrize(("buckets", "farthest"), [(None, 6), (8, 16), (4, 40), (32, 128)])
def test_disentangled_terms_are_those_of_the_reference(buckets: int | None, farthest: int) -> None:
    seen = inputs()
    q, k, at, keys = array(seen.q[0]), array(seen.k[0]), QUERIES.numpy(), KEYS.numpy()
    for row in ("same", "mirrored"):
        options = f"max_distance={farthest}, buckets={buckets}, terms=('c2p', 'p2c', 'p2p'), p2c_row={row!r}"
        encoding = drawn(f"situs.Deberta(dim=6, num_heads={HEADS}, head_dim={WIDTH}, {options})")
        rows = array(encoding.table)
        of_queries, of_keys = (
            tupe.project(rows, array(each.weight), array(each.bias), HEADS)
            for each in (encoding.query_projection, encoding.key_projection)
        )

        def bucket(distance: int) -> int:
            return distance if buckets is None else deberta.log_bucket(distance, buckets, farthest)

        wanted = deberta.content_to_position(q, at, keys, of_keys, bucket)
        wanted = wanted + deberta.position_to_content(k, at, keys, of_queries, bucket, row)
        wanted = wanted + deberta.position_to_position(at, keys, of_queries, of_keys, bucket, "mirrored")
        assert_same(TERMS[situs.Deberta](encoding, seen, READ)[0], seen.scale * wanted)


def test_untied_positions_are_those_of_the_reference() -> None:
    seen = inputs()
    encoding = drawn(f"situs.Tupe(dim=6, num_heads={HEADS}, head_dim={WIDTH}, max_length=1100)")
    rows = tupe.layer_norm(array(encoding.table), array(encoding.norm.weight), array(encoding.norm.bias))
    of_queries, of_keys = encoding.query_projection, encoding.key_projection
    scale = 1 / math.sqrt(2 * WIDTH)  # its own, whatever the caller's is
    wanted = scale * tupe.term(
        QUERIES.numpy(), KEYS.numpy(), rows, array(of_queries.weight), array(of_keys.weight), HEADS, np.zeros(HEADS),
        array(encoding.to_cls) / scale, bias_Q=array(of_queries.bias), bias_K=array(of_keys.bias),
    )  # fmt: skip
    assert_same(TERMS[situs.Tupe](encoding, seen, READ)[0], wanted)


@pytest.mark.parametrize("pairing", ["halves", "interleaved"])
def test_rotations_are_those_of_the_references(pairing: str) -> None:
    x = torch.randn(1, 1, len(KEYS), WIDTH, dtype=torch.float64)
    encoding = situs.Rotary(head_dim=WIDTH, rotary_dim=6, pairing=pairing)  # type: ignore[arg-type]
    wanted = rotation.rotate(array(x[0, 0]), array(KEYS), rotation.frequencies(6), pairing)
    assert_same(rotary(encoding, x, Tokens(KEYS[None]))[0, 0], wanted)
    for role in ("query", "key"):
        decaying = situs.XPos(head_dim=WIDTH, pairing=pairing, centre=30.0)  # type: ignore[arg-type]
        wanted = xpos_reference.rotate(
            array(x[0, 0]), array(KEYS), rotation.frequencies(WIDTH), role, centre=30.0, pairing=pairing
        )
        assert_same(xpos(decaying, x, Tokens(KEYS[None]), role)[0, 0], wanted)


def test_scalings_are_those_of_the_reference() -> None:
    long, short = [1.5, 2.0, 3.0, 7.0], [1.0, 1.1, 1.2, 1.3]
    stretch = {"factor": 4.0, "original_length": 64}
    longrope = situs.LongRoPE(**stretch, short_factors=short, long_factors=long)  # type: ignore[arg-type]
    yarn = situs.YaRN(**stretch, mscale=0.7, mscale_all_dim=0.9)  # type: ignore[arg-type]
    plain = 8, 10000.0
    for made, wanted in (
        (SCALINGS["LinearScaling"](factor=4.0), scaling.linear(*plain, 4.0)),
        (SCALINGS["NTKScaling"](factor=4.0), scaling.ntk(*plain, 4.0)),
        (SCALINGS["DynamicNTKScaling"](**stretch), scaling.dynamic_ntk(*plain, 4.0, 64, 100)),
        (SCALINGS["NTKByPartsScaling"](**stretch), scaling.by_parts(*plain, 4.0, 64)),
        (SCALINGS["NTKByPartsScaling"](**stretch, dialect="paper"), scaling.by_parts(*plain, 4.0, 64, dialect="paper")),
        (SCALINGS["Llama3Scaling"](**stretch), scaling.llama3(*plain, 4.0, 1.0, 4.0, 64)),
        (SCALINGS["ProportionalScaling"](fraction=0.5, factor=2.0), scaling.proportional(*plain, 0.5, 2.0)),
        (yarn, scaling.yarn(*plain, 4.0, 64, mscale=0.7, mscale_all_dim=0.9)),
        (longrope, scaling.longrope(*plain, short, long, 64, 256, 100)),
    ):
        found = ladder(made, 8, 10000.0, 100)
        np.testing.assert_allclose(found.frequencies, wanted[0], rtol=1e-13)
        assert (found.magnitude, found.softmax_factor) == pytest.approx(wanted[1:], rel=1e-13)


def test_terms_of_features_are_those_of_the_references() -> None:
    seen, features = inputs(), {"relative": torch.randn(1, HEADS, len(QUERIES), 3, dtype=torch.float64)}
    profiles = drawn(f"situs.ProjectedBias(num_heads={HEADS}, rank=3, distances=6)")
    wanted = projected.bias(array(features["relative"][0]), array(profiles.profiles), QUERIES.numpy(), KEYS.numpy())
    assert_same(TERMS[situs.ProjectedBias](profiles, replace(seen, features=features), READ)[0], wanted)

    gates = torch.randn(1, HEADS, len(QUERIES), 1, dtype=torch.float64)
    slopes = situs.GatedBias(num_heads=HEADS, bias="alibi")
    added = alibi.bias(alibi.slopes(HEADS), alibi.slopes(HEADS), array(QUERIES), array(KEYS))
    wanted = gated.bias(array(gates[0, ..., 0]), added)
    assert_same(TERMS[situs.GatedBias](slopes, replace(seen, features={"bias_gate": gates}), READ)[0], wanted)

    packed = Positions.packed([4, 3])  # the second document has gates of its own
    everything = torch.ones(1, 1, 7, 7, dtype=torch.bool)
    gates = torch.randn(1, HEADS, 7, 1, dtype=torch.float64)
    both = Pairs(tokens_of(packed), tokens_of(packed))
    told = Inputs(seen.q, seen.k, both, 1.0, everything.tril(), {"gate": gates})
    found = TERMS[situs.Forgetting](situs.Forgetting(num_heads=HEADS), told, READ)[0]
    for document in (slice(0, 4), slice(4, 7)):
        assert_same(found[:, document, document], forgetting.decay(array(gates[0, :, document, 0])))


@pytest.mark.parametrize(
    ("scaling", "wanted"),
    [
        (situs.SelfExtend(window=5, group=3), bands.self_extend(5, 3, 100.0)),
        (situs.ReRoPE(window=5), bands.rerope(5, 100.0)),
        (situs.ReRoPE(window=5, leak=0.25), bands.leaky_rerope(5, 0.25, 100.0)),
        (situs.DualChunk(chunk_size=7, local_size=2), bands.dual_chunk(7, 2, 100.0)),
    ],
    ids=["SelfExtend", "ReRoPE", "Leaky ReRoPE", "DualChunk"],
)
def test_bands_are_those_of_the_references(scaling: Any, wanted: bands.Scores) -> None:
    q, k, v = torch.randn(3, 1, 1, 19, WIDTH, dtype=torch.float64)
    encoding, tokens = situs.Rotary(head_dim=WIDTH, base=100.0, scaling=scaling), tokens_of(Positions.range(19))
    found = attention(q, k, v, [encoding], Pairs(tokens, tokens), Call(causal=True), lambda parameter: parameter)
    assert_same(found.out[0, 0], bands.attention(array(q[0, 0]), array(k[0, 0]), array(v[0, 0]), wanted))


def test_visibility_is_what_a_loop_over_tokens_gives() -> None:
    tokens = tokens_of(
        Positions.explicit(
            torch.tensor([[3, 1, 4, 1, 5, 9, 2]]),
            documents=torch.tensor([[0, 0, 1, 1, 1, 0, 0]]),
            valid=torch.tensor([[1, 1, 1, 0, 1, 1, 1]]).bool(),
        )
    )
    slots = [0, 1, 0, 1, 2, 2, 3]  # counted in each document
    wanted = torch.zeros(1, 7, 7, dtype=torch.bool)
    for i in range(7):
        for j in range(7):
            real = i != 3 and j != 3
            together = (i in (2, 3, 4)) == (j in (2, 3, 4))
            wanted[0, i, j] = real and together and 0 <= slots[i] - slots[j] < 2
    assert torch.equal(visible(tokens, tokens, causal=True, window=2), wanted)
    bare = Tokens(torch.tensor([[7, 7]]))  # no slots: the last of the keys
    assert visible(bare, Tokens(torch.arange(4)[None]), causal=True, window=None).tolist() == [[[1, 1, 1, 0], [1] * 4]]


def test_attention_is_that_of_the_reference() -> None:
    generator = torch.Generator().manual_seed(3)
    q = torch.randn(1, 4, 6, WIDTH, generator=generator, dtype=torch.float64)
    k, v = torch.randn(2, 1, 2, 6, WIDTH, generator=generator, dtype=torch.float64)
    tokens = tokens_of(Positions.from_mask(torch.tensor([[0, 1, 1, 1, 1, 1]]).bool()))
    mask = torch.randn(1, 1, 6, 6, generator=generator, dtype=torch.float64)
    mask[0, 0, 4] = -math.inf
    k[:, :, 0] = v[:, :, 0] = math.nan
    found = attention(q, k, v, [], Pairs(tokens, tokens), Call(causal=True, mask=mask), lambda parameter: parameter)
    allowed = array(torch.ones(6, 6).tril()).astype(bool)
    allowed[0] = allowed[:, 0] = allowed[4] = False
    bias = np.broadcast_to(array(mask[0]), (4, 6, 6))
    wanted = dot_product.attention(array(q[0]), array(k[0]), array(v[0]), allowed, 1 / math.sqrt(WIDTH), bias)
    assert_same(found.out[0], wanted)
    assert not found.out[0, :, [0, 4]].any()


def test_a_scale_of_the_callers_is_used_to_the_letter() -> None:
    stretched = situs.Rotary(head_dim=8, scaling=situs.YaRN(factor=4.0, original_length=64, mscale_all_dim=1.0))
    assert softmax_scale([stretched], 8, 0.3) == 0.3
    assert softmax_scale([stretched], 8, None) == pytest.approx((0.1 * math.log(4) + 1) ** 2 / math.sqrt(8))
    assert softmax_scale([situs.T5Bias(num_heads=2)], 8, None) == 1.0
