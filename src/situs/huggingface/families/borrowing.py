"""Encodings that read the tables of a model. They are no parts of its modules: no weight has a second name."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from situs.encodings.t5 import T5Bias

HELD = "situs_encoding"
"""The attribute of a module under which its encoding is kept."""


def t5_bias(module: nn.Module, weight: Tensor, **sizes: Any) -> T5Bias:
    """The encoding of a table, made once; the weight is asked for each time, since it may have been replaced."""
    encoding: T5Bias | None = vars(module).get(HELD)
    if encoding is None:
        encoding = vars(module)[HELD] = T5Bias(**sizes)
    if encoding.table is not weight:
        encoding._parameters["table"] = weight  # type: ignore[assignment]
    return encoding
