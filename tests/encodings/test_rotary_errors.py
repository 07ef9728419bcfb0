"""Every error of rotary, word for word where there is one."""

from typing import Any

import pytest
import torch

from situs import DynamicNTK, Positions, Rotary
from tests.raising import raises_exactly

ERRORS: list[tuple[dict[str, Any], str]] = [
    ({"head_dim": 63}, "head_dim must be even, since rotary turns channel pairs; got 63."),
    ({"head_dim": 0}, "head_dim must be even, since rotary turns channel pairs; got 0."),
    (
        {"head_dim": 8, "rotary_dim": 10},
        "rotary_dim must be even and at most head_dim=8, since it counts the channels that turn in pairs; got 10.",
    ),
    (
        {"head_dim": 8, "pairing": "neox"},
        "pairing must be one of 'interleaved', 'halves', since checkpoints pair neighbouring channels or the two "
        "halves; got 'neox'.",
    ),
    ({"head_dim": 8, "base": 1.0}, "base must be more than 1, since wavelengths grow by its powers; got 1.0."),
    (
        {"head_dim": 8, "base": [100.0, 0.5]},
        "base must be more than 1, since wavelengths grow by its powers; got [100.0, 0.5].",
    ),
    ({"head_dim": 8, "base": []}, "base must be more than 1, since wavelengths grow by its powers; got []."),
    (
        {"head_dim": 8, "base": [1e4, 2e4], "scaling": DynamicNTK(factor=2.0, original_length=8)},
        "base must be one number with DynamicNTK, since its frequencies already differ by sequence; got 2 bases.",
    ),
]


@pytest.mark.parametrize(("options", "message"), ERRORS, ids=[message for _, message in ERRORS])
def test_sizes_that_do_not_fit_are_refused(options: dict[str, Any], message: str) -> None:
    with raises_exactly(ValueError, message):
        Rotary(**options)


def test_vectors_and_roles_that_do_not_fit_are_refused() -> None:
    with raises_exactly(
        ValueError, "x must have 8 channels, since Rotary was made with head_dim=8; got shape (1, 2, 3, 6)."
    ):
        Rotary(head_dim=8)(torch.zeros(1, 2, 3, 6))
    with raises_exactly(ValueError, "role must be one of 'query', 'key', since a vector is one or the other; got 'v'."):
        Rotary(head_dim=8)(torch.zeros(1, 2, 3, 8), role="v")
    with raises_exactly(
        ValueError,
        "positions must have 1 coordinate a place, since this Rotary encodes that many; got 2 in "
        "Positions(grid, 1 x 3, length 3, axes 2).",
    ):
        Rotary(head_dim=8)(torch.zeros(1, 2, 3, 8), Positions.grid(1, 3))


@pytest.mark.parametrize(("heads", "length"), [(1, 4), (2, 4), (6, 4), (2, 3000)])
def test_another_number_of_heads_than_bases_is_refused(heads: int, length: int) -> None:
    encoding = Rotary(head_dim=8, base=[100.0, 10_000.0, 500_000.0])
    with raises_exactly(
        ValueError, f"x must have 3 heads, since this Rotary has a base for each; got shape (1, {heads}, {length}, 8)."
    ):
        encoding(torch.randn(1, heads, length, 8))
