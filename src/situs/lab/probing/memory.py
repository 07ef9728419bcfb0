"""Memory: the most that torch's allocator held at once, counted allocation by allocation.

The profiler records every allocation and release with its size, so the peak is exact and repeats; resident
memory would add the system's page cache and malloc's hoard. What the compiled loop uses outside torch is nothing:
it writes into a tensor that torch allocated.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any, cast

from torch.profiler import ProfilerActivity, profile


@dataclass(frozen=True)
class Observation:
    """Hold the bytes of a call's worst moment beyond what it returned, how long it took, and its result."""

    extra_bytes: int
    seconds: float
    result: object


def peak_beyond_result(run: Callable[[], object]) -> int:
    """Measure the bytes held at the worst moment of ``run``, less those of what it returns."""
    return observe(run).extra_bytes


def observe(run: Callable[[], object]) -> Observation:
    """Run something once under the profiler. What it leaves in reference cycles counts as its own, not as a result, and
    what others left there before is not counted."""
    profiler = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
    with _silent_stderr():
        profiler.start()
    gc.freeze()  # what is there already is left alone, which would also take long to look through
    try:
        began = perf_counter()
        result = run()
        seconds = perf_counter() - began
        gc.collect()
    finally:
        gc.unfreeze()
        with _silent_stderr():
            profiler.stop()
    events = cast(Any, profiler.profiler).kineto_results.events()
    held = peak = 0
    for event in sorted((each for each in events if each.name() == "[memory]"), key=lambda each: each.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return Observation(peak - held, seconds, result)


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """Silence the profiler's own log, which is written below Python and has no switch."""
    before, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(nowhere)
