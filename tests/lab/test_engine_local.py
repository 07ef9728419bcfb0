"""Trials in processes of this machine: whatever happens to one, the rest goes on, with the same numbers."""

import json
import multiprocessing
import os
import pathlib
import signal
import sys
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch

from situs.lab.comparing.corpus import Corpus
from situs.lab.comparing.engines import local
from situs.lab.comparing.jobs import NO_TEXT, CorpusSource, answer, choose_gpu
from situs.lab.comparing.records import Seconds, Trial, TrialRecord
from situs.lab.naming import parse, parse_all
from situs.lab.plain import to_json
from situs.lab.records import Progress
from situs.lab.running import processes, team
from situs.lab.running.completion import complete
from situs.lab.running.serving import EngineError
from situs.lab.running.store import Store
from situs.lab.settings import Settings, Size
from tests.raising import raises_exactly

pytestmark = [pytest.mark.once, pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")]

SETTINGS = Settings(
    train_length=16, multiples=(1, 2), batch=8, warm_up=5, windows=8, size=Size(dim=16, layers=1, heads=2)
)

ENCODINGS = """
import os, signal, situs

class Breaks(situs.NoPE):
    def __init__(self):
        raise RuntimeError("no such luck")

class Leaves(situs.NoPE):
    def __init__(self):
        raise SystemExit(3)

class Kills(situs.NoPE):
    def __init__(self):
        os.kill(os.getpid(), signal.SIGKILL)
"""


def some_trials(steps: int = 40) -> list[Trial]:
    return [
        Trial(method, (method,), "copy", seed, steps, SETTINGS)
        for seed in range(2)
        for method in parse_all("alibi,none,rotary")
    ]


def numbers(records: dict[str, TrialRecord]) -> dict[str, str]:
    """All but the time it took."""
    return {key: to_json(replace(record, seconds=Seconds(0.0, 0.0))) for key, record in sorted(records.items())}


def run(trials: list[Trial], **options: Any) -> dict[str, TrialRecord]:
    records: dict[str, TrialRecord] = {}
    local.run(trials, NO_TEXT, done=lambda record: records.update({record.key: record}), **options)
    return records


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, str]:
    records = run(some_trials(), workers=1)
    assert {record.status for record in records.values()} == {"done"}
    return numbers(records)


def test_a_worker_that_is_killed_is_replaced_and_its_trial_run_again(undisturbed: dict[str, str]) -> None:
    trials = some_trials()
    killed: list[int | None] = []
    starts: Counter[str] = Counter()

    def tell(number: int, trial: Trial, progress: Progress) -> None:
        starts[trial.key] += progress.phase == "training" and progress.done == 1
        child = next(each for each in multiprocessing.active_children() if each.name == f"situs {number}")
        if not killed and progress.done == 1:
            os.kill(child.pid or 0, signal.SIGSTOP)  # in the middle of it
            os.kill(child.pid or 0, signal.SIGKILL)
            killed.append(child.pid)

    assert numbers(run(trials, workers=2, tell=tell)) == undisturbed
    assert sum(starts.values()) == len(trials) + 1
    assert multiprocessing.active_children() == []


@pytest.mark.heavy
def test_a_trial_that_fails_is_recorded_and_the_rest_goes_on(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, undisturbed: dict[str, str]
) -> None:
    (tmp_path / "unlucky.py").write_text(ENCODINGS)
    monkeypatch.syspath_prepend(tmp_path)
    unlucky = parse_all("unlucky:Breaks,unlucky:Leaves,unlucky:Kills")
    trials = [Trial(method, (method,), "copy", 0, 50, SETTINGS) for method in unlucky]
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(f"line {number} of a text" for number in range(2000)))
    alibi = parse("alibi")
    trials.append(Trial(alibi, (alibi,), "text", 0, 50, SETTINGS, "before"))
    store = Store(tmp_path, TrialRecord)
    told: list[TrialRecord] = []
    options: dict[str, Any] = {"source": CorpusSource(str(text), "before"), "workers": 2}
    records = complete([*trials, *some_trials()[:2]], store, local.run, done=told.append, **options)
    assert [records[trial.key].error for trial in trials] == [
        f"RuntimeError: no such luck ({tmp_path / 'unlucky.py'}:6)",
        f"SystemExit: 3 ({tmp_path / 'unlucky.py'}:10)",
        "ChildProcessError: the worker must live to the end of its job; got SIGKILL in the middle of it, 2 times. If "
        "memory ran out, use fewer workers or a smaller model.",
        "ValueError: text must stay as it was when the comparison began, since trials are compared with each other; "
        f"got hash {Corpus.from_path(text).hash} instead of before from {text}. Run again.",
    ]
    assert 'raise RuntimeError("no such luck")' in (records[trials[0].key].traceback or "")
    assert numbers(records).items() >= {trial.key: undisturbed[trial.key] for trial in some_trials()[:2]}.items()
    assert {key: to_json(record) for key, record in records.items()} == {
        key: to_json(record) for key, record in store.load().items()
    }
    assert len(told) == 6


def test_an_error_of_the_caller_stops_the_workers(tmp_path: pathlib.Path) -> None:
    def done(record: TrialRecord) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        local.run(some_trials(), NO_TEXT, workers=2, done=done)
    assert multiprocessing.active_children() == []
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_workers_that_never_start_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "serve", os.abort)  # takes no arguments, so it raises
    message = (
        "workers must start, since they run the trials; got exit status 1 3 times. A script must call this under "
        '`if __name__ == "__main__":`.'
    )
    with raises_exactly(EngineError, message):
        run(some_trials(), workers=2)


def test_workers_take_turns_on_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[int] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    for number in range(3):
        choose_gpu(number, "cuda")
    choose_gpu(1, "cuda:0")
    choose_gpu(1, "cpu")
    assert chosen == [0, 1, 0]


def test_there_must_be_a_worker() -> None:
    with raises_exactly(ValueError, "workers must be 1 or more, since they run the trials; got 0."):
        run(some_trials(), workers=0)
    assert run([]) == {}
    assert team.cores() >= 1


def test_records_are_plain_data() -> None:
    record = answer(some_trials()[0], None, lambda progress: None, lambda record: None)
    assert json.loads(to_json(record))["status"] == "done"
