"""Models that rotate queries and keys, and those like them that do not: settings -> layers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from situs.models.calls import Call
from situs.models.facts import Facts
from situs.models.families import Family
from situs.models.positions import Heads, Layer, Lengths, ModelPositions, Note
from situs.models.rope import Ladder, read_ladder
from situs.models.schedule import KINDS, layer_types
from situs.models.strict import ConfigError
from situs.models.view import View, told

BASE = ("rope_theta", "rotary_emb_base", "rotary_embedding_base", "rope_embedding_base")
SHARE = ("partial_rotary_factor", "rotary_pct", "rope_pct", "rotary_emb_fraction")
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
    layers = _require(view, key, "it counts layers") * times
    types = layer_types(view, layers, family.schedule)
    length = view.count(*LENGTH, reason="it counts tokens")
    ladders, notes = _ladders(view, model_type, family, facts, types, length)
    rotating = _rotating(view, family, types)
    found = []
    for index, (type_, rotates) in enumerate(zip(types, rotating, strict=True)):
        ladder = ladders.get(type_) if type_ in ladders else ladders.get("")
        base = _own_base(view, family, index, layers)
        if ladder is not None and base:
            ladder = replace(ladder, base=base)
        found.append(_layer(_of_layer(view, index), family, type_, ladder if rotates else None, rotates))
    scaled = [each for each in ladders.values() if each is not None]
    original = next((each.original_length for each in scaled if each.scaling is not None), None)
    notes += [Note("", note) for each in dict.fromkeys(scaled) for note in each.notes]
    notes += [note for each in dict.fromkeys(scaled) for note in _covered(each, length)]
    return ModelPositions(
        model_type, layers=tuple(found), lengths=Lengths(declared=length, original=original), notes=tuple(notes)
    )


def _covered(ladder: Ladder, length: int | None) -> list[Note]:
    """A note where the declared length is more than a scaling was made for."""
    if length is None or ladder.scaling is None or ladder.original_length is None or ladder.factor is None:
        return []
    covered = ladder.original_length * ladder.factor
    if ladder.type not in ("yarn", "linear") or length <= 1.01 * covered:
        return []
    return [
        Note(
            "max_position_embeddings",
            f"{length:,} is more than {ladder.type} by {ladder.factor:g} covers, {covered:,.0f} from "
            f"{ladder.original_length:,}",
        )
    ]


def _of_layer(view: View, index: int) -> View:
    """The settings of one layer, where some differ from the others (per_layer_config)."""
    part = view.part("per_layer_config")
    if part is None:
        return view
    numbers = {key: int(key) for key in part.config if key.isdecimal()}
    if len(numbers) < len(part.config):
        raise ConfigError(f"{part.path} must have numbers of layers for keys; got {', '.join(part.config)}.")
    key = next((key for key, number in numbers.items() if number == index), None)
    own = None if key is None else part.part(key)
    return view if own is None else view.over(own.config)


def heads_of(view: View, family: Family, type_: str = "") -> Heads:
    """The sizes of a layer's attention."""
    queries = _require(view, "num_attention_heads", "it counts heads")
    inner = view.part("attn_config") if family.inner else None
    keys = None if inner is None else inner.count("kv_n_heads", reason="it counts heads")
    keys = keys or view.count("num_key_value_heads", reason="it counts heads") or queries
    if family.latent:
        nope = view.count("qk_nope_head_dim", reason="it counts channels", least=0) or 0
        rope = view.count("qk_rope_head_dim", reason="it counts channels", least=0) or 0
        for key in ("head_dim", "qk_head_dim"):  # what both add up to, and what is rotated of it
            view.get(key)
        values = view.count("v_head_dim", reason="it counts channels") or nope + rope
        latent = view.count("kv_lora_rank", reason="it counts channels")
        return Heads(queries, queries, nope + rope, values, None if latent is None else latent + rope)
    dim = view.count("head_dim", reason="it counts channels", least=0) or 0
    if type_ == "full_attention":
        wide = view.count("global_head_dim", reason="it counts channels", default=family.wide)
        dim = (None if "per_layer_config" in view else wide) or dim
        keys = view.count("num_global_key_value_heads", reason="it counts heads") or keys
    if not dim:
        dim = _require(view, "hidden_size", "heads share its channels") // queries
    values = view.count("v_head_dim", reason="it counts channels") or dim
    return Heads(queries, keys, dim, values)


