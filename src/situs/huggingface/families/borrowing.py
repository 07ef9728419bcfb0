"""Encodings that read the tables of a model. They are no parts of its modules: no weight has a second name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from torch import Tensor, nn

from situs.encodings.base import Encoding
from situs.encodings.t5 import T5Bias

HELD = "situs_encoding"
"""The attribute of a module under which its encoding is kept."""

Borrowing = TypeVar("Borrowing", bound=Encoding)


def borrowing(module: nn.Module, make: Callable[[], Borrowing], weights: dict[str, Tensor]) -> Borrowing:
    """The encoding of a module, made once, with the module's weights for its own parameters of these names; they are
    given each time, since they may have been replaced."""
    encoding: Borrowing | None = vars(module).get(HELD)
    if encoding is None:
        encoding = vars(module)[HELD] = make()
    for name, weight in weights.items():
        path, _, own = name.rpartition(".")
        parameters = encoding.get_submodule(path)._parameters
        if parameters[own] is not weight:
            parameters[own] = weight  # type: ignore[assignment]
    return encoding


def t5_bias(module: nn.Module, weight: Tensor, **sizes: Any) -> T5Bias:
    """The encoding of a table of T5's buckets."""
    return borrowing(module, lambda: T5Bias(**sizes), {"table": weight})
