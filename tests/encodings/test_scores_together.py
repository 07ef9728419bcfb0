"""Several encodings of the scores at once: they add up, meet unturned vectors, and keep one scale."""

import math
from typing import Any

import pytest
import torch
from torch import nn

import situs
from situs import Positions
from situs.attention import reference
from situs.positions import PositionsLike
from tests.encodings.score_situations import HEAD_DIM, ranges_and_bare_ids, stirred
from tests.raising import raises_exactly


@pytest.mark.parametrize("by", [1, 257, 70_000])
def test_content_terms_meet_unturned_vectors_so_that_rotary_leaves_them_relative(by: int) -> None:
    rotary, shaw = situs.Rotary(head_dim=HEAD_DIM), stirred(situs.Shaw(num_heads=2, head_dim=HEAD_DIM, max_distance=3))
    q, k, v = torch.randn(3, 1, 2, 6, HEAD_DIM, dtype=torch.float64)
    here = reference(q, k, v, encoding=[rotary, shaw], causal=True)
    there = reference(q, k, v, encoding=[rotary, shaw], causal=True, positions=by, key_positions=by)
    torch.testing.assert_close(there, here, atol=1e-9, rtol=0)
    scores = (rotary(q) @ rotary(k, role="key").mT) / 2 + shaw(q, k)
    weights = scores.masked_fill(~torch.ones(6, 6, dtype=torch.bool).tril(), -torch.inf).softmax(-1)
    torch.testing.assert_close(here, weights @ v + shaw.gathered(weights))


@ranges_and_bare_ids
def test_shaw_and_t5_add_up(places: tuple[PositionsLike, PositionsLike]) -> None:
    shaw = stirred(situs.Shaw(num_heads=2, head_dim=HEAD_DIM, values=False))
    t5 = stirred(situs.T5Bias(num_heads=2, softmax_scale=None))
    q = torch.randn(1, 2, 3, HEAD_DIM, dtype=torch.float64)
    k, v = torch.randn(2, 1, 2, 4, HEAD_DIM, dtype=torch.float64)
    told = (torch.tensor([[1, 2, 3]]), torch.arange(4)[None]) if places[0] is None else places
    scores = q @ k.mT / 2 + shaw(q, k, *places) + t5(*told, dtype=torch.float64)
    actual = reference(q, k, v, encoding=[shaw, t5], positions=places[0], key_positions=places[1])
    torch.testing.assert_close(actual, scores.softmax(-1) @ v)


def test_deberta_and_alibi_add_up_at_debertas_scale() -> None:
    deberta = stirred(situs.Deberta(dim=6, num_heads=2, head_dim=HEAD_DIM, max_distance=8))
    alibi = situs.ALiBi(num_heads=2)
    q, k, v = torch.randn(3, 1, 2, 5, HEAD_DIM, dtype=torch.float64)
    scores = q @ k.mT / math.sqrt(12) + deberta(q, k) + alibi(Positions.range(5), dtype=torch.float64)
    torch.testing.assert_close(reference(q, k, v, encoding=[deberta, alibi]), scores.softmax(-1) @ v)
    given_scale = 0.4 * (q @ k.mT) + deberta(q, k, scale=0.4) + alibi(Positions.range(5), dtype=torch.float64)
    torch.testing.assert_close(reference(q, k, v, encoding=[deberta, alibi], scale=0.4), given_scale.softmax(-1) @ v)


def test_content_terms_and_a_product_of_positions_add_up_and_keep_one_scale() -> None:
    shaw, cope = stirred(situs.Shaw(num_heads=2, head_dim=4)), stirred(situs.CoPE(num_heads=2, head_dim=4))
    tupe = stirred(situs.Tupe(dim=6, num_heads=2, head_dim=4))
    q, k, v = torch.randn(3, 1, 2, 5, 4, dtype=torch.float64)
    scale = 8**-0.5
    terms = [encoding(q, k, scale=scale) for encoding in (shaw, cope)]
    bias = tupe(Positions.range(5), dtype=torch.float64)
    weights = (scale * q @ k.mT + sum(terms) + bias).softmax(-1)
    actual = reference(q, k, v, encoding=[shaw, cope, tupe])
    torch.testing.assert_close(actual, weights @ v + shaw.gathered(weights))
    weights = (0.4 * q @ k.mT + shaw(q, k, scale=0.4) + cope(q, k, scale=0.4) + bias).softmax(-1)
    given_scale = reference(q, k, v, encoding=[shaw, cope, tupe], scale=0.4)
    torch.testing.assert_close(given_scale, weights @ v + shaw.gathered(weights))


def test_encodings_that_declare_different_scales_need_one_given() -> None:
    t5 = situs.T5Bias(num_heads=2)
    tupe = situs.Tupe(dim=6, num_heads=2, head_dim=8)
    deberta = situs.Deberta(dim=6, num_heads=2, head_dim=8, terms=("c2p", "p2c", "p2p"))
    shaw = situs.Shaw(num_heads=2, head_dim=8)
    x = torch.randn(1, 2, 3, 8)
    with raises_exactly(
        ValueError, "scale must be given, since these encodings declare different ones; got [1.0, 0.25]."
    ):
        reference(x, x, x, encoding=[t5, shaw, tupe])
    with raises_exactly(
        ValueError,
        "scale must be given, since these encodings declare different ones; got [0.25, 0.17677669529663687].",
    ):
        reference(x, x, x, encoding=[tupe, deberta])
    assert bool(torch.isfinite(reference(x, x, x, encoding=[t5, tupe, deberta], scale=0.3)).all())


@pytest.mark.parametrize("kind", [list, tuple, nn.ModuleList])
def test_encodings_may_come_in_any_kind_of_sequence(kind: Any) -> None:
    shaw, alibi = stirred(situs.Shaw(num_heads=2, head_dim=4)), situs.ALiBi(num_heads=2)
    x = torch.randn(1, 2, 5, 4)
    expected = reference(x, x, x, encoding=[shaw, alibi])
    assert torch.equal(reference(x, x, x, encoding=kind([shaw, alibi])), expected)
    assert torch.equal(reference(x, x, x, encoding=kind([])), reference(x, x, x))
    assert not torch.equal(expected, reference(x, x, x, encoding=[alibi]))
