"""ALiBi: the paper's slopes, slopes of one's own, learned and asymmetric ones, and those of a rank."""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from situs import ALiBi, NoPE, Positions
from situs.attention import reference as attention
from tests.encodings.bias_places import any_ids, assert_follows, placed, starts
from tests.references import alibi as paper

heads_of = st.sampled_from([1, 2, 3, 5, 8, 12, 20])


def by_paper(encoding: ALiBi, query: NDArray[Any], key: NDArray[Any]) -> NDArray[np.float64]:
    """The paper's bias with the slopes that the options stand for, or those that were learned."""
    heads = encoding.all_heads or encoding.num_heads
    behind = paper.slopes(heads) if encoding.bias_max == 8 else paper.slopes_with_maximum(heads, encoding.bias_max)
    behind = behind if encoding.slopes is None else np.array(encoding.slopes)
    ahead = behind if encoding.slopes_ahead is None else np.array(encoding.slopes_ahead)
    own = slice(encoding.first_head, encoding.first_head + encoding.num_heads)
    behind, ahead = behind[own] * encoding.factor, ahead[own] * encoding.factor
    if encoding.learned:
        behind = ahead = encoding.behind.detach().double().numpy()
        ahead = ahead if encoding.ahead is None else encoding.ahead.detach().double().numpy()
    return paper.bias(behind, ahead, query, key)


assert_is_the_papers = partial(assert_follows, by_paper, rtol=1e-13, atol=0)


@given(heads_of, st.sampled_from([8.0, 4.0, 16.0]), st.integers(1, 6), st.integers(1, 6), starts, st.integers(-99, 99))
def test_ranges_get_the_papers_bias(
    heads: int, bias_max: float, queries: int, keys: int, start: int, ahead: int
) -> None:
    encoding = ALiBi(num_heads=heads, bias_max=bias_max)
    assert_is_the_papers(encoding, Positions.range(queries, start=start), Positions.range(keys, start=start + ahead))


@given(heads_of, any_ids, any_ids, st.booleans(), st.booleans())
def test_any_positions_get_the_papers_bias(
    heads: int, query: list[float], key: list[float], asymmetric: bool, learned: bool
) -> None:
    slopes = torch.rand(heads).tolist() if asymmetric else None
    encoding = ALiBi(num_heads=heads, asymmetric=asymmetric, slopes_ahead=slopes, learned=learned)
    assert_is_the_papers(encoding, placed(query), placed(key))


def test_the_slopes_of_the_paper_are_golden() -> None:
    assert ALiBi(num_heads=8).resolved == {"slopes": tuple(2.0**-head for head in range(1, 9))}
    twelve = ALiBi(num_heads=12).resolved["slopes"]
    assert isinstance(twelve, tuple)
    assert twelve[8:] == pytest.approx([2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5])


def test_far_neighbours_are_told_apart_to_the_last_bit() -> None:
    bias = ALiBi(num_heads=8)(Positions.range(3, start=10_000_000))
    assert bias.dtype == torch.float32
    assert bias[0, :, 0, 1].tolist() == [-(2.0**-head) for head in range(1, 9)]
    assert torch.equal(bias, ALiBi(num_heads=8)(Positions.range(3)))


def test_with_factor_zero_it_is_nope() -> None:
    query, key, value = torch.randn(3, 1, 4, 6, 8)
    positions = Positions.range(6, start=70_000)
    none = ALiBi(num_heads=4, factor=0.0)
    assert bool((none(positions) == 0).all())
    for causal in (False, True):
        options: dict[str, Any] = {"causal": causal, "positions": positions}
        expected = attention(query, key, value, encoding=NoPE(), **options)
        assert torch.equal(attention(query, key, value, encoding=none, **options), expected)


def test_the_factor_multiplies_every_slope() -> None:
    positions = Positions.explicit(torch.tensor([0, 5, 70_000, 10_000_000, -3]))
    plain = ALiBi(num_heads=6)(positions, dtype=torch.float64)
    falcon = ALiBi(num_heads=6, factor=1 / math.sqrt(64))(positions, dtype=torch.float64)
    assert torch.equal(falcon, plain / 8)


