"""What ``situs compare`` shows: workers at their trials while it runs, and the table when it is done."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import final

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from situs.cli.compare_tables import print_tables
from situs.lab import records
from situs.lab.comparing.records import Trial, TrialRecord
from situs.lab.comparing.summary import ending
from situs.lab.problems import first_line
from situs.plots.comparison.view import View


def watch(*, quiet: bool) -> LineWatcher | LiveWatcher:
    """Choose what is shown: a live view on a terminal, lines elsewhere; on the error stream, apart from the output."""
    console = Console(stderr=True, quiet=quiet, emoji=False)  # :Leaves: is a class, not a picture
    return LiveWatcher(console) if console.is_terminal and not quiet else LineWatcher(console)


@final
class Tally:
    """Count trials: how many there are, how many of them have ended, and how long the rest will take."""

    def __init__(self, total: int = 0, before: int = 0) -> None:
        self.total, self.before, self.done = total, before, 0
        self.began = monotonic()

    def __str__(self) -> str:
        known = f", {self.before} of them finished before" if self.before else ""
        return f"{self.total} trial{'s' * (self.total != 1)}{known}."

    @property
    def ended(self) -> int:
        """How many trials have ended, those of before included."""
        return self.before + self.done

    @property
    def left(self) -> str:
        """The time left, by what the finished ones took."""
        remaining = self.total - self.ended
        if not remaining or not self.done:
            return ""
        return f" (about {_duration((monotonic() - self.began) / self.done * remaining)} left)"


@final
class LineWatcher:
    """Write a line for every trial that has ended."""

    def __init__(self, console: Console) -> None:
        self.console, self.tally = console, Tally()
        self.told: list[str] = []

    def __enter__(self) -> LineWatcher:
        return self

    def __exit__(self, *problem: object) -> None:
        say_what_is_kept(self.console, self.tally, problem[0])

    def planned(self, trials: Sequence[Trial], finished: int) -> None:
        """Say how much there is to do."""
        self.tally = Tally(len(trials), finished)
        self.remark(str(self.tally))

    def finished(self, record: TrialRecord) -> None:
        """Write a line about a trial that has ended."""
        self.tally.done += 1
        self.remark(f"[{self.tally.ended}/{self.tally.total}] {_ending(record, self.told)}{self.tally.left}")

    def measuring(self, method: str) -> None:
        """Write a line about what is being measured."""
        self.remark(_measuring(method))

    def remark(self, text: str) -> None:
        """Write a line."""
        self.told.append(text)
        self.console.print(text, markup=False, soft_wrap=True)


@final
class LiveWatcher:
    """Show every worker's trial, its loss and the time left."""

    def __init__(self, console: Console) -> None:
        self.console, self.tally = console, Tally()
        self.told: list[str] = []
        self.workers: dict[int, tuple[str, records.Progress]] = {}
        self.doing = ""
        self.bar = Progress(
            TextColumn("[bold]trials"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[left]}"),
            console=console,
        )  # fmt: skip
        self.all = self.bar.add_task("trials", total=None, left="")
        self.live = Live(console=console, refresh_per_second=4, get_renderable=self._picture, transient=True)

    def __enter__(self) -> LiveWatcher:
        self.live.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self.live.stop()
        say_what_is_kept(self.console, self.tally, problem[0])

    def planned(self, trials: Sequence[Trial], finished: int) -> None:
        """Say how much there is to do, and set the bar."""
        self.tally = Tally(len(trials), finished)
        self.remark(str(self.tally))
        self.bar.update(self.all, total=len(trials), completed=finished)

    def going(self, worker: int, trial: Trial, progress: records.Progress) -> None:
        """Remember where the worker is."""
        self.workers[worker] = trial.label, progress

    def finished(self, record: TrialRecord) -> None:
        """Move the bar; only what went wrong gets a line."""
        self.tally.done += 1
        self.bar.update(self.all, completed=self.tally.ended, left=self.tally.left)
        if record.status != "done":
            self.remark(_ending(record, self.told))

    def measuring(self, method: str) -> None:
        """Say below the bar what is being measured."""
        self.workers.clear()
        self.doing = _measuring(method)

    def remark(self, text: str) -> None:
        """Write a line above the bar."""
        self.told.append(text)
        self.console.print(text, markup=False, soft_wrap=True)

    def _picture(self) -> Table:
        grid = Table.grid(padding=(0, 2))
        grid.add_row(self.bar)
        for worker, (label, progress) in sorted(self.workers.items()):
            loss = "" if progress.loss is None else f"loss {progress.loss:.3f}"
            grid.add_row(Text(f"{worker}  {label}  {progress.phase} {progress.done}/{progress.total}  {loss}"))
        if self.doing:
            grid.add_row(Text(self.doing))
        return grid


def _ending(record: TrialRecord, told: Sequence[str]) -> str:
    """Name a trial, and say how long it took or why it has no result; a reason that was told is not told again."""
    if record.status == "done":
        return f"{record.trial.label}: {record.seconds.training + record.seconds.testing:.0f} s"
    reason = first_line(ending(record))
    known = reason != record.status and any(reason in line and record.trial.method.name in line for line in told)
    return f"{record.trial.label}: {f'{record.status}, for the reason above' if known else reason}"


def _measuring(method: str) -> str:
    return f"measuring the cost and the properties of {method}"


def say_what_is_kept(console: Console, tally: Tally, problem: object) -> None:
    """Say how much is missing where a run was stopped, and that the rest is kept."""
    if isinstance(problem, type) and issubclass(problem, KeyboardInterrupt):
        missing = tally.total - tally.ended
        where = f", with {missing} of {tally.total} trials missing" if missing else ""
        said = f"Stopped{where}. What is finished is kept; the same command goes on from here."
        console.print(said, soft_wrap=True, highlight=False)


def show(view: View, folder: Path | None, console: Console | None = None) -> None:
    """Print the tables, and where the report is if it was written. Without a terminal, tables are 200 columns wide."""
    chosen = sys.stdout.isatty() or "COLUMNS" in os.environ
    print_tables(view, folder, console or Console(width=None if chosen else 200, emoji=False, markup=False))


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
