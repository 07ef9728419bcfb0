"""``--report`` of commands that keep records: reading what was made before, and delivering it again."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from situs.cli.interrupting import stop_printing

W = TypeVar("W")
KEPT = ("--report", "--out", "--json")
"""Options that a report goes with."""


def _writer(file: Path) -> str:
    """Tell which command wrote records; "" where they do not say it."""
    try:
        words = json.loads(file.read_text(encoding="utf-8"))["command"].split()
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return ""
    return words[1] if words[:1] == ["situs"] and words[1:2] in (["compare"], ["evaluate"]) else ""


@dataclass(frozen=True)
class Reported(Generic[W]):
    """Hold what a command's folders have, and how they are spoken of."""

    command: str
    run: str
    """What the command does: a comparison, say."""
    does: str
    """What a report does not do: train, say, as one says of the report that it trains nothing."""
    whole: type[W]
    """The kind of records.json and plan.json."""
    kind: type[Any]
    """Of the records of trials."""

    def require_alone(self, options: argparse.Namespace) -> None:
        """Raise if options are given that a report of finished trials would ignore."""
        ignored = [name for name in options.changed(options) if name not in KEPT]
        if ignored:
            raise ValueError(
                f"--report must go without {', '.join(ignored)}, since it {self.does} nothing and shows what was "
                f"recorded. Leave out --report to run {_a(self.run)}."
            )

    def read(self, path: Path) -> tuple[W, Path]:
        """Read the records of a folder, or of the file in it; gives them and the folder, and changes nothing.

        What a run that was stopped has is newer than what one that has ended had, and is shown unless the file is
        named. What cannot be read of it is said on the error stream.
        """
        from situs.lab.running.store import RECORDS, DamagedError, Written, read_record, read_stopped

        named = path.name == RECORDS
        folder = path.parent if named else path
        whole: Any = self.whole
        stopped = Written[Any](None) if named else read_stopped(folder, whole, self.kind)
        for name, reason in stopped.unread.items():
            print(f"situs {self.command}: {folder / name} cannot be read: {reason}. It is left out.", file=sys.stderr)
        if stopped.records is not None:
            found: W = stopped.records
            return found, folder
        try:
            found = read_record(whole, folder / RECORDS)
            return found, folder
        except DamagedError as problem:
            writer = _writer(folder / RECORDS)
            if writer not in ("", self.command):
                raise ValueError(
                    f"--report must name a folder that situs {self.command} wrote; got {folder}, which situs {writer} "
                    f"wrote. Use situs {writer} --report {folder}."
                ) from problem
            raise ValueError(f"{problem} Run the {self.run} again: finished trials are kept.") from problem
        except OSError as problem:
            raise ValueError(self._nothing(folder)) from problem

    def _nothing(self, folder: Path) -> str:
        try:
            finished = len(list((folder / "trials").glob("*.json")))
        except OSError:  # of a name that is too long
            finished = 0
        if not finished:
            return f"--report must name a folder that situs {self.command} wrote, with its records.json; got {folder}."
        trials = f"{finished} trial{'s are' if finished > 1 else ' is'} finished"
        return (
            f"--report must name a folder whose {self.run} has ended, since records.json is written then; got "
            f"{folder}, where {trials} and the others are not. Run the same command again: it goes on from there."
        )


def deliver(
    options: argparse.Namespace,
    *,
    folder: Path,
    write: Callable[[], None],
    rows: Any,
    show: Callable[[Path | None], None],
    complete: bool,
) -> int:
    """Write a report, print the tables or the rows as JSON, and return the exit status: 0 if all came to a result.

    A report that is made again may lie where nothing can be written: it is shown nevertheless.

    write: writes the report to the folder.
    show: prints the tables, and where the report is if it was written.
    complete: whether everything came to a result.
    """
    from situs.lab.plain import to_json
    from situs.lab.running.store import StoreError

    unwritten = ""
    try:
        write()
    except StoreError as problem:
        if options.report is None:
            raise
        unwritten = f"situs {options.command}: the report was not written. {problem} Give it with --out."
    try:
        if options.json:
            print(to_json(rows, indent=2))
        else:
            show(None if unwritten else folder)
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit):  # rich makes one of the other
        return stop_printing()
    if unwritten:
        print(unwritten, file=sys.stderr)
    return 0 if complete and not unwritten else 1


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"
