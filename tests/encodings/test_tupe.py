"""TUPE against the paper's formula: positions that meet positions, and [CLS] apart from order."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from situs import Positions, Tupe
from situs.attention import reference, visibility
from situs.positions import PositionsLike, align
from tests.encodings.score_situations import (
    HEAD_DIM,
    HEADS,
    Array,
    ranges_and_bare_ids,
    situated,
    stirred,
)
from tests.raising import raises_exactly
from tests.references import attention as formula
from tests.references import t5, tupe

DIM, LENGTH = 6, 40
VARIANTS: list[dict[str, Any]] = [
    {},
    {"untie_cls": False},
    {"relative_buckets": 8},
    {"untie_cls": False, "relative_buckets": 32},
]
all_variants = pytest.mark.parametrize("options", VARIANTS, ids=str)


def made(**options: Any) -> Tupe:
    return stirred(Tupe(**{"dim": DIM, "num_heads": HEADS, "head_dim": HEAD_DIM, "max_length": LENGTH, **options}))


def array(parameter: torch.Tensor) -> Array:
    return parameter.detach().double().numpy()


def by_paper(encoding: Tupe, query_ids: Array, key_ids: Array) -> Array:
    """The formula at the method's own scale, though the numbers of [CLS] and of offsets are not scaled."""
    rows = tupe.layer_norm(array(encoding.table), array(encoding.norm.weight), array(encoding.norm.bias))
    query, key, heads = encoding.query_projection, encoding.key_projection, encoding.num_heads
    own = tupe.scale(encoding.head_dim)
    to_cls = None if encoding.to_cls is None else array(encoding.to_cls)
    options: dict[str, Any] = {"bias_Q": array(query.bias), "bias_K": array(key.bias)}
    given = query_ids, key_ids, rows, array(query.weight), array(key.weight), heads
    if encoding.relative is None:
        if to_cls is not None:
            options.update(theta_1=np.zeros(heads), theta_2=to_cls / own)
        return own * tupe.term(*given, **options)
    added = own * tupe.term(*given, **options)
    added = added + t5.bias(array(encoding.relative), query_ids, key_ids, 128, True)
    if to_cls is not None:
        added = np.where(key_ids == 0, to_cls[:, None, None], added)
        added = np.where(query_ids[:, None] == 0, 0, added)
    return added


@settings(max_examples=150)
@given(st.data(), st.sampled_from(VARIANTS))
def test_the_bias_is_the_papers(data: st.DataObject, options: dict[str, Any]) -> None:
    encoding, situation = made(**options), situated(data, lowest=0, past=LENGTH)
    queries, keys = situation.query_ids.shape[1], situation.key_ids.shape[1]
    of_queries, of_keys = align(situation.query, situation.key, queries, keys)
    bias = encoding(of_queries, of_keys, dtype=torch.float64)
    assert bias.dtype == torch.float64
    assert bias.shape == (max(of_queries.rows, of_keys.rows), HEADS, queries, keys)
    actual = bias.expand(situation.batch, -1, -1, -1).detach().numpy()
    for row in range(situation.batch):
        pairs, expected = situation.compared(row), by_paper(encoding, *situation.row(row))
        np.testing.assert_allclose(actual[row][:, pairs], expected[:, pairs], atol=1e-9, rtol=0)


@settings(max_examples=150)
@given(
    st.data(),
    st.sampled_from(VARIANTS),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([None, 0.7, 0.0]),
    st.booleans(),
)
def test_attention_is_the_papers_and_the_bias_is_the_same_at_any_scale(
    data: st.DataObject, options: dict[str, Any], kv_heads: int, scale: float | None, causal: bool
) -> None:
    encoding, situation = made(**options), situated(data, lowest=0, past=LENGTH)
    q, k = situation.contents(kv_heads=kv_heads)
    v = torch.randn_like(k)
    told: dict[str, Any] = {"positions": situation.query, "key_positions": situation.key, "causal": causal}
    actual = reference(q, k, v, encoding=encoding, scale=scale, **told).detach().numpy()
    seen = visibility(*align(situation.query, situation.key, q.shape[2], k.shape[2]), causal=causal)
    every = torch.ones(1, q.shape[2], k.shape[2], dtype=torch.bool)
    visible = (every if seen is None else seen).expand(situation.batch, -1, -1).numpy()
    for row in range(situation.batch):
        bias = by_paper(encoding, *situation.row(row))
        content = q[row].numpy(), k[row].numpy(), v[row].numpy()
        used = tupe.scale(HEAD_DIM) if scale is None else scale
        expected = formula.attention(*content, visible[row], used, bias)
        real = situation.compared(row).any(-1)
        np.testing.assert_allclose(actual[row][:, real], expected[:, real], atol=1e-9, rtol=0)


