"""What was measured before a benchmark was interrupted: it goes on from there.

Every case is added to a file when it has been measured. A run that begins beside such a file takes over the cases that
were measured with the same code, versions and processor, and measures the others; the file goes when all is written.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

from benchmarks import machine

Row = TypeVar("Row")
NAME = "unfinished.jsonl"


class Sittings:
    """Rows of this run and of those before that were interrupted."""

    def __init__(self, folder: Path, mode: str) -> None:
        self.path, self.count = folder / NAME, 1
        description = machine.description()
        self._same = {name: description[name] for name in ("code", "versions", "cpu", "vector_instructions")}
        self._same["mode"] = mode
        self._found: dict[str, dict[str, Any]] = {}
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        for line in lines:
            try:
                each = json.loads(line)
            except ValueError:  # cut off by a kill
                continue
            if each.get("same") == json.loads(json.dumps(self._same)):
                self._found[each["case"]] = each
        if self._found:
            self.count += max(each["sitting"] for each in self._found.values())
            print(f"{len(self._found)} cases are taken over from {self.path}.", file=sys.stderr, flush=True)
        elif lines:
            print(f"{self.path} is of other code or another machine: begun anew.", file=sys.stderr, flush=True)
            self.path.unlink()

    @property
    def seconds(self) -> float:
        """What all cases took, whenever they were measured."""
        return sum(float(each["seconds"]) for each in self._found.values())

    def rows(self, case: str, kind: Callable[..., Row], measure: Callable[[], list[Row]]) -> list[Row]:
        """The rows of a case, made by ``kind`` from what was measured before, or measured now."""
        if case not in self._found:
            print(f"  {case}", file=sys.stderr, flush=True)
            began = perf_counter()
            rows = [asdict(row) for row in measure()]  # type: ignore[call-overload]
            took = perf_counter() - began
            self._found[case] = {"case": case, "sitting": self.count, "seconds": took, "rows": rows}
            with self.path.open("a") as file:
                file.write(json.dumps({"same": self._same, **self._found[case]}) + "\n")
        return [kind(**row) for row in self._found[case]["rows"]]

    def finish(self) -> None:
        """Forget, since everything was written."""
        self.path.unlink(missing_ok=True)
