"""Copies of a module, and what is saved of it, give what it gives."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from torch import Tensor

from tests.torch_features.comparing import TIGHT, assert_same, run
from tests.torch_features.forms import Form
from tests.torch_features.table import Cell, covers

pytestmark = pytest.mark.once

LENGTH = 72


def ran(cell: Cell) -> tuple[Form, list[Tensor]]:
    """A module that has run, without gradients and with them, and what it gave."""
    module = cell.build()
    with torch.no_grad():
        module(*module.inputs(LENGTH))
    return module, run(module, module.inputs(LENGTH))


def assert_copied(module: Form, other: Form, expected: list[Tensor]) -> None:
    """The other gives the same, and shares no parameter."""
    assert other is not module
    assert_same(run(other, other.inputs(LENGTH)), expected, TIGHT)
    with torch.no_grad():
        for each in other.parameters():
            each.add_(1.0)
    assert_same(run(module, module.inputs(LENGTH)), expected, TIGHT)


def through_file(saved: object, *, weights_only: bool) -> object:
    """What torch saves and loads again."""
    file = io.BytesIO()
    torch.save(saved, file)
    file.seek(0)
    return torch.load(file, weights_only=weights_only)


@covers("copies", "deepcopy")
def test_deepcopy_gives_the_same(cell: Cell) -> None:
    module, expected = ran(cell)
    assert_copied(module, copy.deepcopy(module), expected)


@covers("copies", "pickle")
def test_pickle_gives_the_same(cell: Cell) -> None:
    module, expected = ran(cell)
    assert_copied(module, pickle.loads(pickle.dumps(module)), expected)


@covers("copies", "weights_only")
def test_a_state_dict_loads_with_weights_only(cell: Cell) -> None:
    module, expected = ran(cell)
    other, state = cell.build(seed=5), through_file(module.state_dict(), weights_only=True)
    assert isinstance(state, dict)
    other(*other.inputs(LENGTH))
    other.load_state_dict(state)
    assert_copied(module, other, expected)


@covers("copies", "module")
def test_a_saved_module_loads(cell: Cell) -> None:
    module, expected = ran(cell)
    other = through_file(module, weights_only=False)
    assert isinstance(other, Form)
    assert_copied(module, other, expected)
