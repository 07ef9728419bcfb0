"""Encodings that read the tables of a model. They are no parts of its modules: no weight has a second name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from situs.encodings.base import Encoding
from situs.encodings.t5 import T5Bias

HELD = "situs_encoding"
"""The attribute of a module under which its encoding is kept."""

Borrowing = TypeVar("Borrowing", bound=Encoding)


def borrowing(module: nn.Module, make: Callable[[], Borrowing], weights: dict[str, Tensor]) -> Borrowing:
    """The encoding of a module, made once, with the module's weights for its own parameters of these names; they are
    given each time, since they may have been replaced. What was computed, which copies of a model could not have, goes
    to an encoding that is not kept."""
    encoding: Borrowing | None = vars(module).get(HELD)
    if not all(isinstance(each, nn.Parameter) for each in weights.values()):
        encoding = make()
    elif encoding is None:
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


def table_of(module: Any, rows: int) -> Tensor:
    """The rows of a table: its weight, or what an adapted, hooked or parametrised one gives for each of them."""
    if is_plain(module):
        weight: Tensor = module.weight
        return weight
    found: Tensor = module(torch.arange(rows, device=next(module.parameters()).device))
    return found


def is_plain(table: nn.Module) -> bool:
    """Whether a table gives its weight and nothing else happens."""
    return (
        type(table) is nn.Embedding
        and not (table._forward_hooks or table._forward_pre_hooks)
        and not (table._backward_hooks or table._backward_pre_hooks)
        and "forward" not in vars(table)
    )
