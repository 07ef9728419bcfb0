"""Rotary against the paper's matrices, near and far, with each of its options."""

import math
from typing import Any

import numpy as np
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
    NTKScaling,
    Positions,
    ProportionalScaling,
    Rotary,
    Scaling,
    YaRN,
)
from situs.functional.rotation import PAIRINGS, Pairing
from tests.references import rotary as reference

both_pairings = pytest.mark.parametrize("pairing", PAIRINGS)
NEAR_AND_FAR = [0, 1, 257, 65_537, 1_000_003, 10_000_000, -10_000_000]
LISTS: Any = {"short_factors": (1.0, 1.0, 2.0, 2.0), "long_factors": (1.0, 2.0, 4.0, 8.0)}


def by_paper(x: Tensor, ids: Tensor, ladder: Any, pairing: str, factor: float = 1.0) -> Tensor:
    """Every head of every row turned by the reference; ids (batch, sequence)."""
    rows = [
        [reference.rotate(head.double().numpy(), where.double().numpy(), ladder, pairing, factor) for head in heads]
        for heads, where in zip(x, ids.expand(x.shape[0], -1), strict=True)
    ]
    return torch.from_numpy(np.array(rows))


def assert_close(actual: Tensor, expected: Tensor) -> None:
    """To 2e-6 in float32 and 1e-8 in float64, for vectors of norm below 10."""
    assert torch.allclose(actual.double(), expected, rtol=0, atol=1e-8 if actual.dtype == torch.float64 else 2e-6)


@both_pairings
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("start", NEAR_AND_FAR)
@pytest.mark.parametrize("length", [1, 3, 130])
def test_it_turns_as_the_paper_says(pairing: Pairing, dtype: torch.dtype, start: int, length: int) -> None:
    """One place, and 130, take ways of their own to the angles of a range, which ids written out do not."""
    x = torch.randn(1, 2, length, 8, dtype=dtype)
    encoding = Rotary(head_dim=8, base=500_000.0, pairing=pairing)
    ids = torch.arange(start, start + length).unsqueeze(0)
    expected = by_paper(x, ids, reference.frequencies(8, 500_000.0), pairing)
    assert_close(encoding(x, start), expected)
    assert_close(encoding(x, ids), expected)


@both_pairings
def test_without_positions_it_counts_from_zero(pairing: Pairing) -> None:
    x = torch.randn(2, 3, 5, 8)
    encoding = Rotary(head_dim=8, pairing=pairing)
    assert torch.equal(encoding(x), encoding(x, torch.arange(5)))
    assert torch.equal(encoding(x)[:, :, 0], x[:, :, 0])


@both_pairings
def test_each_row_has_positions_of_its_own(pairing: Pairing) -> None:
    x = torch.randn(2, 3, 4, 8)
    ids = torch.tensor([[5, 5, 9, 1_000_003], [0, -4, 65_537, 2]])
    assert_close(Rotary(head_dim=8, pairing=pairing)(x, ids), by_paper(x, ids, reference.frequencies(8), pairing))


@both_pairings
@given(st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=4))
def test_positions_may_be_fractions_and_negative(pairing: Pairing, where: list[float]) -> None:
    x = torch.randn(1, 1, 4, 8)
    ids = torch.tensor([where], dtype=torch.float64)
    assert_close(Rotary(head_dim=8, pairing=pairing)(x, ids), by_paper(x, ids, reference.frequencies(8), pairing))


@both_pairings
@pytest.mark.parametrize("rotary_dim", [2, 6])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_channels_beyond_rotary_dim_are_bit_equal(pairing: Pairing, rotary_dim: int, dtype: torch.dtype) -> None:
    x = torch.randn(2, 3, 5, 8).to(dtype)
    turned = Rotary(head_dim=8, rotary_dim=rotary_dim, pairing=pairing)(x, 10_000_000)
    assert torch.equal(turned[..., rotary_dim:], x[..., rotary_dim:])
    if dtype.itemsize >= 4:
        ids = 10_000_000 + torch.arange(5).unsqueeze(0)
        assert_close(turned, by_paper(x, ids, reference.frequencies(rotary_dim), pairing))


def test_proportional_is_not_partial_rotary() -> None:
    x = torch.randn(1, 1, 6, 8, dtype=torch.float64)
    proportional = Rotary(head_dim=8, scaling=ProportionalScaling(fraction=0.5))
    partial = Rotary(head_dim=8, rotary_dim=4)
    ladder = reference.frequencies(8)
    ladder[2:] = 0.0
    assert_close(proportional(x, 1000), by_paper(x, 1000 + torch.arange(6).unsqueeze(0), ladder, "halves"))
    assert torch.equal(proportional(x, 1000)[..., [2, 3, 6, 7]], x[..., [2, 3, 6, 7]])
    assert not torch.allclose(proportional(x, 1000), partial(x, 1000), atol=0.1)


