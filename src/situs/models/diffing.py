"""Compare what two models do with positions: which layers differ, in what, and from which position on it matters.

matters from p on    rotated vectors differ by more than a dtype rounds: the largest difference of a frequency times
                     p is more than its unit roundoff (float32 2^-24, float16 2^-11, bfloat16 2^-8); where one has
                     dual chunks, from the first distance on that they change
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from situs.models.calls import Call
from situs.models.numbers import ROTATIONS, Rotation, rotation_call, rotation_of
from situs.models.positions import Layer, ModelPositions, spans
from situs.models.readers.view import require_count
from situs.models.reading import as_positions
from situs.models.scores import Move, change_between, distances_within
from situs.models.wrapping import WIDTH, filled

ROUNDOFFS = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
FIELDS = ("kind", "window", "chunk", "causal", "scale", "softcap", "sinks", "norm")
HEADS = {
    "queries": "heads of queries",
    "keys": "heads of keys",
    "dim": "channels of a head",
    "values": "channels of a value",
    "latent": "cached channels",
}
UNSAID = {("Rotary", "pairing"): "halves", ("LeRoPE", "pairing"): "interleaved", ("Rotary", "channels"): "leading"}
"""What options are where a layer does not say them, of those whose default has a name."""
SAME = 1e-12
"""Numbers that differ by less, relatively, are the same: they were computed in another order."""


@dataclass(frozen=True)
class Rotated:
    """Hold how two rotations of the same layer differ within a length."""

    pairs: str
    """Those whose frequencies differ."""
    frequency: float
    """The largest difference of a frequency, as a share of the larger one."""
    angle: float
    """The largest difference of an angle, in radians."""
    score: float
    """The largest difference of a score, of which 1 is that of a token with itself under the smaller softmax scale."""
    distance: int
    """Where that is."""
    since: Mapping[str, int | None]
    """By dtype, the position from which on it matters; None where it does not within the length."""
    elsewhere: bool = False
    """Whether other channels are rotated together, so that all scores of the same weights are others."""


@dataclass(frozen=True)
class Difference:
    """Hold what some layers of two models do differently."""

    part: str
    layers: str
    fields: Mapping[str, tuple[str, str]]
    """What differs by name, with both values."""
    rotated: Rotated | None = None


@dataclass(frozen=True, repr=False)
class Diff:
    """Hold all that two models do differently; true where there is something."""

    length: int
    differences: tuple[Difference, ...]

    def __bool__(self) -> bool:
        return bool(self.differences)

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {"length": self.length, "differences": [asdict(each) for each in self.differences]}

    def render(self, *, width: int = WIDTH) -> str:
        """What differs as text, in lines of at most ``width`` columns."""
        if not self:
            return "No difference: both do the same with positions."
        lines = (each for difference in self.differences for each in _lines(difference, self.length))
        return "\n".join(part for text, indent in lines for part in filled(text, width, indent))

    def __str__(self) -> str:
        return self.render()

    __repr__ = __str__


def diff(a: object, b: object, *, length: int | None = None) -> Diff:
    """Compare two configurations, or two engines' readings of one.

    a, b: anything that `read` takes, or what it gave.
    length: within which differences are looked for; the longer of the two that are declared if left out, or four
        times as much where a scaling begins behind it.

    >>> from situs import models
    >>> sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "max_position_embeddings": 4096}
    >>> llama = {"model_type": "llama", **sizes}
    >>> print(models.diff(llama, {**llama, "rope_theta": 500000.0}))
    layers 0-1
      base: 10000.0 and 500000.0
      frequencies of pairs 1-7 differ by up to 96.7 %
      matters in every dtype from position 1 on
      within 4,096 tokens angles differ by up to 501 rad, scores by up to 1 (at
        distance 3,489; a token with itself has 1)
    """
    first, second = as_positions(a), as_positions(b)
    declared = [each.main.lengths.declared or 0 for each in (first, second)]
    if length is None:  # a scaling that goes by the length begins behind the declared one
        calls = [call for each in (first, second) for layer in each.main.layers for call in layer.calls]
        dynamic = any(call.option("scaling") is not None and call.option("scaling").cls == "DynamicNTKScaling"
                      for call in calls)  # fmt: skip
        within = max(*declared, 1) * (4 if dynamic else 1)
    else:
        within = require_count("length", length, "it counts tokens")
    return Diff(within, tuple(_differences(first, second, within)))


def _differences(a: ModelPositions, b: ModelPositions, length: int) -> Iterator[Difference]:
    ours, theirs = dict(a.stacks()), dict(b.stacks())
    if not set(ours) & set(theirs):  # a whole model beside its text alone
        ours, theirs = {"": a.main}, {"": b.main}
    for name in dict.fromkeys((*ours, *theirs)):
        if name not in ours or name not in theirs:
            there = ("there", "missing") if name in ours else ("missing", "there")
            yield Difference(name, "", {"part": there})
            continue
        yield from _between(name, ours[name], theirs[name], length)


def _between(name: str, a: ModelPositions, b: ModelPositions, length: int) -> Iterator[Difference]:
    whole: dict[str, tuple[str, str]] = {}
    if a.input != b.input:
        whole["input"] = tuple(" + ".join(map(repr, each.input)) or "none" for each in (a, b))  # type: ignore[assignment]
    for key in ("declared", "original", "limit"):
        one, other = getattr(a.lengths, key), getattr(b.lengths, key)
        if one != other:
            whole[f"{key} length"] = _both(one, other)
    if len(a.layers) != len(b.layers):
        whole["layers"] = _both(len(a.layers), len(b.layers))
    if whole:
        yield Difference(name, "", whole)
    alike: dict[tuple[Layer, Layer], list[int]] = {}
    for index, pair in enumerate(zip(a.layers, b.layers, strict=False)):
        if pair[0] != pair[1]:
            alike.setdefault(pair, []).append(index)
    for (one, other), numbers in alike.items():
        fields = dict(_fields(one, other))
        rotated = _rotated(rotation_of(one, length), rotation_of(other, length), one, other, length)
        if fields or rotated:
            yield Difference(name, spans(tuple(numbers)), fields, rotated)


def _both(one: object, other: object) -> tuple[str, str]:
    return _word(one), _word(other)


def _word(value: object) -> str:
    if value is None:
        return "none"
    return f"{value:,}" if type(value) is int else str(value)


def _fields(a: Layer, b: Layer) -> Iterator[tuple[str, tuple[str, str]]]:
    for name in FIELDS:
        one, other = getattr(a, name), getattr(b, name)
        if one != other and not (
            isinstance(one, float) and isinstance(other, float) and math.isclose(one, other, rel_tol=SAME)
        ):
            yield name, _both(one, other)
    for name, words in HEADS.items():
        one, other = (None if layer.heads is None else getattr(layer.heads, name) for layer in (a, b))
        if one != other:
            yield words, _both(one, other)
    ours, theirs = ({call.cls: call for call in layer.calls} for layer in (a, b))
    for cls in dict.fromkeys((*ours, *theirs)):
        if cls not in ours or cls not in theirs:
            yield cls, ("yes", "no") if cls in ours else ("no", "yes")
        else:
            yield from _options(ours[cls], theirs[cls])


def _options(a: Call, b: Call) -> Iterator[tuple[str, tuple[str, str]]]:
    ours, theirs = dict(a.options), dict(b.options)
    for name in dict.fromkeys((*ours, *theirs)):
        one, other = ours.get(name), theirs.get(name)
        if one != other:
            told = (_option(UNSAID.get((a.cls, name)) if each is None else each) for each in (one, other))
            yield (name if a.cls in ROTATIONS else f"{a.cls} {name}"), (next(told), next(told))


def _option(value: object) -> str:
    if value is None:
        return "none"
    return value.shown() if isinstance(value, Call) else str(value)


def _rotated(a: Rotation | None, b: Rotation | None, one: Layer, other: Layer, length: int) -> Rotated | None:
    """How much two rotations differ; None where they do not, or one of the layers does not rotate."""
    if a is None or b is None or len(a.frequencies) != len(b.frequencies):
        return None
    apart = [abs(x - y) for x, y in zip(a.frequencies, b.frequencies, strict=True)]
    pairs = [
        index for index, (x, y) in enumerate(zip(a.frequencies, b.frequencies, strict=True))
        if not math.isclose(x, y, rel_tol=SAME)
    ]  # fmt: skip
    elsewhere = (a.pairing, a.channels, a.axis_of_pair, a.blocks) != (b.pairing, b.channels, b.axis_of_pair, b.blocks)
    factors = not math.isclose(a.factor, b.factor, rel_tol=SAME)
    chunks = [_chunks(layer) for layer in (one, other)]
    if not pairs and not elsewhere and not factors and chunks[0] == chunks[1]:
        return None
    ours, theirs = one.scale or 1.0, other.scale or 1.0
    low = min(ours, theirs)
    one_rotation, other_rotation = (
        replace(each, factor=each.factor * math.sqrt(scale / low)) for each, scale in ((a, ours), (b, theirs))
    )
    span = min(length, max(layer.window or layer.chunk or length for layer in (one, other)))
    moves = _move(chunks[0], span), _move(chunks[1], span)
    change = change_between(one_rotation, other_rotation, span, moves=moves)
    relative = max((abs(x - y) / max(abs(x), abs(y)) for x, y in zip(a.frequencies, b.frequencies, strict=True)
                    if x != y), default=0.0)  # fmt: skip
    since = {name: _since(max(apart), each, length, elsewhere, factors) for name, each in ROUNDOFFS.items()}
    angle = max(apart) * span
    if chunks[0] != chunks[1]:
        first = 1 + min(each.option("chunk_size") for each in chunks if each is not None)
        starts = {name: first if each is None else min(each, first) for name, each in since.items()}
        since = starts if first < length else since
        ends = (move(distances_within(span)) for move in moves)
        angle = max(angle, float(max(map(abs, a.frequencies)) * (next(ends) - next(ends)).abs().max()))
    return Rotated(spans(tuple(pairs)), relative, angle, change.score, change.distance, since, elsewhere)


def _chunks(layer: Layer) -> Call | None:
    """The dual chunks that a layer rotates by."""
    call = rotation_call(layer)
    scaling: Call | None = None if call is None else call.option("scaling")
    return scaling if scaling is not None and scaling.cls == "DualChunk" else None


def _move(chunks: Call | None, length: int) -> Move:
    """What the last token of a text is rotated against keys by, given their distances."""
    if chunks is None:
        return lambda distances: distances
    made = chunks.build()
    last = length - 1
    return lambda distances: made.distances(distances.new_tensor(last), last - distances)


def _since(apart: float, roundoff: float, length: int, elsewhere: bool, factors: bool) -> int | None:
    if factors:
        return 0
    if elsewhere:
        return 1
    first = math.ceil(roundoff / apart) if apart else length
    return first if first < length else None


def _lines(each: Difference, length: int) -> Iterator[tuple[str, str]]:
    """Sentences on what differs, each with its indent."""
    part = f"{each.part}: " if each.part else ""
    yield (f"{part}layer{'s' * (not each.layers.isdecimal())} {each.layers}" if each.layers else f"{part}the model"), ""
    for name, (one, other) in each.fields.items():
        yield f"{name}: {one} and {other}", "  "
    rotated = each.rotated
    if rotated is None:
        return
    if rotated.pairs:
        yield f"frequencies of pairs {rotated.pairs} differ by up to {100 * rotated.frequency:.3g} %", "  "
    starts = set(rotated.since.values())
    if len(starts) == 1:
        yield f"matters in every dtype from position {_from(starts.pop(), length)}", "  "
    else:
        told = (f"{_from(since, length)} in {name}" for name, since in rotated.since.items())
        yield f"matters from position {', '.join(told)}", "  "
    if rotated.elsewhere:
        yield "other channels are rotated together: the same weights give other scores at every distance but 0", "  "
        if not (rotated.angle or rotated.score):
            return
    yield (
        f"within {length:,} tokens angles differ by up to {_radians(rotated.angle)} rad, scores by up to "
        f"{rotated.score:.2g} (at distance {rotated.distance:,}; a token with itself has 1)",
        "  ",
    )


def _radians(angle: float) -> str:
    """An angle with three digits."""
    return f"{angle:.3g}" if angle < 1000 else f"{float(f'{angle:.3g}'):,.0f}"


def _from(since: int | None, length: int) -> str:
    return f"{since:,} on" if since is not None else f"beyond {length:,}"
