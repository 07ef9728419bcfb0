"""Sandwich: the product of two sinusoidal encodings, each head's ratio, and how it falls."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from situs import Positions, Sandwich, Sinusoidal
from situs.attention import reference as attention
from tests.encodings.bias_places import any_ids, assert_follows, placed, starts
from tests.references import sandwich as paper

sizes = st.sampled_from([(2, 10_000.0), (8, 500.0), (128, 10_000.0)])


def by_paper(encoding: Sandwich, query: NDArray[Any], key: NDArray[Any]) -> NDArray[np.float64]:
    return paper.bias(encoding.num_heads, query, key, encoding.cosine_dim, encoding.base)


assert_is_the_papers = partial(assert_follows, by_paper, rtol=0, atol=1e-7)


@given(st.integers(1, 9), sizes, st.integers(1, 5), st.integers(1, 5), starts, st.integers(-300, 300))
def test_ranges_get_the_papers_bias(
    heads: int, size: tuple[int, float], queries: int, keys: int, start: int, ahead: int
) -> None:
    encoding = Sandwich(num_heads=heads, cosine_dim=size[0], base=size[1])
    assert_is_the_papers(encoding, Positions.range(queries, start=start), Positions.range(keys, start=start + ahead))


@given(st.integers(1, 9), sizes, any_ids, any_ids)
def test_any_positions_get_the_papers_bias(
    heads: int, size: tuple[int, float], query: list[float], key: list[float]
) -> None:
    encoding = Sandwich(num_heads=heads, cosine_dim=size[0], base=size[1])
    assert_is_the_papers(encoding, placed(query), placed(key))


@pytest.mark.parametrize("heads", [1, 2, 8, 12])
def test_each_heads_ratio_divides_the_same_sum(heads: int) -> None:
    encoding = Sandwich(num_heads=heads, cosine_dim=64)
    ratios = torch.tensor([8 * head / heads for head in range(1, heads + 1)], dtype=torch.float64)
    assert encoding.resolved == {"ratios": tuple(ratios.tolist())}
    offsets = torch.tensor([0, -1, 4, 70_000, 10_000_000])
    by_offset = encoding.by_offset(offsets, dtype=torch.float64)
    sums = torch.tensor([paper.inner_product(float(offset), 64) for offset in offsets], dtype=torch.float64)
    torch.testing.assert_close(by_offset * ratios[:, None], sums.expand(heads, -1), rtol=0, atol=1e-6)
    assert by_offset[:, 0].tolist() == pytest.approx((32 / ratios).tolist())


@pytest.mark.parametrize("start", [0, 70_000, 10_000_000])
def test_it_is_the_product_of_two_sinusoidal_encodings(start: int) -> None:
    ids = torch.arange(6) + start
    encoded = Sinusoidal(dim=32).encode(Positions.explicit(ids), torch.float64)[0]
    bias = Sandwich(num_heads=4, cosine_dim=32)(ids, dtype=torch.float64)[0]
    ratios = torch.tensor([2.0, 4.0, 6.0, 8.0], dtype=torch.float64)
    torch.testing.assert_close(bias, encoded @ encoded.T / ratios.view(4, 1, 1), rtol=0, atol=1e-7)


def test_it_is_highest_at_distance_zero_and_falls_in_the_large() -> None:
    bias = Sandwich(num_heads=1).by_offset(torch.arange(0, 10_000_000, 997))[0]
    assert int(bias.argmax()) == 0
    near = Sandwich(num_heads=1).by_offset(torch.tensor([0, 10, 100, 1000, 10_000]))[0]
    assert bool((near.diff() < 0).all())
    offsets = torch.tensor([1, 5, 70_000, 10_000_000])
    assert torch.equal(Sandwich(num_heads=3).by_offset(offsets), Sandwich(num_heads=3).by_offset(-offsets))


def test_taking_off_a_constant_as_others_do_changes_no_attention() -> None:
    query, key, value = torch.randn(3, 1, 2, 6, 8, dtype=torch.float64)
    positions = Positions.range(6, start=70_000)
    ids = positions.ids[0].numpy()
    centred = torch.from_numpy(paper.bias(2, ids, ids, 16, centred=True))[None]
    encoding = Sandwich(num_heads=2, cosine_dim=16)
    torch.testing.assert_close(
        attention(query, key, value, encoding=encoding, positions=positions),
        attention(query, key, value, mask=centred),
    )


def test_float32_is_the_exact_bias_rounded_even_far_away() -> None:
    positions = Positions.explicit(torch.tensor([0, 3, 70_000, 10_000_000]))
    encoding = Sandwich(num_heads=4, cosine_dim=16)
    narrow, exact = encoding(positions), encoding(positions, dtype=torch.float64)
    assert narrow.dtype == torch.float32
    torch.testing.assert_close(narrow.double(), exact, rtol=2e-7, atol=0)


def test_its_configuration_makes_it_again_and_nothing_is_learned() -> None:
    encoding = Sandwich(num_heads=3, cosine_dim=8, base=500.0)
    assert Sandwich(**encoding.config).config == encoding.config == {"num_heads": 3, "cosine_dim": 8, "base": 500.0}
    assert encoding.describe()["parameters"] == 0
    assert encoding.state_dict() == {}
    assert "learned" not in encoding.tags
