"""Strided views: gradients by finite differences, blocks of any size, and no matrix of scores."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import situs
from situs import Positions, attend
from situs.attention.kernels.softmax import Scratch, merge_, partial, sees_any
from situs.attention.kernels.tiling import EVERY, Inputs, Tile, Tiling, meets_each_query_once
from situs.attention.kernels.toeplitz import of_keys, strided
from situs.attention.kernels.toeplitz.terms import LookedUpTerm
from situs.compiled.attending import calling
from tests.attention.attention_cases import Largest, build, gradients, parameters_of, tensors, use_small_blocks

LONG = 4096


def _scores(query: Tensor, key: Tensor, bias: Tensor, tiling: Tiling) -> Tensor:
    """The scores of one tile over all queries and keys, pair by pair."""
    (tile,) = tiling.tiles
    apart = torch.arange(tile.keys) - torch.arange(tile.queries)[:, None]
    scores = 0.3 * query @ key.transpose(-2, -1) + bias[..., tile.offset + apart - tiling.lowest]
    slots = tile.slot_offset + apart
    hidden = slots > 0 if tiling.causal else torch.zeros_like(slots, dtype=torch.bool)
    if tiling.window is not None:
        hidden = hidden | (slots.abs() >= tiling.window)
    return scores.masked_fill(hidden, -math.inf)


def merge(out: Tensor, logsumexp: Tensor, new_out: Tensor, new_logsumexp: Tensor) -> tuple[Tensor, Tensor]:
    """Join two parts in memory of their own."""
    out, logsumexp = out.clone(), logsumexp.clone()
    merge_(out, logsumexp, new_out, new_logsumexp)
    return out, logsumexp


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 3])
def test_a_vector_over_offsets_is_a_bias_of_pairs(
    causal: bool, window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_small_blocks(monkeypatch)
    q, k, v = tensors(9, 11, value_dim=5)
    tiling = Tiling([Tile(EVERY, 0, 9, 0, 11, -4, -2)], causal, window)
    for shape in ((1, 1, 19), (1, 4, 19), (2, 4, 19), (2, 1, 19)):
        bias = torch.randn(shape, dtype=torch.float64)
        expected = _scores(q, k, bias, tiling).softmax(-1).nan_to_num(0) @ v
        out, _ = strided.forward(q, k, v, bias, tiling.lowest, 0.3, tiling)
        torch.testing.assert_close(out, expected, atol=1e-10, rtol=1e-10)


CASES: dict[str, dict[str, Any]] = {
    "a range": {"positions": Positions.range(6)},
    "causal": {"causal": True, "positions": Positions.range(6)},
    "a causal window": {"causal": True, "window": 2, "positions": Positions.range(6)},
    "a window": {"window": 3, "positions": Positions.range(6, start=50)},
    "packed": {"causal": True, "positions": Positions.packed([4, 2])},
    "padded": {
        "causal": True,
        "positions": Positions.from_mask(torch.tensor([[0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])),
    },
    "a zigzag shard": {
        "causal": True,
        "positions": Positions.range(12).shard(0, 2, layout="zigzag"),
        "key_positions": Positions.range(12).shard(0, 2, layout="zigzag"),
    },
}


@pytest.mark.thin(4)
@pytest.mark.once
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kv_heads", [2, 1])
def test_gradients_agree_with_finite_differences(case: str, kv_heads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_blocks(monkeypatch)
    t5 = situs.T5Bias(num_heads=2, num_buckets=8, max_distance=6, init_std=1.0).double()
    (table,) = parameters_of([t5])
    qkv = tensors(6, 6, heads=2, kv_heads=kv_heads, width=3)

    def run(query: Tensor, key: Tensor, value: Tensor, rows: Tensor) -> Tensor:
        call = {"encoding": t5, "impl": "toeplitz", **CASES[case]}
        name = next(iter(dict(t5.named_parameters())))
        result: Tensor = torch.func.functional_call(
            _Attending(t5), {f"encoding.{name}": rows}, (query, key, value, call)
        )
        return result

    assert torch.autograd.gradcheck(run, (*qkv, table))


class _Attending(torch.nn.Module):
    def __init__(self, encoding: torch.nn.Module) -> None:
        super().__init__()
        self.encoding = encoding

    def forward(self, query: Tensor, key: Tensor, value: Tensor, call: dict[str, Any]) -> Tensor:
        return attend(query, key, value, **call)


def test_biases_that_learn_nothing_have_the_same_gradients_as_those_that_do(monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_blocks(monkeypatch)
    t5, qkv = situs.T5Bias(num_heads=4, init_std=1.0).double(), tensors(9, 9)
    weights, found = torch.randn_like(qkv[0]), []
    for learned in (True, False):
        t5.requires_grad_(learned)
        found.append(gradients(attend(*qkv, encoding=t5, causal=True, window=5), weights, qkv))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("name", ["alibi", "t5", "rotary"])
def test_the_size_of_blocks_changes_rounding_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    encoding, qkv = build(name, torch.float32), tensors(70, 70, kv_heads=2, dtype=torch.float32)
    weights, found = torch.randn_like(qkv[0]), []
    for size in (1, 7, 64, 256):
        for constant in ("QUERIES", "MANY_QUERIES", "GRADIENT_QUERIES"):
            monkeypatch.setattr(f"situs.attention.kernels.toeplitz.strided.{constant}", size)
        out = attend(*qkv, encoding=encoding, causal=True, window=40, impl="toeplitz")
        found.append([out, *gradients(out, weights, (*qkv, *parameters_of(encoding)))])
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            torch.testing.assert_close(one, other, atol=3e-6 * max(1.0, float(one.detach().abs().max())), rtol=0.0)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", ["alibi", "t5", "packed rotary"])
def test_nothing_of_the_size_of_all_scores_exists(name: str, causal: bool) -> None:
    places = Positions.range(LONG)
    encoding: situs.Encoding = situs.ALiBi(num_heads=1) if name == "alibi" else situs.T5Bias(num_heads=1)
    if name == "packed rotary":
        encoding, places = situs.Rotary(head_dim=16), Positions.packed([1000, LONG - 1000])
    qkv = tensors(LONG, LONG, heads=1, kv_heads=1, width=16, batch=1, dtype=torch.float32)
    with Largest() as forward:
        out = attend(*qkv, encoding=encoding, causal=causal, positions=places, impl="auto")
    with Largest() as backward:
        out.sum().backward()
    assert 0 < forward.bytes < 4 * LONG * LONG / 16
    assert 0 < backward.bytes < 4 * LONG * LONG / 8


def test_padding_between_keys_reaches_no_gradient_of_vectors_that_keys_meet() -> None:
    mask = torch.tensor([[1, 1, 1, 0, 1, 1, 0, 0, 1, 1, 1, 1]], dtype=torch.bool)
    places, deberta = Positions.from_mask(mask), build("deberta")
    qkv, weights, found = tensors(12, 12, batch=1), torch.randn(1, 4, 12, 8, dtype=torch.float64), []
    for padding in (0.0, torch.nan):
        spoilt = [each.detach().masked_fill(~mask[:, None, :, None], padding).requires_grad_() for each in qkv]
        out = attend(*spoilt, encoding=deberta, positions=places, window=3, impl="toeplitz")
        found.append(gradients(out, weights, (*spoilt, *parameters_of(deberta))))
    for clean, other in zip(*found, strict=True):
        torch.testing.assert_close(other, clean, atol=1e-12, rtol=1e-12)


def test_a_tile_that_shares_its_keys_with_no_other_holds_products_of_few_of_them() -> None:
    scratch, keys = Scratch(torch.float32, torch.device("cpu")), 4 * of_keys.KEYS
    tile = Tile(slice(0, 1), 0, 2, 0, keys, 0, 0, slice(0, 1))
    q, k = torch.randn(1, 1, 2, 8), torch.randn(1, 1, keys, 8)
    products = of_keys.ProductsOfKeys(
        torch.randn(1, keys + 1, 8), keys - 1, None, [tile], Inputs(q, k, k, q, k), scratch
    )
    products.add(tile, torch.zeros(1, 1, 2, keys), 1.0)
    products.take(tile, torch.ones(1, 1, 2, keys), torch.zeros_like(k), None, 1.0)
    assert sum(each.numel() for each in scratch.held.values()) == 2 * of_keys.KEYS * (of_keys.KEYS + 1)


@pytest.mark.parametrize(
    ("call", "sweeps"),
    [
        ({}, [4]),
        ({"causal": True}, [4]),
        ({"window": 9}, [4]),
        ({"window": 2}, [1, 1, 1, 1]),
        ({"positions": Positions.packed([4, 8, 4])}, [1, 2, 1]),
    ],
)
def test_blocks_that_share_less_than_half_of_their_keys_are_no_sweep(
    call: dict[str, Any], sweeps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("situs.attention.kernels.loop.Term.queries", 4)
    found: list[int] = []
    begin = of_keys.ProductsOfKeys.__init__

    def counted(self: Any, vectors: Tensor, highest: int, span: int | None, sweep: Any, *others: Any) -> None:
        found.append(len(sweep))
        begin(self, vectors, highest, span, sweep, *others)

    monkeypatch.setattr(of_keys.ProductsOfKeys, "__init__", counted)
    qkv = [each.detach() for each in tensors(16, 16, batch=1)]
    attend(*qkv, encoding=build("deberta"), impl="toeplitz", **call)
    assert found == sweeps


@pytest.mark.parametrize("encoding", [None, "t5", "deberta"])
def test_short_documents_are_tiles_where_keys_meet_vectors(
    encoding: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up = []

    def told(*given: Any) -> Any:
        looked_up.append(encoding)
        return LookedUpTerm(*given)

    monkeypatch.setattr("situs.attention.kernels.toeplitz.op.LookedUpTerm", told)
    qkv = [each.detach() for each in tensors(1024, 1024, batch=1, dtype=torch.float32)]
    acting = None if encoding is None else build(encoding, torch.float32)
    attend(*qkv, encoding=acting, positions=Positions.packed([8] * 128), impl="toeplitz")
    assert bool(looked_up) == (encoding != "deberta")


@pytest.mark.parametrize("queries", [1, 2, 64, 255])
def test_sums_over_few_queries_are_formed_by_rows(queries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found, over_queries = set(), strided._over_queries

    def told(weights: Tensor, x: Tensor, by_channel: bool) -> Tensor:
        found.add(by_channel)
        return over_queries(weights, x, by_channel)

    monkeypatch.setattr(strided, "_over_queries", told)
    t5 = situs.T5Bias(num_heads=4).double()
    attend(*tensors(queries, 300, batch=1), encoding=t5, impl="toeplitz").sum().backward()
    assert found == {False}


def test_sums_over_queries_are_the_same_by_channel_and_by_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    t5, qkv = situs.T5Bias(num_heads=4, init_std=1.0).double(), tensors(9, 11, kv_heads=2, value_dim=5)
    weights, found = torch.randn(2, 4, 9, 5, dtype=torch.float64), []
    for least in (9, 10):
        monkeypatch.setattr(strided, "BY_CHANNEL", least)
        out = attend(*qkv, encoding=t5, causal=True, impl="toeplitz")
        found.append(gradients(out, weights, (*qkv, t5.table)))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("value_dim", [8, 5])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_parts_over_different_keys_make_the_whole(value_dim: int, dtype: torch.dtype) -> None:
    q, k, v = tensors(5, 9, value_dim=value_dim, dtype=dtype)
    mask = torch.randn(2, 1, 5, 9, dtype=torch.float64).to(torch.float64 if dtype == torch.float64 else torch.float32)
    whole, logsumexp = partial(q, k, v, mask, 0.4)
    first = partial(q, k[:, :, :4], v[:, :, :4], mask[..., :4], 0.4)
    second = partial(q, k[:, :, 4:], v[:, :, 4:], mask[..., 4:], 0.4)
    begin = torch.zeros_like(whole), torch.full_like(logsumexp, -math.inf)
    merged, total = merge(*merge(*begin, *first), *second)
    tolerance = {torch.float64: 1e-12, torch.float32: 2e-6, torch.bfloat16: 3e-2}[dtype]
    torch.testing.assert_close(merged.double(), whole.double(), atol=tolerance, rtol=0.0)
    torch.testing.assert_close(total, logsumexp, atol=max(1e-12, tolerance), rtol=0.0)


@pytest.mark.parametrize("value_dim", [8, 5])
def test_a_query_that_sees_nothing_gives_zeros_and_has_no_weight_in_a_merge(value_dim: int) -> None:
    q, k, v = tensors(4, 4, value_dim=value_dim)
    mask = torch.zeros(1, 1, 4, 4, dtype=torch.float64)
    mask[:, :, 1] = -math.inf
    out, logsumexp = partial(q, k, v, mask, 0.4)
    assert bool((out[:, :, 1] == 0).all())
    assert bool((logsumexp[:, :, 1] == 0).all())
    nothing = out, logsumexp.masked_fill((mask == -math.inf).all(-1), -math.inf)
    whole = partial(q, k, v, None, 0.4)
    merged, total = merge(*nothing, *whole)
    torch.testing.assert_close(merged[:, :, 1], whole[0][:, :, 1])
    torch.testing.assert_close(total[:, :, 1], whole[1][:, :, 1])
    twice, never = merge(*nothing, *nothing)
    assert bool((twice[:, :, 1] == 0).all())
    assert bool((never[:, :, 1] == -math.inf).all())


def test_which_queries_see_a_key_is_told_by_the_bias_over_offsets() -> None:
    for queries, keys in ((1, 1), (3, 5), (5, 3), (1, 4), (4, 1)):
        bias = torch.where(torch.rand(2, queries + keys - 1) < 0.6, -math.inf, 0.0)
        pairs = bias.unfold(-1, keys, 1).flip(-2)
        assert torch.equal(sees_any(bias, keys), (pairs != -math.inf).any(-1))


def test_queries_of_a_zigzag_shard_meet_their_keys_in_several_tiles() -> None:
    one, other = Tile(EVERY, 0, 4, 0, 4, 0, 0), Tile(EVERY, 2, 2, 4, 4, 0, 0)
    assert meets_each_query_once([one])
    assert not meets_each_query_once([one, other])
    rows = Tile(slice(0, 1), 0, 4, 0, 4, 0, 0), Tile(slice(1, 2), 2, 2, 4, 4, 0, 0)
    assert meets_each_query_once(rows)


def test_one_number_of_a_mask_stands_for_all_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calling, "LEAST_WORK", 0)
    q, k, v = (torch.randn(2, 4, 40, 32) for _ in range(3))
    for shape in ((1, 1, 1, 1), (1, 4, 1, 1)):
        torch.testing.assert_close(attend(q, k, v, mask=torch.randn(shape)), attend(q, k, v), atol=1e-5, rtol=1e-5)
