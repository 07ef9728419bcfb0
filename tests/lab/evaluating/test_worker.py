"""Trials in a real worker process: whatever happens to it, one trial at most is lost, and the others are the same."""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, final

import pytest

from situs.cli import main
from situs.lab.evaluating.engines import run_here
from situs.lab.evaluating.evaluate import plan
from situs.lab.evaluating.jobs import Answer, EvaluateWork, Job, Planned, Planning
from situs.lab.evaluating.plan import make_plan
from situs.lab.evaluating.records import Evaluation, Trial, TrialRecord
from situs.lab.evaluating.source import Source
from situs.lab.plain import to_json
from situs.lab.problems import Problem
from situs.lab.records import Progress
from situs.lab.running.completion import complete
from situs.lab.running.store import Store
from situs.lab.running.team import Team
from situs.lab.running.work import Held, Work
from tests.lab.evaluating.small_models import llama, saved
from tests.lab.test_kills import processes
from tests.raising import raises_exactly

pytestmark = [pytest.mark.once, pytest.mark.skipif(sys.platform != "linux", reason="sends signals")]

PLANNING = Planning(lengths=(1, 2), scalings="none,yarn", windows=2)


@pytest.fixture(scope="module")
def team() -> Iterator[Team]:
    """One worker for all of these tests, and those that replace it."""
    with Team(1, threads=None) as workers:
        yield workers


@pytest.fixture(scope="module")
def source(random_model: Path) -> Source:
    return Source(str(random_model))


@pytest.fixture(scope="module")
def asked(team: Team, source: Source) -> Evaluation:
    """What was planned by the worker, which then holds the model."""
    return plan(PLANNING, source, team)


@pytest.fixture(scope="module")
def undisturbed(asked: Evaluation, random_model: Path) -> dict[str, str]:
    """What this process measures, without a worker."""
    bench = make_plan(random_model, lengths=(1, 2), scalings="none,yarn", windows=2).bench
    held = {"bench": bench}
    work = EvaluateWork(Source(str(random_model)))
    found = {trial.key: work.answer(trial, held, print, print) for trial in asked.planned.values()}
    return {key: numbers(record) for key, record in found.items() if isinstance(record, TrialRecord)}


def numbers(record: TrialRecord) -> str:
    """All but the time and memory that it took."""
    assert record.status == "done", record.outcome.error
    return to_json(replace(record, seconds=[], bytes=None))


@final
@dataclass(frozen=True)
class Faulty(Work[Job, Answer]):
    """Do the jobs of an evaluation, and in the middle of one trial something that ends or hangs the worker.

    place: a folder that counts how often that was done.
    """

    killed: ClassVar[str] = EvaluateWork.killed
    left: ClassVar[str] = EvaluateWork.left

    work: EvaluateWork
    struck: str
    fault: Literal["kill", "hang"]
    times: int
    place: Path

    def own_code(self, job: Job) -> frozenset[str]:
        return self.work.own_code(job)

    def prepare(self, job: Job, held: Held, number: int) -> None:
        self.work.prepare(job, held, number)

    def answer(self, job: Job, held: Held, tell: Callable[[Progress], None], keep: Callable[[Answer], None]) -> Answer:
        def strike(progress: Progress) -> None:
            tell(progress)
            if isinstance(job, Trial) and job.key == self.struck and progress.done == 1:
                before = len(list(self.place.iterdir()))
                if before < self.times:
                    (self.place / str(before)).touch()
                    if self.fault == "kill":
                        os.kill(os.getpid(), signal.SIGKILL)
                    time.sleep(600)

        return self.work.answer(job, held, strike, keep)

    def problem(self, job: Job, error: BaseException) -> Problem:
        return self.work.problem(job, error)

    def failed(self, job: Job, problem: Problem, seconds: float = 0.0, so_far: Answer | None = None) -> Answer:
        return self.work.failed(job, problem, seconds, so_far)

    def read(self, job: Job, text: str) -> Answer:
        return self.work.read(job, text)


def struck(
    team: Team, source: Source, asked: Evaluation, folder: Path, fault: Literal["kill", "hang"], times: int
) -> dict[str, TrialRecord]:
    """The records of all trials, during the second of which the worker is struck so many times."""
    (folder / "place").mkdir()
    work = Faulty(EvaluateWork(source), list(asked.planned)[1], fault, times, folder / "place")
    store = Store(folder, TrialRecord)

    def engine(trials: list[Job], *, done: Callable[[Any], None], claim: Callable[[Any], bool]) -> None:
        team.run(trials, work, done=lambda job, answer: done(answer), claim=claim, timeout=4.0)

    found = complete(list(asked.planned.values()), store, engine)
    assert store.load() == found
    assert len(list((folder / "place").iterdir())) == times
    return found


def test_the_worker_that_planned_holds_the_model_for_all_trials(
    team: Team, source: Source, asked: Evaluation, undisturbed: dict[str, str], tmp_path: Path
) -> None:
    before = team.members[0].process.pid
    went: list[tuple[str, int]] = []
    records = complete(
        list(asked.planned.values()),
        Store(tmp_path, TrialRecord),
        partial(run_here, team=team),
        source=source,
        tell=lambda worker, trial, progress: went.append((trial.key, worker)),
    )
    assert team.members[0].process.pid == before
    assert set(went) == {(key, 0) for key in asked.planned}
    assert {key: numbers(record) for key, record in records.items()} == undisturbed
    assert asked.trials == []
    assert len(asked.planned) == 8


