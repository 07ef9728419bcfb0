"""Judging: a tensor of a kernel against the oracle's, and how far off it may be.

In float64 a number may be off by 1e-10 of the largest, and in every dtype by some times what rounding alone does to the
exact answer (`rounding`), and by its own last place. Nothing is widened by hand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tests.fuzz.rounding import ROUNDINGS as IN_FLOAT32
from tests.fuzz.rounding import Rounding

SHOWN, SHOWN_OF_CASE = 12, 3
"""Cases that a report shows, and what it shows of each; of the others, the seeds alone."""

FLOAT64_TOLERANCE = 1e-10

ROUNDINGS = {torch.float64: IN_FLOAT32, torch.float32: IN_FLOAT32, torch.bfloat16: 6, torch.float16: 6}
"""How many times as far off as one rounding of everything makes it, a sound kernel may be. Narrow dtypes are summed up
in float32, so that each number is rounded a few times; sums in float32 are rounded at every step."""

DRAWS, DRAWS_OF_FEW, FEW = 2, 6, 100
"""Roundings that are drawn. A tensor of fewer numbers than FEW may move little by chance: more are drawn, and it is
allowed twice as much."""

SMALLEST = 4 * torch.finfo(torch.float32).eps
"""What cancels in float32 among numbers of order 1, as all tensors are."""

JUMP = 1e3 * torch.finfo(torch.float32).eps
"""So near to where a derivative jumps, float32 does not tell the sides apart."""


@dataclass
class Report:
    """What trials found."""

    comparisons: int = 0
    left_out: int = 0
    """Gradients that were not compared, since a derivative jumps too near."""

    failures: dict[Any, list[str]] = field(default_factory=dict)
    """What was found wrong in each case."""

    def fail(self, case: Any, what: str) -> None:
        """Note a failure."""
        self.failures.setdefault(case, []).append(what)

    def __str__(self) -> str:
        """How much was compared, and the first cases that failed, with all that it takes to see them again."""
        lines = [f"{len(self.failures)} cases failed, in {self.comparisons} comparisons"]
        for case, found in list(self.failures.items())[:SHOWN]:
            more = [f"... {len(found) - SHOWN_OF_CASE} more"] if len(found) > SHOWN_OF_CASE else []
            lines += [f"{case.name}  {case}", *(f"    {each}" for each in found[:SHOWN_OF_CASE] + more)]
        names = " ".join(case.name for case in list(self.failures)[SHOWN:])
        return "\n".join([*lines, names]).rstrip()

    def join(self, other: Report) -> None:
        """Add what other trials found."""
        self.comparisons += other.comparisons
        self.left_out += other.left_out
        for case, found in other.failures.items():
            self.failures.setdefault(case, []).extend(found)


Ask = Callable[[Rounding | None], tuple[dict[str, Tensor], float]]
"""The oracle's output and gradients by name, and how near a derivative comes to a jump."""


class Expected:
    """What the oracle says, by name, and how far off a kernel may be.

    ``dtypes`` are those of results that have another dtype than the tensors.
    """

    def __init__(self, ask: Ask, dtype: torch.dtype, dtypes: Mapping[str, torch.dtype], upstream: Tensor) -> None:
        self.ask, self.dtype, self.dtypes, self.upstream = ask, dtype, dtypes, upstream
        self.moved: dict[torch.dtype, dict[str, float]] = {}
        self.values, margin = ask(None)
        self.jumps = dtype != torch.float64 and margin < JUMP
        """Whether gradients cannot be compared but those of values."""

    def allows(self, name: str, off: Tensor) -> tuple[Tensor, bool]:
        """How far off each number may be, and whether all are within; NaN never is. In float64 rounding is looked at
        only where the first glance finds something."""
        value, narrow = self.values[name], self.dtypes.get(name, self.dtype)
        unit = torch.finfo(narrow).eps
        if self.dtype == torch.float64:
            allowed = FLOAT64_TOLERANCE + FLOAT64_TOLERANCE * _largest(value) + unit * value.abs()
            if bool((off <= allowed).all()) or not bool(off.isfinite().all()):
                return allowed, bool((off <= allowed).all())
            return self._within(off, allowed + ROUNDINGS[narrow] * self._moved(narrow)[name])
        rounded = ROUNDINGS[self.dtype] * self._moved(self.dtype)[name]
        return self._within(off, rounded + unit * value.abs() + SMALLEST)

    def _within(self, off: Tensor, allowed: Tensor) -> tuple[Tensor, bool]:
        return allowed, bool((off <= allowed).all())

    def _moved(self, dtype: torch.dtype) -> dict[str, float]:
        """How far rounding to a dtype moves each result."""
        if dtype not in self.moved:
            few = any(0 < value.numel() < FEW for value in self.values.values())
            seeds = range(DRAWS_OF_FEW if few else DRAWS)
            rounded = [self.ask(Rounding(dtype, seed, self.upstream.double()))[0] for seed in seeds]
            self.moved[dtype] = {
                name: (1 if value.numel() >= FEW else 2) * max(_largest(each[name] - value) for each in rounded)
                for name, value in self.values.items()
            }
        return self.moved[dtype]


def _largest(x: Tensor) -> float:
    return float(x.abs().max()) if x.numel() else 0.0


def check(case: Any, name: str, actual: Tensor, truth: Expected, label: str, report: Report) -> None:
    """Compare one tensor elementwise."""
    report.comparisons += 1
    actual, wanted = actual.detach(), truth.values[name]
    if actual.shape != wanted.shape:
        report.fail(case, f"{label} of {name}: shape {tuple(actual.shape)} instead of {tuple(wanted.shape)}")
        return
    off = (actual.double() - wanted).abs()
    allowed, within = truth.allows(name, off)
    if not within:
        worst = torch.where(off.isnan(), math.inf, off / allowed).argmax()
        where = tuple(int(each) for each in torch.unravel_index(worst, off.shape))
        report.fail(
            case,
            f"{label} of {name}: {int((~(off <= allowed)).sum())} of {off.numel()} differ, at {where} "
            f"{float(actual[where]):.6g} instead of {float(wanted[where]):.6g} (allowed {float(allowed[where]):.2g})",
        )


def gradients(out: Tensor, upstream: Tensor, sources: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Gradients by name; zeros where nothing depends on a source."""
    if not out.requires_grad:
        return {name: torch.zeros_like(each) for name, each in sources.items()}
    found: Any = torch.autograd.grad(out, list(sources.values()), upstream, allow_unused=True)
    return {
        name: torch.zeros_like(source) if each is None else each
        for each, (name, source) in zip(found, sources.items(), strict=True)
    }
