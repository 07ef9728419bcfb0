"""Real comparisons that are killed, interrupted and doubled: each still ends, with the same numbers."""

import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from situs.lab.comparing.jobs import failed_trial
from situs.lab.comparing.records import Trial, TrialRecord
from situs.lab.problems import Problem
from situs.lab.running.completion import complete
from situs.lab.running.store import Store
from tests.lab.test_engine_local import numbers, run, some_trials

pytestmark = [pytest.mark.once, pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")]

# Does to itself, after so many records, what happens to real comparisons.
DRIVER = """
import os, signal, sys
from tests.lab.test_engine_local import some_trials
from situs.lab.comparing.jobs import NO_TEXT
from situs.lab.comparing.engines import local
from situs.lab.comparing.records import TrialRecord
from situs.lab.running.completion import complete
from situs.lab.running.store import Store

def done(record):
    print("done", record.key, flush=True)
    global left
    left -= 1
    if left == 0:
        {"kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
         "interrupt": lambda: os.killpg(0, signal.SIGINT),
         "terminate": lambda: os.kill(os.getpid(), signal.SIGTERM)}[sys.argv[2]]()

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    store, left = Store(sys.argv[1], TrialRecord), int(sys.argv[3])
    known = store.load()
    missing = [trial for trial in some_trials() if trial.key not in known]
    print("ready", flush=True)
    complete(missing, store, local.run, source=NO_TEXT, workers=2, done=done,
             tell=lambda worker, trial, progress: print("runs", trial.key, flush=True))
"""


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, str]:
    return numbers(run(some_trials(), workers=1))


class Driver:
    """A comparison in a session of its own, whose processes can be counted."""

    def __init__(self, script: pathlib.Path, folder: pathlib.Path, ending: str = "", after: int = -1) -> None:
        script.write_text(DRIVER)
        root = str(pathlib.Path(__file__).parent.parent.parent)
        path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
        self.process = subprocess.Popen(
            [sys.executable, str(script), str(folder), ending, str(after)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            env={**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "error"},
        )  # fmt: skip

    def finish(self) -> None:
        out, self.errors = self.process.communicate(timeout=60)
        lines = [line.split() for line in out.splitlines()]
        self.ran = {words[1] for words in lines if words[0] == "runs"}
        self.done = [words[1] for words in lines if words[0] == "done"]

    def orphans(self, within: float) -> list[str]:
        """What is left of the session after so many seconds."""
        end = time.monotonic() + within
        while True:
            left = []
            for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
                try:
                    status = path.read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                if int(status[3]) == self.process.pid and status[0] not in "ZX":
                    left.append(path.parent.name)
            if not left or time.monotonic() > end:
                return left
            time.sleep(0.05)


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("ending", "status"), [("kill", -signal.SIGKILL), ("interrupt", -signal.SIGINT), ("terminate", 143)]
)
def test_a_comparison_that_was_stopped_goes_on_with_the_same_numbers(
    tmp_path: pathlib.Path, undisturbed: dict[str, str], ending: str, status: int
) -> None:
    folder = tmp_path / "results"
    first = Driver(tmp_path / "driver.py", folder, ending, after=2)
    first.finish()
    assert first.process.returncode == status
    assert first.orphans(within=2.0) == []
    assert "running/serving.py" not in first.errors  # workers say nothing
    assert sorted(first.done) == sorted(Store(folder, TrialRecord).load())
    assert len(first.done) == 2
    claims = list((folder / "trials").glob("*.claim"))
    assert bool(claims) == (ending == "kill")
    if ending == "kill":  # once is enough
        second = Driver(tmp_path / "driver.py", folder)
        second.finish()
        assert second.process.returncode == 0, second.errors
        assert second.ran.isdisjoint(first.done)
        assert sorted(first.done + second.done) == sorted(undisturbed)
        assert numbers(Store(folder, TrialRecord).load()) == undisturbed
        assert sorted(path.suffix for path in (folder / "trials").iterdir()) == [".json"] * 6


@pytest.mark.heavy
def test_two_comparisons_into_one_folder_share_the_trials(tmp_path: pathlib.Path, undisturbed: dict[str, str]) -> None:
    folder = tmp_path / "results"
    both = [Driver(tmp_path / "driver.py", folder) for _ in range(2)]
    for each in both:
        each.finish()
    assert [each.process.returncode for each in both] == [0, 0], both[0].errors + both[1].errors
    assert both[0].ran.isdisjoint(both[1].ran)
    for each in both:  # what the other ran was waited for, unless it had been there from the start
        assert set(each.done) >= each.ran
    assert both[0].ran | both[1].ran == set(undisturbed)
    assert numbers(Store(folder, TrialRecord).load()) == undisturbed


def test_records_that_do_not_count_are_made_anew_and_others_are_taken(tmp_path: pathlib.Path) -> None:
    store, trials = Store(tmp_path, TrialRecord), some_trials()[:2]
    asked = []

    def engine(trials: list[Trial], **options: Any) -> None:
        asked.append([trial.key for trial in trials if options["claim"](trial)])
        for trial in trials:
            if trial.key in asked[-1]:
                options["done"](failed_trial(trial, Problem("ValueError: again", "")))

    for trial in trials:
        store.save(failed_trial(trial, Problem("ValueError: before", "")))
    known = {trials[0].key: store.load()[trials[0].key]}
    records = complete(trials, store, engine, known=known)
    assert [records[trial.key].error for trial in trials] == ["ValueError: again", "ValueError: before"]
    assert asked == [[trials[0].key]]
