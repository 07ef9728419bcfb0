"""DeBERTa's terms against the paper's formula, in all combinations, and projections shared with the attention."""

import copy
import itertools
import math
import pickle
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from situs import Deberta, Positions
from situs.attention import reference
from situs.encodings.deberta import TERMS
from situs.positions import PositionsLike
from tests.encodings.score_situations import (
    FAR,
    HEAD_DIM,
    HEADS,
    Array,
    Formula,
    Situation,
    assert_autocast_changes_nothing,
    assert_exports,
    assert_follows,
    assert_gradients,
    assert_half_precision_suffices,
    compilations,
    half_dtypes,
    ranges_and_bare_ids,
    situated,
    stirred,
)
from tests.raising import raises_exactly
from tests.references import deberta, tupe

DIM = 6
Row = Literal["same", "mirrored"]
COMBINATIONS = [chosen for count in (1, 2, 3) for chosen in itertools.combinations(TERMS, count)]
all_terms = pytest.mark.parametrize("terms", COMBINATIONS, ids="+".join)
both_rows = pytest.mark.parametrize("p2c_row", ["same", "mirrored"])


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
    st.sampled_from(COMBINATIONS),
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


@pytest.mark.parametrize("start", [70_000, FAR])
@pytest.mark.parametrize("buckets", [None, 8])
def test_only_the_offset_counts_however_far(start: int, buckets: int | None) -> None:
    encoding = made(terms=TERMS, buckets=buckets)
    q, k = torch.randn(2, 1, HEADS, 6, HEAD_DIM)
    assert torch.equal(encoding(q, k, start, start), encoding(q, k))
    ids = torch.tensor([4, 0, 90, 1, 2, 2])
    assert torch.equal(encoding(q, k, ids + start), encoding(q, k, ids))


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


def test_its_configuration_makes_it_again() -> None:
    for options in ({}, {"buckets": 8, "layer_norm": True, "terms": TERMS, "p2c_row": "mirrored", "key_bias": False}):
        encoding = made(**options)
        again = Deberta(**encoding.config)
        assert again.config == encoding.config
        again.load_state_dict(encoding.state_dict())
        x = torch.randn(1, HEADS, 5, HEAD_DIM)
        assert torch.equal(again(x, x), encoding(x, x))


def test_weights_start_normal_and_biases_at_zero() -> None:
    encoding = Deberta(dim=100, num_heads=5, head_dim=20, init_std=0.3, layer_norm=True)
    started = {name: each.detach() for name, each in encoding.named_parameters()}
    for name in ("table", "query_projection.weight", "key_projection.weight"):
        assert float(started.pop(name).std()) == pytest.approx(0.3, rel=0.05)
    assert bool((started.pop("norm.weight") == 1).all())
    assert all(not each.any() for each in started.values())


class Attention(nn.Module):
    """An attention that shares its projections with its encoding, as v2 and v3 do."""

    def __init__(self, *, bias: bool = True, **options: Any) -> None:
        super().__init__()
        width = 2 * HEAD_DIM
        self.query, self.key = (nn.Linear(DIM, width, bias=bias) for _ in range(2))
        sizes: dict[str, Any] = {"dim": DIM, "num_heads": 2, "head_dim": HEAD_DIM, "max_distance": 16}
        self.encoding = Deberta(**{**sizes, "share_att_key": True, "layer_norm": True, **options})
        self.encoding.tie(query=self.query, key=self.key)

    def forward(self, x: Tensor, positions: PositionsLike = None) -> Tensor:
        q, k = (projection(x).view(*x.shape[:2], 2, HEAD_DIM).transpose(1, 2) for projection in (self.query, self.key))
        return reference(q, k, k, encoding=self.encoding, positions=positions)


@pytest.mark.parametrize("bias", [True, False])
@both_rows
@all_terms
def test_tied_projections_act_as_if_they_were_its_own(terms: tuple[str, ...], p2c_row: Row, bias: bool) -> None:
    model = stirred(Attention(terms=terms, p2c_row=p2c_row, bias=bias))
    own = made(num_heads=2, terms=terms, p2c_row=p2c_row, layer_norm=True)
    own.table, own.norm = model.encoding.table, model.encoding.norm
    own.query_projection, own.key_projection = model.query, model.key
    for at in (None, torch.tensor([9, 0, 2, 70_000, 5])):
        q, k = torch.randn(2, 1, 2, 5, HEAD_DIM)
        assert torch.equal(model.encoding(q, k, at), own(q, k, at))


