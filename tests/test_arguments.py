"""Every check of a single argument, word for word, and what it takes."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from situs import arguments
from tests.raising import raises_exactly

WHY = "it is asked"
ROW = torch.zeros(3)

REFUSED: list[tuple[type[Exception], Callable[[], object], str]] = [
    *(
        (
            TypeError,
            lambda given=given: arguments.require_count("size", given, WHY),
            f"size must be a whole number, since it is asked; got {shown}.",
        )
        for given, shown in (
            (2.0, "2.0"),
            ("2", "'2'"),
            (None, "None"),
            (True, "True"),
            (torch.tensor(True), "tensor(True)"),
            (torch.tensor(2.5), "tensor(2.5000)"),
            (np.array([1, 2]), "an ndarray of shape (2,) and dtype int64"),
            (ROW, "a tensor of shape (3,) and dtype torch.float32"),
            ("x" * 100, "a str"),
        )
    ),
    (
        ValueError,
        lambda: arguments.require_count("size", 0, WHY, least=1),
        "size must be 1 or more, since it is asked; got 0.",
    ),
    (
        ValueError,
        lambda: arguments.require_count("size", 9, WHY, most=8),
        "size must be at most 8, since it is asked; got 9.",
    ),
    (
        ValueError,
        lambda: arguments.require_count("size", 9, WHY, least=1, most=8),
        "size must lie in 1 .. 8, since it is asked; got 9.",
    ),
    *(
        (
            TypeError,
            lambda given=given: arguments.require_number("rate", given, WHY),
            f"rate must be a number, since it is asked; got {shown}.",
        )
        for given, shown in (
            ("2", "'2'"),
            (None, "None"),
            (True, "True"),
            (2j, "2j"),
            ([2.0], "[2.0]"),
            (np.bool_(True), "np.True_"),
            (torch.tensor(True), "tensor(True)"),
            (ROW, "a tensor of shape (3,) and dtype torch.float32"),
        )
    ),
    (
        ValueError,
        lambda: arguments.require_number("rate", math.nan, WHY),
        "rate must be finite, since it is asked; got nan.",
    ),
    (
        ValueError,
        lambda: arguments.require_number("rate", -math.inf, WHY, above=0),
        "rate must be finite, since it is asked; got -inf.",
    ),
    (
        ValueError,
        lambda: arguments.require_number("rate", 0, WHY, above=0),
        "rate must be more than 0, since it is asked; got 0.",
    ),
    (
        ValueError,
        lambda: arguments.require_number("rate", 1.5, WHY, least=0, most=1),
        "rate must lie in 0 .. 1, since it is asked; got 1.5.",
    ),
    (
        ValueError,
        lambda: arguments.require_number("rate", 3.0, WHY, below=2),
        "rate must be below 2, since it is asked; got 3.0.",
    ),
    (
        ValueError,
        lambda: arguments.require_dropout(1.0),
        "dropout must be at least 0 and below 1, since it is a probability and 1 leaves nothing; got 1.0.",
    ),
    (
        ValueError,
        lambda: arguments.require_base(1.0),
        "base must be more than 1, since wavelengths grow by its powers; got 1.0.",
    ),
    *(
        (
            TypeError,
            lambda given=given: arguments.require_flag("causal", given, WHY),
            f"causal must be True or False, since it is asked; got {given!r}.",
        )
        for given in (0, 1, None, "yes", np.bool_(True))
    ),
    *(
        (
            ValueError,
            lambda given=given: arguments.require_choice("axes", given, (1, 2), WHY),
            f"axes must be one of 1, 2, since it is asked; got {shown}.",
        )
        for given, shown in (
            (3, "3"),
            (True, "True"),
            (1.0, "1.0"),
            (np.array([1, 2]), "an ndarray of shape (2,) and dtype int64"),
        )
    ),
    *(
        (
            TypeError,
            lambda given=given: arguments.require_several("sizes", given, WHY),
            f"sizes must be a sequence, since it is asked; got {shown}.",
        )
        for given, shown in (
            (3, "3"),
            ("34", "'34'"),
            ({3: 4}, "{3: 4}"),
            (torch.zeros(2, 2), "a tensor of shape (2, 2) and dtype torch.float32"),
        )
    ),
    (
        TypeError,
        lambda: arguments.require_tensor("x", [1.0], WHY),
        "x must be a tensor, since it is asked; got list. Use torch.as_tensor(...) on lists and arrays.",
    ),
    (
        TypeError,
        lambda: arguments.require_floating("x", torch.zeros(2, dtype=torch.int64), WHY),
        "x must be of a real floating-point dtype, since it is asked; got torch.int64. Convert it with x.float().",
    ),
    (
        TypeError,
        lambda: arguments.require_floating("x", torch.zeros(2, dtype=torch.complex64), WHY),
        "x must be of a real floating-point dtype, since it is asked; got torch.complex64. Use torch.view_as_real(x).",
    ),
    (
        TypeError,
        lambda: arguments.require_whole_numbers("rows", ROW, WHY),
        "rows must be whole numbers, since it is asked; got dtype torch.float32.",
    ),
    (
        ValueError,
        lambda: arguments.require_counts(WHY, dim=3, num_heads=0),
        "num_heads must be 1 or more, since it is asked; got 0.",
    ),
    (
        ValueError,
        lambda: arguments.require_spread(-1.0),
        "init_std must be 0 or more, since weights are drawn with that standard deviation; got -1.0.",
    ),
    (
        TypeError,
        lambda: arguments.require_flags(WHY, keys=True, values=1),
        "values must be True or False, since it is asked; got 1.",
    ),
    *(
        (
            ValueError,
            lambda given=given: arguments.require_size("size", given, WHY),
            f"size must be (height, width), since it is asked; got {given!r}.",
        )
        for given in (3, "34", (3,), (3, 4, 5))
    ),
    (
        TypeError,
        lambda: arguments.require_instance("cache", 3, dict, WHY, "a cache", "Make one."),
        "cache must be a cache, since it is asked; got 3. Make one.",
    ),
    (
        TypeError,
        lambda: arguments.require_real("x", ROW.bool(), WHY),
        "x must be real numbers, since it is asked; got dtype torch.bool.",
    ),
    (
        TypeError,
        lambda: arguments.require_complex("z", ROW, WHY),
        "z must be of a complex dtype, since it is asked; got torch.float32. Use torch.complex(real, imag).",
    ),
    (
        TypeError,
        lambda: arguments.require_bool("valid", ROW, WHY),
        "valid must be bool, since it is asked; got dtype torch.float32. Use valid.bool().",
    ),
    (
        ValueError,
        lambda: arguments.require_axes_of("x", ROW, ("batch", "dim"), WHY),
        "x must have shape (batch, dim), since it is asked; got shape (3,).",
    ),
    (
        ValueError,
        lambda: arguments.require_axes_of("x", ROW[0], ("pairs",), WHY, more=True),
        "x must have shape (..., pairs), since it is asked; got shape ().",
    ),
    (
        ValueError,
        lambda: arguments.require_same_device("key", ROW.to("meta"), "query", ROW),
        'key must be on the device of query, cpu, since they meet there; got meta. Move it with key.to("cpu").',
    ),
    (
        ValueError,
        lambda: arguments.require_same_shape("sin", ROW[:2], "cos", ROW, WHY),
        "sin must have the shape of cos, since it is asked; got shape (2,) for cos of shape (3,).",
    ),
    (TypeError, lambda: arguments.require_text("name", 3, WHY), "name must be a string, since it is asked; got 3."),
    *(
        (
            TypeError,
            lambda given=given: arguments.require_device(given),
            'device must be a torch.device or a name such as "cpu" or "cuda:0", since tensors live there; got '
            f"{given!r}.",
        )
        for given in ("moon", 0, None)
    ),
    *(
        (
            TypeError,
            lambda given=given: arguments.require_dtype(given, WHY),
            f"dtype must be a real floating-point dtype such as torch.float32, since it is asked; got {given!r}.",
        )
        for given in ("float32", torch.int64, None)
    ),
]


@pytest.mark.parametrize(("error", "check", "message"), REFUSED, ids=[message for _, _, message in REFUSED])
def test_what_is_refused_is_refused_in_these_words(
    error: type[Exception], check: Callable[[], object], message: str
) -> None:
    with raises_exactly(error, message):
        check()


@pytest.mark.parametrize("given", [3, np.int32(3), torch.tensor(3)], ids=repr)
def test_whole_numbers_of_any_library_become_pythons(given: Any) -> None:
    assert arguments.require_count("size", given, WHY, least=1, most=3) == 3
    assert type(arguments.require_count("size", given, WHY)) is int


@pytest.mark.parametrize("given", [3, 3.0, np.float32(3), np.array(3.0), torch.tensor(3.0)], ids=repr)
def test_numbers_of_any_library_become_pythons(given: Any) -> None:
    assert arguments.require_number("rate", given, WHY, least=3, below=4) == 3
    assert type(arguments.require_number("rate", given, WHY)) in (int, float)


def test_what_is_right_is_handed_back() -> None:
    assert arguments.require_flag("causal", True, WHY) is True
    assert arguments.require_choice("kernel", "log", ("log", "power"), WHY) == "log"
    assert arguments.require_several("sizes", np.array([1, 2]), WHY) == (1, 2)
    assert arguments.require_several("sizes", torch.tensor([1.0, 2.0]), WHY) == (1.0, 2.0)
    assert arguments.require_bases([100, 200.0]) == (100.0, 200.0)
    assert arguments.require_bases(np.float64(100)) == 100.0
    assert arguments.require_device("meta") == torch.device("meta")
    assert arguments.require_dtype(torch.bfloat16, WHY) == torch.bfloat16
    assert arguments.require_text("name", "rotary", WHY) == "rotary"


@pytest.mark.compiled
def test_counts_are_checked_in_graphs_without_binding_them_to_one_length() -> None:
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * arguments.require_count("length", x.shape[0], WHY, least=1)

    torch._dynamo.reset()
    compiled = torch.compile(doubled, fullgraph=True, backend="eager", dynamic=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for length in (3, 5, 70):
            assert torch.equal(compiled(torch.ones(length)), torch.full((length,), float(length)))
