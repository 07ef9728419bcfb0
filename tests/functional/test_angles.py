"""Angles against mpmath with 60 digits: within the stated bound, however far the position."""

import math
from typing import Any

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import situs
from situs import Positions
from situs.functional import angles, range_unit_circle, reduced_angles, rotary_frequencies, unit_circle

CPU = torch.device("cpu")
FREQUENCIES = rotary_frequencies(32, 10000.0)
WHOLE = [0, 1, 257, 65_537, 1_000_003, 10_000_000, -1, -257, -1_000_003, -10_000_000]
REAL = [0.5, -2.25, 0.1, 257.75, 65_537.3, 1_000_003.01, -9_999_999.5]

FLOAT32_BOUND = 1e-6
FLOAT64_BOUND = 1e-9


def true_angle(position: float, frequency: float) -> Any:
    """The product without rounding: both factors are the floats they are."""
    return mpmath.mpf(position) * mpmath.mpf(frequency)


def true_points(positions: list[Any], frequencies: Tensor = FREQUENCIES) -> tuple[Tensor, Tensor]:
    """Cosines and sines, (positions, pairs), rounded to float64 at the very end."""
    with mpmath.workdps(60):
        products = [[true_angle(position, w) for w in frequencies.tolist()] for position in positions]
        cos = [[float(mpmath.cos(angle)) for angle in row] for row in products]
        sin = [[float(mpmath.sin(angle)) for angle in row] for row in products]
    return torch.tensor(cos, dtype=torch.float64), torch.tensor(sin, dtype=torch.float64)


def worst(actual: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor]) -> float:
    return max(float((a.double() - e).abs().max()) for a, e in zip(actual, expected, strict=True))


def error_in_turns(computed: Tensor, positions: list[Any], frequencies: Tensor = FREQUENCIES) -> float:
    """How far ``computed`` angles are from the true ones, whole turns left out of account, in radians."""
    with mpmath.workdps(60):
        errors = [
            abs(mpmath.fmod(angle - true_angle(position, w) + 1001 * mpmath.pi, 2 * mpmath.pi) - mpmath.pi)
            for position, row in zip(positions, computed.double().tolist(), strict=True)
            for angle, w in zip(row, frequencies.tolist(), strict=True)
        ]
    return float(max(errors))


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, FLOAT32_BOUND), (torch.float64, FLOAT64_BOUND)])
def test_unit_circle_is_exact_near_and_far(dtype: torch.dtype, bound: float) -> None:
    for positions in (torch.tensor(WHOLE), torch.tensor(REAL, dtype=torch.float64), torch.tensor(REAL)):
        points = unit_circle(positions.unsqueeze(-1), FREQUENCIES, dtype)
        assert points[0].dtype == points[1].dtype == dtype
        assert worst(points, true_points(positions.tolist())) <= bound


@pytest.mark.parametrize("base", [100.0, 10000.0, 500000.0])
@pytest.mark.parametrize("position", [10**7, -(2**28), 10**9, 10**12, 2**40 + 1, -(10**15), 2**52 - 9])
def test_angles_of_rotary_keep_the_stated_bound_at_any_position(position: int, base: float) -> None:
    rotary = situs.Rotary(head_dim=32, base=base)
    with mpmath.workdps(60):
        frequencies = [mpmath.power(base, mpmath.mpf(-2 * pair) / 32) for pair in range(16)]
        angles = [[(position + step) * frequency for frequency in frequencies] for step in range(3)]
        expected = [torch.tensor([[float(turn(angle)) for angle in row] for row in angles], dtype=torch.float64)
                    for turn in (mpmath.cos, mpmath.sin)]  # fmt: skip
    ids = torch.tensor([position, position + 1, position + 2])
    for positions in (Positions.range(3, start=position), Positions.explicit(ids)):
        table = rotary.table(positions, dtype=torch.float64)
        assert worst((table.cos[0, 0], table.sin[0, 0]), (expected[0], expected[1])) <= (abs(position) + 2) * 2.0**-52


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_unit_circle_is_rounded_once(dtype: torch.dtype) -> None:
    positions = torch.tensor(WHOLE).unsqueeze(-1)
    for narrow, wide in zip(
        unit_circle(positions, FREQUENCIES, dtype), unit_circle(positions, FREQUENCIES, torch.float64), strict=True
    ):
        assert torch.equal(narrow, wide.to(dtype))


def test_a_float32_product_would_not_do() -> None:
    positions = torch.tensor([1_000_003])
    product = positions.float().unsqueeze(-1) * FREQUENCIES.float()
    assert worst((product.cos(), product.sin()), true_points(positions.tolist())) > 1e-2


