"""TUPE against the paper's formula: positions that meet positions, and [CLS] apart from order."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from situs import Positions, Tupe
from situs.attention import reference
from situs.positions import PositionsLike
from tests.encodings.score_situations import (
    HEAD_DIM,
    HEADS,
    VARIANTS,
    Array,
    Formula,
    assert_follows,
    ranges_and_bare_ids,
    situated,
    stirred,
)
from tests.raising import raises_exactly
from tests.references import t5, tupe

DIM, LENGTH = 6, 40
all_variants = pytest.mark.parametrize("options", VARIANTS[Tupe], ids=str)


def made(**options: Any) -> Tupe:
    return stirred(Tupe(**{"dim": DIM, "num_heads": HEADS, "head_dim": HEAD_DIM, "max_length": LENGTH, **options}))


def array(parameter: torch.Tensor) -> Array:
    return parameter.detach().double().numpy()


def by_paper(encoding: Tupe, scale: float) -> Formula:
    """The formula before the softmax scale, though the numbers of [CLS] and of offsets are not scaled."""
    rows = tupe.layer_norm(array(encoding.table), array(encoding.norm.weight), array(encoding.norm.bias))
    query, key = encoding.query_projection, encoding.key_projection
    to_cls = None if encoding.to_cls is None else array(encoding.to_cls) / scale
    options: dict[str, Any] = {"bias_Q": array(query.bias), "bias_K": array(key.bias)}

    def term(q: Array, k: Array, query_ids: Array, key_ids: Array) -> Array:
        given = query_ids, key_ids, rows, array(query.weight), array(key.weight), HEADS
        if encoding.relative is None:
            if to_cls is not None:
                options.update(theta_1=np.zeros(HEADS), theta_2=to_cls)
            return tupe.term(*given, **options)
        added = tupe.term(*given, **options)
        added = added + t5.bias(array(encoding.relative), query_ids, key_ids, 128, True) / scale
        if to_cls is not None:
            added = np.where(key_ids == 0, to_cls[:, None, None], added)
            added = np.where(query_ids[:, None] == 0, 0, added)
        return added

    return term


@settings(max_examples=150)
@given(
    st.data(),
    st.sampled_from(VARIANTS[Tupe]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([None, 0.7]),
)
def test_the_term_is_the_papers(
    data: st.DataObject, options: dict[str, Any], kv_heads: int, scale: float | None
) -> None:
    encoding, own = made(**options), tupe.scale(HEAD_DIM)
    situation = situated(data, lowest=0, past=LENGTH)
    formula = by_paper(encoding, own if scale is None else scale)
    assert_follows(encoding, situation, formula, kv_heads=kv_heads, scale=scale, own_scale=own)


@all_variants
def test_ranges_and_bare_ids_agree_and_the_content_does_not_matter(options: dict[str, Any]) -> None:
    encoding = made(**options)
    q, k = torch.randn(2, 2, HEADS, 7, HEAD_DIM, dtype=torch.float64)
    for start in (0, 3, LENGTH - 7):
        term = encoding(q, k, start)
        torch.testing.assert_close(encoding(q, k, torch.arange(start, start + 7)), term)
        torch.testing.assert_close(encoding(torch.zeros_like(q), k[:, :1], start), term)


def test_it_halves_the_variance_of_each_of_two_products() -> None:
    encoding = Tupe(dim=DIM, num_heads=2, head_dim=8)
    assert encoding.softmax_scale == 1 / math.sqrt(16) == tupe.scale(8)
    assert encoding.describe()["softmax_scale"] == 0.25
    q, k, v = torch.randn(3, 1, 2, 5, 8, dtype=torch.float64)
    expected = (0.25 * q @ k.mT + encoding(q, k)).softmax(-1) @ v
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
    assert torch.equal(encoding(q, k, at, keys_at)[:, :, cls], torch.zeros(1, 2, 4, dtype=torch.float64))
    told: dict[str, Any] = {"positions": at, "key_positions": keys_at}
    plain = reference(q, k, v, scale=encoding.softmax_scale, **told)
    torch.testing.assert_close(reference(q, k, v, encoding=encoding, **told)[:, :, cls], plain[:, :, cls])


def test_every_other_query_meets_the_cls_key_with_one_number_a_head() -> None:
    for encoding in (made(), made(relative_buckets=8)):
        assert encoding.to_cls is not None
        q, k = torch.randn(2, 1, HEADS, 6, HEAD_DIM)
        term = encoding(q, k)
        assert torch.equal(term[0, :, 1:, 0], encoding.to_cls[:, None].expand(-1, 5))
        assert torch.equal(encoding(q, k, scale=7.0)[0, :, 1:, 0], term[0, :, 1:, 0])
        assert len(set(term[0, 0, 1, 1:].tolist())) == 5


def test_tied_the_first_place_is_like_others() -> None:
    tied, untied = made(untie_cls=False), made()
    assert tied.to_cls is None
    assert "to_cls" not in tied.state_dict()
    untied.load_state_dict(tied.state_dict(), strict=False)
    q, k = torch.randn(2, 1, HEADS, 6, HEAD_DIM)
    whole, apart = tied(q, k), untied(q, k)
    assert torch.equal(whole[:, :, 1:, 1:], apart[:, :, 1:, 1:])
    assert not torch.allclose(whole[:, :, 1:, 0], apart[:, :, 1:, 0])
    assert not torch.allclose(whole[:, :, 0], apart[:, :, 0])


def test_offsets_of_tupe_r_far_apart_share_a_row() -> None:
    encoding = made(max_length=600, relative_buckets=8, untie_cls=False)
    with torch.no_grad():
        for projection in (encoding.query_projection, encoding.key_projection):
            projection.weight.zero_()
            projection.bias.zero_()
    x = torch.zeros(1, HEADS, 1, HEAD_DIM)
    far = [encoding(x, x, torch.tensor([300]), torch.tensor([key])) for key in (300 + 128, 300 + 200, 599)]
    behind = [encoding(x, x, torch.tensor([500]), torch.tensor([key])) for key in (500 - 128, 3)]
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


BEYOND: dict[str, tuple[PositionsLike, PositionsLike, int]] = {
    "a range of queries": (39, 0, 40),
    "a range of keys": (0, 70_000, 70_001),
    "a negative start": (-1, 0, -1),
    "bare ids": (torch.tensor([3, 40]), torch.tensor([0, 1]), 40),
    "negative ids": (torch.tensor([3, 4]), torch.tensor([0, -2]), -2),
    "skipping positions": (Positions.explicit(torch.tensor([0, 10_000_000])), None, 10_000_000),
}


@pytest.mark.parametrize("kind", BEYOND)
def test_positions_beyond_the_table_are_refused(kind: str) -> None:
    at, keys_at, shown = BEYOND[kind]
    x = torch.zeros(1, HEADS, 2, HEAD_DIM)
    longer, from_zero = (
        "Make it with a larger max_length.",
        "Count from 0, as Positions.from_mask() does for padded rows.",
    )
    with raises_exactly(
        ValueError,
        f"positions must lie in 0 .. 39, since the table has a row for 40 positions; got {shown}. "
        f"{from_zero if shown < 0 else longer}",
    ):
        made()(x, x, at, keys_at)
    made()(x, x, LENGTH - 2)
