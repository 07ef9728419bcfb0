"""A real cluster of two nodes on this machine, one core each."""

import os
import pathlib
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from situs.lab.comparing.corpus import Corpus
from situs.lab.comparing.engines import local
from situs.lab.comparing.engines import ray as engine
from situs.lab.comparing.jobs import NO_TEXT, CorpusSource
from situs.lab.comparing.records import Trial, TrialRecord
from situs.lab.naming import parse
from situs.lab.records import Progress
from situs.lab.running.completion import complete
from situs.lab.running.serving import EngineError
from situs.lab.running.store import Store
from tests.lab.test_engine_local import SETTINGS, numbers, some_trials
from tests.raising import raises_exactly

pytestmark = pytest.mark.once

# Waits in the middle of its first training until it is killed; the second time it does nothing of the kind.
ENCODING = """
import os, pathlib, time
import situs

class Waits(situs.Sinusoidal):
    calls = 0
    def forward(self, x, positions):
        place = pathlib.Path(os.environ["SITUS_TEST_PLACE"])
        Waits.calls += 1
        if Waits.calls == 20 and not place.exists():
            (place.parent / "new").write_text(str(os.getpid()))
            (place.parent / "new").rename(place)
            time.sleep(60)
        return super().forward(x, positions)

class Hangs(situs.Sinusoidal):
    def forward(self, x, positions):
        while x.shape[1] > 16: time.sleep(0.1)
        return super().forward(x, positions)

class Breaks(situs.Sinusoidal):
    def forward(self, x, positions):
        raise RuntimeError("no such luck")
"""
OPTIONS: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 100 * 2**20}


@pytest.fixture
def address(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    pytest.importorskip("ray")
    clusters = pytest.importorskip("ray.cluster_utils")
    (tmp_path / "waiting.py").write_text(ENCODING)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("SITUS_TEST_PLACE", str(tmp_path / "pid"))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    cluster = clusters.Cluster(initialize_head=True, head_node_args={**OPTIONS, "include_dashboard": False})
    cluster.add_node(**OPTIONS)
    yield cluster.address
    cluster.shutdown()


@pytest.mark.heavy
@pytest.mark.skipif(sys.platform != "linux", reason="kills processes")
def test_a_cluster_gives_the_local_numbers_though_a_worker_is_killed(address: str, tmp_path: pathlib.Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(f"line {number * number} of a text" for number in range(2000)))
    source = CorpusSource(str(text), Corpus.from_path(text).hash)
    waits, breaks, reads = (
        Trial(parse("waiting:Waits"), (parse("waiting:Waits"),), "copy", 0, 42, SETTINGS),
        Trial(parse("waiting:Breaks"), (parse("waiting:Breaks"),), "copy", 0, 41, SETTINGS),
        Trial(parse("alibi"), (parse("alibi"),), "text", 0, 40, replace(SETTINGS, train_length=64), source.hash),
    )
    trials = [waits, breaks, reads, *some_trials()[:3]]
    told: list[tuple[int, str, int]] = []

    def tell(number: int, trial: Trial, progress: Progress) -> None:
        told.append((number, trial.key, progress.done))

    killer = threading.Thread(target=kill_at, args=(tmp_path / "pid",), daemon=True)
    killer.start()
    records = complete(trials, Store(tmp_path, TrialRecord), engine.run, source=source, address=address, tell=tell)
    killer.join(1)
    assert not killer.is_alive()
    assert records[breaks.key].error == f"RuntimeError: no such luck ({tmp_path / 'waiting.py'}:23)"
    assert {key for _, key, _ in told} >= {waits.key, reads.key}
    # two run at a time, and the one that was killed holds its number until it runs again
    assert {number for number, _, _ in told} <= {0, 1, 2}
    here: dict[str, TrialRecord] = {}
    local.run(trials, source, workers=2, done=lambda record: here.update({record.key: record}))
    del records[breaks.key], here[breaks.key]
    assert {record.status for record in records.values()} == {"done"}
    assert numbers(records) == numbers(here)


@pytest.mark.heavy
def test_a_trial_that_hangs_on_a_cluster_is_cancelled_and_its_results_are_kept(address: str) -> None:
    hangs, sound = (Trial(parse(name), (parse(name),), "copy", 0, 5, SETTINGS) for name in ("waiting:Hangs", "alibi"))
    records: dict[str, TrialRecord] = {}
    engine.run(
        [hangs, sound], NO_TEXT, address=address, timeout=15.0, done=lambda record: records.update({record.key: record})
    )
    assert records[sound.key].status == "done"
    hung = records[hangs.key]
    assert (hung.status, hung.error) == (
        "failed",
        "TimeoutError: timed out after 15 s. Allow more with --trial-timeout.",
    )
    assert hung.methods["waiting:Hangs"].lengths.keys() == {16}


def kill_at(place: pathlib.Path) -> None:
    while not place.exists():
        time.sleep(0.05)
    os.kill(int(place.read_text()), signal.SIGKILL)


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    message = (
        "ray must be installed, since the trials are to run on a Ray cluster; got import of ray halted; None in "
        "sys.modules. Use pip install 'situs[ray]'."
    )
    with raises_exactly(EngineError, message):
        engine.run([], NO_TEXT, done=print)


def test_an_address_where_nobody_listens_is_refused_at_once() -> None:
    pytest.importorskip("ray")
    message = (
        "address must be that of a Ray cluster, since the trials are to run there; got '127.0.0.1:1': [Errno 111] "
        "Connection refused"
    )
    with raises_exactly(EngineError, message):
        engine.run(some_trials(), NO_TEXT, address="127.0.0.1:1", done=print)
