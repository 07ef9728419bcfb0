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
from typing import Any, TypeAlias, TypeVar, cast

import torch
from torch import Tensor, nn

from situs.attention.layer import Attention
from situs.lab.model import Decoder, positions_of
from situs.lab.naming.grammar import Method, parse
from situs.lab.naming.scalings import RAMPS
from situs.lab.probing.findings import Cost, Costs, DecodeCost
from situs.lab.probing.memory import peak_beyond_result
from situs.lab.problems import problem_of
from situs.lab.settings import Settings
from situs.positions import Positions

LONG = 4096
CACHED, STEPS = 1024, 64
LEAST, MOST = 2, 25  # rounds
SECONDS, SECONDS_IF_LONG = 0.2, 0.5  # for rounds between these bounds
MIB = 1 << 20
CLOCK = thread_time if get_clock_info("thread_time").resolution < 1e-6 else perf_counter

Run: TypeAlias = Callable[[], object]
C = TypeVar("C", Cost, DecodeCost)


def measure(method: Method, settings: Settings, *, lengths: Sequence[int] | None = None) -> Costs:
    """Measure time and memory at each length, time of decoding, and count parameters in the whole model.

    Where a table ends before, it says so; an encoding that fails has its error in place of numbers.
    """
    asked = dict.fromkeys((settings.train_length, LONG) if lengths is None else lengths)
    with _one_thread(), torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        own, plain = Stack(method, settings, encoded=True), Stack(method, settings, encoded=False)
        return Costs(
            parameters=own.decoder.parameters_of_encodings(),
            lengths={length: _up_to(Cost, own, length, partial(_at, own, plain, length)) for length in asked},
            decode=_up_to(DecodeCost, own, CACHED + STEPS, partial(_decoding, own, plain)),
        )


class Stack:
    """Hold the attention layers of a model, one for each of the method's pattern; plain ones unless ``encoded``."""

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
        """Scale frequencies to this length, if the method has a scaling."""
        if self.method.scaling is not None:
            self.decoder.scaled_to(self.method, length, RAMPS[0])

    def whole(self, x: Tensor) -> Tensor:
        """Run all layers over whole texts."""
        positions = positions_of(self.method, x.shape[1], self.settings.train_length)
        for each in (*self.decoder.inputs, *self.layers):
            x = each(x, positions)
        return x

    def step(self, x: Tensor) -> tuple[Tensor | None, ...]:
        """Compute the gradients of a training step."""
        return torch.autograd.grad(self.whole(x).sum(), (x, *self.parameters), allow_unused=True)

    def generation(self, token: Tensor) -> Run:
        """Make a run that decodes some tokens, each after the last, always behind the same cache."""
        caches = [layer.make_cache(batch=1, max_length=CACHED + STEPS) for layer in self.layers]
        for cache in caches:
            cache.append(torch.randn_like(cache.keys), torch.randn_like(cache.values))

        def generate() -> None:
            for cache in caches:
                cache.crop(CACHED)
            for step in range(STEPS):
                positions = Positions.range(1, start=CACHED + step, sequence_length=CACHED + STEPS)
                x = token
                for each in self.decoder.inputs:
                    x = each(x, positions)
                for layer, cache in zip(self.layers, caches, strict=True):
                    x = layer(x, positions, cache=cache)

        return generate


def _up_to(kind: type[C], stack: Stack, length: int, found: Callable[[], C]) -> C:
    """Measure, unless positions end before."""
    usable = stack.decoder.usable_length
    reach = min(each.reach for each in stack.decoder.encodings)
    if usable is not None and length > usable:
        return kind(ends=usable)
    if length > reach:
        return kind(ends=int(reach))
    stack.scale_to(length)
    try:
        return found()
    except (Exception, SystemExit) as problem:  # one's own encoding may fail in any way, and the rest is worth having
        return kind(error=problem_of(problem, stack.method).said)


def _at(own: Stack, plain: Stack, length: int) -> Cost:
    """Measure a training step at the training length, and a forward pass at others."""
    settings = own.settings
    trains = length == settings.train_length
    x = torch.randn(settings.batch if trains else 1, length, settings.size.dim, requires_grad=trains)
    runs = [partial(stack.step if trains else stack.whole, x) for stack in (plain, own)]
    with torch.set_grad_enabled(trains):
        plain_bytes, own_bytes = (peak_beyond_result(run) for run in runs)  # which also warms up
        plain_seconds, own_seconds = _medians(runs, SECONDS if trains else SECONDS_IF_LONG)
    return Cost(
        time=own_seconds / plain_seconds,
        memory=own_bytes / plain_bytes,
        plain_milliseconds=1e3 * plain_seconds,
        milliseconds=1e3 * own_seconds,
        plain_mib=plain_bytes / MIB,
        mib=own_bytes / MIB,
    )


def _decoding(own: Stack, plain: Stack) -> DecodeCost:
    """Measure a decode step."""
    token = torch.randn(1, 1, own.settings.size.dim)
    with torch.no_grad():
        runs = [stack.generation(token) for stack in (plain, own)]
        for run in runs:
            run()
        plain_seconds, own_seconds = _medians(runs, SECONDS)
    each = 1e6 / STEPS
    return DecodeCost(
        time=own_seconds / plain_seconds,
        plain_microseconds=each * plain_seconds,
        microseconds=each * own_seconds,
    )


def _medians(runs: Sequence[Run], seconds: float) -> list[float]:
    """Measure the median seconds of each, in turns whose order alternates, so that drift and noise hit all alike."""
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
    """Compute with one thread, so that numbers of different machines and moments compare."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
