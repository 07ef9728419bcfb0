"""DDP and FSDP2 on two ranks: each has half of the batch, and all outputs and gradients are those of one process."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from tests.torch_features.comparing import assert_same
from tests.torch_features.forms import Form, Layer
from tests.torch_features.processes import expect_nothing, outcomes
from tests.torch_features.table import Cell, covers

pytestmark = pytest.mark.once

LENGTH, RANKS, STEPS = 40, 2, 2


def train(module: nn.Module, batches: Iterable[tuple[Tensor, ...]], rows: slice) -> tuple[list[Tensor], list[Tensor]]:
    """Outputs for some rows of every batch, and gradients of the mean over all rows, with a step of SGD after each."""
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    outputs, gradients = [], []
    for inputs in batches:
        optimiser.zero_grad()
        out = module(*(each[rows] for each in inputs))
        weights = torch.arange(out[0].numel()).float().sin().view_as(out[0])
        (out * weights).flatten(1).sum(1).mean().backward()
        outputs.append(out)
        gradients += [each.grad for each in module.parameters() if each.grad is not None]
        gradients = [each.full_tensor() if isinstance(each, DTensor) else each.clone() for each in gradients]
        optimiser.step()
    return outputs, gradients


def assert_ranks_train_as_one(cell: Cell, distribute: Callable[[Form], nn.Module]) -> None:
    """Two steps on this rank's rows give what two steps on the whole batch give in this process alone."""
    alone, module = cell.build(), distribute(cell.build())
    batches = [tuple(each.detach() for each in alone.inputs(LENGTH, batch=4, seed=seed)) for seed in range(STEPS)]
    mine = slice(2 * dist.get_rank(), 2 * dist.get_rank() + 2)
    outputs, gradients = train(module, batches, mine)
    expected, summed = train(alone, batches, slice(None))
    assert_same(outputs, [each[mine] for each in expected])
    assert_same(gradients, summed)


def on_ranks(cell: Cell) -> None:
    """One rank."""
    mesh = init_device_mesh("cpu", (RANKS,))

    def shard(module: Form) -> nn.Module:
        if isinstance(module, Layer):
            fully_shard(module.attention, mesh=mesh)
        fully_shard(module, mesh=mesh)
        return module

    assert_ranks_train_as_one(cell, shard if cell.features == ("FSDP2",) else DistributedDataParallel)


DDP, FSDP2 = (covers("processes and threads", name, thin=True) for name in ("DDP", "FSDP2"))


@functools.cache
def found() -> dict[Cell, str]:
    """What went wrong on two ranks, for all cells at once."""
    return outcomes(on_ranks, [*DDP.args[1], *FSDP2.args[1]], ranks=RANKS, patience=60)


@DDP
def test_two_ranks_of_ddp_train_as_one_process(cell: Cell) -> None:
    expect_nothing(found()[cell])


@FSDP2
def test_two_ranks_of_fsdp_train_as_one_process(cell: Cell) -> None:
    expect_nothing(found()[cell])
