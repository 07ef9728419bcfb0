"""Models that are made once for all tests, whatever process they run in, and a team that has no workers."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, final

import pytest

from situs.lab.plain import to_json
from situs.lab.records import Progress
from situs.lab.running.work import Work
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


@final
class Here:
    """Do jobs in this process, as a `Team` does in others: for what is not about processes, and quicker."""

    def __init__(self, workers: int | None = None, *, threads: int | None = 1) -> None:
        self.held: dict[str, Any] = {}

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to end."""

    def run(
        self,
        jobs: Iterable[Any],
        work: Work[Any, Any],
        *,
        tell: Callable[[int, Any, Progress], None] = lambda worker, job, progress: None,
        done: Callable[[Any, Any], None],
        claim: Callable[[Any], bool] = lambda job: True,
        timeout: float = 0.0,
        at_most: int | None = None,
    ) -> None:
        for job in jobs:
            if claim(job):
                work.prepare(job, self.held, 0)
                answer = work.answer(job, self.held, partial(tell, 0, job), lambda answer: None)
                done(job, work.read(job, to_json(answer)))


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run all jobs of an evaluation in this process."""
    monkeypatch.setattr("situs.lab.running.team.Team", Here)
