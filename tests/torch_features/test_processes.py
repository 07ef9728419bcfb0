"""The watch over processes: one that hangs or dies fails its own cell, and the cells after it are run."""

from __future__ import annotations

import os
import time

import pytest

from tests.torch_features.processes import outcomes
from tests.torch_features.table import SLOW, Cell

pytestmark = [pytest.mark.once, pytest.mark.skipif(not SLOW, reason="starts processes three times; set SITUS_SLOW=1")]


def behave(cell: Cell) -> None:
    """As the cell's row says."""
    if cell.row == "hangs":
        time.sleep(600)
    if cell.row == "dies":
        os._exit(1)
    if cell.row == "raises":
        raise ValueError("so it is")


def test_processes_that_hang_or_die_fail_their_own_cells() -> None:
    cells = [Cell("compile", ("range",), row, "attend") for row in ("hangs", "works", "dies", "raises", "also works")]
    found = {cell.row: wrong for cell, wrong in outcomes(behave, cells, ranks=1, patience=2).items()}
    silent = "a process died, or said nothing for 2 seconds"
    assert found.pop("raises").endswith("ValueError: so it is\n")
    assert found == {"hangs": silent, "works": "", "dies": silent, "also works": ""}
