"""Every error of the scalings and splits, word for word."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from situs import (
    Axial,
    DynamicNTKScaling,
    LinearScaling,
    Llama3Scaling,
    LongRoPE,
    NTKByPartsScaling,
    NTKScaling,
    ProportionalScaling,
    Rotary,
    Sections,
    YaRN,
)
from tests.raising import raises_exactly

Make = Callable[[], object]

NEED_ORIGINAL: dict[type[Any], dict[str, Any]] = {
    DynamicNTKScaling: {},
    NTKByPartsScaling: {},
    YaRN: {},
    Llama3Scaling: {},
    LongRoPE: {"short_factors": (1.0,), "long_factors": (2.0,)},
}

ERRORS: list[tuple[Make, str]] = [
    (
        lambda: LinearScaling(),
        "factor must be given, or original_length and target_length, since factor = target / original; got "
        "factor=None, original_length=None, target_length=None.",
    ),
    (
        lambda: NTKScaling(target_length=8192),
        "factor must be given, or original_length and target_length, since factor = target / original; got "
        "factor=None, original_length=None, target_length=8192.",
    ),
    (
        lambda: YaRN(factor=4.0, original_length=4096, target_length=32_768),
        "factor, original_length and target_length must agree, since factor = target / original; got factor=4.0, but "
        "32768 / 4096 = 8. Leave one of them out.",
    ),
    (
        lambda: LinearScaling(factor=100.0, original_length=10, target_length=1049),
        "factor, original_length and target_length must agree, since factor = target / original; got factor=100.0, "
        "but 1049 / 10 = 104.9. Leave one of them out.",
    ),
    (
        lambda: LinearScaling(factor=1000.0, original_length=4, target_length=4499),
        "factor, original_length and target_length must agree, since factor = target / original; got factor=1000.0, "
        "but 4499 / 4 = 1124.75. Leave one of them out.",
    ),
    (
        lambda: LinearScaling(factor=10.0, target_length=32_768),
        "original_length must be a whole number, since it counts tokens; got 3276.8. It is target_length / factor, "
        "32768 / 10.0.",
    ),
    (
        lambda: LinearScaling(factor=math.nan),
        "factor must be finite, since a context is stretched by it; got nan.",
    ),
    (
        lambda: ProportionalScaling(fraction=0.5, factor=math.inf),
        "factor must be finite, since a context is stretched by it; got inf.",
    ),
    *(
        (
            lambda factor=factor, cls=cls, lists=lists: cls(
                factor=4.0, original_length=64, attention_factor=factor, **lists
            ),
            f"attention_factor must be {rule}, since cosines and sines are multiplied by it; got {factor}.",
        )
        for factor, rule in ((0.0, "more than 0"), (-1.0, "more than 0"), (math.nan, "finite"), (math.inf, "finite"))
        for cls, lists in ((YaRN, {}), (LongRoPE, {"short_factors": (1.0,), "long_factors": (2.0,)}))
    ),
    *(
        (
            lambda lists=lists: LongRoPE(factor=4.0, original_length=64, **lists),
            f"{name} must be {rule}, since they divide the frequencies; got {bad}.",
        )
        for name in ("short_factors", "long_factors")
        for bad, rule in ((0.0, "more than 0"), (math.nan, "finite"), (-2.0, "more than 0"), (math.inf, "finite"))
        for lists in ({"short_factors": (1.0, 1.0), "long_factors": (2.0, 2.0)} | {name: (1.0, bad)},)
    ),
    (
        lambda: YaRN(factor=4.0, original_length=64, mscale=math.nan),
        "mscale must be finite, since it weighs a logarithm; got nan.",
    ),
    (
        lambda: YaRN(factor=4.0, original_length=64, beta_fast=math.inf),
        "beta_fast must be finite, since it counts turns; got inf.",
    ),
    (
        lambda: Llama3Scaling(factor=4.0, original_length=64, high_frequency_factor=math.inf),
        "high_frequency_factor must be finite, since it divides the original length; got inf.",
    ),
    *(
        (
            lambda cls=cls: cls(factor=4.0, original_length=64, dialect="paper", truncate=False),
            "truncate must be left out with dialect='paper', since the paper's ramp runs over turns and rounds no "
            "bounds to whole pairs; got truncate=False.",
        )
        for cls in (NTKByPartsScaling, YaRN)
    ),
    (
        lambda: LinearScaling(factor=0.5),
        "factor must be 1 or more, since a context is stretched by it; got 0.5.",
    ),
    (
        lambda: LinearScaling(original_length=4096, target_length=2048),
        "factor must be 1 or more, since a context is stretched by it; got 0.5.",
    ),
    (
        lambda: LinearScaling(factor=2.0, original_length=0),
        "original_length must be 1 or more, since it counts tokens; got 0.",
    ),
    (
        lambda: LinearScaling(factor=2.0, target_length=-5),
        "target_length must be 1 or more, since it counts tokens; got -5.",
    ),
    (
        lambda: LinearScaling(factor=4.0, target_length=1),
        "original_length must be 1 or more, since it counts tokens; got 0. It is target_length / factor, 1 / 4.0.",
    ),
    (
        lambda: YaRN(factor=4.0, original_length=4096, dialect="mine"),  # type: ignore[arg-type]
        "dialect must be one of 'hf', 'paper', since released models ramp over pairs, the paper over turns; got "
        "'mine'.",
    ),
    (
        lambda: NTKByPartsScaling(factor=4.0, original_length=4096, beta_slow=32.0, beta_fast=1.0),
        "beta_slow and beta_fast must satisfy 0 < slow < fast, since the ramp runs between them; got beta_slow=32.0, "
        "beta_fast=1.0.",
    ),
    (
        lambda: YaRN(factor=4.0, original_length=4096, beta_slow=0.0),
        "beta_slow and beta_fast must satisfy 0 < slow < fast, since the ramp runs between them; got beta_slow=0.0, "
        "beta_fast=32.0.",
    ),
    (
        lambda: Llama3Scaling(factor=4.0, original_length=8192, low_frequency_factor=5.0),
        "low_frequency_factor and high_frequency_factor must satisfy 0 < low <= high, since the blend runs between "
        "them; got low=5.0, high=4.0.",
    ),
    (
        lambda: LongRoPE(factor=4.0, original_length=4096),
        "short_factors and long_factors must have one number per pair each, since they divide the frequencies and were "
        "searched for one model; got 0 and 0. Take them from the rope_scaling of its config.json.",
    ),
    (
        lambda: LongRoPE(factor=4.0, original_length=4096, short_factors=(1.0, 2.0), long_factors=(1.0,)),
        "short_factors and long_factors must have one number per pair each, since they divide the frequencies and were "
        "searched for one model; got 2 and 1. Take them from the rope_scaling of its config.json.",
    ),
    (
        lambda: Rotary(
            head_dim=8, scaling=LongRoPE(factor=4.0, original_length=64, short_factors=(1.0,), long_factors=(2.0,))
        ),
        "short_factors must have 4 numbers, one for each pair of 8 channels; got 1.",
    ),
    (
        lambda: ProportionalScaling(fraction=1.5),
        "fraction must lie in 0 .. 1, since it is a part of the pairs; got 1.5.",
    ),
    (
        lambda: ProportionalScaling(fraction=0.5, factor=0.5),
        "factor must be 1 or more, since a context is stretched by it; got 0.5.",
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
        "order must be one of 'contiguous', 'interleaved', 'time_last', since sections are dealt in blocks or in "
        "turns; got 'shuffled'.",
    ),
    (
        lambda: Sections(sizes=(4,)),
        "sizes must be two or more, since each axis has a number of pairs; got (4,).",
    ),
    (
        lambda: Sections(sizes=(4, -1)),
        "sizes must be 0 or more, since they count pairs; got -1.",
    ),
    (
        lambda: Sections(sizes=(1, 3, 0), order="interleaved"),
        "sizes must leave each axis its turns, since interleaved sections are dealt one pair an axis in turns; got "
        "(1, 3, 0), of which the axes would get (3, 1, 0).",
    ),
    (
        lambda: Rotary(head_dim=16, split=Sections(sizes=(2, 3, 4))),
        "sizes must add up to 8, the number of pairs in rotary_dim=16 channels; got (2, 3, 4), which makes 9.",
    ),
]


@pytest.mark.parametrize(("make", "message"), ERRORS)
def test_what_cannot_be_scaled_is_refused_in_these_words(make: Make, message: str) -> None:
    with raises_exactly(ValueError, message):
        make()


def test_a_factor_that_is_no_number_is_refused() -> None:
    with raises_exactly(TypeError, "factor must be a number, since a context is stretched by it; got '4'."):
        LinearScaling(factor="4")  # type: ignore[arg-type]


@pytest.mark.parametrize("length", [math.nan, 64.5, 64.0, "64", True])
@pytest.mark.parametrize("name", ["original_length", "target_length"])
def test_lengths_are_whole_numbers(name: str, length: Any) -> None:
    with raises_exactly(TypeError, f"{name} must be a whole number, since it counts tokens; got {length!r}."):
        LinearScaling(**{"factor": 2.0, name: length})


@pytest.mark.parametrize(
    ("factor", "original", "target"),
    [(40.0, 4096, 163_840), (8.0, 8192, 65_535), (2.6667, 12_288, 32_768), (32.0, 4096, 131_072), (1.5, 3, 4)],
)
def test_numbers_that_agree_but_for_a_token_are_taken(factor: float, original: int, target: int) -> None:
    scaling = LinearScaling(factor=factor, original_length=original, target_length=target)
    assert (scaling.factor, scaling.original_length, scaling.target_length) == (factor, original, target)


@pytest.mark.parametrize("cls", NEED_ORIGINAL)
def test_methods_that_measure_wavelengths_need_the_original_length(cls: type[Any]) -> None:
    with raises_exactly(
        ValueError, f"original_length must be given, since {cls.__name__} measures wavelengths against it; got None."
    ):
        cls(factor=4.0, **NEED_ORIGINAL[cls])
