"""Models that rotate queries and keys, and those like them that do not: settings -> layers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from situs.models.calls import Call
from situs.models.positions import Cached, Heads, Layer, Lengths, ModelPositions, Note
from situs.models.readers.facts import Facts
from situs.models.readers.families import Family
from situs.models.readers.ladders import CHUNKS, beyond, dual_chunks, ladders_of
from situs.models.readers.rope import Ladder
from situs.models.readers.schedule import KINDS, Pattern, layer_types
from situs.models.readers.sizes import few, heads_of, layer_count
from situs.models.readers.view import View, told
from situs.models.sources.strict import ConfigError

LENGTH = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "max_sequence_length",
    "seq_length",
    "model_max_length",
)
ORDERS = {"contiguous": "contiguous", "interleaved": "interleaved", "ernie": "time_last"}


def read_rotary(view: View, model_type: str, family: Family, facts: Facts) -> ModelPositions:
    """Read a stack of layers whose positions are rotations, or none."""
    key, times = family.layers
    if isinstance(family.schedule, Pattern):
        layers = few(view.name(family.schedule.key), family.schedule.count(view))
    else:
        layers = layer_count(view, key) * times
    types = layer_types(view, layers, family.schedule)
    length, declared, notes = _length(view, family)
    ladders, more = ladders_of(view, model_type, family, facts, types, length)
    notes += more
    bases = _bases(view, layers) if family.rotates == "layer_rope_theta" else None
    rotating = _rotating(view, family, types, bases)
    settings = _settings_of_layers(view)
    view.get(*family.window)  # known, though no layer may slide
    scaled = view.numbers(family.scaled_layers, reason="each is a layer") if family.scaled_layers else None
    found: list[Layer] = []
    alike: dict[tuple[str, Ladder | None, bool], Layer] = {}
    for index, (type_, rotates) in enumerate(zip(types, rotating, strict=True)):
        ladder = ladders.get(type_) if type_ in ladders else ladders.get("")
        if ladder is not None and bases is not None and bases[index]:
            ladder = replace(ladder, base=bases[index])
        if ladder is not None and scaled is not None and index not in scaled:
            ladder = replace(ladder, scaling=None)
        asked = type_, ladder if rotates else None, rotates
        if index in settings:
            found.append(_layer(view.over(settings[index]), family, *asked))
            continue
        if asked not in alike:
            alike[asked] = _layer(view, family, *asked)
        found.append(alike[asked])
    used = [each for each in ladders.values() if each is not None]
    original = next((each.original_length for each in used if each.scaling is not None), None)
    chunks = dual_chunks(view)
    if chunks is not None:
        original = original or chunks.original
        notes.append(Note(view.name(CHUNKS), chunks.unread()))
    notes += [Note("", note) for each in dict.fromkeys(used) for note in each.notes]
    notes += [note for each in dict.fromkeys(used) for note in beyond(each, length)]
    return ModelPositions(
        model_type, layers=tuple(found), lengths=Lengths(declared=declared, original=original), notes=tuple(notes)
    )


def _length(view: View, family: Family) -> tuple[int | None, int | None, list[Note]]:
    """What transformers takes for the longest text, by the first of its names that is written; and what is. Command R
    has two of them, of which vLLM and llama.cpp go by the larger."""
    said = [key for key in LENGTH if view.says(key)]
    length = view.count(*said[:1] or LENGTH, reason="it counts tokens")
    declared, notes = length, []
    for key in said[1:]:
        other = view.count(key, reason="it counts tokens")
        if other != length and key == family.longest:
            declared = other
            text = f"{length:,} bounds nothing: {view.name(key)} is {other:,}, which vLLM and llama.cpp serve"
            notes.append(Note(view.name(said[0]), text))
        elif other != length:
            notes.append(Note(view.name(key), f"{other:,} changes nothing: {view.name(said[0])} is {length:,}"))
    return length, declared, notes


def _settings_of_layers(view: View) -> dict[int, Mapping[str, Any]]:
    """The settings of layers that have some of their own, by the number of the layer (per_layer_config)."""
    part = view.part("per_layer_config")
    if part is None:
        return {}
    numbers = {key: int(key) for key in part.config if key.isdecimal()}
    if len(numbers) < len(part.config):
        raise ConfigError(f"{part.path} must have numbers of layers for keys; got {', '.join(part.config)}.")
    parts = ((number, part.part(key)) for key, number in numbers.items())
    return {number: own.config for number, own in parts if own is not None}


def _layer(view: View, family: Family, type_: str, ladder: Ladder | None, rotates: bool) -> Layer:
    kind = KINDS[type_]
    if kind in ("linear", "none"):
        return Layer(kind)
    heads = heads_of(view, family, type_)
    causal = _causal(view, family)
    window = _window(view, family, causal=causal) if kind == "sliding" else None
    chunk = view.count("attention_chunk_size", reason="it counts positions") if kind == "chunked" else None
    sinks = kind == "sliding" if family.sinks == "sliding" else family.sinks
    calls: list[Call] = []
    if ladder is not None:
        rotary = _rotary(view, family, heads, ladder)
        calls.append(rotary)
        if family.values is not None:
            calls.append(Call("RotaryValue", rotary.options))
    calls += _temperature(view, family, heads, ladder, rotates)
    norm = family.norm
    if family.normed_by is not None and not (rotates and view.flag(family.normed_by, default=True)):
        norm = None
    cap = None if family.softcap is None else view.number(family.softcap, reason="it bounds scores", above=0)
    return Layer(
        kind, tuple(calls), heads, window, chunk, causal, _scale(view, family, heads, ladder), cap,
        sinks, norm, _cached(view, type_, heads, window) if family.compresses else None,
    )  # fmt: skip


RATES = {"compressed_sparse_attention": ("csa", 4), "heavily_compressed_attention": ("hca", 128)}
"""Types of layers that cache an entry for several tokens: the older name of how many, and how many where left out."""


def _cached(view: View, type_: str, heads: Heads, window: int | None) -> Cached:
    """What a layer of DeepSeek V4 caches: one vector is key and value; sparse layers have keys of an indexer beside.
    Tokens that wait for an entry to be full are left out."""
    token = heads.keys * heads.dim
    if type_ not in RATES:
        return Cached(token, window)
    (older, usual), reason = RATES[type_], "so many tokens share an entry of the cache"
    part = view.part("compress_rates")
    rate = view.count(f"compress_rate_{older}", reason=reason)
    rate = rate or (None if part is None else part.count(type_, reason=reason)) or usual
    width = view.count("index_head_dim", reason="it counts channels", default=128) or 128
    last = view.require("sliding_window", reason="it counts the keys that a query sees")
    return Cached(token, last, rate, token + width * (older == "csa"))


def _window(view: View, family: Family, *, causal: bool) -> int | None:
    """How many keys a query sees to one side, itself included."""
    window = view.count(*family.window, reason="it counts the keys that a query sees")
    spans = "half of each side" if family.causal and not causal else family.spans
    if window is None or spans == "keys":
        return window
    return {"half": window // 2, "half of each side": window // 2 + 1, "each side": window + 1}[spans]


def _rotary(view: View, family: Family, heads: Heads, ladder: Ladder) -> Call:
    rotated = heads.dim
    if family.latent:
        rotated = view.require("qk_rope_head_dim", reason="it counts the channels that are rotated")
    elif ladder.share is not None:
        rotated = int(heads.dim * ladder.share)
    if rotated % 2 or not 0 < rotated <= heads.dim:
        raise ConfigError(
            f"{view.spelling('head_dim')} must leave an even number of channels to be rotated, since pairs are; got "
            f"{rotated} of {heads.dim}."
        )
    interleaved = family.interleaved
    if isinstance(interleaved, str):
        interleaved = view.flag(interleaved, default=True)
    split = None
    if family.sections is not None:
        order, default = family.sections
        sizes = _sections(view) or default
        if order == "ernie":
            sizes = (sizes[2], sizes[0], sizes[1])
        if sizes and sum(sizes) != rotated // 2:
            raise ConfigError(
                f"{view.name('rope_parameters.mrope_section')} must add up to {rotated // 2}, the pairs of {rotated} "
                f"channels; got {', '.join(map(str, sizes))}."
            )
        split = Call.of("Sections", sizes=sizes, order=ORDERS[order]) if sizes else None
    trailing = family.latent or family.values == "rotated and back"
    if family.learned:
        return Call.of(
            "LeRoPE", head_dim=heads.dim, base=ladder.base, rotary_dim=rotated, channels="trailing",
            scaling=ladder.scaling,
        )  # fmt: skip
    return Call.of(
        "Rotary",
        head_dim=heads.dim,
        base=ladder.base,
        rotary_dim=None if rotated == heads.dim else rotated,
        pairing="interleaved" if interleaved else None,
        channels="trailing" if trailing and rotated < heads.dim else None,
        reverse=family.reverse or None,
        scaling=ladder.scaling,
        split=split,
    )


def _sections(view: View) -> tuple[int, ...] | None:
    part = view.part("rope_parameters") or view.part("rope_scaling")
    if part is None:
        return None
    listed = part.numbers("mrope_section", "xdrope_section", reason="it deals pairs to coordinates")
    return None if listed is None else tuple(int(each) for each in listed)


def _temperature(view: View, family: Family, heads: Heads, ladder: Ladder | None, rotates: bool) -> list[Call]:
    reason = "queries are multiplied by its logarithm"
    if family.temperature == "llama4" and not rotates and view.flag("attn_temperature_tuning", default=True):
        start = view.count("floor_scale", reason="it counts tokens")
        factor = view.number("attn_scale", reason=reason)
        return [Call.of("Temperature", dialect="llama4", original_length=start, factor=factor)]
    if family.temperature == "ministral3":
        part = view.part("rope_parameters") or view.part("rope_scaling")
        factor = None if part is None else part.number("llama_4_scaling_beta", reason=reason)
        if part is None:
            factor = 0.1
        if factor and ladder is not None and ladder.original_length:
            return [Call.of("Temperature", dialect="ministral3", original_length=ladder.original_length, factor=factor)]
    if family.temperature == "learned":
        return [Call.of("Temperature", dialect="ssmax", num_heads=heads.queries)]
    if family.temperature == "beam" and ladder is None:
        return [Call.of("Temperature", dialect="power", original_length=2048, factor=0.1)]
    return []


def _scale(view: View, family: Family, heads: Heads, ladder: Ladder | None) -> float:
    if isinstance(family.scale, float):
        return family.scale
    if family.scale is not None:
        key, kind = family.scale
        number = view.number(key, reason="scores are scaled by it", above=0)
        if number is not None:
            return number if kind == "factor" else number**-0.5
    scale = (heads.dim / family.scale_by) ** -0.5
    scaling = None if ladder is None else ladder.scaling
    if family.latent and scaling is not None and scaling.cls == "YaRN":
        weight: float = scaling.option("mscale_all_dim", 0.0)
        factor: float = scaling.option("factor")
        if weight and factor > 1:
            scale *= (0.1 * weight * math.log(factor) + 1) ** 2
    return float(scale)


def _causal(view: View, family: Family) -> bool:
    both = view.get("use_bidirectional_attention")
    return family.causal and both not in (True, "all")


def _rotating(view: View, family: Family, types: list[str], bases: Sequence[float] | None) -> list[bool]:
    """Whether each layer rotates; one whose own base is 0 does not."""
    if family.rotates == "none":
        return [False] * len(types)
    sliding = [KINDS[type_] == "sliding" for type_ in types]
    if family.rotates == "sliding":
        return sliding
    if family.rotates == "sliding, or all without a window":
        return sliding if view.get(*family.window) is not None else [True] * len(types)
    if family.rotates == "no_rope_layers":
        return _flags(view, len(types))
    return [True] * len(types) if bases is None else [bool(base) for base in bases]


def _flags(view: View, layers: int) -> list[bool]:
    """no_rope_layers, in which 1 says that a layer rotates, against its name."""
    every = view.count("no_rope_layer_interval", reason="it counts layers", default=4) or 4
    listed = view.get("no_rope_layers")
    if listed is None or listed == []:
        return [(layer + 1) % every != 0 for layer in range(layers)]
    if not isinstance(listed, list) or any(each not in (0, 1) for each in listed) or len(listed) != layers:
        raise ConfigError(
            f"{view.name('no_rope_layers')} must be {layers} numbers, 1 for a layer that rotates and 0 for one that "
            f"does not; got {told(listed)}."
        )
    return [bool(each) for each in listed]


def _bases(view: View, layers: int) -> tuple[float, ...] | None:
    """layer_rope_theta: a base per layer, 0 for none."""
    listed = view.get("layer_rope_theta")
    if listed is None:
        return None
    if (
        not isinstance(listed, list)
        or len(listed) != layers
        or not all(isinstance(each, (int, float)) for each in listed)
    ):
        raise ConfigError(
            f"{view.name('layer_rope_theta')} must be {layers} numbers, a base per layer or 0; got {told(listed)}."
        )
    return tuple(map(float, listed))
