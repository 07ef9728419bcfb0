"""Properties: what papers and tutorials claim of encodings, each measured on those that a method builds.

``PROBES`` has them all, each with what it claims. Asked is one attention layer of the lab's size with random
projections, in float32; of patterns, every layer. Encodings of the input act in all, since the residual stream carries
them on. Parameters are drawn as at the start of training, or from a normal where they would start at or near 0, so that
one sees what the method can do and not what it does untrained. What does not hold in one layer, or for one of several
draws, does not hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias, cast

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from situs.encodings.base import Encoding, InputEncoding, QueryKeyEncoding
from situs.lab.acting import Acting, behind, draw_what_is_near_zero, normal
from situs.lab.methods import RAMPS, Method
from situs.lab.model import Decoder, places_of
from situs.lab.trial import Settings
from situs.positions import Positions

ROUNDING, TOLD_APART = 1e-5, 1e-6  # shares of the spread that may be float32's, between two results and within one
DRAWS = 4  # of parameters
SCALED_TO = 4  # times the training length
SHIFTS = (1, 10, 100, 1000, 10_000)
FEWEST, PLACES, LONG, LONGEST = 4, 1 << 10, 1 << 16, 1 << 30  # places: to ask at all, to be told apart, of texts
GROWTH = 1.6  # between these texts, a logarithm grows by 1.9 or so, and cosines less, since even slow ones have turned
FALLS = -0.8  # rank correlation
Answer: TypeAlias = tuple[bool, float | None, str]


@dataclass(frozen=True)
class Finding:
    """Whether a property holds, and by which number; None where it cannot be asked, for the reason that is said."""

    holds: bool | None
    number: float | None
    unit: str
    said: str


def measure(method: Method, settings: Settings) -> dict[str, dict[str, Any]]:
    """Every property of a method, as plain data."""
    with torch.no_grad(), torch.random.fork_rng(devices=()):
        layers = _layers(method, settings, 0)
        if any(True for layer in layers for each in layer.encodings for _ in each.parameters()):
            layers += [layer for draw in range(1, DRAWS) for layer in _layers(method, settings, draw)]
        return {name: asdict(probe.at_worst(layers)) for name, probe in PROBES.items()}


class Layer:
    """One attention layer, and all that a method does in it and before it."""

    def __init__(self, method: Method, settings: Settings, decoder: Decoder, number: int, draw: int) -> None:
        self.method, self.train_length, self.number, self.draw = method, settings.train_length, number, draw
        self.dim, self.heads = settings.size.dim, settings.size.heads
        inputs, layer = cast(Any, decoder.inputs), cast(Any, decoder.layers[number])
        self.encodings: list[Encoding] = [*inputs, *layer.attention.encodings]
        self.acting = Acting(self.encodings, dim=self.dim, heads=self.heads)
        ends = [min(getattr(each, "usable_length", None) or LONGEST, each.reach / 2) for each in self.encodings]
        self.end = int(min([LONGEST, *ends]))  # half of a reach, where factors are well within float32

    def places(self, count: int) -> Positions:
        """A text of that many tokens, as the model places them."""
        return places_of(self.method, count, self.train_length)


def unique(layer: Layer) -> Answer:
    """One query at the end meets the same key at every place: do all look different?"""
    count = min(PLACES, layer.end)
    places, (query, key) = layer.places(count), normal(2, 2, 1, layer.dim, seed=3)
    seen = layer.acting.effects(query, key.expand(-1, count, -1), places[-1:], places)
    apart = looks_apart(seen)
    least, (one, other) = float(apart.min()), divmod(int(apart.argmin()), count)
    doubles = int((apart.amin(1) <= TOLD_APART).sum())
    said = f"of {count:,} places, {one:,} and {other:,} are most alike, {least:.2g} of the scores' spread apart."
    same = f"{doubles:,} of {count:,} places look the same as another, such as {one:,} and {other:,}."
    return not doubles, least, same if doubles else said


def looks_apart(seen: Float[Tensor, "rows heads query places"]) -> Float64[Tensor, "places places"]:
    """How far apart any two places look, in shares of the spread of what is seen of all."""
    looks = seen.double().flatten(0, 2).T.contiguous()
    apart = torch.cdist(looks, looks, compute_mode="donot_use_mm_for_euclid_dist") / looks.shape[1] ** 0.5
    shares: Tensor = (apart / looks.std()).fill_diagonal_(torch.inf)
    return shares


def relative(layer: Layer) -> Answer:
    """The same tokens at the beginning of a text and farther on: are their scores the same?"""
    count = min(48, layer.end // 2)
    room, seen = min(SHIFTS[-1], layer.end - count), behind(count, count)
    x, changes = normal(2, count, layer.dim, seed=4), {}
    for shift in {min(shift, room) for shift in SHIFTS}:
        text = layer.places(count + shift)
        first, later = (layer.acting.effects(x, x, here, here)[..., seen] for here in (text[:count], text[shift:]))
        changes[shift] = float((later - first).abs().max() / first.std())
    moved, worst = max(changes.items(), key=lambda item: item[1])
    holds = worst <= ROUNDING
    by = f"up to {room:,}" if holds else f"{moved:,}"
    return holds, worst, f"tokens moved by {by} change their scores by at most {worst:.2g} of the scores' spread."


def bounded(layer: Layer) -> Answer:
    """How wide positions spread one content's scores, and the longest vector: in very long texts over long ones."""
    near, far = min(LONG, layer.end // 2), layer.end
    (near_spread, near_vector), (far_spread, far_vector) = (_largest(layer, count) for count in (near, far))
    spread, vector = (far_spread + ROUNDING) / (near_spread + ROUNDING), far_vector / near_vector
    said = f"from {near:,} places to {far:,}, one content's scores spread {spread:.3g} times as wide"
    return max(spread, vector) <= GROWTH, max(spread, vector), f"{said}, and vectors are {vector:.3g} times as long."


def _largest(layer: Layer, longest: int) -> tuple[float, float]:
    """The mean spread and the longest vector, with keys at near and far distances; also of shorter texts, since what
    one place has by chance is no growth."""
    spreads, lengths = [], []
    for count in (longest - longest * part // 8 for part in range(4)):
        distances = torch.logspace(0, math.log10(count), 16).long()[:, None] + torch.arange(-1, 31)
        ids = count - 1 - torch.unique(distances.clamp(0, count - 1)).flip(0)
        last, places = (Positions.explicit(each, sequence_length=count) for each in (ids[-4:], ids))
        keys = normal(4, 1, layer.dim, seed=5).expand(-1, len(ids), -1)
        seen = layer.acting.effects(normal(4, last.length, layer.dim, seed=10), keys, last, places)
        spreads.append(float((seen.amax(-1) - seen.amin(-1)).mean()))
        vectors = layer.acting.projected(layer.acting.embedded(keys, places), 0)
        for role in ("query", "key"):  # in float64, since xPos's squares would leave float32
            lengths.append(float(layer.acting.turned(vectors, places, role).double().norm(dim=-1).max()))
    return sum(spreads) / len(spreads), max(lengths)


def norm_preserving(layer: Layer) -> Answer:
    """Lengths of inputs, queries and keys with their positions over those without."""
    return kept_lengths(layer.acting, layer.places(min(SHIFTS[-1], layer.end)))


def kept_lengths(acting: Acting, places: Positions) -> Answer:
    """The same of a layer and places of any kind."""
    x = normal(1, places.length, acting.dim, seed=6)
    vectors = x.view(1, places.length, acting.heads, -1).transpose(1, 2)
    pairs = {"inputs": (acting.embedded(x, places), x)} if acting.of_kind(InputEncoding) else {}
    for name, role in (("queries", "query"), ("keys", "key")) if acting.of_kind(QueryKeyEncoding) else ():
        pairs[name] = acting.turned(vectors, places, role), vectors
    if not pairs:
        return True, 0.0, "it leaves inputs, queries and keys as they are."
    lengths = [[each.double().norm(dim=-1) for each in pair] for pair in pairs.values()]
    worst = max(float((after / before - 1).abs().max()) for after, before in lengths)
    return worst <= ROUNDING, worst, f"{' and '.join(pairs)} change by at most {worst:.2g} of their length."


def decaying(layer: Layer) -> Answer:
    """The mean score of a query and a key of the same content, but for some noise, against their distance."""
    farthest = min(4 * layer.train_length, layer.end - 1)
    chosen = torch.linspace(0, farthest, min(farthest + 1, 257)).long()  # of the places, the last is the query's
    places = Positions.explicit(layer.places(farthest + 1).ids[:, chosen], sequence_length=farthest + 1)
    key, noise = normal(2, 32, 1, layer.dim, seed=7)
    query, keys = key + 0.5 * noise, key.expand(-1, len(chosen), -1)
    seen = layer.acting.scores(query, keys, places[len(chosen) - 1 :], places, keys_like=0)
    curves = seen[:, :, 0, :-1].double().mean(0).flip(-1)  # (heads, distances from 1 on)
    steps = (curves / (ROUNDING * curves.abs().max())).round()  # what differs by rounding is alike
    if bool((steps.amax(-1) - steps.amin(-1) <= 1).all()):
        return False, None, "scores do not change with distance."
    found = sum(_rank_correlation(curve) for curve in steps) / layer.heads
    said = (
        f"mean scores have a rank correlation of {found:.2f} with distances of 1 to {farthest:,}, averaged over heads."
    )
    return found < FALLS, found, said


def _rank_correlation(curve: Float[Tensor, "distances"]) -> float:
    """Spearman's, of a curve with its own index; 0 for one that is flat."""
    _, number, count = torch.unique(curve, return_inverse=True, return_counts=True)
    ranks = (count.cumsum(0) - (count - 1) / 2)[number].double()  # equals share the mean of their ranks
    return float(torch.corrcoef(torch.stack((ranks, torch.arange(len(curve)).double())))[0, 1].nan_to_num())


def equivariant(layer: Layer) -> Answer:
    """Outputs of permuted tokens against permuted outputs, where all see all."""
    count = min(64, layer.end)
    free, masked = (told_by_order(layer.acting, layer.places(count), causal=hidden) for hidden in (False, True))
    said = f"permuted tokens give outputs that are {free:.2g} of the outputs' spread from permuted ones"
    return free <= ROUNDING, free, f"{said}; under a causal mask, {masked:.2g}."


def told_by_order(acting: Acting, places: Positions, *, causal: bool) -> float:
    """How far outputs of permuted tokens are from permuted outputs, in shares of the outputs' spread."""
    order = torch.randperm(places.length, generator=torch.Generator().manual_seed(9))
    x = normal(2, places.length, acting.dim, seed=8)
    one, other = (acting.output(each, places, causal=causal) for each in (x[:, order], x))
    return float((one - other[:, :, order]).abs().max() / other.std())


@dataclass(frozen=True)
class Probe:
    """What a property claims, how it is asked, and whether larger numbers are worse (1) or smaller ones (-1)."""

    ask: Callable[[Layer], Answer]
    unit: str
    about: str
    worse: int = 1

    def at_worst(self, layers: list[Layer]) -> Finding:
        """What is found in that layer, with those parameters, where it holds least."""
        found = [self._found(layer) for layer in layers]
        ranks = [({False: 0, None: 1, True: 2}[each.holds], -self.worse * (each.number or 0)) for each in found]
        layer, finding = min(zip(layers, found, ranks, strict=True), key=lambda item: item[2])[:2]
        worst = "the worst" if any(each != finding for each in found) else "any"
        conditions = [f"scaled to {SCALED_TO} times the training length"] * (layer.method.scaling is not None)
        conditions += ["with positions drawn at random"] * layer.method.randomised
        conditions += [f"in layer {layer.number + 1}"] * any(each.number for each in layers)
        conditions += [f"with {worst} of {DRAWS} draws of its parameters"] * any(each.draw for each in layers)
        said = ", ".join(conditions) + ": " * bool(conditions) + finding.said
        return replace(finding, said=said[0].upper() + said[1:])

    def _found(self, layer: Layer) -> Finding:
        if layer.end < FEWEST:
            return Finding(None, None, self.unit, f"it takes {FEWEST} places to ask; the table has {layer.end}.")
        try:
            holds, number, said = self.ask(layer)
        except Exception as problem:  # encodings of one's own may end where they do not say
            return Finding(None, None, self.unit, f"it could not be asked: {type(problem).__name__}: {problem}")
        finite = number is None or math.isfinite(number)
        return Finding(holds and finite, number if finite else None, self.unit, said)


PROBES = {
    "unique": Probe(
        unique,
        "of the scores' spread",
        about="no two places look alike to a query at the end of the text",
        worse=-1,
    ),
    "relative": Probe(
        relative,
        "of the scores' spread",
        about="moving all positions by the same amount changes no score",
    ),
    "bounded": Probe(
        bounded,
        "times as large",
        about="effects do not grow on and on with the length of the text",
    ),
    "norm_preserving": Probe(
        norm_preserving,
        "of the length",
        about="inputs, queries and keys keep their length",
    ),
    "decaying": Probe(
        decaying,
        "rank correlation",
        about="between contents that are alike, scores fall with distance",
    ),
    "equivariant": Probe(
        equivariant,
        "of the outputs' spread",
        about="without a causal mask, permuted tokens give outputs permuted alike",
    ),
}


def _layers(method: Method, settings: Settings, draw: int) -> list[Layer]:
    """The layers that differ, as the lab's model has them."""
    decoder = Decoder(method, vocabulary=2, size=settings.size, train_length=settings.train_length, seed=draw).eval()
    if method.scaling is not None:
        decoder.scaled_to(method, SCALED_TO * settings.train_length, RAMPS[0])
    draw_what_is_near_zero(decoder.encodings, draw=draw, draws=DRAWS)
    kinds = [method.pattern[number % len(method.pattern)] for number in range(settings.size.layers)]
    numbers = [number for number, kind in enumerate(kinds) if kind not in kinds[:number]]
    return [Layer(method, settings, decoder, number, draw) for number in numbers]
