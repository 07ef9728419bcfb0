"""torch.autocast, and modules cast to bfloat16: they give what float32 gives, to the digits that bfloat16 has."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from situs import KVCache
from tests.torch_features.comparing import BFLOAT16, TIGHT, assert_same, parts, run, weighed
from tests.torch_features.forms import Form
from tests.torch_features.table import Cell, covers

pytestmark = pytest.mark.once

LENGTH = 72


def decoded(module: Form, inputs: tuple[Tensor, ...], cache: KVCache) -> Tensor:
    """Prompt, chunk and single tokens, one after another."""
    stretches = parts(inputs, module.axis, LENGTH - 8, 6, 1, 1)
    return torch.cat([module(*part, cache=cache) for part in stretches], module.axis)


@covers("autocast", "train")
def test_autocast_trains(cell: Cell) -> None:
    module = cell.build()
    inputs = module.inputs(LENGTH)
    with torch.autocast("cpu", torch.bfloat16):
        out = module(*inputs)
    assert out.dtype == (torch.bfloat16 if cell.form == "Attention" else torch.float32)
    made = run(module, inputs, call=torch.autocast("cpu", torch.bfloat16)(module.forward))
    assert_same([made[0].float(), *made[1:]], run(module, inputs), BFLOAT16)


@pytest.mark.parametrize("row", ["t5", "shaw", "fire"])
def test_gradients_keep_their_digits_where_autocast_is_still_on(row: str) -> None:
    module = Cell("autocast", ("train",), row, "attend").build()
    inputs = module.inputs(LENGTH)
    expected = torch.autograd.grad(weighed(module(*inputs)), inputs)
    with torch.autocast("cpu", torch.bfloat16):
        made = torch.autograd.grad(weighed(module(*inputs)), inputs)
    assert_same(made, expected, TIGHT)


@covers("autocast", "cache", cached=True)
@torch.no_grad()
def test_autocast_decodes(cell: Cell) -> None:
    module = cell.build()
    inputs = module.inputs(LENGTH)
    cache = module.make_cache(max_length=LENGTH)
    with torch.autocast("cpu", torch.bfloat16):
        made = decoded(module, inputs, cache)
    assert cache.length == LENGTH
    assert_same([made.float()], [module(*inputs, positions=module.places(LENGTH))], BFLOAT16)


@covers("autocast", "cache, then cast", cached=True)
@torch.no_grad()
def test_a_cache_made_before_a_cast_is_filled_after_it(cell: Cell) -> None:
    module = cell.build()
    inputs = module.inputs(LENGTH)
    expected = module(*inputs, positions=module.places(LENGTH))
    cache = module.make_cache(max_length=LENGTH)
    module.to(torch.bfloat16)
    made = decoded(module, tuple(each.bfloat16() for each in inputs), cache)
    assert made.dtype == torch.bfloat16
    assert_same([made.float()], [expected], BFLOAT16)


@covers("autocast", "cast, then cache", cached=True)
@torch.no_grad()
def test_a_cache_made_after_a_cast_is_filled(cell: Cell) -> None:
    module = cell.build()
    inputs = module.inputs(LENGTH)
    expected = module(*inputs, positions=module.places(LENGTH))
    module.to(torch.bfloat16)
    cache = module.make_cache(max_length=LENGTH)
    assert cache.keys.dtype == torch.bfloat16
    made = decoded(module, tuple(each.bfloat16() for each in inputs), cache)
    assert made.dtype == torch.bfloat16
    assert_same([made.float()], [expected], BFLOAT16)
