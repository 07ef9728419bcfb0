"""What ``situs compare`` shows: workers at their trials while it runs, and the table when it is done."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, final

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from situs.lab import trial as lab
from situs.lab.costs import LONG
from situs.lab.summary import LOSS, Point, Row, Scores
from situs.plots.comparison.view import View


def watch(*, quiet: bool) -> LineWatcher | LiveWatcher:
    """Someone to tell: live on a terminal, lines elsewhere; always on the error stream, so that output can be piped."""
    console = Console(stderr=True, quiet=quiet)
    return LiveWatcher(console) if console.is_terminal and not quiet else LineWatcher(console)


@final
class Tally:
    """How many trials there are, how many of them have ended, and how long the rest will take."""

    def __init__(self, total: int = 0, before: int = 0) -> None:
        self.total, self.before, self.done = total, before, 0
        self.began = monotonic()

    def __str__(self) -> str:
        known = f", {self.before} of them finished before" if self.before else ""
        return f"{self.total} trials{known}."

    @property
    def ended(self) -> int:
        """Those of before, too."""
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
    """Writes a line for every trial that has ended."""

    def __init__(self, console: Console) -> None:
        self.console, self.tally = console, Tally()

    def __enter__(self) -> LineWatcher:
        return self

    def __exit__(self, *problem: object) -> None:
        _say_what_is_kept(self.console, problem[0])

    def planned(self, trials: Sequence[lab.Trial], finished: int) -> None:
        """Say how much there is to do."""
        self.tally = Tally(len(trials), finished)
        self.remark(str(self.tally))

    def finished(self, record: dict[str, Any]) -> None:
        """A line."""
        self.tally.done += 1
        self.remark(f"[{self.tally.ended}/{self.tally.total}] {_ending(record)}{self.tally.left}")

    def measuring(self, method: str) -> None:
        """A line."""
        self.remark(_measuring(method))

    def remark(self, text: str) -> None:
        """A line."""
        self.console.print(text, markup=False)


@final
class LiveWatcher:
    """Shows every worker's trial, its loss and the time left."""

    def __init__(self, console: Console) -> None:
        self.console, self.tally = console, Tally()
        self.workers: dict[int, tuple[str, lab.Progress]] = {}
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
        _say_what_is_kept(self.console, problem[0])

    def planned(self, trials: Sequence[lab.Trial], finished: int) -> None:
        """Say how much there is to do, and set the bar."""
        self.tally = Tally(len(trials), finished)
        self.remark(str(self.tally))
        self.bar.update(self.all, total=len(trials), completed=finished)

    def going(self, worker: int, trial: lab.Trial, progress: lab.Progress) -> None:
        """Remember where the worker is."""
        self.workers[worker] = trial.label, progress

    def finished(self, record: dict[str, Any]) -> None:
        """Move the bar; only what went wrong gets a line."""
        self.tally.done += 1
        self.bar.update(self.all, completed=self.tally.ended, left=self.tally.left)
        if record["status"] != "done":
            self.remark(_ending(record))

    def measuring(self, method: str) -> None:
        """Say so below the bar."""
        self.workers.clear()
        self.doing = _measuring(method)

    def remark(self, text: str) -> None:
        """A line above the bar."""
        self.console.print(text, markup=False)

    def _picture(self) -> Table:
        grid = Table.grid(padding=(0, 2))
        grid.add_row(self.bar)
        for worker, (label, progress) in sorted(self.workers.items()):
            loss = "" if progress.loss is None else f"loss {progress.loss:.3f}"
            grid.add_row(Text(f"{worker}  {label}  {progress.phase} {progress.done}/{progress.total}  {loss}"))
        if self.doing:
            grid.add_row(Text(self.doing))
        return grid


def _ending(record: Mapping[str, Any]) -> str:
    """A trial, and how long it took or why it has no result."""
    trial, said = record["trial"], record.get("error") or record["status"]
    if record["status"] == "done":
        said = f"{sum(record['seconds'].values()):.0f} s"
    return f"{trial['method']} on {trial['task']}, seed {trial['seed']}: {said}"


def _measuring(method: str) -> str:
    return f"measuring the cost and the properties of {method}"


def _say_what_is_kept(console: Console, problem: object) -> None:
    if problem is KeyboardInterrupt:
        console.print("Stopped. What is finished is kept; the same command goes on from here.")


def show(view: View, folder: Path, console: Console | None = None) -> None:
    """The table and where the rest is. Not on a terminal, lines are as long as they need to be."""
    console = console or Console(width=None if sys.stdout.isatty() else 200)
    records, rows, lengths = view.records, view.rows, view.lengths
    for task, facts in records["tasks"].items():
        console.print(_table(task, facts, rows, lengths, records))
    if rows and any(row.cost for row in rows):
        console.print(_costs(rows, view.train_length))
    for row in rows:
        for problem in row.problems:
            console.print(f"{row.method}: {problem}", markup=False)
    console.print(f"Report: {folder / 'report.html'}", soft_wrap=True, markup=False)


def _table(
    task: str, facts: Mapping[str, Any], rows: Sequence[Row], lengths: Sequence[int], records: Mapping[str, Any]
) -> Table:
    seeds = len(records["seeds"])
    what = "loss in nats a byte, and its change" if facts["measure"] == LOSS else "share of answers that are right"
    table = Table(title=f"{task}: {what}; {seeds} seed{'s' * (seeds > 1)}", title_justify="left")
    table.add_column("encoding")
    for length in lengths:
        table.add_column(f"{length // lengths[0]}× ({length})", justify="right")
    table.add_column("verdict")
    for row in rows:
        found = row.scores.get(task)
        cells = ["–"] * len(lengths) if found is None else [_cell(found, length, lengths[0]) for length in lengths]
        table.add_row(row.method, *cells, row.verdict if task == next(iter(records["tasks"])) else "")
    return table


def _cell(scores: Scores, length: int, base: int) -> str:
    level = scores.levels[length]
    if not level.exists:
        return f"ends at {level.ends}"
    if scores.measure != LOSS:
        return f"{level.mean:.0%}"
    return f"{level.mean:.2f}" if length == base else _signed(scores.changes[length])


def _signed(change: Point) -> str:
    return f"{change.mean:+.3f} ±{(change.high - change.low) / 2:.3f}"


def _costs(rows: Sequence[Row], train_length: int) -> Table:
    table = Table(title="cost over plain attention, and properties that were measured", title_justify="left")
    lengths = list(dict.fromkeys((train_length, LONG)))  # once, where it was trained at that length
    columns = [
        ("encoding", "left"), ("parameters", "right"), *((f"time at {length}", "right") for length in lengths),
        (f"memory at {LONG}", "right"), ("decoding", "right"), ("properties", "left"),
    ]  # fmt: skip
    for name, side in columns:
        table.add_column(name, justify="right" if side == "right" else "left")
    for row in rows:
        at = row.cost.get("lengths", {})
        table.add_row(
            row.method,
            str(row.cost.get("parameters", "–")),
            *(_times(at.get(str(length)), "time") for length in lengths),
            _times(at.get(str(LONG)), "memory"),
            _times(row.cost.get("decode"), "time"),
            ", ".join(name.replace("_", "-") for name, found in row.properties.items() if found.get("holds")),
        )
    return table


def _times(found: Mapping[str, Any] | None, name: str) -> str:
    if not found or "error" in found:
        return "–"
    return f"ends at {found['ends']}" if "ends" in found else f"{found[name]:.2f}×"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
