"""torch.export with a dynamic length: the program gives what the module gives at lengths that it has not seen."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from tests.torch_features.comparing import assert_same, run
from tests.torch_features.forms import Form, Inside, from_mask, right_padded
from tests.torch_features.table import SLOW, Cell, covers

pytestmark = [pytest.mark.compiled, pytest.mark.once]

TRACED = 40
OTHERS = (72, 150, 300) if SLOW else (72, 300)
LENGTH = Dim("length", min=16, max=320)


def exported(module: nn.Module, inputs: tuple[Tensor, ...], shapes: Any, *, strict: bool = False) -> ExportedProgram:
    """The program of a module, for inputs whose axes in ``shapes`` are dynamic."""
    return torch.export.export(module, tuple(each.detach() for each in inputs), dynamic_shapes=shapes, strict=strict)


def dynamic(form: Form, inputs: tuple[Tensor, ...]) -> tuple[dict[int, Dim], ...]:
    """The tokens' axis of every input."""
    return tuple({form.axis: LENGTH} for _ in inputs)


def assert_program_trains(module: Form, program: ExportedProgram) -> None:
    """At other lengths, outputs and gradients for inputs and parameters are those of the module."""
    runnable = program.module()
    assert {name for name, _ in runnable.named_parameters()} == {name for name, _ in module.named_parameters()}
    for length in OTHERS:
        inputs = module.inputs(length)
        assert_same(run(runnable, inputs), run(module, inputs))


@covers("export", "grad", thin=True)
def test_an_exported_module_takes_other_lengths_and_gives_gradients(cell: Cell) -> None:
    module = cell.build()
    inputs = module.inputs(TRACED)
    assert_program_trains(module, exported(module, inputs, dynamic(module, inputs)))


@covers("export", "strict", thin=True)
def test_a_module_exported_by_dynamo_takes_other_lengths_and_gives_gradients(cell: Cell) -> None:
    module = cell.build()
    inputs = module.inputs(TRACED)
    assert_program_trains(module, exported(module, inputs, dynamic(module, inputs), strict=True))


@covers("export", "no_grad", thin=True)
@torch.no_grad()
def test_a_module_exported_without_gradients_takes_other_lengths(cell: Cell) -> None:
    module = cell.build().eval()
    inputs = module.inputs(TRACED)
    for strict in (False, True) if SLOW else (False,):
        program = exported(module, inputs, dynamic(module, inputs), strict=strict)
        for length in OTHERS:
            inputs = module.inputs(length)
            assert_same([program.module()(*inputs)], [module(*inputs)])


@covers("export", "mask", thin=True)
def test_an_exported_module_makes_padded_positions_itself(cell: Cell) -> None:
    module = Inside(form := cell.build(causal=False), from_mask)
    inputs = form.inputs(TRACED)
    shapes = ({1: LENGTH}, dynamic(form, inputs))
    program = exported(module, (right_padded(TRACED), *inputs), shapes)
    for length in OTHERS:
        mask, inputs = right_padded(length), form.inputs(length)
        made, expected = (run(each, (mask, *inputs), real=mask) for each in (program.module(), module))
        assert_same(made, expected)
