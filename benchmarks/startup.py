"""Starting up: what ``import situs`` adds to ``import torch``, the first fused call, and the contract's time.

Each figure but the last is measured in new interpreters, in turns.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import situs
from situs.functional.rotation import PAIRINGS, Pairing

BOTH = """
import json, sys, time
began = time.perf_counter()
import torch
between = time.perf_counter()
before = set(sys.modules)
import situs
ended = time.perf_counter()
new = sorted(name for name in sys.modules if name not in before)
print(json.dumps({"torch": between - began, "more": ended - between, "before": len(before), "new": new}))
"""
SITUS_ALONE = """
import time
began = time.perf_counter()
import situs
print(time.perf_counter() - began)
"""
FIRST_CALL = """
import json, time
import torch, situs
rotary, x = situs.Rotary(head_dim=64, pairing="halves"), torch.randn(1, 16, 2048, 64)
table, times = rotary.table(situs.Positions.range(2048)), []
for _ in range(3):
    began = time.perf_counter()
    rotary(x, table)
    times.append(time.perf_counter() - began)
print(json.dumps(times))
"""


@dataclass(frozen=True)
class Imports:
    """Seconds, medians over new interpreters; ``share`` is what situs adds, over torch's own."""

    torch_seconds: float
    situs_seconds: float
    more_seconds: float
    share: float
    modules_of_torch: int
    modules_of_situs: int
    other_modules: int
    packages: tuple[str, ...]
    repeats: int


@dataclass(frozen=True)
class Contract:
    """The contract over one Rotary, in this process: the first time and again."""

    pairing: Pairing
    first_seconds: float
    again_seconds: float
    passed: int
    failures: tuple[str, ...]


def imports(repeats: int) -> Imports:
    """Import times and the modules behind them; a run that fills the disk's cache is not counted."""
    both, alone = [], []
    for repeat in range(repeats + 1):
        print(f"  imports: {repeat} of {repeats}", file=sys.stderr, flush=True)
        together, by_itself = json.loads(_run(BOTH)), float(_run(SITUS_ALONE))
        if repeat:
            both.append(together)
            alone.append(by_itself)
    new: list[str] = both[0]["new"]
    packages = tuple(sorted({name.partition(".")[0] for name in new}))
    own = sum(name.partition(".")[0] == "situs" for name in new)
    return Imports(
        statistics.median(each["torch"] for each in both),
        statistics.median(alone),
        statistics.median(each["more"] for each in both),
        statistics.median(each["more"] / each["torch"] for each in both),
        both[0]["before"], own, len(new) - own, packages, repeats,
    )  # fmt: skip


def first_fused_call(repeats: int) -> dict[str, float]:
    """Milliseconds of the first and third rotation in a new interpreter; the difference is the compiler's."""
    runs: list[Any] = [json.loads(_run(FIRST_CALL)) for _ in range(repeats)]
    return {
        "first": 1e3 * statistics.median(times[0] for times in runs),
        "third": 1e3 * statistics.median(times[2] for times in runs),
    }


def contracts(pairings: Sequence[Pairing] = PAIRINGS) -> Iterator[Contract]:
    """Time ``check_encoding``."""
    for pairing in pairings:
        print(f"  contract: {pairing}", file=sys.stderr, flush=True)
        seconds = []
        for _ in range(2):
            began = perf_counter()
            report = situs.check_encoding(situs.Rotary(head_dim=64, pairing=pairing), raise_on_failure=False)
            seconds.append(perf_counter() - began)
        yield Contract(pairing, seconds[0], seconds[1], len(report.passed), tuple(report.failures))


def _run(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
