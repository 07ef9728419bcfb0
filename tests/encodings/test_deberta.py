"""DeBERTa's terms against the paper's formula, alone and in all combinations."""

import math
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from situs import Deberta
from situs.attention import reference
from situs.encodings.deberta import TERMS
from situs.positions import PositionsLike
from tests.encodings.score_situations import (
    FAR,
    HEAD_DIM,
    HEADS,
    SETS_OF_TERMS,
    Array,
    Formula,
    Situation,
    assert_follows,
    ranges_and_bare_ids,
    situated,
    stirred,
)
from tests.references import deberta, tupe

DIM = 6
Row = Literal["same", "mirrored"]
all_terms = pytest.mark.parametrize("terms", SETS_OF_TERMS, ids="+".join)


def made(**options: Any) -> Deberta:
    sizes = {"dim": DIM, "num_heads": HEADS, "head_dim": HEAD_DIM, "max_distance": 16}
    return stirred(Deberta(**{**sizes, **options}))


def array(parameter: Tensor | None) -> Array | None:
    return None if parameter is None else parameter.detach().double().numpy()


def by_paper(encoding: Deberta) -> Formula:
    table = array(encoding.table)
    assert table is not None
    if encoding.norm is not None:
        weight, bias = array(encoding.norm.weight), array(encoding.norm.bias)
        assert weight is not None
        assert bias is not None
        table = tupe.layer_norm(table, weight, bias, eps=1e-7)

    def bucket(distance: int) -> int:
        if encoding.buckets is None:
            return distance
        return deberta.log_bucket(distance, encoding.buckets, encoding.max_distance)

    def rows(projection: nn.Linear | None) -> Array:
        assert projection is not None
        weight = array(projection.weight)
        assert weight is not None
        return tupe.project(table, weight, array(projection.bias), encoding.num_heads)

    def term(q: Array, k: Array, query_ids: Array, key_ids: Array) -> Array:
        added: Array = np.zeros((len(q), len(query_ids), len(key_ids)))
        at = query_ids, key_ids
        if "c2p" in encoding.terms:
            added = added + deberta.content_to_position(q, *at, rows(encoding.key_projection), bucket)
        if "p2c" in encoding.terms:
            of_queries = rows(encoding.query_projection)
            added = added + deberta.position_to_content(k, *at, of_queries, bucket, encoding.p2c_row)
        if "p2p" in encoding.terms:
            both = rows(encoding.query_projection), rows(encoding.key_projection)
            added = added + deberta.position_to_position(*at, *both, bucket, "mirrored")
        return added

    return term


