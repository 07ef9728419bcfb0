"""Scaling objects: what they resolve to, at their limits, and how their three numbers fit together."""

import dataclasses
import math
import pickle
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from situs import (
    DynamicNTKScaling,
    LinearScaling,
    Llama3Scaling,
    LongRoPE,
    NTKByPartsScaling,
    NTKScaling,
    ProportionalScaling,
    Rotary,
    Scaling,
    YaRN,
)
from situs.functional import rotary_frequencies
from tests.raising import raises_exactly
from tests.references import scaling as reference

dims = st.integers(2, 64).map(lambda pairs: 2 * pairs)
bases = st.floats(50.0, 1e7)
factors = st.floats(1.0, 64.0)
lengths = st.integers(16, 131_072)

SHORT, LONG = (1.0, 1.1, 1.5, 2.0), (1.0, 3.0, 9.0, 30.0)
EVERY: list[Scaling] = [
    LinearScaling(factor=4.0),
    NTKScaling(factor=4.0),
    DynamicNTKScaling(factor=4.0, original_length=2048),
    NTKByPartsScaling(factor=4.0, original_length=2048),
    YaRN(factor=4.0, original_length=2048),
    LongRoPE(factor=4.0, original_length=2048, short_factors=SHORT, long_factors=LONG),
    Llama3Scaling(factor=4.0, original_length=2048),
    ProportionalScaling(fraction=0.5, factor=4.0),
]
STRETCHING: list[type[Any]] = [LinearScaling, NTKScaling, DynamicNTKScaling, NTKByPartsScaling, YaRN, Llama3Scaling]
every_scaling = pytest.mark.parametrize("scaling", EVERY, ids=lambda scaling: type(scaling).__name__)


def assert_resolves(
    scaling: Scaling, dim: int, base: float, expected: reference.Scaling, length: int | None = None
) -> None:
    resolved = scaling.resolve(dim, base, length)
    assert resolved.frequencies.dtype == torch.float64
    assert torch.allclose(resolved.frequencies, torch.from_numpy(expected[0]), rtol=1e-11, atol=0)
    assert resolved.rotation_factor == pytest.approx(expected[1], rel=1e-13)
    assert resolved.softmax_factor == pytest.approx(expected[2], rel=1e-13)


@given(dims, bases, factors, lengths, st.integers(1, 1_000_000))
def test_simple_scalings_resolve_to_the_papers_formulas(
    dim: int, base: float, factor: float, original: int, length: int
) -> None:
    assert_resolves(LinearScaling(factor=factor), dim, base, reference.linear(dim, base, factor))
    assert_resolves(NTKScaling(factor=factor), dim, base, reference.ntk(dim, base, factor))
    dynamic = DynamicNTKScaling(factor=factor, original_length=original)
    assert_resolves(dynamic, dim, base, reference.dynamic_ntk(dim, base, factor, original, length), length)
    for fraction in (0.25, 0.5, 1.0):
        expected = reference.proportional(dim, base, fraction, factor)
        assert_resolves(ProportionalScaling(fraction=fraction, factor=factor), dim, base, expected)


@given(dims, bases, factors, lengths, st.floats(0.1, 4.0), st.floats(4.5, 64.0), st.booleans())
def test_parts_resolve_to_the_papers_formulas_in_both_dialects(
    dim: int, base: float, factor: float, original: int, slow: float, fast: float, truncate: bool
) -> None:
    betas = {"beta_fast": fast, "beta_slow": slow}
    for dialect, rounding in (("hf", {"truncate": truncate}), ("paper", {})):
        parts: dict[str, Any] = {"factor": factor, "original_length": original, "dialect": dialect, **betas, **rounding}
        expected = reference.by_parts(dim, base, factor, original, fast, slow, dialect, truncate)
        assert_resolves(NTKByPartsScaling(**parts), dim, base, expected)
        expected = reference.yarn(dim, base, factor, original, fast, slow, dialect, truncate)
        assert_resolves(YaRN(**parts), dim, base, expected)
    llama = Llama3Scaling(
        factor=factor, original_length=original, low_frequency_factor=slow, high_frequency_factor=fast
    )
    assert_resolves(llama, dim, base, reference.llama3(dim, base, factor, slow, fast, original))


MSCALES = [None, 0.0, 0.707, 1.0]


@pytest.mark.parametrize("attention_factor", [None, 1.0, 0.7, 1.3])
@pytest.mark.parametrize("mscale", MSCALES)
@pytest.mark.parametrize("mscale_all_dim", MSCALES)
def test_yarns_factors_go_where_they_belong(
    attention_factor: float | None, mscale: float | None, mscale_all_dim: float | None
) -> None:
    options: Any = {"attention_factor": attention_factor, "mscale": mscale, "mscale_all_dim": mscale_all_dim}
    expected = reference.yarn(64, 10000.0, 40.0, 4096, **options)
    scaling = YaRN(factor=40.0, original_length=4096, **options)
    assert_resolves(scaling, 64, 10000.0, expected)
    if attention_factor is not None:
        assert scaling.resolve(64, 10000.0).rotation_factor == attention_factor


