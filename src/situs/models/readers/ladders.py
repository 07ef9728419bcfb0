"""Rope parameters wherever a configuration has them: for all layers, by type of layer, or in older settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from situs.models.calls import Call
from situs.models.positions import Note
from situs.models.readers.facts import Facts
from situs.models.readers.families import Family
from situs.models.readers.rope import ALPHA, Ladder, read_ladder
from situs.models.readers.schedule import KINDS
from situs.models.readers.sizes import heads_of
from situs.models.readers.view import View, told
from situs.models.sources.strict import ConfigError

BASE = ("rope_theta", "rotary_emb_base", "rotary_embedding_base", "rope_embedding_base")
SHARE = ("partial_rotary_factor", "rotary_pct", "rope_pct", "rotary_emb_fraction")
PER_LAYER = ("rope_theta", "partial_rotary_factors")
SECTIONS = ("mrope_section", "xdrope_section", "mrope_interleaved", "interleaved")
RATES = "it is the base of the frequencies"
CHUNKS = "dual_chunk_attention_config"

MISSING_TYPE: Any = object()


@dataclass(frozen=True)
class Chunks:
    """Hold what dual_chunk_attention_config says: chunks that vLLM and SGLang rotate by, and transformers does not."""

    scaling: Call
    original: int | None
    """What the model was trained on."""

    def unread(self) -> str:
        """What it means that transformers does not read it."""
        beyond = f": beyond {self.original:,} tokens, distances are new to the model" if self.original else ""
        return f"transformers and llama.cpp do not read it{beyond}; vLLM and SGLang rotate by its chunks"


def dual_chunks(view: View) -> Chunks | None:
    """Read dual_chunk_attention_config, as Qwen2.5-1M has it; None where it is not there."""
    part = view.part(CHUNKS)
    if part is None:
        return None
    size = part.require("chunk_size", reason="no distance is beyond it")
    local = part.require("local_size", reason="it counts tokens of the chunk before", least=0)
    if 2 * local >= size:
        raise ConfigError(
            f"{part.name('local_size')} must be less than half of {part.name('chunk_size')}, since chunks have the "
            f"difference of both and lie behind one another; got {local} and {size}."
        )
    original = part.count("original_max_position_embeddings", reason="it counts tokens")
    return Chunks(Call.of("DualChunk", chunk_size=size, local_size=local), original)


def ladders_of(
    view: View, model_type: str, family: Family, facts: Facts, types: list[str], length: int | None
) -> tuple[dict[str, Ladder | None], list[Note]]:
    """The frequencies of each type of layer; those under "" are for all."""
    if family.rotates == "none" or (family.when is not None and view.get(family.when[0]) != family.when[1]):
        return {}, []
    given, old = view.part("rope_parameters"), view.part("rope_scaling")
    if given is not None and old is not None and given.config != old.config:
        raise ConfigError(
            f"{view.name('rope_parameters')} and {view.name('rope_scaling')} must not both be given, since they are "
            f"two names of one setting and transformers drops the first; got two that differ. Remove "
            f"{view.name('rope_scaling')}."
        )
    written = given or old
    notes: list[Note] = []
    original = view.count("original_max_position_embeddings", reason="it counts tokens")
    listed = family.per_layer and isinstance(view.config.get("rope_theta"), list)
    base = None if listed else view.number(*BASE, reason=RATES, above=0)
    inner = view.part("attn_config") if family.inner else None
    if base is None and inner is not None:
        base = inner.number("rope_theta", reason=RATES, above=0)
        if base is not None:
            notes.append(Note(inner.name("rope_theta"), "transformers 5.22 ignores it, and takes 10,000"))
    share = _share(view, family, facts)
    notes += _layout(written, family)
    also = frozenset(SECTIONS if family.sections else ()) | (ALPHA if family.alpha else frozenset())
    also |= {"llama_4_scaling_beta", "max_position_embeddings"} if family.temperature == "ministral3" else set()
    known: dict[str, Any] = {"length": length, "original": original, "mla": family.latent, "also": also}
    known["types"] = family.rope_types

    def ladder(part: View, own: float | None, named: bool) -> Ladder:
        default = own if own is not None or named else facts.theta or _theta_of(facts.rope)
        found = read_ladder(part, base=default, share=share, **known)
        if found.type == "axial":
            raise ConfigError(
                f"{part.name('rope_type')} must be one for text, since {model_type} is not known to have images; got "
                f"'axial'."
            )
        if not family.partial and not family.latent and found.share not in (None, 1.0):
            where = view if view.says(*SHARE) else part
            raise ConfigError(
                f"{where.spelling(*SHARE)} must be left out, since {model_type} rotates all channels, and transformers "
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
    found, more = _ladders_by_type(view, model_type, family, facts, types, given, old, base, share, ladder)
    return found, notes + more


def _ladders_by_type(
    view: View, model_type: str, family: Family, facts: Facts, types: list[str], given: View | None, old: View | None,
    base: float | None, share: float | None, ladder: Any,
) -> tuple[dict[str, Ladder | None], list[Note]]:  # fmt: skip
    written = given or old
    labels = dict(family.labels)
    nested = written is not None and all(key in KINDS or key in labels.values() for key in written.config)
    if given is not None and not nested and not labels:
        raise ConfigError(
            f"{given.path} must have an object for each of {', '.join(sorted(set(types)))}, since {model_type} rotates "
            f"them differently and transformers ignores one for all; got {told(dict(given.config))}. Put it under "
            f"full_attention."
        )
    legacy: dict[str, dict[str, float | None]] = {
        type_: {"rope_theta": view.number(*keys, reason=RATES, above=0)} for type_, keys in family.bases
    }
    said = SHARE if family.rotated is None else (*SHARE, family.rotated)
    if family.partial and view.says(*said):
        legacy = {type_: {**legacy.get(type_, {}), "partial_rotary_factor": share} for type_ in dict.fromkeys(types)}
    if family.per_layer:
        legacy = {type_: _of_layers(view, types, type_, base) for type_ in dict.fromkeys(types)}
    found: dict[str, Ladder | None] = {}
    notes: list[Note] = []
    if model_type == "olmo3" and legacy["sliding_attention"]["rope_theta"] is not None and written is None:
        notes.append(
            Note("rope_theta", "transformers 5.22 takes it for full layers alone, and 500,000 for sliding ones")
        )
    for type_ in dict.fromkeys(types):
        if KINDS[type_] in ("linear", "none"):
            continue
        label = labels.get(type_, type_)
        default = (facts.rope or {}).get(label, MISSING_TYPE)
        own = {key: each for key, each in legacy.get(type_, {}).items() if each is not None}
        start = dict(facts.rope or {}).get("full_attention", {}) if default is MISSING_TYPE else default
        if nested and written is not None:
            if label not in written.config:
                raise ConfigError(
                    f"{written.name(label)} must be given, since layers of that type rotate; got rope parameters for "
                    f"{', '.join(written.config)} alone. null says that they do not."
                )
            part = written.part(label)
            found[type_] = None if part is None else ladder(part, own.get("rope_theta"), named=True)
            if part is not None and "truncate" in part:
                notes.append(Note(part.name("truncate"), "transformers 5.22 ignores it where types of layers differ"))
        elif default is None:
            found[type_] = None
        elif written is not None and type_ in family.scaled:
            theta = own.get("rope_theta") or base or start.get("rope_theta")
            more = {"rope_theta": theta} if labels else {}  # DeepSeek V4's bases go before that of rope_scaling
            if family.magnitude is not None and written.get("rope_type", "type") == "yarn":
                more["attention_factor"] = written.get("attention_factor", default=family.magnitude)
            part = View({**own, **written.config, **more}, path=written.path)
            found[type_] = ladder(part, theta, named=True)
        else:
            part = View({**(start or {}), **own}, path=f"rope_parameters.{type_}")
            found[type_] = ladder(part, None, named=True)
    return found, notes


def _of_layers(view: View, types: list[str], type_: str, base: float | None) -> dict[str, float | None]:
    """The base and the share of a type of layers, from settings that list them for each layer (Step 3.5)."""
    found: dict[str, float | None] = {"rope_theta": base}
    for key, name in zip(PER_LAYER, ("rope_theta", "partial_rotary_factor"), strict=True):
        if not isinstance(view.config.get(key), list):
            continue
        listed = view.numbers(key, reason="each is for a layer") or ()
        own = {each for each, other in zip(listed, types, strict=False) if other == type_}
        if len(listed) < len(types) or len(own) > 1:
            raise ConfigError(
                f"{view.name(key)} must have a number for each of {len(types)} layers, and one for all of "
                f"{type_}, since transformers has one for each type; got {told(view.config[key])}."
            )
        found[name] = own.pop()
    return found


def _layout(written: View | None, family: Family) -> list[Note]:
    """A note where a file deals pairs to coordinates otherwise than its model type does."""
    if written is None or family.sections is None:
        return []
    if family.alpha and written.says("mrope_section", "xdrope_section"):  # Hunyuan VL
        told = (
            "transformers 5.22 rotates both channels of a pair by different coordinates of an image, its authors do not"
        )
        return [Note(written.spelling("mrope_section", "xdrope_section"), told)]
    if "mrope_interleaved" not in written:
        return []
    own = family.sections[0] == "interleaved"
    if written.flag("mrope_interleaved") == own:
        return []
    return [Note(written.name("mrope_interleaved"), "transformers ignores it, vLLM deals pairs by it")]


def beyond(ladder: Ladder, length: int | None) -> list[Note]:
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


def _share(view: View, family: Family, facts: Facts) -> float | None:
    share = view.number(*SHARE, reason="it is a share of the channels", default=facts.share, above=0, most=1)
    if family.rotated is not None and view.says(family.rotated) and not view.says(*SHARE):
        share = view.require(family.rotated, reason="it counts the channels that are rotated")
        share /= heads_of(view, family).dim
    if share is None and isinstance(facts.rope, Mapping):
        share = facts.rope.get("partial_rotary_factor")
    return share


def _theta_of(rope: Mapping[str, Any] | None) -> float | None:
    return None if rope is None else rope.get("rope_theta")
