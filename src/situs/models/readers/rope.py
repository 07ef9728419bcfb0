"""Rope parameters: one object of a configuration -> the base, share and scaling of a rotary encoding.

    {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 32768}

Every key is read or refused; each type has its own. What transformers does with a key that says less than it seems to
is told in the notes of the result.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from situs.models.calls import Call
from situs.models.readers.view import View, told
from situs.models.sources.strict import ConfigError
from situs.registry.spelling import did_you_mean

TYPES = ("default", "linear", "dynamic", "yarn", "longrope", "llama3", "proportional", "axial")
RENAMED = {"su": "longrope", "mrope": "default", "xdrope": "dynamic", "ntk": "dynamic"}
"""Names of before, and of other programs."""

COMMON = {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
KEYS = {
    "default": set[str](),
    "axial": set[str](),
    "linear": {"factor"},
    "dynamic": {"factor", "original_max_position_embeddings"},
    "yarn": {
        "factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "truncate",
        "mscale", "mscale_all_dim",
    },
    "longrope": {
        "factor", "original_max_position_embeddings", "attention_factor", "short_factor", "long_factor", "short_mscale",
        "long_mscale",
    },
    "llama3": {"factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor"},
    "proportional": {"factor"},
}  # fmt: skip

ALPHA = frozenset({"alpha", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"})
"""What Hunyuan's files have beside a rope type of dynamic; all but the first change nothing there."""

STRETCHES = "positions are stretched by it"


@dataclass(frozen=True)
class Ladder:
    """Hold what rope parameters say: the frequencies of a rotary encoding, before they are laid over a head."""

    base: float
    share: float | None = None
    """Of the head's channels, those that are rotated; None where nothing is said."""
    type: str = "default"
    scaling: Call | None = None
    original_length: int | None = None
    factor: float | None = None
    notes: tuple[str, ...] = field(default=(), compare=False)


def read_ladder(
    view: View, *, base: float | int | None, share: float | int | None, length: int | None, original: int | None,
    mla: bool = False, also: frozenset[str] = frozenset(), types: tuple[str, ...] = (),
) -> Ladder:  # fmt: skip
    """Read one object.

    base, share: what the configuration says outside of it, or the defaults of the model type.
    length: max_position_embeddings.
    original: the same before extension where it is said outside, which wins, as Phi 3's does.
    mla: whether mscale_all_dim multiplies the softmax scale, as in models of latent attention.
    also: keys that this model type reads by itself, such as mrope_section.
    types: the rope types that this model type has, where they are not all.
    """
    types = types or TYPES
    written = view.get("rope_type", "type", default="default")
    renamed = RENAMED if "yarn" in types else {**RENAMED, "yarn": "longrope"}  # as Phi 3's first files have it
    kind = renamed.get(written, written) if isinstance(written, str) else written
    if kind not in types:
        near = did_you_mean(kind, types) if isinstance(kind, str) else ""
        raise ConfigError(
            f"{view.spelling('rope_type', 'type')} must be one of {', '.join(types)}, since each is computed by its "
            f"own formula; got {told(kind)}.{near}"
        )
    taken = COMMON | KEYS[kind] | also
    for key, value in view.unread().items():
        if key not in taken:
            of_other = [each for each in TYPES if key in KEYS[each]]
            where = f" {key} belongs to rope_type {' and '.join(of_other)}." if of_other else did_you_mean(key, taken)
            raise ConfigError(
                f"{view.name(key)} must be a key that rope_type {kind} has, since no other is read; got "
                f"{told(value)}.{where}"
            )
    theta = view.number("rope_theta", reason="it is the base of the frequencies", default=base, above=0)
    if theta is None:
        raise ConfigError(
            f"{view.name('rope_theta')} must be given, since it is the base of the frequencies, and rope parameters "
            f"that replace others take it along; got none. Repeat the model's own, such as 10000.0."
        )
    told_share = "it is a share of the channels"
    share = view.number("partial_rotary_factor", reason=told_share, default=share, above=0, most=1)
    notes: list[str] = []
    if written == "su":
        notes.append(f"{view.spelling('rope_type', 'type')} 'su' is longrope, and fails in transformers 5.22")
    within = view.count("original_max_position_embeddings", reason="it counts tokens")
    if original is not None and within is not None and original != within:
        notes.append(
            f"{view.name('original_max_position_embeddings')} is {within:,}, but {original:,} at the top level wins"
        )
    first = original or within
    factor = view.number("factor", reason=STRETCHES, least=1)
    build = {"linear": _linear, "dynamic": _dynamic, "yarn": _yarn, "longrope": _longrope, "llama3": _llama3,
             "proportional": _proportional}.get(kind)  # fmt: skip
    if build is None:
        return Ladder(theta, share, kind, None, first, notes=tuple(notes))
    scaling = build(view, _Given(factor, first, length, share, mla))
    return Ladder(theta, None if kind == "proportional" else share, kind, scaling, first, factor, tuple(notes))