@all_variants
def test_ranges_and_bare_ids_agree(options: dict[str, Any]) -> None:
    encoding = made(**options)
    for start in (0, 3, LENGTH - 7):
        bias = encoding(Positions.range(7, start=start), dtype=torch.float64)
        ids = torch.arange(start, start + 7)
        torch.testing.assert_close(encoding(ids, dtype=torch.float64), bias)
        torch.testing.assert_close(encoding(ids[None], ids, dtype=torch.float64), bias)


def test_it_halves_the_variance_of_each_of_two_products() -> None:
    encoding = Tupe(dim=DIM, num_heads=2, head_dim=8)
    assert encoding.softmax_scale == 1 / math.sqrt(16) == tupe.scale(8)
    assert encoding.describe()["softmax_scale"] == 0.25
    q, k, v = torch.randn(3, 1, 2, 5, 8, dtype=torch.float64)
    bias = encoding(Positions.range(5), dtype=torch.float64)
    expected = (0.25 * q @ k.mT + bias).softmax(-1) @ v
    torch.testing.assert_close(reference(q, k, v, encoding=encoding), expected)


@pytest.mark.parametrize("relative_buckets", [None, 8])
@ranges_and_bare_ids
def test_the_row_of_the_cls_query_is_constant_so_that_softmax_sees_content_alone(
    relative_buckets: int | None, places: tuple[PositionsLike, PositionsLike]
) -> None:
    encoding = made(num_heads=2, relative_buckets=relative_buckets)
    q, (k, v) = torch.randn(1, 2, 3, HEAD_DIM).double(), torch.randn(2, 1, 2, 4, HEAD_DIM).double()
    at, keys_at = (torch.tensor([0, 1, 2]), torch.arange(4)) if places[0] is None else places
    assert isinstance(at, torch.Tensor)
    cls = int((at.flatten() == 0).nonzero()[0])
    assert isinstance(keys_at, torch.Tensor)
    for dtype in (torch.float32, torch.float64):
        assert torch.equal(encoding(at, keys_at, dtype=dtype)[:, :, cls], torch.zeros(1, 2, 4, dtype=dtype))
    told: dict[str, Any] = {"positions": at, "key_positions": keys_at}
    plain = reference(q, k, v, scale=encoding.softmax_scale, **told)
    torch.testing.assert_close(reference(q, k, v, encoding=encoding, **told)[:, :, cls], plain[:, :, cls])


def test_every_other_query_meets_the_cls_key_with_one_number_a_head() -> None:
    for encoding in (made(), made(relative_buckets=8)):
        assert encoding.to_cls is not None
        number, bias = encoding.to_cls.detach().double()[:, None].expand(-1, 5), encoding(Positions.range(6)).detach()
        assert torch.equal(encoding(Positions.range(6), dtype=torch.float64)[0, :, 1:, 0], number)
        assert len(set(bias[0, 0, 1, 1:].tolist())) == 5
        if encoding.relative is None:
            assert torch.equal(bias[0, :, 1:, 0].double(), number)
        else:  # the relative bias is taken away and added again, which rounds twice
            within = 2.0**-23 * float(number.abs().max() + encoding.relative.detach().abs().max())
            assert float((bias[0, :, 1:, 0] - number).abs().max()) <= within


def test_tied_the_first_place_is_like_others() -> None:
    tied, untied = made(untie_cls=False), made()
    assert tied.to_cls is None
    assert "to_cls" not in tied.state_dict()
    untied.load_state_dict(tied.state_dict(), strict=False)
    whole, apart = (each(Positions.range(6)) for each in (tied, untied))
    assert torch.equal(whole[:, :, 1:, 1:], apart[:, :, 1:, 1:])
    assert not torch.allclose(whole[:, :, 1:, 0], apart[:, :, 1:, 0])
    assert not torch.allclose(whole[:, :, 0], apart[:, :, 0])


