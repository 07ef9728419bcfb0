"""Accelerated models on two ranks: each has half of the texts, and gradients are those of one process."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

from situs.huggingface import accelerate
from tests.huggingface.small_models import expect_same_gradients, given, gradients, made, texts, without_dropout
from tests.ranks import leave

pytestmark = pytest.mark.once

RANKS, STEPS = 2, 2
WAYS: dict[str, dict[str, bool]] = {"t5": {"use_cache": False}, "bloom": {"use_cache": False}, "deberta v3": {}}


def on_rank(rank: int, meeting: str) -> None:
    """Compare one rank with the unmodified model on all texts."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=RANKS)
    for name in WAYS:
        alone, ids = without_dropout(made(name)), texts(4, 20)
        expected = gradients(alone, given(alone, ids) | WAYS[name])
        model = accelerate(without_dropout(made(name)))
        parallel = DistributedDataParallel(model)
        mine = given(model, ids[2 * rank : 2 * rank + 2]) | WAYS[name]
        for _ in range(STEPS):  # the second finds out whether a parameter had no part in the first
            found = gradients(parallel, mine)
            expect_same_gradients({each.removeprefix("module."): value for each, value in found.items()}, expected)
    leave()


def test_two_ranks_have_the_gradients_of_one_process(tmp_path: Path) -> None:
    spawn(on_rank, args=((tmp_path / "meeting").as_uri(),), nprocs=RANKS)
