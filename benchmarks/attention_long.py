"""Long sequences, one head of 64: what 131,072 tokens take, and how time grows from 4k to 32k."""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

import situs
from benchmarks.attention import ATTEND, PLAIN, encodings, make_vectors
from benchmarks.attention_peers import SDPA, Run
from benchmarks.timing import Contender, Effort, race
from situs.lab.probing.memory import observe

LENGTH = 131_072
LENGTHS = (4096, 8192, 16384, 32768)
SHORT_LENGTH, SHORT_LENGTHS = 2048, (256, 512, 1024)
"""For the smoke test."""


@dataclass(frozen=True)
class Long:
    """One causal forward pass in float32, run once under the memory profiler."""

    encoding: str
    length: int
    threads: int
    seconds: float
    extra_mib: float

    @property
    def case(self) -> str:
        """The case in words."""
        return f"{self.encoding} {self.length}, causal, float32, {self.threads} thread{'s' * (self.threads > 1)}"


@dataclass(frozen=True)
class Growth:
    """Times of plain attention and of Situs with T5's bias, forward in float32, at growing lengths."""

    causal: bool
    threads: int
    lengths: tuple[int, ...]
    milliseconds: dict[str, tuple[float, ...]]

    def exponent(self, name: str) -> float:
        """The slope of log time over log length, by least squares."""
        logs = [[math.log(value) for value in values] for values in (self.lengths, self.milliseconds[name])]
        return statistics.linear_regression(*logs).slope

    @property
    def difference(self) -> float:
        """By how much Situs' exponent is above that of plain attention."""
        return self.exponent(ATTEND) - self.exponent(PLAIN)

    @property
    def case(self) -> str:
        """The case in words."""
        seen = "causal" if self.causal else "full"
        threads = f"{self.threads} thread{'s' * (self.threads > 1)}"
        return f"t5 {self.lengths[0]} to {self.lengths[-1]}, {seen}, float32, {threads}"


@torch.no_grad()
def measure_long(length: int = LENGTH) -> list[Long]:
    """Plain attention, T5 and ALiBi."""
    query, key, value = make_vectors(length, torch.float32, 1)
    made, rows = encodings(heads=1), []
    runs: dict[str, Run] = {PLAIN: lambda: SDPA(query, key, value, is_causal=True)}
    for name in ("t5", "alibi"):
        encoding = made[name]
        runs[name] = lambda e=encoding: situs.attend(query, key, value, encoding=e, causal=True)  # type: ignore[misc]
    for name, run in runs.items():
        print(f"  attention: {name} {length}", file=sys.stderr, flush=True)
        seen = observe(run)
        rows.append(Long(name, length, torch.get_num_threads(), seen.seconds, seen.extra_bytes / 2**20))
    return rows


def measure_growth(effort: Effort, lengths: Sequence[int] = LENGTHS) -> Iterator[Growth]:
    """Full and causal."""
    encoding = encodings(heads=1)["t5"]
    for causal in (False, True):
        times: dict[str, list[float]] = {PLAIN: [], ATTEND: []}
        for length in lengths:
            print(f"  attention growth: {length} {'causal' if causal else 'full'}", file=sys.stderr, flush=True)
            medians = _medians(encoding, length, causal, effort)
            for name, taken in times.items():
                taken.append(1e3 * medians[name])
        milliseconds = {name: tuple(taken) for name, taken in times.items()}
        yield Growth(causal, torch.get_num_threads(), tuple(lengths), milliseconds)


@torch.no_grad()
def _medians(encoding: situs.Encoding, length: int, causal: bool, effort: Effort) -> dict[str, float]:
    query, key, value = make_vectors(length, torch.float32, 1)
    contenders = [
        Contender(PLAIN, lambda: SDPA(query, key, value, is_causal=causal)),
        Contender(ATTEND, lambda: situs.attend(query, key, value, encoding=encoding, causal=causal)),
    ]
    return race(contenders, effort).medians