def test_released_models_that_add_the_keys_position_attend_alike_under_a_causal_mask() -> None:
    query, key, value = torch.randn(3, 1, 4, 9, 8, dtype=torch.float64)
    slopes = torch.from_numpy(paper.slopes(4)).view(1, 4, 1, 1)
    positions = Positions.range(9, start=70_000)
    as_bloom = (slopes * positions.ids).expand(1, 4, 9, 9)
    hidden = torch.ones(9, 9, dtype=torch.bool).triu(1)
    expected = (query @ key.mT / math.sqrt(8) + as_bloom).masked_fill(hidden, -math.inf).softmax(-1) @ value
    actual = attention(query, key, value, encoding=ALiBi(num_heads=4), causal=True, positions=positions)
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("learned", [False, True])
def test_asymmetric_with_equal_slopes_is_symmetric(learned: bool) -> None:
    slopes = [0.5, 0.25, 0.125]
    both = ALiBi(num_heads=3, slopes=slopes, asymmetric=True, slopes_ahead=slopes, learned=learned)
    one = ALiBi(num_heads=3, slopes=slopes, learned=learned)
    for positions in (Positions.range(7, start=10_000_000), Positions.explicit(torch.randn(2, 9))):
        assert torch.equal(both(positions), one(positions))


def test_asymmetric_slopes_fall_each_on_its_own_side() -> None:
    encoding = ALiBi(num_heads=1, slopes=[0.5], asymmetric=True, slopes_ahead=[2.0])
    assert encoding.by_offset(torch.tensor([-70_000, -2, 0, 3, 10_000_000])).tolist() == [
        [-35_000.0, -1.0, 0.0, -6.0, -20_000_000.0]
    ]


def test_a_rank_holds_its_own_slice_of_the_heads() -> None:
    positions = Positions.range(5, start=70_000)
    slopes, ahead = torch.rand(2, 12).tolist()
    for options in ({}, {"slopes": slopes}, {"slopes": slopes, "asymmetric": True, "slopes_ahead": ahead}):
        whole_layer = ALiBi(num_heads=12, **options)(positions)
        for first in (0, 4, 8):
            rank = ALiBi(num_heads=4, first_head=first, all_heads=12, **options)
            assert torch.equal(rank(positions), whole_layer[:, first : first + 4])


@pytest.mark.parametrize("asymmetric", [False, True])
def test_learned_slopes_start_from_the_given_ones(asymmetric: bool) -> None:
    learned = ALiBi(num_heads=4, factor=0.5, learned=True, asymmetric=asymmetric)
    assert learned.behind.tolist() == [0.5 * 2.0 ** (-2 * head) for head in range(1, 5)]
    assert (learned.ahead is None) == (not asymmetric)
    if learned.ahead is not None:
        assert learned.ahead.tolist() == learned.behind.tolist()
    with torch.no_grad():
        for parameter in learned.parameters():
            parameter.fill_(7.0)
    learned.reset_parameters()
    assert torch.equal(learned(Positions.range(4)), ALiBi(num_heads=4, factor=0.5)(Positions.range(4)))


@pytest.mark.parametrize("asymmetric", [False, True])
def test_gradients_are_those_of_finite_differences(asymmetric: bool) -> None:
    encoding = ALiBi(num_heads=3, learned=True, asymmetric=asymmetric).double()
    slopes = tuple(encoding.parameters())
    ids = torch.tensor([[70_000, 69_998, 70_003], [4, 1, 0]])
    assert len(slopes) == 1 + asymmetric
    assert torch.autograd.gradcheck(lambda *_: encoding(ids), slopes)
    assert torch.autograd.gradcheck(lambda *_: encoding(Positions.range(4, start=10_000_000)), slopes)
    assert torch.autograd.gradcheck(lambda *_: encoding.by_offset(torch.tensor([-5, 0, 3, 257])), slopes)


def test_its_tags_say_whether_it_learns_and_falls() -> None:
    assert ALiBi(num_heads=2).tags == {"relative", "far", "real", "fading"}
    assert ALiBi(num_heads=2, learned=True).tags == {"relative", "far", "real", "fading", "learned"}
    assert "fading" not in ALiBi(num_heads=2, factor=0.0).tags
    assert "fading" not in ALiBi(num_heads=1, asymmetric=True, slopes_ahead=[-1.0]).tags


@pytest.mark.parametrize(
    ("options", "parameters"),
    [
        ({}, 0),
        ({"learned": True}, 4),
        ({"learned": True, "asymmetric": True}, 8),
        ({"slopes": (1.0, 2.0, 3.0, 4.0), "asymmetric": True, "slopes_ahead": (0.1, 0.2, 0.3, 0.4)}, 0),
        ({"bias_max": 16.0, "factor": 0.125, "first_head": 2, "all_heads": 6}, 0),
    ],
    ids=str,
)
def test_its_configuration_makes_it_again(options: dict[str, Any], parameters: int) -> None:
    encoding = ALiBi(num_heads=4, **options)
    again = ALiBi(**encoding.config)
    assert again.config == encoding.config
    assert options.items() <= encoding.config.items()
    assert encoding.describe()["parameters"] == parameters
    assert torch.equal(again(Positions.range(5, start=70_000)), encoding(Positions.range(5, start=70_000)))
