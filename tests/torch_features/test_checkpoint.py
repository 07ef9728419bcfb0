"""torch.utils.checkpoint: what is computed again in backward is what was computed before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from tests.torch_features.comparing import assert_same, weighed
from tests.torch_features.forms import Form
from tests.torch_features.table import Cell, covers

pytestmark = pytest.mark.once


def assert_checkpointing_changes_nothing(module: Form, **options: Any) -> None:
    """Outputs and gradients with a checkpoint around the module, from the same seed, are those without."""
    inputs = module.inputs(72)

    def remembered(*inputs: Tensor) -> Tensor:
        out: Tensor = checkpoint(module, *inputs, **options)
        return out

    assert_same(backward(module, inputs, remembered), backward(module, inputs, module))


def backward(module: Form, inputs: tuple[Tensor, ...], call: Callable[..., Tensor]) -> list[Tensor]:
    """An output, and gradients by ``backward()``: reentrant checkpoints have no ``torch.autograd.grad``."""
    sources = [*inputs, *module.parameters()]
    for each in sources:
        each.grad = None
    torch.manual_seed(3)
    out = call(*inputs)
    weighed(out).backward()
    return [out, *(torch.zeros_like(each) if each.grad is None else each.grad for each in sources)]


@covers("checkpoint", "reentrant")
def test_reentrant_checkpoints_change_nothing(cell: Cell) -> None:
    assert_checkpointing_changes_nothing(cell.build(), use_reentrant=True)


@covers("checkpoint", "non-reentrant")
def test_checkpoints_that_are_not_reentrant_change_nothing(cell: Cell) -> None:
    assert_checkpointing_changes_nothing(cell.build(), use_reentrant=False)


@covers("checkpoint", "dropout")
def test_checkpoints_draw_the_same_dropout_again(cell: Cell) -> None:
    module = cell.build(dropout=0.3).train()
    torch.manual_seed(3)
    first, second = (module(*module.inputs(20)) for _ in range(2))
    assert not torch.equal(first, second)
    for use_reentrant in (True, False):
        assert_checkpointing_changes_nothing(module, use_reentrant=use_reentrant, preserve_rng_state=True)