def test_offsets_of_tupe_r_far_apart_share_a_row() -> None:
    encoding = made(max_length=600, relative_buckets=8, untie_cls=False)
    with torch.no_grad():
        for projection in (encoding.query_projection, encoding.key_projection):
            projection.weight.zero_()
            projection.bias.zero_()
    far = [encoding(torch.tensor([300]), torch.tensor([key])) for key in (300 + 128, 300 + 200, 599)]
    behind = [encoding(torch.tensor([500]), torch.tensor([key])) for key in (500 - 128, 3)]
    assert torch.equal(far[0], far[1])
    assert torch.equal(far[0], far[2])
    assert torch.equal(behind[0], behind[1])
    assert encoding.relative is not None
    assert torch.equal(far[0].flatten(), encoding.relative[7])
    assert torch.equal(behind[0].flatten(), encoding.relative[3])


@all_variants
def test_its_table_says_how_far_it_reaches(options: dict[str, Any]) -> None:
    encoding = made(**options)
    assert encoding.describe()["usable_length"] == encoding.usable_length == LENGTH


def test_weights_start_normal_and_the_number_of_cls_at_zero() -> None:
    encoding = Tupe(dim=100, num_heads=5, head_dim=20, init_std=0.3, relative_buckets=256)
    started = {name: each.detach() for name, each in encoding.named_parameters()}
    for name in ("table", "query_projection.weight", "key_projection.weight", "relative"):
        assert float(started.pop(name).std()) == pytest.approx(0.3, rel=0.05)
    assert bool((started.pop("norm.weight") == 1).all())
    assert all(not each.any() for each in started.values())
    assert set(started) == {"norm.bias", "query_projection.bias", "key_projection.bias", "to_cls"}


BEYOND: dict[str, tuple[Positions | torch.Tensor, Positions | torch.Tensor | None, int]] = {
    "a range of queries": (Positions.range(2, start=39), Positions.range(2), 40),
    "a range of keys": (Positions.range(2), Positions.range(2, start=70_000), 70_001),
    "a negative start": (Positions.range(2, start=-1), Positions.range(2), -1),
    "bare ids": (torch.tensor([3, 40]), torch.tensor([0, 1]), 40),
    "negative ids": (torch.tensor([3, 4]), torch.tensor([0, -2]), -2),
    "skipping positions": (Positions.explicit(torch.tensor([0, 10_000_000])), None, 10_000_000),
}


@pytest.mark.parametrize("kind", BEYOND)
def test_positions_beyond_the_table_are_refused(kind: str) -> None:
    at, keys_at, shown = BEYOND[kind]
    encoding, x = made(), torch.zeros(1, HEADS, 2, HEAD_DIM)
    longer, from_zero = (
        "Make it with a larger max_length.",
        "Count from 0, as Positions.from_mask() does for padded rows.",
    )
    calls: tuple[Callable[[], object], ...] = (
        lambda: encoding(at, keys_at),
        lambda: encoding.score_mod(at, keys_at),
        lambda: reference(x, x, x, encoding=encoding, positions=at, key_positions=keys_at),
    )
    for call in calls:
        with raises_exactly(
            ValueError,
            f"positions must lie in 0 .. 39, since the table has a row for 40 positions; got {shown}. "
            f"{from_zero if shown < 0 else longer}",
        ):
            call()
    encoding(Positions.range(2, start=LENGTH - 2))


@pytest.mark.parametrize(("heads", "width"), [(1, 4), (3, 4), (8, 4), (4, 2), (4, 3), (4, 5)])
def test_queries_of_other_heads_are_refused(heads: int, width: int) -> None:
    x = torch.zeros(1, heads, 2, width)
    wanted = "4 heads" if heads != HEADS else "4 channels per head"
    with raises_exactly(
        ValueError, f"query must have {wanted}, since Tupe was made for as many; got shape (1, {heads}, 2, {width})."
    ):
        reference(x, x, x, encoding=made())
