"""Every error of rotary, word for word where there is one."""

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from situs import DynamicNTKScaling, Positions, Rotary
from tests.raising import SHAPES_ARE_CHECKED, raises_exactly

ERRORS: list[tuple[dict[str, Any], str]] = [
    ({"head_dim": 63}, "head_dim must be even, since rotary rotates pairs of channels; got 63."),
    ({"head_dim": 0}, "head_dim must be even, since rotary rotates pairs of channels; got 0."),
    (
        {"head_dim": 8, "rotary_dim": 10},
        "rotary_dim must be even and at most head_dim=8, since it counts the channels rotated in pairs; got 10.",
    ),
    (
        {"head_dim": 8, "pairing": "neox"},
        "pairing must be one of 'interleaved', 'halves', since checkpoints pair neighbouring channels or the two "
        "halves; got 'neox'.",
    ),
    ({"head_dim": 8, "base": 1.0}, "base must be more than 1, since wavelengths grow by its powers; got 1.0."),
    (
        {"head_dim": 8, "base": [100.0, 0.5]},
        "base must be more than 1, since wavelengths grow by its powers; got 0.5.",
    ),
    (
        {"head_dim": 8, "base": []},
        "base must be a number, or have one for each head, since wavelengths grow by its powers; got none.",
    ),
    (
        {"head_dim": 8, "base": [1e4, 2e4], "scaling": DynamicNTKScaling(factor=2.0, original_length=8)},
        "base must be one number with DynamicNTKScaling, since its frequencies already differ by sequence; got 2 "
        "bases.",
    ),
    ({"head_dim": 8, "base": math.nan}, "base must be finite, since wavelengths grow by its powers; got nan."),
    ({"head_dim": 8, "base": math.inf}, "base must be finite, since wavelengths grow by its powers; got inf."),
    (
        {"head_dim": 8, "base": [1e4, math.inf]},
        "base must be finite, since wavelengths grow by its powers; got inf.",
    ),
]

NO_SUCH_THING: list[tuple[dict[str, Any], str]] = [
    ({"head_dim": 8.0}, "head_dim must be a whole number, since it counts channels; got 8.0."),
    ({"head_dim": 8, "rotary_dim": 4.0}, "rotary_dim must be a whole number, since it counts channels; got 4.0."),
    ({"head_dim": 8, "base": "1e4"}, "base must be a number, since wavelengths grow by its powers; got '1e4'."),
    ({"head_dim": 8, "base": None}, "base must be a number, since wavelengths grow by its powers; got None."),
    ({"head_dim": 8, "base": [1e4, "2"]}, "base must be a number, since wavelengths grow by its powers; got '2'."),
    (
        {"head_dim": 8, "scaling": "yarn"},
        "scaling must be a situs.Scaling or None, since it tells how frequencies change; got 'yarn'. Make one, such as "
        "situs.YaRN(factor=4.0, original_length=4096).",
    ),
    (
        {"head_dim": 8, "scaling": {"factor": 4.0}},
        "scaling must be a situs.Scaling or None, since it tells how frequencies change; got {'factor': 4.0}. Make "
        "one, such as situs.YaRN(factor=4.0, original_length=4096).",
    ),
    (
        {"head_dim": 8, "split": (2, 1, 1)},
        "split must be a situs.Split or None, since it tells which coordinate rotates a pair; got (2, 1, 1). Make one, "
        "such as situs.Axial(axes=2).",
    ),
]


@pytest.mark.parametrize(("options", "message"), ERRORS, ids=[message for _, message in ERRORS])
def test_sizes_that_do_not_fit_are_refused(options: dict[str, Any], message: str) -> None:
    with raises_exactly(ValueError, message):
        Rotary(**options)


@pytest.mark.parametrize(("options", "message"), NO_SUCH_THING, ids=[message for _, message in NO_SUCH_THING])
def test_options_of_another_kind_are_refused(options: dict[str, Any], message: str) -> None:
    with raises_exactly(TypeError, message):
        Rotary(**options)


@pytest.mark.skipif(SHAPES_ARE_CHECKED, reason="annotations name Python's own numbers")
def test_numbers_of_numpy_and_torch_are_taken() -> None:
    expected = Rotary(head_dim=8, base=500.0)
    for base in (500, np.float32(500), np.float64(500), np.int64(500), torch.tensor(500.0), np.array(500.0)):
        encoding = Rotary(head_dim=8, base=base)  # type: ignore[arg-type]
        assert encoding.identity == expected.identity
        assert type(encoding.base) in (int, float)
        assert torch.equal(encoding.frequencies, expected.frequencies)
    for bases in ([500, 600.0], np.array([500.0, 600.0]), torch.tensor([500.0, 600.0])):
        assert Rotary(head_dim=8, base=bases).base == (500.0, 600.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("dtype", "cure"),
    [(torch.int64, "Convert it with {}.float()"), (torch.complex64, "Hand over torch.view_as_real({}).flatten(-2)")],
    ids=str,
)
def test_vectors_that_hold_no_fractions_are_refused(dtype: torch.dtype, cure: str) -> None:
    encoding, given = Rotary(head_dim=8), torch.ones(1, 1, 2, 8, dtype=dtype)
    calls: list[tuple[str, Callable[[torch.Tensor], object]]] = [
        ("x", encoding),
        ("x", encoding.inverse),
        ("query", lambda x: encoding.both(x, x)),
        ("keys", lambda x: encoding.rerotate(x, 0, 1)),
    ]
    for name, turn in calls:
        with raises_exactly(
            TypeError,
            f"{name} must be of a real floating-point dtype, since Rotary computes with real fractions; got {dtype}. "
            f"{cure.format(name)}.",
        ):
            turn(given)


@pytest.mark.parametrize(("name", "value", "made"), [("base", 5e5, 1e4), ("pairing", "interleaved", "halves")])
def test_what_it_was_made_with_stays(name: str, value: object, made: object) -> None:
    encoding = Rotary(head_dim=8)
    with raises_exactly(
        AttributeError,
        f"{name} must be given when Rotary is made, since what it computes with follows from it then; got "
        f"{name}={value!r} for one made with {name}={made!r}. Make a new one: Rotary(**(encoding.config | "
        f"{{{name!r}: ...}})).",
    ):
        setattr(encoding, name, value)
    assert encoding.describe()[name] == made
    encoding.tags = encoding.tags | {"mine"}  # nothing is computed from these
    assert "mine" in encoding.tags
    copied = copy.deepcopy(encoding)
    assert copied.config == encoding.config


def test_vectors_and_roles_that_do_not_fit_are_refused() -> None:
    with raises_exactly(
        ValueError, "x must have 8 channels, since Rotary was made with head_dim=8; got shape (1, 2, 3, 6)."
    ):
        Rotary(head_dim=8)(torch.zeros(1, 2, 3, 6))
    with raises_exactly(ValueError, "role must be one of 'query', 'key', since a vector is one or the other; got 'v'."):
        Rotary(head_dim=8)(torch.zeros(1, 2, 3, 8), role="v")
    with raises_exactly(
        ValueError,
        "positions must have 1 coordinate each, since this Rotary encodes that many; got 2 in "
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
