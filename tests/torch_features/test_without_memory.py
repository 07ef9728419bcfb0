"""Meta and fake tensors: shapes without numbers, and modules that get their numbers later."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensor, FakeTensorMode

from tests.torch_features.comparing import TIGHT, assert_same, run
from tests.torch_features.forms import from_mask, right_padded
from tests.torch_features.table import Cell, covers

pytestmark = pytest.mark.once

LENGTH = 72


def assert_alike(made: list[Tensor], expected: list[Tensor]) -> None:
    """Outputs and gradients have the shapes and dtypes that real ones have."""
    assert [(each.shape, each.dtype) for each in made] == [(each.shape, each.dtype) for each in expected]


@covers("without memory", "meta")
def test_a_module_on_meta_gives_shapes_and_is_filled_later(cell: Cell) -> None:
    with torch.device("meta"):
        module, other = cell.build(), cell.build()
    real = cell.build()
    assert {each.device.type for each in module.parameters()} == {"meta"}
    mask, inputs = right_padded(LENGTH), real.inputs(LENGTH)
    expected = run(real, inputs)
    of_meta = [each.detach().to("meta").requires_grad_() for each in inputs]
    made = run(module, of_meta)
    assert {each.device.type for each in made} == {"meta"}
    assert_alike(made, expected)
    assert_alike(run(module, of_meta, positions=from_mask(module, mask.to("meta"), LENGTH)), expected)
    with torch.device("meta"):
        assert_alike(run(module, of_meta), expected)

    module.to_empty(device="cpu").load_state_dict(real.state_dict())
    other.load_state_dict(real.state_dict(), assign=True)
    for each in (module, other):
        assert_same(run(each, inputs), expected, TIGHT)


@covers("without memory", "fake inputs")
def test_a_real_module_gives_shapes_to_fake_tensors_and_stays_real(cell: Cell) -> None:
    module = cell.build()
    inputs = module.inputs(LENGTH)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        made = module(*(mode.from_tensor(each) for each in inputs))
    assert isinstance(made, FakeTensor)
    expected = run(module, inputs)
    assert_alike([made], expected[:1])
    other = cell.build()
    assert_same(expected, run(other, inputs), TIGHT)