def test_pairs_that_stand_still_have_no_wavelength() -> None:
    described = Rotary(head_dim=8, scaling=ProportionalScaling(fraction=0.5)).describe()
    assert described["wavelengths"] == pytest.approx((2 * math.pi, 2 * math.pi * 10))
    nothing_turns = Rotary(head_dim=8, scaling=ProportionalScaling(fraction=0.0))
    x = torch.randn(1, 1, 3, 8)
    assert torch.equal(nothing_turns(x, 77), x)


@both_pairings
@pytest.mark.parametrize("length", [4, 130])
def test_each_head_may_have_a_base_of_its_own(pairing: Pairing, length: int) -> None:
    bases = [100.0, 10_000.0, 500_000.0]
    x = torch.randn(2, 3, length, 8)
    encoding = Rotary(head_dim=8, base=bases, pairing=pairing)
    turned = encoding(x, 65_537)
    for head, base in enumerate(bases):
        alone = Rotary(head_dim=8, base=base, pairing=pairing)(x[:, head : head + 1], 65_537)
        assert torch.allclose(turned[:, head : head + 1], alone, rtol=0, atol=1e-6)
    assert encoding.base == tuple(bases)
    assert encoding.frequencies.shape == (3, 4)


SCALED: list[tuple[Scaling, int]] = [
    (LinearScaling(factor=4.0), 9),
    (YaRN(factor=4.0, original_length=2048), 9),
    (YaRN(factor=4.0, original_length=2048, attention_factor=1.0), 9),
    (Llama3Scaling(factor=8.0, original_length=8192), 9),
    (DynamicNTKScaling(factor=2.0, original_length=2048), 2000),
    (DynamicNTKScaling(factor=2.0, original_length=2048), 9000),
    (LongRoPE(factor=4.0, original_length=2048, **LISTS), 2048),
    (LongRoPE(factor=4.0, original_length=2048, **LISTS), 2049),
]


@both_pairings
@pytest.mark.parametrize(("scaling", "length"), SCALED, ids=str)
def test_a_scalings_frequencies_and_factor_are_applied(pairing: Pairing, scaling: Scaling, length: int) -> None:
    x = torch.randn(1, 1, 3, 8, dtype=torch.float64)
    resolved = scaling.resolve(8, 10_000.0, length)
    encoding = Rotary(head_dim=8, scaling=scaling, pairing=pairing)
    ids = torch.arange(1_000_003, 1_000_006).unsqueeze(0)
    expected = by_paper(x, ids, resolved.frequencies.numpy(), pairing, float(resolved.rotation_factor))
    assert_close(encoding(x, Positions.range(3, start=1_000_003, sequence_length=length)), expected)
    assert encoding.rotation_factor == resolved.rotation_factor
    assert ("norm" in encoding.tags) == (resolved.rotation_factor == 1.0)


def test_each_row_and_document_is_scaled_by_its_own_length() -> None:
    encoding = Rotary(head_dim=8, scaling=DynamicNTKScaling(factor=2.0, original_length=4))
    x = torch.randn(2, 1, 12, 8)
    padded = encoding(x, Positions.from_mask(torch.tensor([[0] * 7 + [1] * 5, [1] * 12])))
    assert torch.allclose(padded[:1, :, 7:], encoding(x[:1, :, 7:]), atol=1e-6)
    assert torch.allclose(padded[1:], encoding(x[1:]), atol=1e-6)
    packed = encoding(x[:1], Positions.packed([5, 7]))
    assert torch.allclose(packed[:, :, :5], encoding(x[:1, :, :5]), atol=1e-6)
    assert torch.allclose(packed[:, :, 5:], encoding(x[:1, :, 5:]), atol=1e-6)


@both_pairings
@pytest.mark.parametrize("options", [{}, {"rotary_dim": 4}, {"scaling": YaRN(factor=4.0, original_length=64)}], ids=str)
def test_the_matrix_of_a_position_is_what_forward_applies(pairing: Pairing, options: dict[str, Any]) -> None:
    encoding = Rotary(head_dim=8, pairing=pairing, **options)
    for position in (0.0, 3.0, -2.5, 1_000_003.0):
        basis = torch.eye(8, dtype=torch.float64)[:, None, None]
        columns = encoding(basis, torch.tensor([position], dtype=torch.float64))[:, 0, 0].T
        assert torch.allclose(encoding.rotation_matrix(position), columns, rtol=0, atol=1e-14)
    plain = Rotary(head_dim=8, pairing=pairing).rotation_matrix(7.0)
    assert torch.allclose(plain, torch.from_numpy(reference.matrix(7.0, reference.frequencies(8), pairing)))
    assert Rotary(head_dim=8, base=[100.0, 200.0]).rotation_matrix(7.0).shape == (2, 8, 8)


