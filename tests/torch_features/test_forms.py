"""What the table compares is worth comparing: encodings act in both forms, and all parameters learn."""

from __future__ import annotations

import pytest
import torch

from tests.torch_features.comparing import run
from tests.torch_features.forms import FORMS
from tests.torch_features.table import ROWS, Cell

pytestmark = pytest.mark.once

CANCELLED = "key_projection.bias"  # of DeBERTa: one number for a whole row of scores, which released models have too


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("row", ROWS)
def test_an_encoding_acts_and_learns(row: str, form: str) -> None:
    module, plain = (Cell("compile", ("range",), name, form).build() for name in (row, "none"))
    state = {name: each for name, each in module.state_dict().items() if name in plain.state_dict()}
    for name, each in state.items():  # where heads have frequencies of their own, each has its own keys too
        state[name] = each[: len(plain.state_dict()[name])]
    plain.load_state_dict(state)
    inputs = module.inputs(72)
    out, *gradients = run(module, inputs)
    names = [*("inputs" for _ in inputs), *sorted(name for name, _ in module.named_parameters())]
    still = {name for name, each in zip(names, gradients, strict=True) if each.abs().max() < 1e-3}
    assert all(name.endswith(CANCELLED) for name in still)
    assert torch.allclose(out, plain(*inputs), atol=1e-2) == (row == "none")
