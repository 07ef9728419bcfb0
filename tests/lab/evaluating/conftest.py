"""A model that is trained once for all tests, whatever process they run in, and one at random."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from tests.lab.evaluating.small_models import llama, saved, trained


@pytest.fixture(scope="session")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small model that was trained on texts of 64 bytes."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = shared / "released" / "small-llama"
    folder.parent.mkdir(exist_ok=True)
    with (folder.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return folder if folder.exists() else trained(folder)


@pytest.fixture(scope="session")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small model at random."""
    return saved(llama(), tmp_path_factory.mktemp("random") / "random-llama")