def test_tied_projections_stay_the_attentions() -> None:
    model = Attention()
    assert sorted(model.encoding.state_dict()) == ["norm.bias", "norm.weight", "table"]
    assert [name for name, _ in model.encoding.named_parameters()] == ["table", "norm.weight", "norm.bias"]
    names = ["encoding.norm.bias", "encoding.norm.weight", "encoding.table", "key.bias", "key.weight", "query.bias"]
    assert sorted(model.state_dict()) == [*names, "query.weight"]
    assert len(list(model.parameters())) == 7
    assert len(list(model.modules())) == 5
    assert model.encoding.tie(query=model.query, key=model.key) is model.encoding


def test_gradients_and_updates_reach_the_tied_projections() -> None:
    model = stirred(Attention())
    q, k = torch.randn(2, 1, 2, 5, HEAD_DIM)
    before = model.encoding(q, k)
    before.sum().backward()
    for projection in (model.query, model.key):
        assert projection.weight.grad is not None
        assert bool(projection.weight.grad.any())
    with torch.no_grad():
        model.key.weight.add_(1)
    assert not torch.allclose(model.encoding(q, k), before)


@pytest.mark.parametrize("way", ["deepcopy", "pickle"])
def test_a_copy_of_the_model_is_tied_to_its_own_projections(way: str) -> None:
    model = stirred(Attention())
    other: Attention = copy.deepcopy(model) if way == "deepcopy" else pickle.loads(pickle.dumps(model))
    x = torch.randn(1, 5, DIM)
    expected = model(x)
    assert torch.equal(other(x), expected)
    with torch.no_grad():
        model.query.weight.zero_()
        model.key.weight.zero_()
    assert torch.equal(other(x), expected)
    q, k = torch.randn(2, 1, 2, 5, HEAD_DIM)
    before = other.encoding(q, k)
    with torch.no_grad():
        other.key.weight.zero_()
    assert not torch.allclose(other.encoding(q, k), before)
    assert sorted(other.state_dict()) == sorted(model.state_dict())


def test_a_tied_model_loads_its_checkpoint_and_changes_dtype_as_one() -> None:
    model, other = stirred(Attention()), Attention()
    other.load_state_dict(model.state_dict(), strict=True)
    x = torch.randn(1, 5, DIM)
    assert torch.equal(other(x), model(x))
    torch.testing.assert_close(other.double()(x.double()).float(), model(x))
    assert other.bfloat16()(x.bfloat16()).dtype == torch.bfloat16


def test_projections_must_be_tied_before_use() -> None:
    encoding, x = made(num_heads=2, share_att_key=True), torch.zeros(1, 2, 3, HEAD_DIM)
    for places in (None, torch.tensor([5, 0, 2])):
        with raises_exactly(
            ValueError,
            "tie(query=..., key=...) must be called first, since share_att_key means the attention's own projections "
            "are used; got none.",
        ):
            encoding(x, x, places)


def test_only_fitting_projections_are_tied_and_only_where_asked() -> None:
    fitting = nn.Linear(DIM, 8)
    with raises_exactly(ValueError, "share_att_key must be True to tie projections, since this encoding has its own."):
        made(num_heads=2).tie(query=fitting, key=fitting)
    encoding = made(num_heads=2, share_att_key=True)
    with raises_exactly(
        ValueError, "query must project 6 channels to 8, since rows of the table go through it; got 5 to 8."
    ):
        encoding.tie(query=nn.Linear(5, 8), key=fitting)
    with raises_exactly(
        ValueError, "key must project 6 channels to 8, since rows of the table go through it; got 6 to 9."
    ):
        encoding.tie(query=fitting, key=nn.Linear(6, 9))


def test_cached_decoding_gives_the_rows_of_the_full_pass() -> None:
    encoding = made(terms=TERMS, buckets=8)
    q, k, v = torch.randn(3, 1, HEADS, 7, HEAD_DIM, dtype=torch.float64)
    whole = reference(q, k, v, encoding=encoding, causal=True)
    for last in range(1, 8):
        now = slice(last - 1, last)
        step = reference(q[:, :, now], k[:, :, :last], v[:, :, :last], encoding=encoding, causal=True)
        torch.testing.assert_close(step, whole[:, :, now])


@ranges_and_bare_ids
@all_terms
def test_every_gradient_is_right(terms: tuple[str, ...], places: tuple[PositionsLike, PositionsLike]) -> None:
    assert_gradients(Deberta(dim=3, num_heads=2, head_dim=HEAD_DIM, max_distance=2, terms=terms), places)


@ranges_and_bare_ids
@both_rows
def test_every_gradient_of_v2_is_right(p2c_row: Row, places: tuple[PositionsLike, PositionsLike]) -> None:
    options: dict[str, Any] = {"buckets": 4, "layer_norm": True, "p2c_row": p2c_row, "share_att_key": True}
    encoding = Deberta(dim=3, num_heads=2, head_dim=HEAD_DIM, max_distance=6, **options)
    query, key = nn.Linear(3, 8), nn.Linear(3, 8)
    assert_gradients(encoding.tie(query=query, key=key), places, query, key)


