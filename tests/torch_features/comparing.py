"""Outputs and gradients of a module, and whether two ways to get them agree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

TIGHT, FLOAT32, BFLOAT16 = 1e-6, 2e-5, 4e-2  # of the largest number compared, or of 1


def weighed(out: Tensor, real: Tensor | None = None) -> Tensor:
    """A sum of the output with different weights, over real tokens where ``real`` (batch, sequence) tells them."""
    weights = torch.arange(out.numel(), device=out.device).float().sin().view_as(out)
    return (out * weights if real is None else out * weights * _as_wide(real, out)).sum()


def _as_wide(real: Tensor, out: Tensor) -> Tensor:
    return real[:, :, None] if out.ndim == 3 else real[:, None, :, None]


def run(
    module: nn.Module,
    inputs: Sequence[Tensor],
    *,
    call: Callable[..., Tensor] | None = None,
    real: Tensor | None = None,
    **options: Any,
) -> list[Tensor]:
    """What a module gives for inputs, and the gradients for them and for its parameters, by their names; ``call`` is
    another way to call it."""
    out = (module if call is None else call)(*inputs, **options)
    sources = [each for each in (*inputs, *by_name(dict(module.named_parameters()))) if each.requires_grad]
    shown = out if real is None else out * _as_wide(real, out)
    return [shown, *torch.autograd.grad(weighed(out, real), sources, materialize_grads=True)]


def by_name(named: dict[str, Any]) -> list[Tensor]:
    """Tensors in the order of their names, which all ways to get them share."""
    return [named[name] for name in sorted(named)]


def assert_same(actual: Sequence[Tensor], expected: Sequence[Tensor], tolerance: float = FLOAT32) -> None:
    """Shapes, dtypes and numbers agree, to a part of the largest number in each tensor."""
    assert len(actual) == len(expected)
    for ours, theirs in zip(actual, expected, strict=True):
        largest = float(theirs.detach().abs().max())
        torch.testing.assert_close(ours, theirs, atol=tolerance * max(1.0, largest), rtol=0)


def parts(inputs: Sequence[Tensor], axis: int, *lengths: int) -> list[tuple[Tensor, ...]]:
    """Stretches of the inputs, one after another."""
    return list(zip(*(each.split(lengths, axis) for each in inputs), strict=True))
