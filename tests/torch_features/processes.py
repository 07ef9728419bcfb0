"""Work in processes of its own, which may hang or die without harm to the tests around it."""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import multiprocessing

from tests.torch_features.table import Cell

Work = Callable[[Cell], None]
"""What is done for a cell; it raises where something is wrong."""


def outcomes(work: Work, cells: Sequence[Cell], *, ranks: int, patience: float) -> dict[Cell, str]:
    """What went wrong in each cell, or nothing: in one process, or on the ranks of a process group. Where one says
    nothing for ``patience`` seconds it is ended, and new ones go on with the next cell."""
    found: dict[Cell, str] = {}
    while left := [cell for cell in cells if cell not in found]:
        found |= _round(work, left, ranks, patience)
    return found


def expect_nothing(wrong: str) -> None:
    """Fail the test of a cell with what went wrong in it."""
    if wrong:
        pytest.fail(wrong, pytrace=False)


def _round(work: Work, cells: Sequence[Cell], ranks: int, patience: float) -> dict[Cell, str]:
    """The same until the first process that dies or hangs."""
    context = multiprocessing.get_context("spawn")
    found: dict[Cell, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        pipes = [context.Pipe(duplex=False) for _ in range(ranks)]
        started = [
            context.Process(target=_serve, args=(work, cells, rank, ranks, folder, writer), daemon=True)
            for rank, (_, writer) in enumerate(pipes)
        ]
        for process in started:
            process.start()
        for _, writer in pipes:
            writer.close()  # so that the end of a process is the end of its pipe
        try:
            for reader, _ in pipes:
                _heard(reader, patience + 60)  # started
            for cell in cells:
                said = [_heard(reader, patience) for reader, _ in pipes]
                found[cell] = "\n".join(each for each in said if each)
                if None in said:
                    found[cell] += f"a process died, or said nothing for {patience} seconds"
                    break
        finally:
            for process in started:
                process.join(5 if len(found) == len(cells) else 0)
                process.kill()
                process.join()
    return found


def _heard(reader: Connection[object, object], patience: float) -> str | None:
    """What comes next; None where nothing does."""
    try:
        return str(reader.recv()) if reader.poll(patience) else None
    except EOFError:
        return None


def _serve(
    work: Work, cells: Sequence[Cell], rank: int, ranks: int, folder: str, writer: Connection[object, object]
) -> None:
    """A process: cell after cell, each answered by what went wrong in it."""
    torch.set_num_threads(1)
    if ranks > 1:
        meeting = (Path(folder) / "meeting").as_uri()
        dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=ranks)
    writer.send("started")
    for cell in cells:
        torch.manual_seed(0)
        try:
            work(cell)
            writer.send("")
        except Exception:
            writer.send(traceback.format_exc())
    if ranks > 1:
        dist.destroy_process_group()