@half_dtypes
@pytest.mark.parametrize("buckets", [None, 8])
def test_half_precision_neither_overflows_nor_blurs(dtype: torch.dtype, buckets: int | None) -> None:
    assert_half_precision_suffices(made(num_heads=2, terms=TERMS, buckets=buckets, layer_norm=True), dtype)


def test_autocast_changes_nothing() -> None:
    assert_autocast_changes_nothing(made(num_heads=2, terms=TERMS))


@pytest.mark.compiled
@pytest.mark.parametrize("terms", [("c2p", "p2c"), TERMS], ids="+".join)
def test_growing_lengths_compile_at_most_twice(terms: tuple[str, ...]) -> None:
    assert compilations(made(num_heads=2, terms=terms)) <= 2


@pytest.mark.compiled
def test_a_tied_model_compiles_and_follows_its_projections() -> None:
    torch._dynamo.reset()
    model = stirred(Attention())
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    x = torch.randn(1, 5, DIM)
    torch.testing.assert_close(compiled(x), model(x), atol=1e-5, rtol=1e-4)
    with torch.no_grad():
        model.key.weight.add_(0.5)
    torch.testing.assert_close(compiled(x), model(x), atol=1e-5, rtol=1e-4)


@pytest.mark.compiled
def test_an_exported_layer_takes_any_length() -> None:
    query, key = nn.Linear(DIM, 8), nn.Linear(DIM, 8)
    encoding = made(num_heads=2, terms=TERMS, buckets=8, share_att_key=True).tie(query=query, key=key)
    assert_exports(encoding, query, key)


SIZES = (
    "dim, num_heads, head_dim and max_distance must be 1 or more, since they size the table and the projections; got "
)
TERMS_MUST = "terms must be among c2p, p2c, p2p, each once, and at least one; got "
BUCKETS = "since half of them hold a single distance below max_distance - 1; got "
ERRORS: list[tuple[dict[str, Any], str]] = [
    ({"dim": 0}, f"{SIZES}0, 2, 4 and 512."),
    ({"num_heads": 0}, f"{SIZES}8, 0, 4 and 512."),
    ({"head_dim": 0}, f"{SIZES}8, 2, 0 and 512."),
    ({"max_distance": 0}, f"{SIZES}8, 2, 4 and 0."),
    ({"buckets": 5}, f"buckets must be even and lie in 4 .. 1021, {BUCKETS}5."),
    ({"buckets": 3}, f"buckets must be even and lie in 4 .. 1021, {BUCKETS}3."),
    ({"buckets": 1022}, f"buckets must be even and lie in 4 .. 1021, {BUCKETS}1022."),
    ({"buckets": 30, "max_distance": 16}, f"buckets must be even and lie in 4 .. 29, {BUCKETS}30."),
    ({"terms": ()}, f"{TERMS_MUST}()."),
    ({"terms": ("c2p", "c2p")}, f"{TERMS_MUST}('c2p', 'c2p')."),
    ({"terms": ("c2p", "c2c")}, f"{TERMS_MUST}('c2p', 'c2c')."),
    (
        {"p2c_row": "opposite"},
        "p2c_row must be one of 'same', 'mirrored', since released models and the paper differ; got 'opposite'.",
    ),
]


@pytest.mark.parametrize(("options", "message"), ERRORS, ids=[message for _, message in ERRORS])
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with raises_exactly(ValueError, message):
        Deberta(**{"dim": 8, "num_heads": 2, "head_dim": 4, **options})


def test_queries_and_positions_it_cannot_place_are_refused() -> None:
    encoding, x = made(num_heads=2), torch.zeros(1, 2, 2, 4)
    shape = "query must have shape (batch, 2, sequence, 4), since Deberta was made for 2 heads of 4; got shape "
    with raises_exactly(ValueError, f"{shape}(1, 1, 2, 4)."):
        encoding(x[:, :1], x)
    with raises_exactly(ValueError, f"{shape}(1, 2, 2, 3)."):
        encoding(x[..., :3], x[..., :3])
    with raises_exactly(
        TypeError,
        "positions must be whole numbers, since Deberta looks them up in a table; got dtype torch.float64.",
    ):
        encoding(x, x, torch.tensor([0.0, 1.0], dtype=torch.float64))
    with raises_exactly(
        ValueError,
        "positions must have 1 coordinate a place, since this Deberta encodes that many; got 2 in "
        "Positions(grid, 2 x 1, length 2, axes 2).",
    ):
        encoding(x, x, Positions.grid(2, 1))
