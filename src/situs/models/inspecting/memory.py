"""What a text costs beside the weights: keys and values in the cache, and tables of cosines and sines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from situs.models.numbers import rotation_of
from situs.models.positions import Cached, Kind, Layer, ModelPositions, spans

CACHED, TABLED = 2, 4
"""Bytes of a number: caches hold bfloat16 or float16, tables float32."""


@dataclass(frozen=True)
class Cache:
    """Hold the bytes that layers of one kind cache for a text."""

    kind: Kind
    layers: str
    tokens: int
    """That a layer holds by themselves: sliding layers hold their window alone."""
    bytes: int
    """Of all these layers, for one text."""
    entries: int = 0
    """That a layer holds beside, each of several tokens."""


def caches_of(model: ModelPositions, length: int) -> tuple[Cache, ...]:
    """The caches of a stack for one text of ``length`` tokens, by kind of layer and how much each holds; layers that
    see later tokens too cache nothing."""
    found: dict[tuple[Kind, int, int, int], list[int]] = {}
    for numbers, layer in model.groups():
        if layer.heads is not None and layer.causal and layer.kind in ("full", "sliding", "chunked"):
            cached = _cached(layer)
            tokens, entries = cached_tokens(layer, cached, length), length // cached.rate if cached.rate else 0
            each = CACHED * (tokens * cached.token + entries * cached.entry)
            found.setdefault((layer.kind, tokens, entries, each), []).extend(numbers)
    return tuple(
        Cache(kind, spans(tuple(sorted(layers))), tokens, each * len(layers), entries)
        for (kind, tokens, entries, each), layers in found.items()
    )


def cached_tokens(layer: Layer, cached: Cached, length: int) -> int:
    """How many tokens of a text a layer needs to hold by themselves."""
    return min(length, cached.window or layer.window or layer.chunk or length)


def _cached(layer: Layer) -> Cached:
    """What a layer holds of a token: its keys and values, or what it makes them from."""
    heads = layer.heads
    assert heads is not None
    if layer.cached is not None:
        return layer.cached
    return Cached(heads.latent if heads.latent is not None else heads.keys * (heads.dim + heads.values))


def table_bytes(model: ModelPositions, length: int) -> int:
    """The bytes of cosines and sines for every position, one table for each rotation that differs."""
    return sum(2 * TABLED * length * pairs for pairs in _tables(model))


def _tables(model: ModelPositions) -> Iterator[int]:
    rotations = (rotation_of(layer) for _, layer in model.groups())
    distinct = {(each.frequencies, each.factor) for each in rotations if each is not None}
    return (len(frequencies) for frequencies, _ in distinct)