def _ladders(
    view: View, model_type: str, family: Family, facts: Facts, types: list[str], length: int | None
) -> tuple[dict[str, Ladder | None], list[Note]]:
    """The frequencies of each type of layer; those under "" are for all."""
    if family.rotates == "none" or (family.when is not None and view.get(family.when[0]) != family.when[1]):
        return {}, []
    given, old = view.part("rope_parameters"), view.part("rope_scaling")
    if given is not None and old is not None and given.config != old.config:
        raise ConfigError(
            f"{view.name('rope_parameters')} and {view.name('rope_scaling')} must not both be given, since they are two "
            f"names of one setting and transformers drops the first; got two that differ. Remove "
            f"{view.name('rope_scaling')}."
        )
    written = given or old
    notes: list[Note] = []
    original = view.count("original_max_position_embeddings", reason="it counts tokens")
    base = view.number(*BASE, reason="it is the base of the frequencies", above=0) if not _listed(view) else None
    inner = view.part("attn_config") if family.inner else None
    if base is None and inner is not None:
        base = inner.number("rope_theta", reason="it is the base of the frequencies", above=0)
        if base is not None:
            notes.append(Note(inner.name("rope_theta"), "transformers 5.22 ignores it, and takes 10,000"))
    share = _share(view, family, facts)
    also = frozenset({"mrope_section", "xdrope_section"} if family.sections else ())
    also |= {"llama_4_scaling_beta", "max_position_embeddings"} if family.temperature == "ministral3" else set()
    known: dict[str, Any] = {"length": length, "original": original, "mla": family.latent, "also": also}

    def ladder(part: View, own: float | None, named: bool) -> Ladder:
        default = own if own is not None or named else facts.theta or _theta_of(facts.rope)
        found = read_ladder(part, base=default, share=share, **known)
        if not family.partial and not family.latent and found.share not in (None, 1.0):
            raise ConfigError(
                f"{(view if view.says(*SHARE) else part).spelling(*SHARE)} must be left out, since {model_type} rotates all channels, and transformers "
                f"fails or ignores it; got {told(found.share)}."
            )
        return found

    if not family.by_type:
        if written is not None:
            if set(written.config) & set(KINDS):
                raise ConfigError(
                    f"{written.path} must be one object for all layers, since {model_type} rotates them alike; got one "
                    f"for each of {', '.join(written.config)}."
                )
            return {"": ladder(written, base, named=given is not None)}, notes
        older = {"rope_theta": base, "partial_rotary_factor": share}
        older = {key: each for key, each in older.items() if each is not None}
        default = View({**facts.rope, **older} if facts.rope else {}, path="rope_parameters")
        return {"": ladder(default, base, named=False)}, notes
    return _ladders_by_type(view, model_type, family, facts, types, given, old, base, ladder)


def _ladders_by_type(
    view: View, model_type: str, family: Family, facts: Facts, types: list[str], given: View | None, old: View | None,
    base: float | None, ladder: Any,
) -> tuple[dict[str, Ladder | None], list[Note]]:  # fmt: skip
    written = given or old
    labels = dict(family.labels)
    nested = written is not None and all(key in KINDS or key in labels.values() for key in written.config)
    if given is not None and not nested:
        raise ConfigError(
            f"{given.path} must have an object for each of {', '.join(sorted(set(types)))}, since {model_type} rotates "
            f"them differently and transformers ignores one for all; got {told(dict(given.config))}. Put it under "
            f"full_attention."
        )
    legacy = {
        type_: view.number(*keys, reason="it is the base of the frequencies", above=0) for type_, keys in family.bases
    }
    found: dict[str, Ladder | None] = {}
    notes: list[Note] = []
    if model_type == "olmo3" and legacy["sliding_attention"] is not None and written is None:
        notes.append(
            Note("rope_theta", "transformers 5.22 takes it for full layers alone, and 500,000 for sliding ones")
        )
    for type_ in dict.fromkeys(types):
        if KINDS[type_] in ("linear", "none"):
            continue
        label = labels.get(type_, type_)
        default = (facts.rope or {}).get(label, MISSING_TYPE)
        own = legacy.get(type_)
        if nested and written is not None:
            if label not in written.config:
                raise ConfigError(
                    f"{written.name(label)} must be given, since layers of that type rotate; got rope parameters for "
                    f"{', '.join(written.config)} alone. null says that they do not."
                )
            part = written.part(label)
            found[type_] = None if part is None else ladder(part, own, named=True)
        elif default is None:
            found[type_] = None
        elif old is not None and type_ == "full_attention":
            start = {} if default is MISSING_TYPE else default
            found[type_] = ladder(old, own or base or start.get("rope_theta"), named=True)
        else:
            start = dict(facts.rope or {}).get("full_attention", {}) if default is MISSING_TYPE else default
            start = {**start, **({} if own is None else {"rope_theta": own})}
            found[type_] = ladder(View(start, path=f"rope_parameters.{type_}"), None, named=True)
    return found, notes


