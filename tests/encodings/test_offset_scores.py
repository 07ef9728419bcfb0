"""What content-based encodings share: three programs that agree, positions of every kind, values by offset, a scale."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from situs import OffsetScore, OffsetVectors, Positions, ValueEncoding
from situs.attention import reference
from situs.encodings.score import _by_look_up, _by_pair, _by_slant
from situs.functional.heads import share_heads
from situs.functional.offsets import range_offsets
from situs.positions import PositionsLike
from tests.encodings.score_situations import HEAD_DIM, HEADS, Array, Situation, assert_follows, situated
from tests.raising import raises_exactly

PARTS = ("for_query", "for_key", "alone", "for_every_key")


class Waves(OffsetScore, ValueEncoding):
    """Every part an offset can have, as smooth functions of it; notes how many offsets it was asked for."""

    place = "score and value"
    acts_on_values = True

    def __init__(self, parts: Sequence[str] = PARTS, span: int | None = None, shared: bool = False) -> None:
        super().__init__()
        self.num_heads, self.head_dim, self.parts, self.asked = HEADS, HEAD_DIM, parts, list[int]()
        self.span = span
        self.rates = torch.randn(3, 1 if shared else HEADS, 1, HEAD_DIM, dtype=torch.float64)
        self.every = torch.randn(HEADS, HEAD_DIM, dtype=torch.float64)

    def wave(self, which: int, offsets: Tensor, dtype: torch.dtype) -> Tensor:
        offsets = offsets if self.span is None else offsets.clamp(-self.span, self.span)
        return torch.sin(offsets.to(torch.float64)[:, None] * self.rates[which] + which).to(dtype)

    def vectors(self, offsets: Tensor, dtype: torch.dtype) -> OffsetVectors:
        self.asked.append(len(offsets))
        alone = self.wave(2, offsets, dtype).sum(-1).expand(HEADS, -1)
        whole = {
            "for_query": self.wave(0, offsets, dtype),
            "for_key": self.wave(1, offsets, dtype),
            "alone": alone,
            "for_every_key": self.every.to(dtype),
        }
        return OffsetVectors(**{part: whole[part] for part in self.parts})

    def value_vectors(self, offsets: Tensor, dtype: torch.dtype) -> Tensor:
        self.asked.append(len(offsets))
        return self.wave(2, offsets, dtype)

    def by_loops(self, q: Array, k: Array, query_ids: Array, key_ids: Array) -> Array:
        """The formula, pair by pair."""
        term = np.zeros((HEADS, len(query_ids), len(key_ids)))
        for i, j in np.ndindex(term.shape[1:]):
            offset = torch.tensor([key_ids[j] - query_ids[i]])
            a, b, c = (self.wave(which, offset, torch.float64)[:, 0].expand(HEADS, -1).numpy() for which in range(3))
            if "for_query" in self.parts:
                term[:, i, j] += (q[:, i] * a).sum(-1)
            if "for_key" in self.parts:
                term[:, i, j] += (k[:, j] * b).sum(-1)
            if "alone" in self.parts:
                term[:, i, j] += c.sum(-1)
            if "for_every_key" in self.parts:
                term[:, i, j] += (k[:, j] * self.every.numpy()).sum(-1)
        return term


some_parts = st.lists(st.sampled_from(PARTS), unique=True)


@settings(max_examples=150)
@given(some_parts, st.booleans(), st.integers(1, 2), st.integers(1, 6), st.integers(1, 6), st.integers(-9, 9))
def test_slant_look_up_and_pairs_give_one_term(
    parts: list[str], shared: bool, batch: int, queries: int, keys: int, start: int
) -> None:
    waves = Waves(parts, shared=shared)
    q, k = (torch.randn(batch, HEADS, length, HEAD_DIM, dtype=torch.float64) for length in (queries, keys))
    at_query, at_key = torch.arange(start, start + queries)[None], torch.arange(keys)[None]
    offsets = at_key[:, None, :] - at_query[:, :, None]
    far = int(offsets.abs().max())
    slant = _by_slant(waves.vectors(range_offsets(start, queries, 0, keys), q.dtype), q, k)
    span = waves.vectors(torch.arange(-far, far + 1), q.dtype)
    look_up = _by_look_up(span, q, k, offsets[:, None] + far)
    pair = _by_pair(waves.vectors(offsets.flatten(), q.dtype), q, k, offsets.shape)
    for row in range(batch):
        expected = waves.by_loops(q[row].numpy(), k[row].numpy(), at_query[0].numpy(), at_key[0].numpy())
        for program in (slant, look_up, pair):
            assert program.shape == (batch, HEADS, queries, keys)
            np.testing.assert_allclose(program[row].numpy(), expected, atol=1e-12, rtol=0)


@settings(max_examples=150)
@given(st.data(), some_parts, st.sampled_from([None, 3]), st.sampled_from([1, 2, 4]), st.sampled_from([None, 0.7]))
def test_the_term_is_the_formula_wherever_queries_and_keys_stand(
    data: st.DataObject, parts: list[str], span: int | None, kv_heads: int, scale: float | None
) -> None:
    waves = Waves(parts, span=span, shared=kv_heads == 1)
    assert_follows(waves, situated(data), waves.by_loops, kv_heads=kv_heads, scale=scale)


@settings(max_examples=150)
@given(st.data(), st.sampled_from([None, 2]))
def test_ranges_whole_ids_and_reals_of_the_same_positions_agree(data: st.DataObject, span: int | None) -> None:
    waves, situation = Waves(span=span), situated(data)
    q, k = situation.contents()
    told = waves(q, k, situation.query, situation.key)
    whole = waves(q, k, situation.query_ids, situation.key_ids)
    real = waves(q, k, situation.query_ids.double(), situation.key_ids.double())
    torch.testing.assert_close(told, whole, atol=1e-9, rtol=0)
    torch.testing.assert_close(told, real, atol=1e-9, rtol=0)


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=6), st.lists(st.floats(-50, 50), min_size=1, max_size=6))
def test_reals_meet_the_formula_where_a_method_takes_them(at_query: list[float], at_key: list[float]) -> None:
    waves = Waves()
    told = [torch.tensor([ids], dtype=torch.float64) for ids in (at_query, at_key)]
    assert_follows(waves, Situation(told[0], told[1], told[0], told[1], 1), waves.by_loops)


OFFSETS_ASKED: dict[str, tuple[PositionsLike, PositionsLike, int | None, int]] = {
    "ranges: each offset once": (None, None, None, 15),
    "ranges: the span does not matter": (70_000, 3, 2, 15),
    "a shard: as many as its bound": (Positions.range(16).shard(0, 2, layout="zigzag"), None, None, 31),
    "padded: as many as its bound": (Positions.from_mask(torch.ones(1, 8).bool()), None, None, 15),
    "bare ids near one another": (torch.tensor([5, 9, 3, 4, 4, 5, 6, 7]), None, None, 13),
    "bare ids far apart: each pair": (torch.tensor([5, 9, 3, 4, 4, 5, 6, 900]), None, None, 64),
    "bare ids far apart: no more than the span": (torch.tensor([5, 9, 3, 4, 4, 5, 6, 900]), None, 4, 9),
    "randomised far apart: each pair": (Positions.range(8).randomised(5000, seed=1), None, None, 64),
    "reals: each pair": (torch.arange(8.0), None, None, 64),
    "reals: each pair, whatever the span": (torch.arange(8.0), None, 4, 64),
}


@pytest.mark.parametrize("kind", OFFSETS_ASKED)
def test_no_more_offsets_are_computed_than_needed(kind: str) -> None:
    at, keys_at, span, asked = OFFSETS_ASKED[kind]
    waves = Waves(span=span)
    q, k = torch.randn(2, 1, HEADS, 8, HEAD_DIM)
    waves(q, k, at, keys_at)
    assert waves.asked == [asked]


@pytest.mark.parametrize("span", [None, 3])
def test_positions_on_a_device_are_not_read(span: int | None) -> None:
    waves = Waves(span=span)
    waves.rates, waves.every = waves.rates.to("meta"), waves.every.to("meta")
    q, k = torch.empty(2, 2, HEADS, 5, HEAD_DIM, device="meta")
    ids = torch.empty(2, 5, dtype=torch.int64, device="meta")
    assert waves(q, k, ids).shape == (2, HEADS, 5, 5)
    assert waves(q, k, Positions.from_mask(ids > 0)).shape == (2, HEADS, 5, 5)
    assert waves(q, k).shape == (2, HEADS, 5, 5)


def test_no_part_at_all_is_a_term_of_zeros() -> None:
    q, k = torch.randn(1, HEADS, 3, HEAD_DIM), torch.randn(1, 2, 5, HEAD_DIM)
    for ids in (None, torch.tensor([1, 5, 2])):
        term = Waves(())(q, k, ids, None if ids is None else torch.arange(5))
        assert torch.equal(term, torch.zeros(1, HEADS, 3, 5))


def test_the_term_is_formed_in_float32_or_wider() -> None:
    waves = Waves()
    q, k = torch.randn(2, 1, HEADS, 3, HEAD_DIM)
    for given_in, formed_in in (
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ):
        assert waves(q.to(given_in), k.to(given_in)).dtype == formed_in


def test_the_scale_multiplies_the_term_and_is_the_methods_own_if_left_out() -> None:
    waves = Waves()
    q, k = torch.randn(2, 1, HEADS, 5, HEAD_DIM, dtype=torch.float64)
    once = waves(q, k, scale=1.0)
    torch.testing.assert_close(waves(q, k), once / math.sqrt(HEAD_DIM))
    torch.testing.assert_close(waves(q, k, scale=-0.3), -0.3 * once)
    waves.softmax_scale, waves.softmax_factor = 0.2, 3.0
    torch.testing.assert_close(waves(q, k), 0.6 * once)


def test_visibility_is_not_the_terms_business() -> None:
    waves = Waves()
    q, k = torch.randn(2, 1, HEADS, 5, HEAD_DIM)
    assert torch.equal(waves(q, k, visible=torch.zeros(1, 1, 5, 5, dtype=torch.bool)), waves(q, k))


@pytest.mark.parametrize("lengths", [(0, 5), (0, 0), (5, 0)], ids=["no queries", "neither", "no keys"])
def test_empty_chunks_of_a_range_have_an_empty_term(lengths: tuple[int, int]) -> None:
    queries, keys = lengths
    q, k = (torch.randn(2, HEADS, length, HEAD_DIM) for length in lengths)
    term = Waves()(q, k, Positions.range(5)[5 - queries :], Positions.range(5)[:keys])
    assert term.shape == (2, HEADS, queries, keys)


@pytest.mark.parametrize("lengths", [(0, 5), (0, 0), (5, 0)], ids=["no queries", "neither", "no keys"])
@pytest.mark.parametrize("span", [None, 3])
def test_empty_chunks_of_bare_ids_have_an_empty_term(lengths: tuple[int, int], span: int | None) -> None:
    q, k = (torch.randn(2, HEADS, length, HEAD_DIM) for length in lengths)
    at, keys_at = (torch.arange(length)[None] * 7 for length in lengths)
    assert Waves(span=span)(q, k, at, keys_at).shape == (2, HEADS, *lengths)


def gathered_by_loops(waves: Waves, weights: Array, query_ids: Array, key_ids: Array) -> Array:
    """The definition of what values gain, pair by pair."""
    out = np.zeros((*weights.shape[:2], HEAD_DIM))
    for i, j in np.ndindex(weights.shape[1:]):
        offset = torch.tensor([key_ids[j] - query_ids[i]])
        vector = waves.wave(2, offset, torch.float64)[:, 0].expand(HEADS, -1).numpy()
        out[:, i] += weights[:, i, j, None] * vector
    return out


@settings(max_examples=150)
@given(st.data(), st.booleans())
def test_values_gain_each_offsets_vector_by_its_weight(data: st.DataObject, shared: bool) -> None:
    waves, situation = Waves(span=3, shared=shared), situated(data)
    shape = situation.batch, HEADS, situation.query_ids.shape[1], situation.key_ids.shape[1]
    weights = torch.rand(shape, dtype=torch.float64)
    for row in range(situation.batch):
        weights[row, :, torch.from_numpy(~situation.compared(row))] = 0
    actual = waves.gathered(weights, situation.query, situation.key)
    assert actual.shape == (*shape[:3], HEAD_DIM)
    for row in range(situation.batch):
        expected = gathered_by_loops(waves, weights[row].numpy(), *situation.row(row))
        np.testing.assert_allclose(actual[row].numpy(), expected, atol=1e-12, rtol=0)


def test_values_of_ranges_need_no_more_vectors_than_offsets() -> None:
    waves = Waves(span=3)
    weights = torch.rand(1, HEADS, 4, 6)
    waves.gathered(weights)
    waves.gathered(weights, torch.tensor([2, 3, 4, 5]), 0)
    assert waves.asked == [9, 7]


def test_attention_adds_the_vectors_of_the_values_by_the_softmaxed_weights() -> None:
    waves = Waves((), span=3)
    q, k, v = torch.randn(3, 2, HEADS, 5, HEAD_DIM, dtype=torch.float64)
    seen = torch.ones(5, 5, dtype=torch.bool).tril()
    weights = (q @ k.mT / 2).masked_fill(~seen, -torch.inf).softmax(-1)
    actual = reference(q, k, v, encoding=waves, causal=True)
    torch.testing.assert_close(actual, weights @ v + waves.gathered(weights))


def test_several_query_heads_share_a_key_head_in_blocks() -> None:
    k = torch.randn(2, 3, 5, 4)
    assert share_heads(k, 3) is k
    shared = share_heads(k, 6)
    assert all(torch.equal(shared[:, head], k[:, head // 2]) for head in range(6))
    assert torch.equal(share_heads(k[:, :1], 4), k[:, :1].expand(-1, 4, -1, -1))
    with raises_exactly(
        ValueError, "query heads must be a multiple of key heads, since each key head serves as many; got 4 and 3."
    ):
        share_heads(k, 4)
    with raises_exactly(
        ValueError, "query heads must be a multiple of key heads, since each key head serves as many; got 2 and 4."
    ):
        share_heads(torch.randn(1, 4, 2, 2), 2)


HEAD_ERRORS: dict[str, tuple[tuple[int, ...], str]] = {
    "heads": ((1, 3, 5, 4), "(1, 3, 5, 4)"),
    "width": ((1, 4, 5, 6), "(1, 4, 5, 6)"),
    "no batch": ((4, 5, 4), "(4, 5, 4)"),
}


@pytest.mark.parametrize("kind", HEAD_ERRORS)
def test_queries_of_another_shape_are_refused(kind: str) -> None:
    shape, shown = HEAD_ERRORS[kind]
    with raises_exactly(
        ValueError,
        f"query must have shape (batch, 4, sequence, 4), since Waves was made for 4 heads of 4; got shape {shown}.",
    ):
        Waves()(torch.zeros(shape), torch.zeros(shape))


def test_key_heads_that_do_not_divide_are_refused() -> None:
    with raises_exactly(
        ValueError, "query heads must be a multiple of key heads, since each key head serves as many; got 4 and 3."
    ):
        Waves()(torch.zeros(1, 4, 5, 4), torch.zeros(1, 3, 5, 4))


def test_positions_of_several_axes_or_another_length_are_refused() -> None:
    x = torch.zeros(1, 4, 6, 4)
    with raises_exactly(
        ValueError,
        "positions must have 1 coordinate each, since this Waves encodes that many; got 2 in "
        "Positions(grid, 2 x 3, length 6, axes 2).",
    ):
        Waves()(x, x, Positions.grid(2, 3))
    with raises_exactly(
        ValueError,
        "query_positions must have one for each of the 6 tokens, since each token stands somewhere; got "
        "Positions(range 0..4, length 5). Slice them with query_positions[first:last], or pass those of this call "
        "only.",
    ):
        Waves()(x, x, Positions.range(5))
    with raises_exactly(
        ValueError,
        "key_positions must be given, since 6 keys cannot be placed from the positions of 2 queries; got "
        "Positions(explicit, length 2) for the queries.",
    ):
        Waves()(x[:, :, :2], x, torch.tensor([3, 4]))


def test_a_method_of_ones_own_needs_its_vectors_only() -> None:
    class Slope(OffsetScore):
        num_heads, head_dim = 2, 4

        def vectors(self, offsets: Tensor, dtype: torch.dtype) -> OffsetVectors:
            return OffsetVectors(for_query=offsets.to(dtype)[None, :, None].expand(1, -1, 4))

    q, k = torch.randn(2, 1, 2, 5, 4)
    offsets = torch.arange(5)[None] - torch.arange(5)[:, None]
    torch.testing.assert_close(Slope()(q, k), 0.5 * q.sum(-1, keepdim=True) * offsets)
    assert Slope().place == "score"
    with pytest.raises(TypeError, match="abstract"):
        OffsetScore()  # type: ignore[abstract]
