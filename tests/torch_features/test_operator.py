"""The operators of attention: torch's own check of fake results, strides and derivatives."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import situs
from situs import Positions
from situs.attention.kernels import banded
from situs.attention.kernels.banded.parts import ENDLESS
from situs.attention.kernels.toeplitz import by_offset
from situs.attention.kernels.toeplitz.given import Given, Settings
from situs.attention.request import make_request
from situs.attention.visibility import tokens_of
from tests.torch_features.forms import HEAD_DIM, HEADS, SIZES

pytestmark = [pytest.mark.compiled, pytest.mark.once]

POSITIONS = {
    "a range": Positions.range(40),
    "padded": Positions.from_mask(torch.arange(40) < torch.tensor([[40], [31]])),
    "packed": Positions.packed([30, 2, 8]),
    "scattered": Positions.explicit(torch.arange(40).flip(0)),
}


def _arguments(name: str, kv_heads: int, **options: Any) -> tuple[Given, Settings]:
    shapes = (2, HEADS, 40, HEAD_DIM), *[(2, kv_heads, 40, HEAD_DIM)] * 2
    query, key, value = (torch.randn(shape, requires_grad=True) for shape in shapes)
    asked: dict[str, Any] = {"causal": True, "key_positions": None, "mask": None, "window": None, "scale": None}
    encoding = situs.entry(name).build(**SIZES)
    given, settings = by_offset(make_request(query, key, value, encoding=encoding, dropout=0.0, **{**asked, **options}))
    leaves: list[Any] = [
        None if each is None else each.detach().requires_grad_(each.is_floating_point()) for each in given
    ]  # the check reads .grad of what it is given
    return Given(*leaves), settings


@pytest.mark.thin(3)
@pytest.mark.parametrize("kv_heads", [HEADS, 2])
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("name", ["t5", "shaw", "deberta"])
def test_torch_finds_nothing_wrong_with_the_operator(name: str, positions: str, kv_heads: int) -> None:
    given, settings = _arguments(name, kv_heads, positions=POSITIONS[positions])
    found = torch.library.opcheck(torch.ops.situs.attend_by_offset.default, (*given, *settings))
    assert set(found.values()) == {"SUCCESS"}


def test_a_window_and_a_mask_are_checked_too() -> None:
    mask = torch.randn(1, 1, 40, 40, requires_grad=True)
    given, settings = _arguments("alibi", HEADS, positions=None, window=7, mask=mask)
    found = torch.library.opcheck(torch.ops.situs.attend_by_offset.default, (*given, *settings))
    assert set(found.values()) == {"SUCCESS"}


@pytest.mark.thin(3)
@pytest.mark.parametrize("kv_heads", [HEADS, 2])
@pytest.mark.parametrize("positions", POSITIONS)
def test_torch_finds_nothing_wrong_with_the_operator_of_bands(positions: str, kv_heads: int) -> None:
    told = POSITIONS[positions]
    tokens = (None, None) if told.start is not None else tokens_of(told, told)
    shapes = (2, 2, HEADS, 40, HEAD_DIM), (2, 2, kv_heads, 40, HEAD_DIM), (2, kv_heads, 40, HEAD_DIM), (HEADS,)
    given = banded.op.Given(*(torch.randn(shape, requires_grad=True) for shape in shapes), *tokens)
    settings = banded.op.Settings(0, 0, 1, [0, 7, 8, ENDLESS], 0.25, True, None)
    found = torch.library.opcheck(torch.ops.situs.attend_in_bands.default, (*given, *settings))
    assert set(found.values()) == {"SUCCESS"}
