"""Every error of the scalings and splits, word for word."""

from collections.abc import Callable
from typing import Any

import pytest

from situs import NTK, Axial, DynamicNTK, Linear, Llama3, LongRoPE, NTKByParts, Proportional, Rotary, Sections, YaRN
from tests.raising import raises_exactly

Make = Callable[[], object]

NEED_ORIGINAL: dict[type[Any], dict[str, Any]] = {
    DynamicNTK: {},
    NTKByParts: {},
    YaRN: {},
    Llama3: {},
    LongRoPE: {"short_factors": (1.0,), "long_factors": (2.0,)},
}

ERRORS: list[tuple[Make, str]] = [
    (
        lambda: Linear(),
        "Linear needs factor, or original_length and target_length, since factor = target / original; got "
        "factor=None, original_length=None, target_length=None.",
    ),
    (
        lambda: NTK(target_length=8192),
        "NTK needs factor, or original_length and target_length, since factor = target / original; got factor=None, "
        "original_length=None, target_length=8192.",
    ),
    (
        lambda: YaRN(factor=4.0, original_length=4096, target_length=32_768),
        "factor, original_length and target_length must agree, since factor = target / original; got factor=4.0, but "
        "32768 / 4096 = 8. Leave one of them out.",
    ),
    (
        lambda: Linear(factor=0.5),
        "factor must be 1 or more, since a context is stretched by it; got 0.5.",
    ),
    (
        lambda: Linear(original_length=4096, target_length=2048),
        "factor must be 1 or more, since a context is stretched by it; got 0.5.",
    ),
    (
        lambda: Linear(factor=2.0, original_length=0),
        "original_length must be 1 or more, since it counts tokens; got 0.",
    ),
    (
        lambda: Linear(factor=2.0, target_length=-5),
        "target_length must be 1 or more, since it counts tokens; got -5.",
    ),
    (
        lambda: Linear(factor=4.0, target_length=1),
        "original_length must be 1 or more, since it counts tokens; got 0. It is target_length / factor, 1 / 4.0.",
    ),
    (
        lambda: YaRN(factor=4.0, original_length=4096, dialect="mine"),  # type: ignore[arg-type]
        "dialect must be one of 'hf', 'paper', since released models ramp over pairs, the paper over turns; got "
        "'mine'.",
    ),
    (
        lambda: NTKByParts(factor=4.0, original_length=4096, beta_slow=32.0, beta_fast=1.0),
        "beta_slow and beta_fast must satisfy 0 < slow < fast, since the ramp runs between them; got beta_slow=32.0, "
        "beta_fast=1.0.",
    ),
    (
        lambda: YaRN(factor=4.0, original_length=4096, beta_slow=0.0),
        "beta_slow and beta_fast must satisfy 0 < slow < fast, since the ramp runs between them; got beta_slow=0.0, "
        "beta_fast=32.0.",
    ),
    (
        lambda: Llama3(factor=4.0, original_length=8192, low_frequency_factor=4.0),
        "the frequency factors must satisfy 0 < low < high, since the blend runs between them; got low=4.0, high=4.0.",
    ),
    (
        lambda: LongRoPE(factor=4.0, original_length=4096),
        "short_factors and long_factors must have one number a pair each, since they divide the frequencies; got 0 "
        "and 0.",
    ),
    (
        lambda: LongRoPE(factor=4.0, original_length=4096, short_factors=(1.0, 2.0), long_factors=(1.0,)),
        "short_factors and long_factors must have one number a pair each, since they divide the frequencies; got 2 "
        "and 1.",
    ),
    (
        lambda: Rotary(
            head_dim=8, scaling=LongRoPE(factor=4.0, original_length=64, short_factors=(1.0,), long_factors=(2.0,))
        ),
        "short_factors must have 4 numbers, one for each pair of 8 channels; got 1.",
    ),
    (
        lambda: Proportional(fraction=1.5),
        "fraction must lie in 0 .. 1, since it is a part of the pairs; got 1.5.",
    ),
    (
        lambda: Proportional(fraction=0.5, factor=0.5),
        "factor must be 1 or more, since a context is stretched by it; got 0.5.",
    ),
    (
        lambda: Axial(axes=4),
        "axes must be one of 2, 3, since images have two and videos three; got 4.",
    ),
    (
        lambda: Axial(ladder="borrowed"),  # type: ignore[arg-type]
        "ladder must be one of 'own', 'shared', since axes repeat a ladder or share one; got 'borrowed'.",
    ),
    (
        lambda: Rotary(head_dim=16, split=Axial(axes=3)),
        "rotary_dim must be a multiple of 6, since 3 axes get whole pairs each; got 16.",
    ),
    (
        lambda: Sections(sizes=(2, 2), order="shuffled"),  # type: ignore[arg-type]
        "order must be one of 'contiguous', 'interleaved', since sections are dealt in blocks or in turns; got "
        "'shuffled'.",
    ),
    (
        lambda: Sections(sizes=(4,)),
        "sizes must be two or more counts of pairs, one an axis; got (4,).",
    ),
    (
        lambda: Sections(sizes=(4, -1)),
        "sizes must be two or more counts of pairs, one an axis; got (4, -1).",
    ),
    (
        lambda: Sections(sizes=(1, 3, 0), order="interleaved"),
        "sizes must leave each axis its turns, since interleaved sections are dealt one pair an axis in turns; got "
        "(1, 3, 0), of which the axes would get (3, 1, 0).",
    ),
    (
        lambda: Rotary(head_dim=16, split=Sections(sizes=(2, 3, 4))),
        "sizes must add up to 8, the number of pairs in 16 channels; got (2, 3, 4), which makes 9.",
    ),
]


@pytest.mark.parametrize(("make", "message"), ERRORS, ids=[message for _, message in ERRORS])
def test_what_cannot_be_scaled_is_refused_in_these_words(make: Make, message: str) -> None:
    with raises_exactly(ValueError, message):
        make()


@pytest.mark.parametrize("cls", NEED_ORIGINAL)
def test_methods_that_measure_wavelengths_need_the_original_length(cls: type[Any]) -> None:
    with raises_exactly(
        ValueError, f"original_length must be given, since {cls.__name__} measures wavelengths against it; got None."
    ):
        cls(factor=4.0, **NEED_ORIGINAL[cls])
