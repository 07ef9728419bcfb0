"""What families share."""

from __future__ import annotations

from typing import Any

from torch import nn


def dropout_of(module: nn.Module, dropout: Any) -> float:
    """The dropout of weights that is in force: a number, torch's module, or SEW-D's own."""
    if not module.training:
        return 0.0
    return float(getattr(dropout, "p", getattr(dropout, "drop_prob", dropout)))
