"""What tests of the compiled loop share."""

import pytest
import torch
from torch import Tensor

from situs.compiled.program import converts_halves
from situs.functional import rotary_frequencies, unit_circle
from situs.functional.rotation import PAIRINGS, Pairing
from situs.rotation import RotationTable, fused
from situs.rotation.fused import planning

needs_the_loop = pytest.mark.skipif(
    not fused.available() or not converts_halves(), reason="llvmlite is not installed, or the machine has no float16"
)
both_pairings = pytest.mark.parametrize("pairing", PAIRINGS)
SHAPE = (2, 4, 48, 64)


def table_for(
    rows: int, heads: int, length: int, turning: int, dtype: torch.dtype, magnitude: float = 1.0
) -> RotationTable:
    """Random positions near ten million, one a row, head and token."""
    positions = torch.randint(10_000_000, 10_100_000, (rows, heads, length, 1))
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    cos, sin = unit_circle(positions, rotary_frequencies(turning), wide)
    return RotationTable(cos * magnitude, sin * magnitude)


def turn(x: Tensor, table: RotationTable, pairing: Pairing) -> Tensor:
    """By the compiled loop, or not at all."""
    return turn_all((x,), table, pairing)[0]


def turn_all(tensors: tuple[Tensor, ...], table: RotationTable, pairing: Pairing) -> list[Tensor]:
    plan = table.plan_for(tensors, pairing)
    assert plan is not None
    return plan.rotate(tensors, table.cos, table.sin)


def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let threads share what is small for a test."""
    monkeypatch.setattr(planning, "LEAST_TASK", 64)
    planning._plan.cache_clear()


def assert_agree(one: Tensor, other: Tensor) -> None:
    """To two roundings in the computing dtype of a pair, whose norm is below 6 here; these may tip the rounding
    to half precision over to a neighbour."""
    assert one.dtype == other.dtype
    half = one.dtype.itemsize == 2
    bound = 12 * torch.finfo(torch.float32 if half else one.dtype).eps
    neighbour = torch.finfo(one.dtype).eps if half else 0.0
    assert torch.allclose(one.double(), other.double(), rtol=neighbour, atol=bound)