@dataclass(frozen=True)
class _Given:
    factor: float | None
    original: int | None
    length: int | None
    share: float | None
    mla: bool

    def require_factor(self, view: View) -> float:
        """The factor, or the ratio of the two lengths where both are known."""
        if self.factor is not None:
            return self.factor
        if self.original and self.length and self.length >= self.original:
            return self.length / self.original
        raise ConfigError(
            f"{view.name('factor')} must be given, since {STRETCHES}; got none. It is the wanted length through the "
            f"original one."
        )

    def require_original(self, view: View) -> int:
        """The length of before; where it is not said, transformers takes max_position_embeddings."""
        if self.original is None and self.length is None:
            raise ConfigError(
                f"{view.name('original_max_position_embeddings')} must be given, since frequencies are divided by what "
                f"they do within that length; got none."
            )
        return self.original or self.length or 0


def _linear(view: View, given: _Given) -> Call:
    return Call.of("LinearScaling", factor=given.require_factor(view))


def _dynamic(view: View, given: _Given) -> Call:
    alpha = view.number("alpha", reason="the base is multiplied by a power of it", least=1)
    if alpha is not None:  # Hunyuan's: of one base at every length, whatever the type is called
        return Call.of("NTKScaling", factor=alpha)
    return Call.of("DynamicNTKScaling", factor=given.require_factor(view), original_length=given.length)


def _yarn(view: View, given: _Given) -> Call:
    magnitude = "cosines and sines are multiplied by it"
    ramp = "it bounds the pairs that are interpolated by their turns"
    return Call.of(
        "YaRN",
        factor=given.require_factor(view),
        original_length=given.require_original(view),
        beta_fast=view.number("beta_fast", reason=ramp, above=0) or None,
        beta_slow=view.number("beta_slow", reason=ramp, above=0) or None,
        truncate=view.flag("truncate", default=True) and None,
        attention_factor=view.number("attention_factor", reason=magnitude, above=0),
        mscale=view.number("mscale", reason="it weighs a logarithm"),
        mscale_all_dim=view.number("mscale_all_dim", reason="it weighs a logarithm"),
        mscale_dialect=None if given.mla or "mscale_all_dim" not in view else "ministral3",
    )


def _longrope(view: View, given: _Given) -> Call:
    magnitude = "cosines and sines are multiplied by it"
    lists = {name: view.numbers(f"{name}_factor", reason="each divides a frequency") for name in ("short", "long")}
    for name, each in lists.items():
        if each is None:
            raise ConfigError(
                f"{view.name(f'{name}_factor')} must be given, since longrope divides each frequency by a number of "
                f"its own; got none."
            )
    return Call.of(
        "LongRoPE",
        factor=given.require_factor(view),
        original_length=given.require_original(view),
        short_factors=lists["short"],
        long_factors=lists["long"],
        attention_factor=view.number("attention_factor", reason=magnitude, above=0),
        short_mscale=view.number("short_mscale", reason=magnitude, above=0),
        long_mscale=view.number("long_mscale", reason=magnitude, above=0),
    )


def _llama3(view: View, given: _Given) -> Call:
    parts = {}
    for key, name in (("low_freq_factor", "low_frequency_factor"), ("high_freq_factor", "high_frequency_factor")):
        parts[name] = view.number(key, reason="it bounds the pairs that are interpolated by their turns", above=0)
        if parts[name] is None:
            raise ConfigError(f"{view.name(key)} must be given, since llama3 has no default for it; got none.")
    return Call.of(
        "Llama3Scaling", factor=given.require_factor(view), original_length=given.require_original(view), **parts
    )


def _proportional(view: View, given: _Given) -> Call:
    return Call.of("ProportionalScaling", fraction=1.0 if given.share is None else given.share, factor=given.factor)