@pytest.mark.parametrize("start", WHOLE)
@pytest.mark.parametrize("length", [1, 2, 3, 128, 131])
def test_a_range_by_the_addition_theorem_is_exact_near_and_far(start: int, length: int) -> None:
    checked = sorted({0, 1, length // 2, length - 1} & set(range(length)))
    expected = true_points([start + place for place in checked])
    for dtype, bound in ((torch.float32, FLOAT32_BOUND), (torch.float64, 2 * FLOAT64_BOUND)):
        cos, sin = range_unit_circle(start, length, FREQUENCIES, dtype, CPU)
        assert cos.shape == sin.shape == (length, 16)
        assert cos.dtype == sin.dtype == dtype
        assert worst((cos[checked], sin[checked]), expected) <= bound


@given(st.integers(0, 3000), st.integers(-10_000_000, 10_000_000))
def test_a_range_of_any_length_is_the_circle_of_its_positions(length: int, start: int) -> None:
    frequencies = rotary_frequencies(8, torch.tensor([100.0, 1e4, 5e5]))  # one ladder a head
    points = range_unit_circle(start, length, frequencies, torch.float64, CPU)
    places = torch.arange(start, start + length)[None, :, None]
    expected = unit_circle(places, frequencies[:, None, :], torch.float64)
    for one, other in zip(points, expected, strict=True):
        assert one.shape == (3, length, 4)
        assert one.is_contiguous()
        assert torch.allclose(one, other, rtol=0, atol=4 * FLOAT64_BOUND)


def test_reduced_angles_are_exact_near_and_far() -> None:
    whole = reduced_angles(torch.tensor(WHOLE).unsqueeze(-1), FREQUENCIES)
    assert whole.dtype == torch.float32
    assert float(whole.abs().max()) <= math.pi + 1e-6
    assert error_in_turns(whole, WHOLE) <= FLOAT32_BOUND
    real = torch.tensor(REAL)  # as float32 holds them
    assert error_in_turns(reduced_angles(real.unsqueeze(-1), FREQUENCIES), real.tolist()) <= FLOAT32_BOUND


@given(st.lists(st.integers(-(2**31), 2**31), min_size=1, max_size=4), st.floats(100.0, 1e7))
def test_reduced_angles_are_exact_for_any_position_of_32_bits(positions: list[int], base: float) -> None:
    frequencies = rotary_frequencies(8, base)
    computed = reduced_angles(torch.tensor(positions).unsqueeze(-1), frequencies)
    assert error_in_turns(computed, positions, frequencies) <= FLOAT32_BOUND


class Dtypes(TorchDispatchMode):
    """Notes the dtype of everything computed on a device."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device, self.seen = device, set[torch.dtype]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and result.device.type == self.device:
            self.seen.add(result.dtype)
        return result


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float32])
def test_reduced_angles_ask_no_float64_of_the_device(dtype: torch.dtype) -> None:
    with Dtypes("meta") as computed:
        angle = reduced_angles(torch.zeros(5, 1, dtype=dtype, device="meta"), FREQUENCIES)
    assert angle.shape == (5, 16)
    assert torch.float32 in computed.seen
    assert not computed.seen & {torch.float64, torch.complex64, torch.complex128}


def test_a_device_without_float64_gets_the_reduced_angles(monkeypatch: pytest.MonkeyPatch) -> None:
    assert angles.widest(torch.device("mps")) == torch.float32
    assert angles.widest(CPU) == torch.float64
    monkeypatch.setattr(angles, "WITHOUT_FLOAT64", frozenset({"cpu", "meta"}))
    assert angles.widest(CPU) == torch.float32
    points = unit_circle(torch.tensor(WHOLE).unsqueeze(-1), FREQUENCIES, torch.float32)
    assert worst(points, true_points(WHOLE)) <= FLOAT32_BOUND
    with Dtypes("meta") as computed:
        unit_circle(torch.zeros(5, 1, dtype=torch.int64, device="meta"), FREQUENCIES, torch.float32)
    assert torch.float64 not in computed.seen


def test_frequencies_that_only_the_device_knows_stay_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(angles, "WITHOUT_FLOAT64", frozenset({"cpu", "meta"}))
    points = unit_circle(torch.tensor(WHOLE).unsqueeze(-1), FREQUENCIES.float(), torch.float32)
    assert worst(points, true_points(WHOLE, FREQUENCIES.float().double())) <= 10_000_000 * 2**-24
    near = [position for position in WHOLE if abs(position) < 300]
    points = unit_circle(torch.tensor(near).unsqueeze(-1), FREQUENCIES.float(), torch.float32)
    assert worst(points, true_points(near)) <= 300 * 2**-23
    with Dtypes("meta") as computed:  # from where nothing can be read
        places = torch.zeros(5, 1, dtype=torch.int64, device="meta")
        unit_circle(places, FREQUENCIES.to("meta", torch.float32), torch.float32)
    assert torch.float64 not in computed.seen


@pytest.mark.parametrize("length", [0, 5])
def test_no_positions_give_no_points(length: int) -> None:
    cos, sin = unit_circle(torch.zeros(length, 0, 1, dtype=torch.int64), FREQUENCIES, torch.float32)
    assert cos.shape == sin.shape == (length, 0, 16)
