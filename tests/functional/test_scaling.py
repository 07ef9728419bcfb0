"""Scaled frequencies against the papers' formulas, and at their limits."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from situs import DynamicNTKScaling, LongRoPE, Positions, Rotary
from situs.functional import angles, rotary_frequencies, scaling
from tests.references import scaling as reference

dims = st.integers(2, 64).map(lambda pairs: 2 * pairs)
bases = st.floats(50.0, 1e7)
factors = st.floats(1.0, 64.0)
lengths = st.integers(16, 131_072)


def assert_close(actual: Tensor, expected: object) -> None:
    assert actual.dtype == torch.float64
    assert torch.allclose(actual, torch.as_tensor(expected), rtol=1e-11, atol=0)


@given(dims, bases)
def test_the_plain_ladder_is_the_papers(dim: int, base: float) -> None:
    assert_close(rotary_frequencies(dim, base), reference.ladder(dim, base))


@given(dims, bases, factors)
def test_linear_divides_every_frequency(dim: int, base: float, factor: float) -> None:
    assert_close(scaling.linear(dim, base, factor), reference.linear(dim, base, factor)[0])


@given(dims, bases, factors)
def test_ntk_keeps_the_first_frequency_and_divides_the_last_by_the_factor(dim: int, base: float, factor: float) -> None:
    scaled, plain = scaling.ntk(dim, base, factor), rotary_frequencies(dim, base)
    assert_close(scaled, reference.ntk(dim, base, factor)[0])
    assert float(scaled[0]) == 1.0
    assert float(scaled[-1]) == pytest.approx(float(plain[-1]) / factor, rel=1e-12)


def test_ntk_of_a_single_pair_keeps_it() -> None:
    assert scaling.ntk(2, 10000.0, 8.0).tolist() == [1.0]


@given(dims, bases, factors, lengths, st.integers(1, 1_000_000))
def test_the_dynamic_factor_grows_only_beyond_the_original_length(
    dim: int, base: float, factor: float, original: int, length: int
) -> None:
    grown = scaling.dynamic_ntk_factor(factor, original, length)
    assert grown == pytest.approx(1.0 if length <= original else factor * length / original - (factor - 1))
    assert_close(scaling.ntk(dim, base, grown), reference.dynamic_ntk(dim, base, factor, original, length)[0])


@given(factors, lengths, st.lists(st.integers(1, 1_000_000), min_size=1, max_size=5))
def test_lengths_in_a_tensor_give_the_factors_of_each_alone(
    factor: float, original: int, sequence_lengths: list[int]
) -> None:
    several = scaling.dynamic_ntk_factor(factor, original, torch.tensor(sequence_lengths))
    assert isinstance(several, Tensor)
    assert several.tolist() == [scaling.dynamic_ntk_factor(factor, original, length) for length in sequence_lengths]
    ladders = scaling.ntk(8, 10000.0, several)
    assert ladders.shape == (len(sequence_lengths), 4)
    for ladder, each in zip(ladders, several.tolist(), strict=True):
        assert_close(ladder, scaling.ntk(8, 10000.0, each))


@given(dims, bases, factors, lengths, st.floats(0.1, 4.0), st.floats(4.5, 64.0))
def test_the_papers_ramp_over_turns(
    dim: int, base: float, factor: float, original: int, slow: float, fast: float
) -> None:
    ramp = scaling.ramp_over_turns(dim, base, original, slow, fast)
    expected = reference.by_parts(dim, base, factor, original, fast, slow, dialect="paper")[0]
    assert_close(scaling.by_parts(dim, base, factor, ramp), expected)
    assert bool((ramp.diff() <= 0).all())
    turns = original * rotary_frequencies(dim, base) / (2 * math.pi)
    assert bool((ramp[turns >= fast] == 1).all())
    assert bool((ramp[turns <= slow] == 0).all())


@given(dims, bases, factors, lengths, st.floats(0.1, 4.0), st.floats(4.5, 64.0), st.booleans())
def test_the_released_ramp_over_pairs(
    dim: int, base: float, factor: float, original: int, slow: float, fast: float, truncate: bool
) -> None:
    ramp = scaling.ramp_over_pairs(dim, base, original, slow, fast, truncate)
    expected = reference.by_parts(dim, base, factor, original, fast, slow, dialect="hf", truncate=truncate)[0]
    assert_close(scaling.by_parts(dim, base, factor, ramp), expected)
    assert bool((ramp >= 0).all())
    assert bool((ramp <= 1).all())


@pytest.mark.parametrize("original", [2, 6, 7])
def test_the_released_ramp_becomes_a_step_where_its_ends_meet(original: int) -> None:
    ramp = scaling.ramp_over_pairs(16, 10000.0, original, 1.0, 32.0, True)
    assert_close(scaling.by_parts(16, 10000.0, 8.0, ramp), reference.by_parts(16, 10000.0, 8.0, original)[0])
    assert bool(torch.isfinite(ramp).all())


def test_fast_pairs_are_kept_and_slow_ones_divided() -> None:
    """Llama 2's head: turned round, as it has been released elsewhere, the ends would change places."""
    plain = rotary_frequencies(128, 10000.0)
    for ramp in (
        scaling.ramp_over_pairs(128, 10000.0, 4096, 1.0, 32.0, True),
        scaling.ramp_over_turns(128, 10000.0, 4096, 1.0, 32.0),
    ):
        scaled = scaling.by_parts(128, 10000.0, 16.0, ramp)
        assert torch.equal(scaled[:20], plain[:20])
        assert torch.equal(scaled[-16:], plain[-16:] / 16)
        assert bool((scaled[20:-16] < plain[20:-16]).any())