@settings(max_examples=200)
@given(
    st.data(),
    st.sampled_from(SETS_OF_TERMS),
    st.sampled_from(["same", "mirrored"]),
    st.sampled_from([(1, None), (3, None), (16, None), (16, 4), (16, 8), (9, 14), (64, 16)]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([None, 0.7]),
)
def test_the_term_is_the_papers(
    data: st.DataObject,
    terms: tuple[str, ...],
    p2c_row: Row,
    table: tuple[int, int | None],
    key_bias: bool,
    layer_norm: bool,
    kv_heads: int,
    scale: float | None,
) -> None:
    encoding = made(
        max_distance=table[0],
        buckets=table[1],
        terms=terms,
        p2c_row=p2c_row,
        key_bias=key_bias,
        layer_norm=layer_norm,
    )
    own = deberta.scale(HEAD_DIM, len(terms))
    assert_follows(encoding, situated(data), by_paper(encoding), kv_heads=kv_heads, scale=scale, own_scale=own)


@pytest.mark.parametrize("buckets", [4, 6, 14])
def test_buckets_read_the_rows_of_the_formula_far_away_too(buckets: int) -> None:
    encoding = made(buckets=buckets, terms=("c2p",))
    at, keys_at = torch.tensor([[5]]), torch.tensor([[4, 6, 21, 22, 40, 305, 70_000, FAR, -9, -10, -11, -305, -FAR]])
    own = deberta.scale(HEAD_DIM, 1)
    assert_follows(encoding, Situation(at, keys_at, at, keys_at, 1), by_paper(encoding), own_scale=own)


@all_terms
def test_its_scale_counts_the_products(terms: tuple[str, ...]) -> None:
    encoding = made(terms=terms)
    assert encoding.softmax_scale == 1 / math.sqrt(HEAD_DIM * (1 + len(terms))) == deberta.scale(HEAD_DIM, len(terms))
    q, k, v = torch.randn(3, 1, HEADS, 5, HEAD_DIM, dtype=torch.float64)
    scale = encoding.softmax_scale
    expected = (scale * q @ k.mT + encoding(q, k)).softmax(-1) @ v
    torch.testing.assert_close(reference(q, k, v, encoding=encoding), expected)
    torch.testing.assert_close(encoding(q, k), scale * encoding(q, k, scale=1.0))


def test_terms_add_up() -> None:
    whole = made(terms=TERMS)
    q, k = torch.randn(2, 1, HEADS, 7, HEAD_DIM, dtype=torch.float64)
    parts = []
    for term in TERMS:
        part = made(terms=(term,))
        part.load_state_dict({name: whole.state_dict()[name] for name in part.state_dict()})
        parts.append(part(q, k, scale=1.0))
    torch.testing.assert_close(whole(q, k, scale=1.0), parts[0] + parts[1] + parts[2])
    backwards = made(terms=tuple(reversed(TERMS)))
    backwards.load_state_dict(whole.state_dict())
    torch.testing.assert_close(backwards(q, k), whole(q, k))


@ranges_and_bare_ids
def test_the_mirrored_row_is_that_of_the_opposite_offset(places: tuple[PositionsLike, PositionsLike]) -> None:
    same, mirrored = made(terms=("p2c",)), made(terms=("p2c",), p2c_row="mirrored")
    mirrored.load_state_dict(same.state_dict())
    at, keys_at = (torch.tensor([1, 2, 3]), torch.arange(4)) if places[0] is None else places
    assert isinstance(at, Tensor)
    assert isinstance(keys_at, Tensor)
    q, k = torch.randn(1, HEADS, 3, HEAD_DIM), torch.randn(1, HEADS, 4, HEAD_DIM)
    torch.testing.assert_close(mirrored(q, k, at, keys_at), same(q, k, -at, -keys_at))
    assert not torch.allclose(mirrored(q, k, at, keys_at), same(q, k, at, keys_at))


def test_distances_beyond_the_table_share_its_ends() -> None:
    encoding = made(max_distance=3, terms=("c2p",))
    q, k = torch.randn(1, HEADS, 1, HEAD_DIM), torch.randn(1, HEADS, 1, HEAD_DIM)
    behind, ahead = (
        [encoding(q, k, torch.tensor([0]), torch.tensor([sign * offset])) for offset in (1, 2, 3, 4, FAR)]
        for sign in (-1, 1)
    )
    assert all(torch.equal(each, behind[1]) for each in behind[2:])  # row 5 of 6, from distance 2 on
    assert all(torch.equal(each, ahead[2]) for each in ahead[3:])
    assert not torch.allclose(behind[0], behind[1])
    assert not torch.allclose(ahead[1], ahead[2])


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        (("c2p",), ["key_projection"]),
        (("p2c",), ["query_projection"]),
        (("c2p", "p2c"), ["key_projection", "query_projection"]),
        (("p2p",), ["key_projection", "query_projection"]),
    ],
    ids=str,
)
def test_only_the_projections_that_are_used_exist(terms: tuple[str, ...], expected: list[str]) -> None:
    state = made(terms=terms).state_dict()
    assert sorted({name.split(".")[0] for name in state} - {"table"}) == expected


def test_options_shape_the_parameters() -> None:
    assert "key_projection.bias" not in made(key_bias=False).state_dict()
    assert "query_projection.bias" in made(key_bias=False).state_dict()
    assert made(layer_norm=True).state_dict().keys() - made().state_dict().keys() == {"norm.weight", "norm.bias"}
    assert made(max_distance=20).table.shape == (40, DIM)
    assert made(max_distance=20, buckets=8).table.shape == (16, DIM)
    assert made(max_distance=20, buckets=8).describe()["rows"] == 16


def test_weights_start_normal_and_biases_at_zero() -> None:
    encoding = Deberta(dim=100, num_heads=5, head_dim=20, init_std=0.3, layer_norm=True)
    started = {name: each.detach() for name, each in encoding.named_parameters()}
    for name in ("table", "query_projection.weight", "key_projection.weight"):
        assert float(started.pop(name).std()) == pytest.approx(0.3, rel=0.05)
    assert bool((started.pop("norm.weight") == 1).all())
    assert all(not each.any() for each in started.values())
