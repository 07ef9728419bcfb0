"""Costs: time and memory of a method's attention over plain attention, on the CPU, with one thread.

    lengths   a training step at the training length, with the lab's batch; a forward pass of one text at others
    decode    one token per step behind a cache, with what is made for many steps at once made anew for every 64

Measured are the attention layers of the lab's model, as many as the method's pattern has, projections included. What a
method does outside of them counts in full: adding to the input, though a model does that once for all its layers, and
drawing random positions. Decoding goes by plain positions. The two stacks, with the method and without, run by turns
in rounds. A time is the ratio of their medians, of the thread's own time, which other processes hardly lengthen; its
95 % interval comes from a bootstrap that draws the rounds anew. Memory is the most that torch held at once beyond the
result, allocation by allocation: it is exact, and repeats.

Ratios depend on the size of the model. The lab's heads are small, so that plain attention is cheap and whatever a
method computes for each pair of positions weighs more than in a large model.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import get_clock_info, perf_counter, thread_time
from typing import Any, TypeAlias, TypeVar, cast

import torch
from torch import Tensor, nn

from situs.attention.features import features_of
from situs.attention.layer import Attention
from situs.encodings.base import as_encodings
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
LEAST, MOST = 3, 25  # rounds; fewer have no interval
DRAWS = 1000  # of rounds anew
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
        for layer, cache in zip(self.layers, caches, strict=True):
            declared = features_of(as_encodings(layer.encodings), "key")
            features = {
                name: torch.randn(1, layer.num_heads, CACHED + STEPS, feature.width)
                for name, feature in declared.items()
            }
            cache.append(torch.randn_like(cache.keys), torch.randn_like(cache.values), features=features)

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
        times = _measured(runs, SECONDS if trains else SECONDS_IF_LONG)
    return Cost(
        time=times.ratio,
        time_low=times.low,
        time_high=times.high,
        rounds=times.rounds,
        memory=own_bytes / plain_bytes,
        plain_milliseconds=1e3 * times.plain,
        milliseconds=1e3 * times.own,
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
        times = _measured(runs, SECONDS)
    each = 1e6 / STEPS
    return DecodeCost(
        time=times.ratio,
        time_low=times.low,
        time_high=times.high,
        rounds=times.rounds,
        plain_microseconds=each * times.plain,
        microseconds=each * times.own,
    )


@dataclass(frozen=True)
class Times:
    """Hold the median seconds without and with a method, their ratio with its interval, and the number of rounds."""

    plain: float
    own: float
    low: float
    high: float
    rounds: int

    @property
    def ratio(self) -> float:
        """How many times as long it takes with the method."""
        return self.own / self.plain


def _measured(runs: Sequence[Run], seconds: float) -> Times:
    """Measure two runs, plain and own, in rounds."""
    plain, own = (torch.tensor(each, dtype=torch.float64) for each in _rounds(runs, seconds))
    low, high = ratio_interval(plain, own)
    return Times(statistics.median(plain.tolist()), statistics.median(own.tolist()), low, high, len(plain))


def ratio_interval(plain: Tensor, own: Tensor) -> tuple[float, float]:
    """Find the 95 % interval of the ratio of medians, drawing rounds anew with both of their times."""
    count = len(plain)
    drawn = torch.randint(count, (DRAWS, count), generator=torch.Generator().manual_seed(0))
    ratios = own[drawn].quantile(0.5, 1) / plain[drawn].quantile(0.5, 1)
    low, high = ratios.quantile(torch.tensor([0.025, 0.975], dtype=ratios.dtype)).tolist()
    return low, high


def _rounds(runs: Sequence[Run], seconds: float) -> list[list[float]]:
    """Take the seconds of each run in every round, in an order that alternates, so that drift and noise hit all."""
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
    return taken


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute with one thread, so that numbers of different machines and moments compare."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
