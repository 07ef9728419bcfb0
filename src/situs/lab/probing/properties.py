"""Properties: what papers and tutorials claim of encodings, each measured on those that a method builds.

``PROBES`` asks them all; what each claims is in ``findings.CLAIMS``. One attention layer of the lab's size is asked,
with random projections and in float32 (``checks.bench``); of patterns, every layer. Encodings of the input act in all
layers, since the residual stream carries them on. Parameters are drawn as at the start of training, or from a normal
where they would start at or near 0, so that one sees what the method can do and not what it does untrained. What does
not hold in one layer, or for one of several draws, does not hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

import torch
from jaxtyping import Float
from torch import Tensor

from situs.checks.bench import Bench, normal
from situs.checks.measures import (
    FEWEST,
    GROWTH,
    LONGEST,
    ROUNDING,
    TOLD_APART,
    change_by_order,
    change_by_shift,
    change_of_norms,
    distances_between,
    draw_small_parameters,
    growth,
    scores_by_distance,
)
from situs.lab.model import Decoder, positions_of
from situs.lab.naming.grammar import Method
from situs.lab.naming.scalings import RAMPS
from situs.lab.probing.findings import Finding
from situs.lab.settings import Settings
from situs.positions import Positions

DRAWS = 4  # of parameters
SCALED_TO = 4  # times the training length
SHIFTS = (1, 10, 100, 1000, 10_000)
COMPARED = 1 << 10  # positions that must be told apart
FALLS = -0.8  # rank correlation
Answer: TypeAlias = tuple[bool, float | None, str]


def measure(method: Method, settings: Settings) -> dict[str, Finding]:
    """Measure every property of a method."""
    with torch.no_grad(), torch.random.fork_rng(devices=()):
        layers = _layers(method, settings, 0)
        if any(True for layer in layers for each in layer.bench.encodings for _ in each.parameters()):
            layers += [layer for draw in range(1, DRAWS) for layer in _layers(method, settings, draw)]
        return {name: probe.at_worst(layers) for name, probe in PROBES.items()}


@dataclass(frozen=True)
class Layer:
    """Hold one attention layer with all that a method does in it and before it."""

    method: Method
    train_length: int
    number: int
    draw: int
    bench: Bench

    @property
    def end(self) -> int:
        """How many positions the layer has."""
        return int(min(LONGEST, self.bench.end()))

    def positions(self, count: int) -> Positions:
        """Place the tokens of a text as the model does."""
        return positions_of(self.method, count, self.train_length)


def unique(layer: Layer) -> Answer:
    """Ask whether one query at the end scores the same key differently at all positions."""
    count = min(COMPARED, layer.end)
    positions = layer.positions(count)
    apart = distances_between(layer.bench, positions[-1:], positions)
    least, (one, other) = float(apart.min()), divmod(int(apart.argmin()), count)
    doubles = int((apart.amin(1) <= TOLD_APART).sum())
    said = (
        f"of {count:,} positions, {one:,} and {other:,} are the most similar: their scores differ by {least:.2g} of "
        "the scores' spread."
    )
    same = f"{doubles:,} of {count:,} positions have the same scores as another, such as {one:,} and {other:,}."
    return not doubles, least, same if doubles else said


def relative(layer: Layer) -> Answer:
    """Ask whether the same tokens have the same scores at the beginning of a text and farther on."""
    count = min(48, layer.end // 2)
    room, changes = min(SHIFTS[-1], layer.end - count), {}
    for shift in {min(shift, room) for shift in SHIFTS}:
        text = layer.positions(count + shift)
        changes[shift] = change_by_shift(layer.bench, text[:count], text[shift:])
    moved, worst = max(changes.items(), key=lambda item: item[1])
    holds = worst <= ROUNDING
    by = f"up to {room:,}" if holds else f"{moved:,}"
    return holds, worst, f"tokens moved by {by} change their scores by at most {worst:.2g} of the scores' spread."


def bounded(layer: Layer) -> Answer:
    """Ask how much the range of scores and the norms of vectors grow from long to very long texts."""
    near, far, spread, vector = growth(layer.bench)
    wider, longer = (f"{each:,.0f}" if each >= 100 else f"{each:.3g}" for each in (spread, vector))
    said = (
        f"from texts of {near:,} tokens to {far:,}, the range of one token's scores over all positions grows by a "
        f"factor of {wider}, and the norm of vectors by {longer}."
    )
    return max(spread, vector) <= GROWTH, max(spread, vector), said


def norm_preserving(layer: Layer) -> Answer:
    """Ask how the norms of inputs, queries and keys change by their positions."""
    return judge_norms(layer.bench, layer.positions(min(SHIFTS[-1], layer.end)))


def judge_norms(bench: Bench, positions: Positions) -> Answer:
    """Judge the change of norms at positions of any kind."""
    changes = change_of_norms(bench, positions)
    if not changes:
        return True, 0.0, "it does not change inputs, queries and keys."
    worst = max(changes.values())
    return worst <= ROUNDING, worst, f"{' and '.join(changes)} change by at most {worst:.2g} of their norm."


def decaying(layer: Layer) -> Answer:
    """Ask how the mean score of a query and a key of the same content, but for some noise, falls with distance."""
    farthest = min(4 * layer.train_length, layer.end - 1)
    chosen = torch.linspace(0, farthest, min(farthest + 1, 257)).long()  # of the positions, the last is the query's
    positions = Positions.explicit(layer.positions(farthest + 1).ids[:, chosen], sequence_length=farthest + 1)
    key, noise = normal(2, 32, 1, layer.bench.dim, seed=7)
    scores = scores_by_distance(layer.bench, key + 0.5 * noise, key, positions[-1:], positions)
    curves = scores[..., 1:].double().mean(0)  # (heads, distances from 1 on)
    steps = (curves / (ROUNDING * curves.abs().max())).round()  # what differs by rounding is alike
    if bool((steps.amax(-1) - steps.amin(-1) <= 1).all()):
        return False, None, "scores do not change with distance."
    found = sum(_rank_correlation(curve) for curve in steps) / layer.bench.heads
    said = (
        f"mean scores have a rank correlation of {found:.2f} with distances of 1 to {farthest:,}, averaged over heads."
    )
    return found < FALLS, found, said


def _rank_correlation(curve: Float[Tensor, "distances"]) -> float:
    """Correlate the ranks of a curve with its own index, as Spearman does; 0 for one that is flat."""
    _, number, count = torch.unique(curve, return_inverse=True, return_counts=True)
    ranks = (count.cumsum(0) - (count - 1) / 2)[number].double()  # equals share the mean of their ranks
    return float(torch.corrcoef(torch.stack((ranks, torch.arange(len(curve)).double())))[0, 1].nan_to_num())


def equivariant(layer: Layer) -> Answer:
    """Ask whether permuted tokens give permuted outputs, where all see all."""
    positions = layer.positions(min(64, layer.end))
    free, masked = (change_by_order(layer.bench, positions, causal=hidden) for hidden in (False, True))
    said = f"outputs of permuted tokens differ from permuted outputs by at most {free:.2g} of the outputs' spread"
    return free <= ROUNDING, free, f"{said}; under a causal mask, {masked:.2g}."


@dataclass(frozen=True)
class Probe:
    """Hold how a property is asked, in which unit, and whether larger numbers are worse (1) or smaller ones (-1)."""

    ask: Callable[[Layer], Answer]
    unit: str
    worse: int = 1

    def at_worst(self, layers: list[Layer]) -> Finding:
        """Ask all layers, and tell what is found where it holds least."""
        found = [self._found(layer) for layer in layers]
        ranks = [({False: 0, None: 1, True: 2}[each.holds], -self.worse * (each.number or 0)) for each in found]
        layer, finding = min(zip(layers, found, ranks, strict=True), key=lambda item: item[2])[:2]
        worst = "the worst" if any(each != finding for each in found) else "any"
        scaled = "its own factor" if layer.method.has_own_factor else f"{SCALED_TO} times the training length"
        conditions = [f"scaled to {scaled}"] * (layer.method.scaling is not None)
        conditions += ["with positions drawn at random"] * layer.method.randomised
        conditions += [f"in layer {layer.number + 1}"] * any(each.number for each in layers)
        conditions += [f"with {worst} of {DRAWS} draws of its parameters"] * any(each.draw for each in layers)
        said = ", ".join(conditions) + ": " * bool(conditions) + finding.said
        return replace(finding, said=said[0].upper() + said[1:])

    def _found(self, layer: Layer) -> Finding:
        if layer.end < FEWEST:
            return Finding(None, None, self.unit, f"it takes {FEWEST} positions to ask; the table has {layer.end}.")
        try:
            holds, number, said = self.ask(layer)
        except Exception as problem:  # encodings of one's own may end where they do not say
            return Finding(None, None, self.unit, f"it could not be asked: {type(problem).__name__}: {problem}")
        finite = number is None or math.isfinite(number)
        return Finding(holds and finite, number if finite else None, self.unit, said)


PROBES = {
    "unique": Probe(unique, "of the scores' spread", worse=-1),
    "relative": Probe(relative, "of the scores' spread"),
    "bounded": Probe(bounded, "times as large"),
    "norm_preserving": Probe(norm_preserving, "of the length"),
    "decaying": Probe(decaying, "rank correlation"),
    "equivariant": Probe(equivariant, "of the outputs' spread"),
}
"""How each of the ``CLAIMS`` is asked."""


def _layers(method: Method, settings: Settings, draw: int) -> list[Layer]:
    """Make the layers that differ, as the lab's model has them."""
    size = settings.size
    decoder = Decoder(method, vocabulary=2, size=size, train_length=settings.train_length, seed=draw).eval()
    if method.scaling is not None:
        decoder.scaled_to(method, SCALED_TO * settings.train_length, RAMPS[0])
    draw_small_parameters(decoder.encodings, draw=draw, draws=DRAWS)
    kinds = [method.pattern[number % len(method.pattern)] for number in range(size.layers)]
    found = []
    for number in (number for number, kind in enumerate(kinds) if kind not in kinds[:number]):
        encodings = [*cast(Any, decoder.inputs), *cast(Any, decoder.layers[number]).attention.encodings]
        bench = Bench(encodings, dim=size.dim, heads=size.heads)
        found.append(Layer(method, settings.train_length, number, draw, bench))
    return found
