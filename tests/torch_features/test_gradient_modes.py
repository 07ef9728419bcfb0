"""torch.no_grad and torch.inference_mode give what gradients give, and leave nothing that cannot be used outside."""

from __future__ import annotations

import pytest
import torch

from tests.torch_features.comparing import assert_same, parts, run
from tests.torch_features.table import Cell, covers

pytestmark = pytest.mark.once

LENGTH = 72


@covers("gradient modes", "no_grad")
def test_no_grad_changes_nothing(cell: Cell) -> None:
    module = cell.build()
    inputs = module.inputs(LENGTH)
    with torch.no_grad():
        made = module(*inputs)
    assert not made.requires_grad
    assert_same([made], [module(*inputs)])


@covers("gradient modes", "inference_mode", cached=True)
def test_inference_mode_changes_nothing(cell: Cell) -> None:
    module = cell.build()
    inputs = module.inputs(LENGTH)
    before = run(module, inputs)
    with torch.inference_mode():
        assert_same([module(*inputs)], before[:1])
        cache = module.make_cache(max_length=LENGTH)
        steps = [module(*part, cache=cache) for part in parts(inputs, module.axis, LENGTH - 2, 1, 1)]
        made = torch.cat(steps, module.axis)
    assert_same([made], [module(*inputs, positions=module.places(LENGTH))])
    assert_same(run(module, inputs), before)


@covers("gradient modes", "its cache outside", cached=True)
def test_a_cache_of_inference_mode_is_used_outside(cell: Cell) -> None:
    module = cell.build()
    inputs = module.inputs(LENGTH)
    prompt, first, second, third = parts(inputs, module.axis, LENGTH - 3, 1, 1, 1)
    with torch.inference_mode():
        cache = module.make_cache(max_length=LENGTH)
        steps = [module(*prompt, cache=cache).clone()]
    with torch.no_grad():
        steps.append(module(*first, cache=cache))
    steps.append(module(*second, cache=cache))
    with torch.inference_mode():
        steps.append(module(*third, cache=cache))
        made = torch.cat(steps, module.axis)
    assert_same([made], [module(*inputs, positions=module.places(LENGTH))])
