"""What is shown while a comparison runs."""

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from situs.cli import compare_display
from situs.cli.compare_display import LineWatcher, LiveWatcher, Tally, watch
from situs.lab.comparing.compare import Follower, Watcher
from situs.lab.comparing.jobs import failed_trial
from situs.lab.comparing.records import Parameters, Seconds, Trial, TrialRecord
from situs.lab.naming import parse
from situs.lab.problems import Problem
from situs.lab.records import Progress
from situs.lab.settings import Settings

TRIAL = Trial(parse("alibi"), (parse("alibi"),), "copy", 0, 6, Settings())
DONE = TrialRecord(
    key=TRIAL.key,
    trial=TRIAL,
    status="done",
    measure="accuracy",
    curve=[],
    methods={},
    parameters=Parameters(0, 0),
    seconds=Seconds(2.0, 1.0),
)


def console(**options: Any) -> Console:
    return Console(file=StringIO(), width=100, **options)


def shown(where: Console) -> str:
    return str(where.file.getvalue())  # type: ignore[attr-defined]


def test_a_terminal_follows_every_worker_and_lines_do_not() -> None:
    terminal = console(force_terminal=True)
    live = LiveWatcher(terminal)
    assert isinstance(live, Watcher)
    assert isinstance(live, Follower)
    lines: object = LineWatcher(terminal)
    assert isinstance(lines, Watcher)
    assert not isinstance(lines, Follower)
    live.going(1, TRIAL, Progress("training", 3, 6, 1.5))
    live.going(0, TRIAL, Progress("testing", 1, 2, None))
    terminal.print(live._picture())
    assert "0  alibi on copy, seed 0  testing 1/2" in shown(terminal)
    assert "1  alibi on copy, seed 0  training 3/6  loss 1.500" in shown(terminal)
    live.measuring("alibi")
    terminal.print(live._picture())
    assert "measuring the cost and the properties of alibi" in shown(terminal)


def test_lines_say_what_has_ended_and_how_long_the_rest_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(compare_display, "monotonic", lambda: now[0])
    where = console()
    with LineWatcher(where) as watcher:
        watcher.planned([TRIAL] * 4, 1)
        now[0] = 40.0
        watcher.finished(DONE)
        watcher.finished(failed_trial(TRIAL, Problem("ValueError: no [luck]", "")))
        watcher.finished(DONE)
        watcher.measuring("alibi")
        watcher.remark("[so] it is")
    assert shown(where).splitlines() == [
        "4 trials, 1 of them finished before.",
        "[2/4] alibi on copy, seed 0: 3 s (about 1 min 20 s left)",
        "[3/4] alibi on copy, seed 0: ValueError: no [luck] (about 20 s left)",
        "[4/4] alibi on copy, seed 0: 3 s",
        "measuring the cost and the properties of alibi",
        "[so] it is",
    ]


def test_on_a_terminal_the_bar_moves_and_only_failures_get_a_line() -> None:
    where = console(force_terminal=True, color_system=None)
    live = LiveWatcher(where)
    live.planned([TRIAL] * 3, 1)
    live.finished(DONE)
    assert shown(where) == "3 trials, 1 of them finished before.\n"
    live.finished(failed_trial(TRIAL, Problem("ValueError: no luck", "")))
    assert shown(where).splitlines()[1:] == ["alibi on copy, seed 0: ValueError: no luck"]
    (task,) = live.bar.tasks
    assert (task.completed, task.total, task.fields["left"]) == (3, 3, "")


@pytest.mark.parametrize("kind", [LineWatcher, LiveWatcher])
def test_whoever_stops_it_is_told_what_is_kept(kind: type[LineWatcher] | type[LiveWatcher]) -> None:
    for problem, said in ((KeyboardInterrupt, True), (ValueError, False)):
        where = console(force_terminal=True)
        with pytest.raises(problem), kind(where):
            raise problem
        assert ("Stopped. What is finished is kept; the same command goes on from here." in shown(where)) == said
    where = console(force_terminal=True)
    watcher = kind(where)
    watcher.planned([TRIAL] * 8, 3)
    with pytest.raises(KeyboardInterrupt), watcher:
        raise KeyboardInterrupt
    assert "Stopped, with 5 of 8 trials missing. What is finished is kept; the same" in shown(where)


def test_a_reason_is_told_once_and_its_first_line_only() -> None:
    where = console()
    watcher = LineWatcher(where)
    watcher.planned([TRIAL] * 3, 1)
    assert str(Tally(1)) == "1 trial."
    for _ in range(2):
        watcher.finished(failed_trial(TRIAL, Problem("ValueError: one\ntwo\nthree (own.py:3)", "")))
    assert shown(where).splitlines() == [
        "3 trials, 1 of them finished before.",
        "[2/3] alibi on copy, seed 0: ValueError: one ... (own.py:3) (about 0 s left)",
        "[3/3] alibi on copy, seed 0: failed, for the reason above",
    ]


def test_elsewhere_than_on_a_terminal_lines_are_written() -> None:
    assert isinstance(watch(quiet=True), LineWatcher)
