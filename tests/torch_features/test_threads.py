"""Threads: eight of them through one module give what one after another gives, and leave the module as it was."""

from __future__ import annotations

import functools
import sys
import threading

import pytest
import torch
from torch import nn

from tests.torch_features.comparing import assert_same, run
from tests.torch_features.processes import expect_nothing, outcomes
from tests.torch_features.table import SLOW, Cell, covers

pytestmark = pytest.mark.once

THREADS, ROUNDS, LENGTH = 8, 40 if SLOW else 16, 72
cells = covers("processes and threads", "threads", thin=True)


def in_threads(cell: Cell) -> None:
    """Forward and backward, all threads at once and each on inputs of its own, several times."""
    sys.setswitchinterval(1e-5)  # threads take turns as often as they can
    module = cell.build()
    names = [name for name, _ in module.named_parameters()]
    inputs = [module.inputs(LENGTH, seed=seed) for seed in range(THREADS)]
    expected = [run(module, each) for each in inputs]
    together, problems = threading.Barrier(THREADS), []

    def work(number: int) -> None:
        try:
            for _ in range(ROUNDS):
                together.wait(timeout=30)
                assert_same(run(module, inputs[number]), expected[number])
        except BaseException as problem:
            problems.append(problem)
            together.abort()

    running = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(THREADS)]
    for each in running:
        each.start()
    for each in running:
        each.join()
    told = [each for each in problems if not isinstance(each, threading.BrokenBarrierError)]
    if problems:
        raise (told or problems)[0]
    assert [name for name, _ in module.named_parameters()] == names
    assert all(isinstance(each, nn.Parameter) for each in module.parameters())
    assert torch.is_grad_enabled()


@functools.cache
def found() -> dict[Cell, str]:
    """What went wrong, for all cells at once, in a process that may hang."""
    return outcomes(in_threads, cells.args[1], ranks=1, patience=30)


@cells
def test_eight_threads_train_through_one_module(cell: Cell) -> None:
    expect_nothing(found()[cell])
