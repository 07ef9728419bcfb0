"""Costs: time and memory of a method's attention over plain attention, on the CPU, with one thread.

    lengths   a training step at the training length, with the lab's batch; a forward pass of one text at others
    decode    a token at a time behind a cache, with what is made for many steps at once made anew for every 64

Measured are the attention layers of the lab's model, as many as the method's pattern has, projections included. What a
method does outside of them counts in full: adding to the input, though a model does that once for all its layers, and
drawing random positions. Decoding goes by plain positions. Contenders take turns, and medians count, of the thread's
own time, which others on the machine hardly lengthen. Memory is the most that torch held at once beyond the result,
allocation by allocation: it is exact, and repeats.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from time import get_clock_info, perf_counter, thread_time
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor, nn

from situs.attention.layer import Attention
from situs.lab.memory import peak_beyond_result
from situs.lab.methods import RAMPS, Method, parse
from situs.lab.model import Decoder, places_of
from situs.lab.trial import Settings
from situs.positions import Positions

LONG = 4096
CACHED, STEPS = 1024, 64
LEAST, MOST = 2, 25  # rounds
SECONDS, SECONDS_IF_LONG = 0.2, 0.5  # for rounds between these bounds
MIB = 1 << 20
CLOCK = thread_time if get_clock_info("thread_time").resolution < 1e-6 else perf_counter

Run: TypeAlias = Callable[[], object]


def measure(method: Method, settings: Settings, *, lengths: Sequence[int] | None = None) -> dict[str, Any]:
    """Time and memory at each length, time of decoding, and parameters in the whole model, as plain data.

    Where a table ends before, it says so; an encoding that fails has its error in place of numbers.
    """
    asked = dict.fromkeys((settings.train_length, LONG) if lengths is None else lengths)
    with _one_thread(), torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        own, plain = Stack(method, settings, encoded=True), Stack(method, settings, encoded=False)
        return {
            "parameters": own.decoder.parameters_of_encodings(),
            "lengths": {str(length): _up_to(own, length, partial(_at, own, plain, length)) for length in asked},
            "decode": _up_to(own, CACHED + STEPS, partial(_decoding, own, plain)),
        }


class Stack:
    """The attention layers of a model, one for each of the method's pattern; plain ones unless ``encoded``."""

    def __init__(self, method: Method, settings: Settings, *, encoded: bool) -> None:
        self.settings, self.method = settings, method if encoded else parse("none")
        self.decoder = Decoder(
            self.method, vocabulary=2, size=settings.size, train_length=settings.train_length, seed=0
        ).eval()
        layers = list(self.decoder.layers)[: len(method.pattern)]
        self.layers: list[Attention] = [cast(Any, layer).attention for layer in layers]
        if not encoded:
            for layer in self.layers:
                layer.encodings = nn.ModuleList()

    @property
    def parameters(self) -> list[nn.Parameter]:
        """All that a training step finds gradients for."""
        return [parameter for part in (self.decoder.inputs, *self.layers) for parameter in part.parameters()]

    def scale_to(self, length: int) -> None:
        """Have a scaling's frequencies for this length."""
        if self.method.scaling is not None:
            self.decoder.scaled_to(self.method, length, RAMPS[0])

    def whole(self, x: Tensor) -> Tensor:
        """The output for whole texts."""
        places = places_of(self.method, x.shape[1], self.settings.train_length)
        for each in (*self.decoder.inputs, *self.layers):
            x = each(x, places)
        return x

    def step(self, x: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of a training step."""
        return torch.autograd.grad(self.whole(x).sum(), (x, *self.parameters), allow_unused=True)

    def generation(self, token: Tensor) -> Run:
        """Some tokens, each after the last, always behind the same cache."""
        caches = [layer.make_cache(batch=1, max_length=CACHED + STEPS) for layer in self.layers]
        for cache in caches:
            cache.keys.normal_()
            cache.values.normal_()

        def generate() -> None:
            for cache in caches:
                cache.length, cache.vectors = CACHED, {}
            for step in range(STEPS):
                places = Positions.range(1, start=CACHED + step, sequence_length=CACHED + STEPS)
                x = token
                for each in self.decoder.inputs:
                    x = each(x, places)
                for layer, cache in zip(self.layers, caches, strict=True):
                    x = layer(x, places, cache=cache)

        return generate


def _up_to(stack: Stack, length: int, found: Callable[[], dict[str, float]]) -> dict[str, Any]:
    """What is found, unless positions end before."""
    usable = stack.decoder.usable_length
    reach = min(each.reach for each in stack.decoder.encodings)
    if usable is not None and length > usable:
        return {"ends": usable}
    if length > reach:
        return {"ends": int(reach)}
    stack.scale_to(length)
    try:
        return found()
    except Exception as problem:  # one's own encoding may fail in any way, and the rest is worth having
        return {"error": f"{type(problem).__name__}: {problem}"}


def _at(own: Stack, plain: Stack, length: int) -> dict[str, float]:
    """A length: its training step, if it is the training length, or a forward pass."""
    settings = own.settings
    trains = length == settings.train_length
    x = torch.randn(settings.batch if trains else 1, length, settings.size.dim, requires_grad=trains)
    runs = [partial(stack.step if trains else stack.whole, x) for stack in (plain, own)]
    with torch.set_grad_enabled(trains):
        plain_bytes, own_bytes = (peak_beyond_result(run) for run in runs)  # which also warms up
        plain_seconds, own_seconds = _medians(runs, SECONDS if trains else SECONDS_IF_LONG)
    return {
        "time": own_seconds / plain_seconds,
        "memory": own_bytes / plain_bytes,
        "plain_milliseconds": 1e3 * plain_seconds,
        "milliseconds": 1e3 * own_seconds,
        "plain_mib": plain_bytes / MIB,
        "mib": own_bytes / MIB,
    }


def _decoding(own: Stack, plain: Stack) -> dict[str, float]:
    """A token of a generation."""
    token = torch.randn(1, 1, own.settings.size.dim)
    with torch.no_grad():
        runs = [stack.generation(token) for stack in (plain, own)]
        for run in runs:
            run()
        plain_seconds, own_seconds = _medians(runs, SECONDS)
    each = 1e6 / STEPS
    return {
        "time": own_seconds / plain_seconds,
        "plain_microseconds": each * plain_seconds,
        "microseconds": each * own_seconds,
    }


def _medians(runs: Sequence[Run], seconds: float) -> list[float]:
    """The median seconds of each, in turns whose order alternates, so that drift and noise hit all alike."""
    taken: list[list[float]] = [[] for _ in runs]
    order = list(range(len(runs)))
    collecting = gc.isenabled()
    gc.disable()
    began = perf_counter()
    try:
        while len(taken[0]) < LEAST or (len(taken[0]) < MOST and perf_counter() - began < seconds):
            for number in order:
                start = CLOCK()
                result = runs[number]()
                taken[number].append(CLOCK() - start)
                del result  # freed outside the measured time
            order.reverse()
    finally:
        if collecting:
            gc.enable()
    return [statistics.median(each) for each in taken]


@contextmanager
def _one_thread() -> Iterator[None]:
    """Within, torch computes with one thread, so that numbers of different machines and moments compare."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
