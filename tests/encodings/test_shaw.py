"""Shaw's vectors against the paper's formula, for scores and for values."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from situs import Positions, Shaw
from situs.attention import attend, reference, visibility
from situs.positions import PositionsLike, align
from tests.encodings.score_situations import (
    HEAD_DIM,
    HEADS,
    VARIANTS,
    Array,
    assert_follows,
    ranges_and_bare_ids,
    situated,
    stirred,
)
from tests.raising import raises_exactly
from tests.references import attention as formula
from tests.references import shaw


def table_of(parameter: Tensor | None) -> Array:
    """A table as the formula takes it."""
    assert parameter is not None
    return parameter.detach().double().numpy()


@settings(max_examples=150)
@given(st.data(), st.sampled_from([1, 3, 16]), st.booleans(), st.sampled_from([1, 2, 4]), st.sampled_from([None, 0.7]))
def test_the_term_is_the_papers(
    data: st.DataObject, max_distance: int, per_head: bool, kv_heads: int, scale: float | None
) -> None:
    encoding = stirred(Shaw(num_heads=HEADS, head_dim=HEAD_DIM, max_distance=max_distance, per_head=per_head))
    table = table_of(encoding.key_table)

    def by_paper(q: Array, k: Array, query_ids: Array, key_ids: Array) -> Array:
        return shaw.key_term(q, query_ids, key_ids, table)

    assert_follows(encoding, situated(data), by_paper, kv_heads=kv_heads, scale=scale)


@settings(max_examples=150)
@given(st.data(), st.sampled_from([1, 3, 16]), st.booleans())
def test_values_gain_what_the_paper_adds(data: st.DataObject, max_distance: int, per_head: bool) -> None:
    situation = situated(data)
    encoding = stirred(Shaw(num_heads=HEADS, head_dim=HEAD_DIM, max_distance=max_distance, per_head=per_head))
    shape = situation.batch, HEADS, situation.query_ids.shape[1], situation.key_ids.shape[1]
    weights = torch.rand(shape, dtype=torch.float64)
    for row in range(situation.batch):
        weights[row, :, torch.from_numpy(~situation.compared(row))] = 0
    actual = encoding.gathered(weights, situation.query, situation.key).detach().numpy()
    for row in range(situation.batch):
        expected = shaw.value_term(weights[row].numpy(), *situation.row(row), table_of(encoding.value_table))
        np.testing.assert_allclose(actual[row], expected, atol=1e-10, rtol=0)


@settings(max_examples=150)
@given(st.data(), st.sampled_from(VARIANTS[Shaw]), st.sampled_from([1, 2, 4]), st.booleans())
def test_attention_is_the_papers_with_keys_values_or_both(
    data: st.DataObject, options: dict[str, Any], kv_heads: int, causal: bool
) -> None:
    situation = situated(data)
    encoding = stirred(Shaw(num_heads=HEADS, head_dim=HEAD_DIM, max_distance=3, **options))
    q, k = situation.contents(kv_heads=kv_heads)
    v = torch.randn_like(k)
    told: dict[str, Any] = {"positions": situation.query, "key_positions": situation.key}
    actual = reference(q, k, v, encoding=encoding, causal=causal, **told).detach().numpy()
    seen = visibility(*align(situation.query, situation.key, q.shape[2], k.shape[2]), causal=causal)
    allowed = np.ones((situation.batch, q.shape[2], k.shape[2]), dtype=bool)
    if seen is not None:
        allowed = seen.expand(situation.batch, -1, -1).numpy()
    for row in range(situation.batch):
        at = situation.row(row)
        bias = np.zeros((HEADS, *allowed.shape[1:]))
        if encoding.keys:
            bias = 0.5 * shaw.key_term(q[row].numpy(), *at, table_of(encoding.key_table))
        expected = formula.attention(q[row].numpy(), k[row].numpy(), v[row].numpy(), allowed[row], 0.5, bias)
        if encoding.values:
            shared = k[row].repeat_interleave(HEADS // kv_heads, 0).numpy()
            scores = 0.5 * q[row].numpy() @ shared.transpose(0, 2, 1) + bias
            scores = np.where(allowed[row], scores, -np.inf)
            with np.errstate(invalid="ignore"):
                weights = np.exp(scores - scores.max(-1, keepdims=True))
                weights = np.nan_to_num(weights / weights.sum(-1, keepdims=True))
            expected = expected + shaw.value_term(weights, *at, table_of(encoding.value_table))
        np.testing.assert_allclose(actual[row], expected, atol=1e-10, rtol=0)


RELEASED: list[dict[str, Any]] = [
    {"max_distance": 5, "max_ahead": 2},
    {"max_distance": 1, "max_ahead": 0, "beyond": "nothing"},
    {"max_distance": 3, "max_ahead": 4, "rows": "query_minus_key"},
    {"max_distance": 2, "beyond": "nothing", "rows": "query_minus_key", "per_head": True},
]


@settings(max_examples=60)
@given(st.data(), st.sampled_from(RELEASED))
def test_released_bounds_and_orders_are_told_apart(data: st.DataObject, options: dict[str, Any]) -> None:
    situation = situated(data)
    encoding = stirred(Shaw(num_heads=HEADS, head_dim=HEAD_DIM, **options))
    read: dict[str, Any] = {
        "ahead": options.get("max_ahead"), "nothing": encoding.beyond == "nothing",
        "mirrored": encoding.rows == "query_minus_key",
    }  # fmt: skip
    table, of_values = table_of(encoding.key_table), table_of(encoding.value_table)

    def by_formula(q: Array, k: Array, query_ids: Array, key_ids: Array) -> Array:
        return shaw.key_term(q, query_ids, key_ids, table, **read)

    assert_follows(encoding, situation, by_formula)
    shape = situation.batch, HEADS, situation.query_ids.shape[1], situation.key_ids.shape[1]
    weights = torch.rand(shape, dtype=torch.float64)
    for row in range(situation.batch):
        weights[row, :, torch.from_numpy(~situation.compared(row))] = 0
    actual = encoding.gathered(weights, situation.query, situation.key).detach().numpy()
    for row in range(situation.batch):
        expected = shaw.value_term(weights[row].numpy(), *situation.row(row), of_values, **read)
        np.testing.assert_allclose(actual[row], expected, atol=1e-10, rtol=0)


@pytest.mark.parametrize("options", RELEASED, ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_every_kernel_minds_bounds_and_orders(options: dict[str, Any], causal: bool) -> None:
    encoding = stirred(Shaw(num_heads=2, head_dim=HEAD_DIM, **options))
    given = [torch.randn(1, 2, 600, HEAD_DIM, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    told: dict[str, Any] = {"encoding": encoding, "causal": causal, "positions": Positions.range(600, start=70_000)}
    learnt = [*given, *encoding.parameters()]
    expected = reference(*given, **told)
    weights = torch.randn_like(expected)
    wanted = torch.autograd.grad((expected * weights).sum(), learnt)
    out = attend(*given, **told)
    torch.testing.assert_close(out, expected, atol=1e-10, rtol=0)
    found = torch.autograd.grad((out * weights).sum(), learnt)
    torch.testing.assert_close(found, wanted, atol=1e-9, rtol=0)


@ranges_and_bare_ids
def test_vectors_are_not_scaled_with_the_values(places: tuple[PositionsLike, PositionsLike]) -> None:
    encoding = stirred(Shaw(num_heads=2, head_dim=HEAD_DIM, keys=False))
    q, k = torch.randn(1, 2, 3, HEAD_DIM), torch.randn(1, 2, 4, HEAD_DIM)
    nothing = torch.zeros_like(k)
    told: dict[str, Any] = {"encoding": encoding, "positions": places[0], "key_positions": places[1]}
    weights = (q @ k.mT / 2).softmax(-1)
    torch.testing.assert_close(reference(q, k, nothing, **told), encoding.gathered(weights, *places))


def test_offsets_beyond_the_last_share_its_row() -> None:
    encoding = stirred(Shaw(num_heads=1, head_dim=HEAD_DIM, max_distance=2))
    q = torch.randn(1, 1, 1, HEAD_DIM)
    term = encoding(q, torch.zeros(1, 1, 9, HEAD_DIM), torch.tensor([0]), torch.arange(-4, 5))[0, 0, 0]
    assert len(set(term[:3].tolist())) == len(set(term[6:].tolist())) == 1
    assert len(set(term.tolist())) == 5
    rows = (q[0, 0, 0] @ encoding.vectors(torch.arange(-2, 3), torch.float32).for_query[0].T) / 2  # type: ignore[index]
    torch.testing.assert_close(term[2:7], rows)


def test_tables_are_shared_by_heads_unless_asked() -> None:
    names = {"key_table": (1, 9, 8), "value_table": (1, 9, 8)}
    assert {name: tuple(each.shape) for name, each in shaw_of().named_parameters()} == names
    apart = shaw_of(per_head=True)
    assert {tuple(each.shape) for each in apart.parameters()} == {(3, 9, 8)}
    assert list(shaw_of(values=False).state_dict()) == ["key_table"]
    assert list(shaw_of(keys=False).state_dict()) == ["value_table"]
    assert (shaw_of(values=False).acts_on_values, shaw_of(keys=False).acts_on_values) == (False, True)


def shaw_of(**options: Any) -> Shaw:
    return Shaw(num_heads=3, head_dim=8, max_distance=4, **options)


def test_each_heads_table_starts_by_glorots_rule() -> None:
    encoding = Shaw(num_heads=2, head_dim=64, max_distance=100, per_head=True)
    bound = math.sqrt(6 / (201 + 64))
    for table in (each.detach() for each in encoding.parameters()):
        assert float(table.abs().max()) <= bound
        assert float(table.std()) == pytest.approx(bound / math.sqrt(3), rel=0.02)
    before = table_of(encoding.key_table).copy()
    encoding.reset_parameters()
    assert not np.allclose(table_of(encoding.key_table), before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_ahead": -1}, "max_ahead must be 0 or more, since it sizes the tables; got -1."),
        (
            {"beyond": "clipped"},
            "beyond must be one of 'last', 'nothing', since far offsets share the last vector or have none; got "
            "'clipped'.",
        ),
        (
            {"rows": "reversed"},
            "rows must be one of 'key_minus_query', 'query_minus_key', since tables are written from behind to ahead "
            "or the other way round; got 'reversed'.",
        ),
    ],
)
def test_bounds_and_orders_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with raises_exactly(ValueError, message):
        shaw_of(**options)
