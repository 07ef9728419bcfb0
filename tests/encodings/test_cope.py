"""CoPE against the paper's formula: counts of visible keys, whatever their positions and wherever they lie."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from situs import CoPE, Positions
from situs.attention import reference, visibility
from situs.positions import PositionsLike, align, own_slots
from tests.encodings.score_situations import HEAD_DIM, HEADS, VARIANTS, Array, assert_gradients, situated, stirred
from tests.references import attention as formula
from tests.references import cope


def made(**options: Any) -> CoPE:
    return stirred(CoPE(**{"num_heads": HEADS, "head_dim": HEAD_DIM, "max_position": 6, **options}))


def by_paper(encoding: CoPE, q: Tensor, k: Tensor, visible: Array, order: Array, scale: float) -> Array:
    """The formula for one sequence, with keys sorted as they follow one another, then put back."""
    logits = scale * q.numpy() @ k.numpy().transpose(0, 2, 1)
    table = encoding.table.detach().double().numpy()
    sorted_term = cope.term(q.numpy(), logits[:, :, order], visible[:, order], table)
    term = np.empty_like(sorted_term)
    term[:, :, order] = sorted_term
    return scale * term if encoding.scaled else term


@settings(max_examples=200)
@given(
    st.data(),
    st.sampled_from(VARIANTS[CoPE]),
    st.sampled_from(["causal", "full", "window", "unknown"]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([None, 0.7]),
)
def test_the_term_is_the_papers(
    data: st.DataObject, options: dict[str, Any], view: str, kv_heads: int, scale: float | None
) -> None:
    encoding, situation = made(**options), situated(data)
    q, k = situation.contents(kv_heads=kv_heads)
    of_queries, of_keys = align(situation.query, situation.key, q.shape[2], k.shape[2])
    seen = visibility(of_queries, of_keys, causal=view == "causal", window=2 if view == "window" else None)
    seen = None if seen is None or view == "unknown" else seen[:, None]
    actual = encoding(q, k, situation.query, situation.key, scale=scale, visible=seen)
    assert actual.dtype == torch.float64
    slots = own_slots(of_keys) if of_keys.documents is None else torch.arange(k.shape[2])[None]
    shared = k.repeat_interleave(HEADS // kv_heads, 1)
    for row in range(situation.batch):
        visible = np.ones((q.shape[2], k.shape[2]), dtype=bool)
        if seen is not None:
            visible = seen.expand(situation.batch, -1, -1, -1)[row, 0].numpy()
        order = slots.expand(situation.batch, -1)[row].argsort().numpy()
        factor = HEAD_DIM**-0.5 if scale is None else scale
        expected = by_paper(encoding, q[row], shared[row], visible, order, factor)
        np.testing.assert_allclose(actual[row].detach().numpy(), expected, atol=1e-10, rtol=0)


@given(st.integers(1, 6), st.integers(0, 4), st.sampled_from(VARIANTS[CoPE]), st.sampled_from([1, 4]), st.booleans())
def test_attention_is_the_papers_with_and_without_a_cache(
    queries: int, earlier: int, options: dict[str, Any], kv_heads: int, causal: bool
) -> None:
    encoding, keys = made(**options), queries + earlier
    q = torch.randn(1, HEADS, queries, HEAD_DIM, dtype=torch.float64)
    k, v = torch.randn(2, 1, kv_heads, keys, HEAD_DIM, dtype=torch.float64)
    visible = np.ones((queries, keys), dtype=bool)
    if causal:
        visible = np.arange(keys)[None] <= np.arange(queries)[:, None] + earlier
    shared = k.repeat_interleave(HEADS // kv_heads, 1)[0]
    term = by_paper(encoding, q[0], shared, visible, np.arange(keys), 0.5)
    expected = formula.attention(q[0].numpy(), k[0].numpy(), v[0].numpy(), visible, 0.5, term)
    actual = reference(q, k, v, encoding=encoding, causal=causal)[0].detach().numpy()
    np.testing.assert_allclose(actual, expected, atol=1e-10, rtol=0)


def counting(max_position: int = 100) -> CoPE:
    """A CoPE whose term is the count itself, for queries that begin with a one, at scale 1."""
    encoding = CoPE(num_heads=1, head_dim=HEAD_DIM, max_position=max_position)
    with torch.no_grad():
        encoding.table[0, :, 0] = torch.arange(float(max_position))
    return encoding


def wanting(*likes: float) -> tuple[Tensor, Tensor]:
    """A query that begins with a one and keys that it likes as given: their gates are sigmoid(like)."""
    query = torch.tensor([1.0, 0, 0, 0], dtype=torch.float64)[None, None, None]
    key = torch.zeros(1, 1, len(likes), HEAD_DIM, dtype=torch.float64)
    key[0, 0, :, 0] = torch.tensor(likes)
    return query, key


def test_it_counts_the_keys_that_the_query_likes() -> None:
    q, k = wanting(50, -50, 50, 50, -50, 0)
    assert counting()(q, k, scale=1.0).flatten().tolist() == pytest.approx([3.5, 2.5, 2.5, 1.5, 0.5, 0.5])
    seen = torch.tensor([True, True, True, False, True, True])[None, None, None]
    counts = counting()(q, k, scale=1.0, visible=seen)
    assert counts.flatten().tolist() == pytest.approx([2.5, 1.5, 1.5, 0.5, 0.5, 0.5])


def test_counts_beyond_the_last_row_take_it() -> None:
    q, k = wanting(*[50] * 9)
    for rows in (1, 2, 4, 9, 10, 50):
        counts = counting(rows)(q, k, scale=1.0).flatten().tolist()
        assert counts == pytest.approx([min(count, rows - 1) for count in range(9, 0, -1)])


def test_a_count_lies_between_rows_in_proportion() -> None:
    encoding = made(num_heads=1)
    q, k = wanting(math.log(3), -50)  # a gate of 3/4
    first, second = (encoding.table[0, row, 0].double() for row in (0, 1))
    torch.testing.assert_close(encoding(q, k, scale=1.0)[0, 0, 0, 0], first / 4 + 3 * second / 4)


def test_the_gates_are_scaled_always_and_the_products_unless_told() -> None:
    scaled, bare = made(), made(scaled=False)
    bare.load_state_dict(scaled.state_dict())
    q, k = torch.randn(2, 1, HEADS, 5, HEAD_DIM, dtype=torch.float64)
    for scale in (None, 0.3):
        torch.testing.assert_close(
            scaled(q, k, scale=scale), (0.5 if scale is None else scale) * bare(q, k, scale=scale)
        )
    gates = cope.gate_logits(q[0].numpy(), k[0].numpy())
    term = cope.term(q[0].numpy(), gates, np.ones((5, 5), dtype=bool), scaled.table.detach().double().numpy())
    np.testing.assert_allclose(bare(q, k)[0].detach().numpy(), term, atol=1e-12)


def test_the_numbers_of_positions_do_not_matter() -> None:
    encoding = made()
    q, k, v = torch.randn(3, 2, HEADS, 6, HEAD_DIM, dtype=torch.float64)
    plain = reference(q, k, v, encoding=encoding, causal=True)
    elsewhere: list[PositionsLike] = [
        70_000,
        10_000_000,
        torch.tensor([5, 3, 9, 0, 0, 7]),
        torch.rand(2, 6),
        Positions.range(6).randomised(500, seed=1),
        Positions.range(6, start=torch.tensor([4, 900])),
        Positions.grid(2, 3),
    ]
    for places in elsewhere:
        told: dict[str, Any] = {"positions": places, "key_positions": places}
        torch.testing.assert_close(reference(q, k, v, encoding=encoding, causal=True, **told), plain)


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("layout", ["contiguous", "zigzag"])
@pytest.mark.parametrize("kind", ["range", "packed", "padded", "randomised"])
def test_queries_see_the_same_counts_whatever_order_keys_lie_in(world_size: int, layout: Any, kind: str) -> None:
    whole = {
        "range": Positions.range(12),
        "packed": Positions.packed([5, 7]),
        "padded": Positions.from_mask(torch.arange(12)[None] >= 2),
        "randomised": Positions.range(12).randomised(900, seed=2),
    }[kind]
    encoding = made()
    q, k, v = torch.randn(3, 1, HEADS, 12, HEAD_DIM, dtype=torch.float64)
    plain = reference(q, k, v, encoding=encoding, causal=True, positions=whole)
    shards = [whole.shard(rank, world_size, layout=layout) for rank in range(world_size)]
    memory = [Positions.range(12).shard(rank, world_size, layout=layout).ids for rank in range(world_size)]
    for held, mine in zip(shards, memory, strict=True):
        out = reference(q[:, :, mine[0]], k, v, encoding=encoding, causal=True, positions=held, key_positions=whole)
        torch.testing.assert_close(out, plain[:, :, mine[0]])


@pytest.mark.parametrize("rank", [0, 1])
def test_a_zigzag_shard_of_keys_is_counted_by_slots(rank: int) -> None:
    encoding = made()
    q, k = torch.randn(2, 1, HEADS, 8, HEAD_DIM, dtype=torch.float64)
    whole = Positions.range(8)
    shard = whole.shard(rank, 2, layout="zigzag")
    slots = shard.slots
    assert slots is not None
    held = torch.zeros(8, dtype=torch.bool)
    held[slots[0]] = True
    seen = visibility(whole, shard, causal=True)
    causal = visibility(whole, whole, causal=True)
    assert seen is not None
    assert causal is not None
    part = encoding(q, k[:, :, slots[0]], whole, shard, visible=seen[:, None])
    masked = encoding(q, k, whole, whole, visible=(causal & held)[:, None])
    torch.testing.assert_close(part, masked[..., slots[0]])
    turned_round = Positions.range(8).shard(0, 1, layout="zigzag")
    torch.testing.assert_close(encoding(q, k, whole, turned_round), encoding(q, k))


def test_keys_gathered_from_all_ranks_are_counted_by_slots() -> None:
    encoding = made()
    q, k, v = torch.randn(3, 1, HEADS, 12, HEAD_DIM, dtype=torch.float64)
    whole = Positions.range(12)
    gathered = whole.gathered(3, layout="zigzag")
    order = gathered.ids[0]
    assert order.tolist() == [0, 1, 10, 11, 2, 3, 8, 9, 4, 5, 6, 7]
    plain = reference(q, k, v, encoding=encoding, causal=True)
    told: dict[str, Any] = {"encoding": encoding, "causal": True, "positions": whole, "key_positions": gathered}
    torch.testing.assert_close(reference(q, k[:, :, order], v[:, :, order], **told), plain)
    told["positions"] = gathered
    torch.testing.assert_close(reference(q[:, :, order], k[:, :, order], v[:, :, order], **told), plain[:, :, order])


def test_a_mask_of_the_caller_is_what_is_counted() -> None:
    encoding = made()
    q, k, v = torch.randn(3, 1, HEADS, 5, HEAD_DIM, dtype=torch.float64)
    seen = torch.rand(1, 1, 5, 5) > 0.3
    seen[..., 0] = True
    scores = 0.5 * q @ k.mT + encoding(q, k, visible=seen)
    expected = scores.masked_fill(~seen, -torch.inf).softmax(-1) @ v
    torch.testing.assert_close(reference(q, k, v, encoding=encoding, mask=seen), expected)
    additive = torch.zeros(1, 1, 5, 5, dtype=torch.float64).masked_fill(~seen, -torch.inf)
    torch.testing.assert_close(reference(q, k, v, encoding=encoding, mask=additive), expected)


def test_it_starts_as_no_position_encoding() -> None:
    encoding = CoPE(num_heads=2, head_dim=8)
    assert encoding.table.shape == (1, 64, 8)
    assert not encoding.table.any()
    x = torch.randn(1, 2, 5, 8)
    assert torch.equal(reference(x, x, x, encoding=encoding), reference(x, x, x))
    drawn = CoPE(num_heads=4, head_dim=50, per_head=True, init_std=0.3).table.detach()
    assert drawn.shape == (4, 64, 50)
    assert float(drawn.std()) == pytest.approx(0.3, rel=0.03)


def test_gradients_through_sorted_slots_are_right() -> None:
    whole = Positions.range(8)
    places = whole[5:], whole.shard(0, 2, layout="zigzag")
    assert_gradients(CoPE(num_heads=2, head_dim=HEAD_DIM, max_position=3), places)