@pytest.mark.parametrize("cls", [YaRN, LongRoPE])
def test_an_explicit_attention_factor_of_one_is_used_verbatim(cls: type[Any]) -> None:
    lists = {} if cls is YaRN else {"short_factors": SHORT, "long_factors": LONG}
    options = {"factor": 4.0, "original_length": 2048, **lists}
    assert cls(**options, attention_factor=1.0).resolve(8, 10000.0).rotation_factor == 1.0
    assert cls(**options).resolve(8, 10000.0).rotation_factor > 1.05


@given(dims, bases, lengths, st.integers(1, 1_000_000))
def test_a_factor_of_one_is_plain(dim: int, base: float, original: int, length: int) -> None:
    ones = (1.0,) * (dim // 2)
    plain = rotary_frequencies(dim, base)
    for scaling in (
        LinearScaling(factor=1.0),
        NTKScaling(factor=1.0),
        NTKByPartsScaling(factor=1.0, original_length=original),
        YaRN(factor=1.0, original_length=original),
        YaRN(factor=1.0, original_length=original, dialect="paper"),
        Llama3Scaling(factor=1.0, original_length=original),
        LongRoPE(factor=1.0, original_length=original, short_factors=ones, long_factors=ones),
        ProportionalScaling(fraction=1.0),
    ):
        resolved = scaling.resolve(dim, base, length)
        assert torch.allclose(resolved.frequencies, plain, rtol=1e-15, atol=0)
        assert (resolved.rotation_factor, resolved.softmax_factor) == (1.0, 1.0)
    # dynamic NTK's factor of 1 is not none at all: it is the growth beyond the original length
    within = DynamicNTKScaling(factor=1.0, original_length=original).resolve(dim, base, min(length, original))
    assert torch.equal(within.frequencies, plain)


@given(dims, bases, factors, lengths)
def test_llama3_is_ntk_by_parts_in_the_papers_dialect_with_other_bounds(
    dim: int, base: float, factor: float, original: int
) -> None:
    llama = Llama3Scaling(factor=factor, original_length=original, low_frequency_factor=1.0, high_frequency_factor=4.0)
    parts = NTKByPartsScaling(factor=factor, original_length=original, beta_slow=1.0, beta_fast=4.0, dialect="paper")
    assert torch.equal(llama.resolve(dim, base).frequencies, parts.resolve(dim, base).frequencies)


def test_llama3_with_one_bound_divides_slow_pairs_and_keeps_the_others() -> None:
    """As Llama 4 Scout has it, whose factors are both 1."""
    scaling = Llama3Scaling(factor=16.0, original_length=8192, low_frequency_factor=1.0, high_frequency_factor=1.0)
    assert_resolves(scaling, 128, 5e5, reference.llama3(128, 5e5, 16.0, 1.0, 1.0, 8192))


@pytest.mark.parametrize("cls", STRETCHING)
@given(st.integers(1, 100_000), st.integers(1, 64))
def test_any_two_of_three_numbers_give_the_third(cls: type[Any], original: int, factor: int) -> None:
    target = original * factor
    expected = cls(factor=float(factor), original_length=original, target_length=target)
    assert cls(original_length=original, target_length=target) == expected
    assert cls(factor=float(factor), original_length=original) == expected
    assert cls(factor=float(factor), target_length=target) == expected


@given(st.floats(1.0, 64.0), st.integers(64, 1_000_000))
def test_what_was_derived_is_accepted_again(factor: float, length: int) -> None:
    target = round(factor * length)
    for scaling in (
        LinearScaling(factor=factor, original_length=length),
        LinearScaling(factor=factor, target_length=target),
    ):
        assert scaling.original_length == length
        assert scaling.target_length == target
        assert dataclasses.replace(scaling) == scaling
    again = LinearScaling(original_length=64, target_length=length)
    assert dataclasses.replace(again) == again


def test_longrope_takes_the_long_list_one_past_the_original_length() -> None:
    scaling = LongRoPE(original_length=4096, target_length=131_072, short_factors=SHORT, long_factors=LONG)
    for length in (1, 4095, 4096, 4097, 131_072):
        expected = reference.longrope(8, 10000.0, [*SHORT], [*LONG], 4096, 131_072, length)
        assert_resolves(scaling, 8, 10000.0, expected, length)
        assert scaling.is_long(length) == (length > 4096)
    several = scaling.resolve(8, 10000.0, torch.tensor([[4095], [4096], [4097]])).frequencies
    assert several.shape == (3, 1, 4)
    for row, length in zip(several[:, 0], (4095, 4096, 4097), strict=True):
        assert torch.equal(row, scaling.resolve(8, 10000.0, length).frequencies)


@given(st.lists(st.integers(1, 500_000), min_size=1, max_size=5))
def test_dynamic_ntk_gives_each_row_what_it_gets_alone(sequence_lengths: list[int]) -> None:
    scaling = DynamicNTKScaling(factor=2.0, original_length=4096)
    rows = scaling.resolve(16, 10000.0, torch.tensor(sequence_lengths).unsqueeze(1)).frequencies
    assert rows.shape == (len(sequence_lengths), 1, 8)
    for row, length in zip(rows[:, 0], sequence_lengths, strict=True):
        assert torch.allclose(row, scaling.resolve(16, 10000.0, length).frequencies, rtol=1e-15, atol=0)


@pytest.mark.parametrize("scaling", [each for each in EVERY if each.by_length], ids=lambda each: type(each).__name__)
def test_a_long_call_leaves_nothing_behind_for_a_short_one(scaling: Scaling) -> None:
    encoding = Rotary(head_dim=8, scaling=scaling)
    short, long = torch.randn(1, 1, 16, 8), torch.randn(1, 1, 3000, 8)
    alone: Tensor = encoding(short)
    encoding(long)
    assert torch.equal(encoding(short), alone)
    assert torch.equal(Rotary(head_dim=8, scaling=scaling)(short), alone)
    assert not torch.allclose(encoding(long)[:, :, :16], encoding(long[:, :, :16]), atol=1e-3)


@every_scaling
def test_scalings_are_frozen_hashable_and_copied_by_value(scaling: Any) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError, match=r"^cannot assign to field 'factor'$"):
        scaling.factor = 8.0
    again = dataclasses.replace(scaling)
    assert again == scaling
    assert hash(again) == hash(scaling)
    assert pickle.loads(pickle.dumps(scaling)) == scaling
    assert len({scaling, again, *EVERY}) == len(EVERY)


