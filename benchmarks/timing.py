"""Timing: contenders take turns, in a new random order every round, so that drift and noise hit all alike."""

from __future__ import annotations

import gc
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import perf_counter
from unittest.mock import patch

from situs import compiled

CLONE = "clone"
SITUS = "situs"
TORCH_ONLY = "situs, torch only"
TRANSFORMERS = "transformers"
LLAMA4 = "transformers, Llama 4"
ROTARY_EMBEDDING_TORCH = "rotary-embedding-torch"

SHORT = 5e-3
"""Seconds of a call that is over before what others left in the caches is replaced."""


@dataclass(frozen=True)
class Contender:
    """Something to measure; ``fused`` says whether Situs may use its compiled loops meanwhile, ``brief`` that it takes
    few rounds, outside the time allowed for the others."""

    name: str
    run: Callable[[], object]
    fused: bool = True
    brief: bool = False

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Its conditions, set outside the measured time."""
        if self.fused:
            yield
        else:
            with patch.object(compiled, "_wanted", _never):
                yield


@dataclass(frozen=True)
class Effort:
    """How long to measure: rounds until ``seconds`` are spent, within bounds; and the rounds of who is brief."""

    seconds: float
    least: int
    most: int = 60
    brief: int = 3

    def scaled(self, factor: float) -> Effort:
        """The same with another allowance of time."""
        return replace(self, seconds=self.seconds * factor)


@dataclass(frozen=True)
class Race:
    """What each contender took, in seconds a call."""

    medians: dict[str, float]
    quartiles: dict[str, tuple[float, float]]
    rounds: int


def race(
    contenders: Sequence[Contender],
    effort: Effort,
    *,
    calls: int = 1,
    warm: bool = False,
    earlier: Mapping[str, Sequence[float]] | None = None,
) -> Race:
    """Measure contenders in turns. With ``calls`` above 1 a sample is the mean of that many calls; with ``warm`` a
    short call follows one that is not timed; ``earlier`` are samples that exist already."""
    samples: dict[str, list[float]] = {each.name: [*(earlier or {}).get(each.name, ())] for each in contenders}
    order = list(contenders)
    shuffle = random.Random(0).shuffle
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    began, rounds = perf_counter(), 0
    try:
        while rounds < effort.least or (rounds < effort.most and perf_counter() - began < effort.seconds):
            rounds += 1
            shuffle(order)
            for contender in order:
                taken = samples[contender.name]
                if contender.brief and len(taken) >= effort.brief:
                    continue
                with contender.in_force():
                    if warm and taken and taken[-1] < SHORT:
                        contender.run()
                    taken.append(_seconds(contender.run, calls))
                if contender.brief:
                    began += taken[-1]
    finally:
        if collecting:
            gc.enable()
    return Race(
        {name: statistics.median(values) for name, values in samples.items()},
        {name: _quartiles(values) for name, values in samples.items()},
        rounds,
    )


def _seconds(run: Callable[[], object], calls: int) -> float:
    if calls == 1:
        began = perf_counter()
        result = run()
        elapsed = perf_counter() - began
        del result  # results are freed outside the measured time, temporaries inside
        return elapsed
    began = perf_counter()
    for _ in range(calls):
        run()
    return (perf_counter() - began) / calls


def _quartiles(values: list[float]) -> tuple[float, float]:
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def _never() -> bool:
    return False