def test_a_worker_that_is_killed_in_the_middle_of_a_trial_costs_nothing(
    team: Team, source: Source, asked: Evaluation, undisturbed: dict[str, str], tmp_path: Path
) -> None:
    before = team.members[0].process.pid
    records = struck(team, source, asked, tmp_path, "kill", times=1)
    assert team.members[0].process.pid != before
    assert {key: numbers(record) for key, record in records.items()} == undisturbed


@pytest.mark.heavy
def test_a_trial_that_kills_its_workers_fails_alone_with_the_reason(
    team: Team, source: Source, asked: Evaluation, undisturbed: dict[str, str], tmp_path: Path
) -> None:
    records = struck(team, source, asked, tmp_path, "kill", times=2)
    failed = records.pop(list(asked.planned)[1])
    assert failed.status == "failed"
    assert failed.outcome.error == (
        "ChildProcessError: the worker must live to the end of its job; got SIGKILL in the middle of it, 2 times. If "
        "memory ran out, test shorter lengths, or use --dtype bfloat16."
    )
    failed.require_sound()
    assert {key: numbers(record) for key, record in records.items()} == {
        key: each for key, each in undisturbed.items() if key != failed.key
    }


def test_a_trial_over_its_time_fails_alone_and_loading_the_model_again_does_not_count(
    team: Team, source: Source, asked: Evaluation, undisturbed: dict[str, str], tmp_path: Path
) -> None:
    records = struck(team, source, asked, tmp_path, "hang", times=1)
    failed = records.pop(list(asked.planned)[1])
    assert failed.outcome.error is not None
    assert re.fullmatch(
        r"TimeoutError: timed out after 4 s(, at \S*test_worker\.py:\d+)?\. Allow more with --trial-timeout\.",
        failed.outcome.error,
    )
    assert {key: numbers(record) for key, record in records.items()} == {
        key: each for key, each in undisturbed.items() if key != failed.key
    }


def test_what_cannot_be_planned_is_the_same_sentence_as_without_a_worker(team: Team, source: Source) -> None:
    with raises_exactly(ValueError, "tasks must be among text, passkey; got 'copy'."):
        plan(replace(PLANNING, tasks="copy"), source, team)


def test_a_model_that_cannot_be_run_at_all_is_one_sentence() -> None:
    class Broken:
        """A team whose workers die."""

        def run(self, jobs: list[Planning], work: object, *, done: Callable[..., None], **_: object) -> None:
            done(jobs[0], Planned(problem=Problem("ChildProcessError: no memory.", "")))

    team: Team = Broken()  # type: ignore[assignment]
    with raises_exactly(
        ValueError, "MODEL_DIR must load and run before it is measured; got 'model': ChildProcessError: no memory."
    ):
        plan(PLANNING, Source("model"), team)


def test_what_changed_since_the_plan_is_refused(random_model: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("".join(f"line {number * number} of a text\n" for number in range(100)))
    folder = shutil.copytree(random_model, tmp_path / "model")
    made = make_plan(folder, text=str(text), windows=2, lengths=(1, 2), scalings="none")
    reading, asking = (next(each for each in made.trials if each.task == task) for task in ("text", "passkey"))
    source = Source(str(folder), str(text))
    assert source.bench(reading, made.bench) is made.bench
    again = source.bench(reading)
    assert again.tokens.facts == made.bench.tokens.facts
    text.write_text(text.read_text() + "and more")
    with raises_exactly(
        ValueError,
        f"text must stay as it was when the evaluation began, since trials are compared with each other; got hash "
        f"{make_plan(folder, text=str(text), windows=2, lengths=(1, 2)).bench.tokens.facts.hash} instead of "
        f"{reading.tokens} from {text}. Run again.",
    ):
        source.bench(reading)
    source.bench(asking)  # which reads no text
    with raises_exactly(
        ValueError,
        f"MODEL_DIR must keep its tokenizer while it is measured, since trials are compared with each other; got "
        f"another in {str(folder)!r}. Run again.",
    ):
        source.bench(replace(asking, tokens="other"))
    saved(llama(rope_theta=500.0), folder)
    with raises_exactly(
        ValueError,
        f"MODEL_DIR must hold the same model in every process, since trials are compared with each other; got another "
        f"in {str(folder)!r}. Run again.",
    ):
        source.bench(asking)


def test_ctrl_c_keeps_what_is_finished_and_the_report_says_what_is_missing(
    random_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, "-m", "situs", "evaluate", str(random_model), "--windows", "16", "--out", str(out)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    while process.poll() is None and len(list((out / "trials").glob("*.json"))) < 2:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    shown, said = process.communicate(timeout=60)
    assert (process.returncode, shown) == (130, "")
    assert said.endswith("trials missing. What is finished is kept; the same command goes on from here.\n")
    assert "Traceback" not in said
    deadline = time.monotonic() + 60
    while processes(process.pid) and time.monotonic() < deadline:  # what ends may take a while to be gone
        time.sleep(0.01)
    assert processes(process.pid) == []
    finished = len(list((out / "trials").glob("*.json")))
    assert 2 <= finished < 42
    assert list((out / "trials").glob("*.claim")) == []
    monkeypatch.setattr("situs.cli.evaluate_files.write", lambda *_: None)  # figures take longer than all of this
    assert main(["evaluate", "--report", str(out)]) == 1
    told = capsys.readouterr()
    assert told.out.startswith(f"Stopped before the end: {42 - finished} of 42 trials missing. Nothing was measured at")
    assert told.err == ""
    assert "Not run before the evaluation was stopped: " in told.out


def test_no_worker_is_left(team: Team) -> None:
    team.stop()
    assert multiprocessing.active_children() == []
