"""FIRE: the appendix's network, its threshold, and progressive interpolation."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from situs import Fire, Positions
from situs.encodings import hinges
from situs.encodings.fire import SMALLEST
from tests.encodings.bias_places import FAR, assert_follows, placed, real_ids
from tests.references import fire as paper

starts = st.sampled_from([0, 3, 510, 70_000, 10_000_000])
whole_ids = st.lists(st.one_of(st.integers(-300, 2000), st.sampled_from(FAR)), min_size=1, max_size=5)
any_ids = st.one_of(whole_ids, real_ids)


def by_paper(encoding: Fire, query: NDArray[Any], key: NDArray[Any]) -> NDArray[np.float64]:
    state = {name: value.double().numpy() for name, value in encoding.state_dict().items()}
    return paper.bias(
        query,
        key,
        state["c"].item(),
        abs(state["threshold_factor"].item() * encoding.threshold),
        state["hidden.weight"][:, 0],
        state["hidden.bias"],
        state["out.weight"],
        np.zeros(encoding.num_heads),
        SMALLEST,
    )


assert_is_the_papers = partial(assert_follows, by_paper, rtol=1e-9, atol=1e-12)


def bias_at(encoding: Fire, query: float, key: float) -> Tensor:
    places = (torch.tensor([[at]], dtype=torch.float64) for at in (query, key))
    bias: Tensor = encoding(*places, dtype=torch.float64)
    return bias[0, :, 0, 0].detach()


def smooth_where_it_is_used() -> Fire:
    """Hidden units that are on, or off, at every share from 0 to 2, so that differences meet no kink."""
    encoding = Fire(num_heads=2, width=4, rate=0.3, threshold=10.0).double()
    with torch.no_grad():
        encoding.hidden.weight.copy_(torch.tensor([[0.9], [-0.4], [0.2], [-1.0]]))
        encoding.hidden.bias.copy_(torch.tensor([0.3, 1.5, -1.0, -0.2]))
    return encoding


@given(st.integers(1, 5), st.integers(1, 9), st.integers(1, 6), st.integers(1, 6), starts, st.integers(-300, 300))
def test_ranges_get_the_papers_bias(heads: int, width: int, queries: int, keys: int, start: int, ahead: int) -> None:
    encoding = Fire(num_heads=heads, width=width)
    assert_is_the_papers(encoding, Positions.range(queries, start=start), Positions.range(keys, start=start + ahead))


@given(st.floats(0.01, 5.0), st.floats(0.5, 2000.0), st.booleans(), any_ids, any_ids)
def test_any_positions_rates_and_thresholds_get_the_papers_bias(
    rate: float, threshold: float, flipped: bool, query: list[float], key: list[float]
) -> None:
    encoding = Fire(num_heads=2, width=4, rate=rate, threshold=threshold)
    if flipped:
        with torch.no_grad():
            encoding.c.neg_()
            encoding.threshold_factor.mul_(-0.7)
    assert_is_the_papers(encoding, placed(query), placed(key))


@pytest.mark.parametrize("start", [0, 70_000, 10_000_000])
def test_as_many_pairs_as_are_worked_on_in_tiles_get_the_papers_bias(start: int) -> None:
    encoding = Fire(num_heads=3, threshold=20.0)
    query, key = Positions.range(64, start=start), Positions.range(130, start=start - 60)
    assert_is_the_papers(encoding, query, key)
    by_row = encoding(torch.stack([query.ids[0], query.ids[0] + 7]), key, dtype=torch.float64)
    for row, shift in enumerate((0, 7)):
        moved = Positions.range(64, start=start + shift)
        torch.testing.assert_close(by_row[row : row + 1], encoding(moved, key, dtype=torch.float64))


def test_pairs_in_tiles_teach_every_parameter_as_single_ones_do(monkeypatch: pytest.MonkeyPatch) -> None:
    encoding, places = Fire(num_heads=3, threshold=70_050.0).double(), Positions.range(128, start=70_000)
    weights = torch.randn(1, 3, 128, 128, dtype=torch.float64)
    parameters = list(encoding.parameters())
    in_tiles = torch.autograd.grad(encoding(places), parameters, weights)
    monkeypatch.setattr(hinges, "SMALLEST", 1 << 30)
    torch.testing.assert_close(in_tiles, torch.autograd.grad(encoding(places), parameters, weights))


def test_below_the_threshold_it_is_a_function_of_the_offset_alone() -> None:
    encoding = Fire(num_heads=3, threshold=100_000.0).double()
    keys = torch.tensor([-5, 0, 3, -40])
    expected = encoding(torch.tensor([0]), keys)
    for query in (1, 500, 70_000, 100_000):
        torch.testing.assert_close(encoding(torch.tensor([query]), keys + query), expected, rtol=0, atol=1e-12)


def test_above_the_threshold_it_depends_on_the_querys_position_too() -> None:
    encoding = Fire(num_heads=3, threshold=100.0)
    near, far, farther = (bias_at(encoding, query, query - 50) for query in (100, 70_000, 10_000_000))
    assert float((near - far).abs().min()) > 1e-4
    assert float((far - farther).abs().min()) > 1e-4
    torch.testing.assert_close(bias_at(encoding, 99, 49), near, rtol=0, atol=1e-12)
    assert "relative" not in encoding.tags


def test_progressive_interpolation_maps_the_farthest_key_to_one_at_any_length() -> None:
    encoding = Fire(num_heads=3)
    state = {name: value.double() for name, value in encoding.state_dict().items()}
    hidden = torch.relu(state["hidden.weight"][:, 0] + state["hidden.bias"])
    at_one = state["out.weight"] @ hidden
    for query in (512, 5000, 70_000, 10_000_000):
        torch.testing.assert_close(bias_at(encoding, query, 0), at_one, rtol=0, atol=1e-5)
        share = paper.share(query, 0, float(state["c"]), 512.0, SMALLEST)
        assert share == pytest.approx(1.0, abs=1e-6)
    assert paper.share(100, 0, float(state["c"]), 512.0, SMALLEST) < 0.7


def test_a_key_at_the_query_has_share_zero_anywhere() -> None:
    encoding = Fire(num_heads=3)
    at_zero = (encoding.out(torch.relu(encoding.hidden.bias))).double().detach()
    for place in (0, 511, 70_000, 10_000_000):
        torch.testing.assert_close(bias_at(encoding, place, place), at_zero, rtol=0, atol=1e-6)


def test_keys_ahead_count_by_their_distance() -> None:
    encoding = Fire(num_heads=3, threshold=20.0)
    for query in (3, 70_000, 10_000_000):
        for apart in (1, 7, 60):
            assert torch.equal(bias_at(encoding, query, query + apart), bias_at(encoding, query, query - apart))


def test_each_document_and_padded_row_counts_for_itself() -> None:
    encoding = Fire(num_heads=2, threshold=2.0)
    alone = encoding(Positions.range(6))
    packed = encoding(Positions.packed([4, 6]))
    padded = encoding(Positions.from_mask(torch.tensor([[0] * 4 + [1] * 6])))
    assert torch.equal(packed[:, :, 4:, 4:], alone)
    assert torch.equal(padded[:, :, 4:, 4:], alone)
    assert not torch.allclose(encoding(Positions.range(6, start=4)), alone)


@pytest.mark.parametrize("name", ["c", "threshold_factor"])
def test_negative_numbers_act_by_their_size(name: str) -> None:
    encoding, positions = Fire(num_heads=2, threshold=20.0), Positions.range(60, start=3)
    before = encoding(positions)
    with torch.no_grad():
        getattr(encoding, name).neg_()
    assert torch.equal(encoding(positions), before)


def test_gradients_are_those_of_finite_differences() -> None:
    encoding = smooth_where_it_is_used()
    parameters = tuple(encoding.parameters())
    assert len(parameters) == 5
    near, far = torch.tensor([[0, 3, 7], [4, 12, 40]]), Positions.range(3, start=10_000_000)
    cached = (Positions.range(1, start=70_000), Positions.explicit(torch.tensor([0, 9, 69_999, 70_000])))
    assert torch.autograd.gradcheck(lambda *_: encoding(near), parameters)
    assert torch.autograd.gradcheck(lambda *_: encoding(far), parameters)
    assert torch.autograd.gradcheck(lambda *_: encoding(*cached), parameters)


def test_only_queries_below_the_threshold_teach_it() -> None:
    encoding = smooth_where_it_is_used()
    for query, learns in ((5, True), (70_000, False), (10_000_000, False)):
        encoding.zero_grad()
        encoding(torch.tensor([query]), torch.tensor([query - 3])).sum().backward()
        assert encoding.threshold_factor.grad is not None
        assert (float(encoding.threshold_factor.grad) != 0) == learns


def test_rate_and_threshold_start_where_they_were_put_and_the_network_is_drawn_anew() -> None:
    encoding = Fire(num_heads=2, width=8, rate=0.25, threshold=64.0)
    assert (encoding.c.item(), encoding.threshold_factor.item()) == (0.25, 1.0)
    before = encoding.hidden.weight.detach().clone()
    with torch.no_grad():
        encoding.c.fill_(9.0)
        encoding.threshold_factor.fill_(9.0)
    encoding.reset_parameters()
    assert (encoding.c.item(), encoding.threshold_factor.item()) == (0.25, 1.0)
    assert not torch.equal(encoding.hidden.weight, before)


def test_no_number_is_without_an_axis_since_fully_sharded_parameters_need_one() -> None:
    encoding = Fire(num_heads=2)
    assert encoding.c.shape == encoding.threshold_factor.shape == (1,)
    assert all(parameter.ndim for parameter in encoding.parameters())


def test_its_configuration_makes_it_again() -> None:
    options = {"num_heads": 3, "width": 8, "rate": 0.25, "threshold": 64.0}
    encoding = Fire(**options)  # type: ignore[arg-type]
    assert Fire(**encoding.config).config == encoding.config == options
    assert encoding.describe()["parameters"] == 8 + 8 + 3 * 8 + 2