CONFIGURATIONS: list[dict[str, Any]] = [
    {"head_dim": 8},
    {"head_dim": 8, "base": (100.0, 200.0), "rotary_dim": 4, "pairing": "interleaved"},
    {"head_dim": 8, "base": 5e5, "scaling": YaRN(factor=4.0, original_length=64, mscale_all_dim=1.0, mscale=0.7)},
]


@pytest.mark.parametrize("options", CONFIGURATIONS, ids=str)
def test_its_configuration_makes_it_again(options: dict[str, Any]) -> None:
    encoding = Rotary(**options)
    again = Rotary(**encoding.config)
    assert again.config == encoding.config
    assert again.identity == encoding.identity
    assert options.items() <= encoding.config.items()
    assert encoding.state_dict() == {}
    assert repr(again) == repr(encoding)


def test_describe_hides_nothing() -> None:
    scaling = YaRN(factor=40.0, original_length=4096, mscale=0.707, mscale_all_dim=1.0)
    described = Rotary(head_dim=8, base=100.0, scaling=scaling).describe()
    slowest = float(scaling.resolve(8, 100.0).frequencies.min())
    assert described.pop("wavelengths") == pytest.approx((2 * math.pi, 2 * math.pi / slowest), rel=1e-12)
    assert described.pop("rotation_factor") == pytest.approx((1 + 0.0707 * math.log(40)) / (1 + 0.1 * math.log(40)))
    assert described.pop("softmax_factor") == pytest.approx((1 + 0.1 * math.log(40)) ** 2)
    assert described == {
        "encoding": "Rotary", "place": "query and key", "head_dim": 8, "base": 100.0, "rotary_dim": 8,
        "pairing": "halves", "channels": "leading", "reverse": False, "scaling": scaling, "split": None, "axes": 1,
        "dialect": "hf",
        "short_context": "changed at every length: frequencies x0.7562 to x1, cos and sin x0.921, softmax scale x1.874",
        "softmax_scale": "1/sqrt(head_dim)", "parameters": 0, "tags": ["bounded", "far", "real", "relative", "unique"],
    }  # fmt: skip


ONES, LONG = (1.0,) * 4, (1.0, 2.0, 3.0, 4.0)
SHORT_CONTEXTS: list[tuple[Scaling, str]] = [
    (LinearScaling(factor=4.0), "changed at every length: frequencies x0.25"),
    (LinearScaling(factor=1.0), "unchanged at every length"),
    (NTKScaling(factor=4.0), "changed at every length: frequencies x0.25 to x1"),
    (DynamicNTKScaling(factor=2.7, original_length=8192), "unchanged up to 8192"),
    (
        YaRN(factor=4.0, original_length=4096),
        "changed at every length: frequencies x0.25 to x1, cos and sin x1.139",
    ),
    (
        LongRoPE(factor=4.0, original_length=4096, short_factors=ONES, long_factors=LONG),
        "changed already up to 4096: cos and sin x1.08",
    ),
    (
        LongRoPE(factor=4.0, original_length=4096, short_factors=ONES, long_factors=LONG, attention_factor=1.0),
        "unchanged up to 4096",
    ),
    (
        LongRoPE(factor=4.0, original_length=4096, short_factors=LONG, long_factors=LONG, attention_factor=1.0),
        "changed already up to 4096: frequencies x0.25 to x1",
    ),
    (ProportionalScaling(fraction=0.5), "changed at every length: frequencies x0 to x1"),
]


@pytest.mark.parametrize(("scaling", "change"), SHORT_CONTEXTS, ids=str)
def test_the_change_at_short_contexts_is_told(scaling: Scaling, change: str) -> None:
    encoding, plain = Rotary(head_dim=8, scaling=scaling), Rotary(head_dim=8)
    assert encoding.describe()["short_context"] == change
    x = torch.randn(1, 1, 64, 8, dtype=torch.float64)
    assert torch.allclose(encoding(x), plain(x), rtol=0, atol=1e-9) == change.startswith("unchanged")
    assert "short_context" not in plain.describe()


def test_options_of_yarn_that_nothing_follows_from_are_told() -> None:
    yarn = {"factor": 40.0, "original_length": 4096}
    for options, unused in (
        ({"mscale": 0.7}, ("mscale",)),
        ({"mscale": 0.7, "mscale_all_dim": 0.0}, ("mscale",)),
        ({"mscale": 0.7, "mscale_all_dim": 1.0, "attention_factor": 1.2}, ("mscale",)),
        ({"mscale": 0.7, "mscale_all_dim": 1.0}, None),
        ({"mscale_all_dim": 1.0}, None),
    ):
        given = Rotary(head_dim=8, scaling=YaRN(**yarn, **options))  # type: ignore[arg-type]
        assert given.describe().get("unused") == unused
        if unused:
            without = YaRN(**yarn, **{name: value for name, value in options.items() if name not in unused})  # type: ignore[arg-type]
            assert given.rotation_factor == Rotary(head_dim=8, scaling=without).rotation_factor