MISSING_TYPE: Any = object()


def _layer(view: View, family: Family, type_: str, ladder: Ladder | None, rotates: bool) -> Layer:
    kind = KINDS[type_]
    if kind in ("linear", "none"):
        return Layer(kind)
    heads = heads_of(view, family, type_)
    window = None
    if kind == "sliding":
        window = view.count(*family.window, reason="it counts the keys that a query sees")
        if window is not None and family.halved:
            window = window // 2 + 1
    chunk = view.count("attention_chunk_size", reason="it counts positions") if kind == "chunked" else None
    calls: list[Call] = []
    if ladder is not None:
        rotary = _rotary(view, family, heads, ladder)
        calls.append(rotary)
        if family.values is not None:
            calls.append(Call("RotaryValue", rotary.options))
    calls += _temperature(view, family, heads, ladder, rotates)
    cap = None if family.softcap is None else view.number(family.softcap, reason="it bounds scores", above=0)
    return Layer(
        kind, tuple(calls), heads, window, chunk, _causal(view, family), _scale(view, family, heads, ladder), cap,
        family.sinks, family.norm,
    )  # fmt: skip


def _rotary(view: View, family: Family, heads: Heads, ladder: Ladder) -> Call:
    rotated = heads.dim
    if family.latent:
        rotated = _require(view, "qk_rope_head_dim", "it counts the channels that are rotated")
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
    scale = heads.dim**-0.5
    scaling = None if ladder is None else ladder.scaling
    if family.latent and scaling is not None and scaling.cls == "YaRN":
        weight, factor = scaling.option("mscale_all_dim"), scaling.option("factor")
        if weight and factor > 1:
            scale *= (0.1 * weight * math.log(factor) + 1) ** 2
    return scale


def _causal(view: View, family: Family) -> bool:
    both = view.get("use_bidirectional_attention")
    return family.causal and both not in (True, "all")


def _rotating(view: View, family: Family, types: list[str]) -> list[bool]:
    """Whether each layer rotates."""
    if family.rotates == "none":
        return [False] * len(types)
    sliding = [KINDS[type_] == "sliding" for type_ in types]
    if family.rotates == "sliding":
        return sliding
    if family.rotates == "sliding, or all without a window":
        return sliding if view.get(*family.window) is not None else [True] * len(types)
    if family.rotates == "no_rope_layers":
        return _flags(view, len(types))
    if family.rotates == "layer_rope_theta":
        listed = _bases(view, len(types))
        return [True] * len(types) if listed is None else [bool(base) for base in listed]
    return [True] * len(types)


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


def _own_base(view: View, family: Family, index: int, layers: int) -> float | None:
    listed = _bases(view, layers) if family.rotates == "layer_rope_theta" else None
    return None if listed is None else listed[index]


def _share(view: View, family: Family, facts: Facts) -> float | None:
    share = view.number(*SHARE, reason="it is a share of the channels", default=facts.share, above=0)
    if family.rotated is not None and share is None:
        rotated = view.count(family.rotated, reason="it counts the channels that are rotated")
        share = None if rotated is None else rotated / heads_of(view, family).dim
    if share is None and isinstance(facts.rope, Mapping):
        share = facts.rope.get("partial_rotary_factor")
    return share


def _theta_of(rope: Mapping[str, Any] | None) -> float | None:
    return None if rope is None else rope.get("rope_theta")


def _listed(view: View) -> bool:
    return any(isinstance(view.config.get(key), list) for key in BASE)


def _require(view: View, key: str, reason: str) -> int:
    found = view.count(key, reason=reason)
    if found is None:
        raise ConfigError(f"{view.spelling(key)} must be given, since {reason}; got none.")
    return found
