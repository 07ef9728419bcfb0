"""What the tests of the table leave behind: a line for each cell, where SITUS_TORCH_RECORD names a file."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Generator
from typing import Any

import pytest
import torch

from tests.torch_features.table import Cell

RECORD = os.environ.get("SITUS_TORCH_RECORD")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Append what came of a cell; one write a line, so that several processes may share the file."""
    report = yield
    cell = item.callspec.params.get("cell") if isinstance(item, pytest.Function) and hasattr(item, "callspec") else None
    if RECORD and isinstance(cell, Cell) and (report.when == "call" or report.failed):
        reason = dict(item.user_properties).get("reason")
        for feature in cell.features:
            said = {"group": cell.group, "feature": feature, "row": cell.row, "form": cell.form}
            line = json.dumps({**said, "outcome": "no" if report.failed else reason or "yes"})
            with open(RECORD, "a", encoding="utf-8") as file:
                file.write(line + "\n")
    return report


@pytest.fixture(autouse=True)
def fresh_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No graph of an earlier test counts, and pytest does not collect what torch notes of each, which takes time."""
    torch.compiler.reset()
    monkeypatch.setattr(logging.getLogger("torch.__trace"), "propagate", False)