@every_scaling
def test_a_base_for_each_head_gives_a_ladder_for_each(scaling: Scaling) -> None:
    heads = [100.0, 500_000.0]
    several = scaling.resolve(8, torch.tensor(heads, dtype=torch.float64)).frequencies
    for ladder, base in zip(several, heads, strict=True):
        assert torch.allclose(ladder, scaling.resolve(8, base).frequencies, rtol=1e-14, atol=0)


def test_lists_of_factors_become_tuples_of_floats() -> None:
    scaling = LongRoPE(factor=2.0, original_length=8, short_factors=[1, 2], long_factors=[3, 4])
    assert (scaling.short_factors, scaling.long_factors) == ((1.0, 2.0), (3.0, 4.0))


def test_mscale_all_dim_has_a_part_in_the_softmax_in_deepseeks_dialect_alone() -> None:
    options: dict[str, Any] = {"factor": 16.0, "original_length": 64, "mscale": 0.5, "mscale_all_dim": 1.0}
    deepseek, ministral = (YaRN(**options, mscale_dialect=each) for each in ("deepseek", "ministral3"))
    of_deepseek, of_ministral = deepseek.resolve(8, 1e4), ministral.resolve(8, 1e4)
    assert of_deepseek.rotation_factor == of_ministral.rotation_factor
    assert of_deepseek.softmax_factor == pytest.approx((0.1 * math.log(16) + 1) ** 2)
    assert of_ministral.softmax_factor == 1.0
    without = {**options, "mscale": None, "mscale_dialect": "ministral3"}
    assert YaRN(**without).unused == ("mscale_all_dim",)
    assert ministral.unused == ()


def test_longropes_mscales_go_with_the_length_of_each_row() -> None:
    factors: dict[str, Any] = {"short_factors": [1.0, 2.0], "long_factors": [3.0, 4.0]}
    scaling = LongRoPE(factor=4.0, original_length=8, **factors, short_mscale=1.1, long_mscale=1.3)
    assert [scaling.resolve(4, 1e4, length).rotation_factor for length in (None, 8, 9)] == [1.1, 1.1, 1.3]
    by_row = scaling.resolve(4, 1e4, torch.tensor([[8], [9]])).rotation_factor
    assert torch.as_tensor(by_row).flatten().tolist() == [1.1, 1.3]
    words = (
        "short_mscale and long_mscale must be given together and without attention_factor, since each is the factor of "
        "cosines and sines at some lengths; got short_mscale=1.1, long_mscale=None, attention_factor=None."
    )
    with raises_exactly(ValueError, words):
        LongRoPE(factor=4.0, original_length=8, **factors, short_mscale=1.1)