@given(dims, bases, factors)
def test_parts_are_plain_under_a_ramp_of_ones_and_linear_under_zeros(dim: int, base: float, factor: float) -> None:
    ones = torch.ones(dim // 2, dtype=torch.float64)
    assert torch.equal(scaling.by_parts(dim, base, factor, ones), rotary_frequencies(dim, base))
    assert torch.equal(scaling.by_parts(dim, base, factor, ones * 0), scaling.linear(dim, base, factor))


@given(dims, bases, st.floats(0.0, 1.0))
def test_proportional_keeps_the_ladder_of_the_whole_head(dim: int, base: float, fraction: float) -> None:
    scaled = scaling.proportional(dim, base, fraction)
    assert_close(scaled, reference.proportional(dim, base, fraction)[0])
    turning = int(fraction * dim // 2)
    assert torch.equal(scaled[:turning], rotary_frequencies(dim, base)[:turning])
    assert bool((scaled[turning:] == 0).all())


@given(st.floats(0.5, 64.0), st.floats(0.0, 2.0))
def test_yarns_magnitude_is_the_papers(factor: float, weight: float) -> None:
    assert scaling.yarn_magnitude(factor, weight) == pytest.approx(reference.magnitude(factor, weight), rel=1e-14)
    assert scaling.yarn_magnitude(min(factor, 1.0), weight) == 1.0


def test_golden_magnitudes() -> None:
    assert scaling.yarn_magnitude(4.0) == pytest.approx(1.138629436, abs=1e-9)
    assert scaling.yarn_magnitude(40.0, 0.707) == pytest.approx(1.260803777, abs=1e-9)
    assert scaling.longrope_magnitude(32.0, 4096) == pytest.approx(1.190238071, abs=1e-9)  # Phi-3, 128k
    assert scaling.longrope_magnitude(1.0, 4096) == 1.0


@given(dims, factors)
def test_a_base_for_each_head_gives_a_ladder_for_each(dim: int, factor: float) -> None:
    heads = [100.0, 10_000.0, 500_000.0]
    several = torch.tensor(heads, dtype=torch.float64)
    for many, alone in (
        (scaling.linear(dim, several, factor), [scaling.linear(dim, base, factor) for base in heads]),
        (scaling.ntk(dim, several, factor), [scaling.ntk(dim, base, factor) for base in heads]),
        (scaling.proportional(dim, several, 0.5), [scaling.proportional(dim, base, 0.5) for base in heads]),
        (
            scaling.ramp_over_turns(dim, several, 4096, 1.0, 32.0),
            [scaling.ramp_over_turns(dim, base, 4096, 1.0, 32.0) for base in heads],
        ),
    ):
        assert_close(many, torch.stack(alone))


def test_lengths_on_a_device_without_float64_stay_there(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = torch.tensor([[5], [64], [65_537]])
    exact = scaling.ntk(8, 10_000.0, scaling.dynamic_ntk_factor(4.0, 64, lengths))
    monkeypatch.setattr(angles, "WITHOUT_FLOAT64", frozenset({"cpu", "meta"}))
    factors = scaling.dynamic_ntk_factor(4.0, 64, lengths)
    assert isinstance(factors, Tensor)
    assert factors.dtype == torch.float32
    narrow = scaling.ntk(8, 10_000.0, factors)
    assert narrow.dtype == torch.float32
    assert torch.allclose(narrow.double(), exact, rtol=2e-6, atol=0)
    longrope = LongRoPE(factor=4.0, original_length=64, short_factors=(1.0,) * 4, long_factors=(3.0,) * 4)
    for method in (DynamicNTKScaling(factor=4.0, original_length=64), longrope):
        encoding = Rotary(head_dim=8, scaling=method)
        places = Positions.explicit(
            torch.zeros(3, 5, dtype=torch.int64, device="meta"), sequence_length=lengths.to("meta")
        )
        assert encoding.table(places).cos.device.type == "meta"  # from where nothing can be read
