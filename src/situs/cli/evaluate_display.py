"""What ``situs evaluate`` shows: its trials while it runs, the tables when it is done, and what to set."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from situs.cli.compare_display import Tally, say_what_is_kept
from situs.cli.evaluate import pasted
from situs.cli.text_table import Column, fits, render
from situs.lab import records as lab
from situs.lab.evaluating.advice import advise, headline, instead
from situs.lab.evaluating.records import Trial, TrialRecord
from situs.lab.evaluating.summary import Cost, Summary
from situs.lab.problems import first_line
from situs.lab.scores import Key, Point, Scores, at
from situs.plots.comparison.words import percent, signed
from situs.plots.evaluation.figures import unit
from situs.plots.evaluation.report import not_run
from situs.plots.evaluation.tables import NOTHING, memory_of, time_of

NARROW = "\N{NO-BREAK SPACE}"


def watch(*, quiet: bool) -> EvaluationWatcher:
    """Choose what is shown on the error stream, apart from the output: lines, and a bar on a terminal."""
    return EvaluationWatcher(Console(stderr=True, quiet=quiet, emoji=False))


@final
class EvaluationWatcher:
    """Write a line for every trial that has ended, and show the one that runs where there is a terminal."""

    def __init__(self, console: Console) -> None:
        self.console, self.tally = console, Tally()
        self.bar = Progress(
            TextColumn("[bold]trials"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[doing]}"),
            console=console, transient=True, disable=not console.is_terminal,
        )  # fmt: skip
        self.all = self.bar.add_task("trials", total=None, doing="loading")

    def __enter__(self) -> EvaluationWatcher:
        self.bar.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self.bar.stop()
        say_what_is_kept(self.console, self.tally, problem[0])

    def planned(self, trials: Sequence[Trial], finished: int) -> None:
        """Say how much there is to do."""
        self.tally = Tally(len(trials), finished)
        self.remark(str(self.tally))
        self.bar.update(self.all, total=len(trials), completed=finished, doing="")

    def going(self, worker: int, trial: Trial, progress: lab.Progress) -> None:
        """Show the trial that runs, and how many of its texts are read."""
        self.bar.update(self.all, doing=f"{trial.label}, text {progress.done + 1} of {progress.total}")

    def finished(self, record: TrialRecord) -> None:
        """Write a line about a trial that has ended."""
        self.tally.done += 1
        self.bar.update(self.all, completed=self.tally.ended)
        error = record.outcome.error
        said = _scored(record) if error is None else first_line(error)
        self.remark(f"[{self.tally.ended}/{self.tally.total}] {record.trial.label}: {said}{self.tally.left}")

    def remark(self, text: str) -> None:
        """Write a line."""
        self.console.print(text, markup=False, soft_wrap=True, highlight=False)


def _scored(record: TrialRecord) -> str:
    """Say what came of a trial in a few words."""
    scores = record.outcome.scores
    if scores is None:
        return f"the table of positions ends at {record.outcome.ends:,}"
    mean = sum(scores) / len(scores)
    return f"loss {mean:.3f}" if record.trial.task == "text" else f"{100 * mean:.0f} % right"


def show(summary: Summary, folder: Path | None, console: Console | None = None) -> None:
    """Print the tables, what to set, and where the report is if it was written. Without a terminal, tables are 200
    columns wide."""
    chosen = sys.stdout.isatty() or "COLUMNS" in os.environ
    console = console or Console(width=None if chosen else 200, emoji=False, markup=False)
    console.print(headline(summary) + ".", style="bold", markup=False, highlight=False)
    if "text" in summary.records.tasks:
        title = (
            f"text: loss in {unit(summary)}, and its change from the released model at {summary.times(summary.base)}; "
            f"scalings are set for {summary.times(summary.longest)}, or as written"
        )
        _print(console, title, summary, _losses(summary, True), _losses(summary, False))
    if "passkey" in summary.records.tasks:
        title = "passkey: share of texts whose number is found, and the loss on its tokens in nats"
        _print(console, title, summary, _answers(summary, True), _answers(summary, False))
    _print(console, "a forward pass over one text: time and memory beside the weights", summary, _costs(summary), None)
    console.print()
    for line in _remarks(summary):
        console.print(line, markup=False, highlight=False)
    if folder is not None:
        console.print(f"Report: {folder / 'report.html'}", soft_wrap=True, markup=False)


def _print(
    console: Console, title: str, summary: Summary, whole: Sequence[Column], short: Sequence[Column] | None
) -> None:
    """Print a table with intervals if all of its columns then fit beside each other, else without."""
    names = [row.name for row in summary.ranking.rows]
    exact = short is None or fits(names, whole, console.width, head="scaling")
    marked = exact and any("±" in cell for column in whole for cell in column.cells)
    said = f"{title}; ±: half of the 95 % interval" if marked else title
    console.print(f"\n{said}", style="italic", markup=False, highlight=False)
    for line in render(names, whole if exact or short is None else short, console.width, head="scaling"):
        console.print(line, soft_wrap=True, markup=False, highlight=False)


def _losses(summary: Summary, exact: bool) -> list[Column]:
    """Make the columns of losses: the change at every length, the loss at the longest, and a sentence."""
    rows = [(row, row.scores.get("text")) for row in summary.ranking.rows]

    def change(point: Point) -> str:
        return signed(point.mean, 3) + (f" ±{(point.high - point.low) / 2:.3f}" if exact else "")

    columns = [
        Column(_head("change", summary, length), [_cell(scores, "change", length, change) for _, scores in rows])
        for length in summary.lengths
    ]
    last = [_cell(scores, "level", summary.longest, lambda point: f"{point.mean:.3f}") for _, scores in rows]
    columns.insert(0, Column(_head("loss", summary, summary.longest), last))
    return [*columns, Column("in words", [row.verdict for row, _ in rows], words=True)]


def _answers(summary: Summary, exact: bool) -> list[Column]:
    """Make the columns of right answers."""
    rows = [(row, row.scores.get("passkey")) for row in summary.ranking.rows]
    columns = []
    for length in summary.lengths:
        cells = []
        for row, scores in rows:
            share = _cell(scores, "level", length, lambda point: percent(point.mean).replace(NARROW, ""))
            nats = at(row.nats, length)
            cells.append(f"{share} {nats.mean:.2f}" if exact and nats is not None else share)
        columns.append(Column(_head("right", summary, length), cells))
    return columns


def _costs(summary: Summary) -> list[Column]:
    """Make the columns of time and memory, at the shortest and the longest length."""
    columns = []
    for length in dict.fromkeys((summary.lengths[0], summary.longest)):
        found = [row.costs.get(length, Cost()) for row in summary.ranking.rows]
        columns.append(Column(f"time\nat {length:,}", list(map(time_of, found))))
        columns.append(Column(f"memory\nat {length:,}", list(map(memory_of, found))))
    return columns


def _head(what: str, summary: Summary, length: int) -> str:
    return f"{what}\n{summary.times(length)}\n{length:,}"


def _cell(scores: Scores | None, key: Key, length: int, form: Callable[[Point], str]) -> str:
    """Write a number, or in a word why there is none."""
    points = {} if scores is None else scores.points(key)
    point = at(points, length)
    if point is not None:
        return form(point)
    found = points.get(length)
    if found is None or found.exists:
        return NOTHING
    return "ends" if found.ends is not None else "no result"


def _remarks(summary: Summary) -> list[str]:
    """Say what has no result, what to use, and what to set for it."""
    said = [f"{names} cannot be measured: {reason}" for names, reason in summary.records.refusals.items()]
    said += [first_line(problem) for row in summary.rows for problem in row.problems]
    said += not_run(summary)
    advice = advise(summary)
    if advice is not None:
        said += advice.sentences
        if advice.settings:
            said += [f"In config.json, for {advice.sets}{instead(summary, advice)}:", pasted(advice.settings)]
    return said
