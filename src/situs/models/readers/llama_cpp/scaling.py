"""How llama.cpp rotates: settings of a GGUF file -> the scaling of its frequencies, as its graphs compute it.

linear     frequencies / factor; what holds where no type is said
yarn       by parts, from bounds that are rounded to whole pairs; its factor on cosines and sines is 0.1 ln(s) + 1
           whatever yarn_attn_factor says, unless a weight is read (yarn_log_multiplier)
tensors    rope_freqs, or one of rope_factors_long and rope_factors_short, divide frequencies pair by pair; which of
           the two is chosen by the size of the context, for all sequences
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from situs.models.calls import Call
from situs.models.positions import Note
from situs.models.readers.llama_cpp.architectures import Architecture
from situs.models.readers.view import View, require_number
from situs.models.sources.strict import ConfigError

TYPES = ("none", "linear", "yarn", "longrope")
STRETCHES = "positions are stretched by it"
RAMP = "it bounds the pairs that are interpolated by their turns"
MAGNITUDE = "cosines and sines are multiplied by it"
FREQS, LONG, SHORT = "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"
LLAMA3 = (8192, 1.0, 4.0)
"""Original length and bounds of every released model with Llama 3's scaling, which files do not say."""
NEVER = 1e29
"""What divides frequencies of pairs that are not rotated, or more."""


@dataclass(frozen=True)
class Scaled:
    """Hold how frequencies are scaled.

    softmax: what the softmax scale of latent attention is multiplied by.
    original: the length before, where something is scaled.
    """

    scaling: Call | None = None
    softmax: float = 1.0
    original: int | None = None
    notes: tuple[Note, ...] = ()


def read_scaling(
    view: View,
    name: str,
    architecture: Architecture,
    tensors: Mapping[str, Any],
    *,
    length: int,
    base: float,
    rotated: int,
) -> Scaled:
    """Read how the frequencies of ``rotated`` channels are scaled, in layers that are scaled at all.

    length: of the context that the model is run with.
    """
    kind = view.choice(
        "rope.scaling.type", choices=TYPES, reason="each is computed by its own formula", default="linear"
    )
    view.get("rope.scaling.finetuned")  # which says where a scaling comes from
    factor = _factor(view) if kind != "none" else _ignored(view)
    original = view.count("rope.scaling.original_context_length", reason="it counts tokens", least=0) or length
    magnitude = view.number("rope.scaling.attn_factor", reason=MAGNITUDE, default=1.0, above=0) or 1.0
    weight = _weight(view, architecture)
    divisors, notes = _divisors(view, architecture, tensors, length, original, rotated // 2)
    alpha = view.number("rope.scaling.alpha", reason=STRETCHES, least=0) if name == "hunyuan_vl" else None
    ratio = 1 + 0.1 * math.log(factor)
    if kind == "yarn" and factor > 1:
        ratio = _ratio(name, factor, weight)
        if divisors is not None:
            raise ConfigError(
                f"{view.name('rope.scaling.type')} must not be yarn where a tensor divides frequencies, since no model "
                f"has both; got {FREQS if FREQS in tensors else LONG} beside it."
            )
        scaling: Call | None = _yarn(view, architecture, factor, original, ratio * magnitude)
    elif divisors is not None or magnitude != 1:
        divisors = [factor * each for each in divisors or [1.0] * (rotated // 2)]
        scaling = _by_pair(divisors, magnitude, base, length, original)
    elif alpha:
        scaling = Call.of("NTKScaling", factor=alpha)
    else:
        scaling = Call.of("LinearScaling", factor=factor) if factor > 1 else None
    softmax = 1.0
    if architecture.latent == "scaled":
        softmax = (ratio * magnitude * (1 + 0.1 * weight * math.log(factor))) ** 2
    changed = scaling is not None and scaling.cls in ("YaRN", "LongRoPE", "Llama3Scaling")
    if scaling is not None and scaling.cls == "Llama3Scaling":
        original = scaling.option("original_length")
    return Scaled(scaling, softmax, original if changed else None, tuple(notes))


def _factor(view: View) -> float:
    given = view.number("rope.scaling.factor", "rope.scale_linear", reason=STRETCHES, least=0)
    if not given:
        return 1.0
    return require_number(view.spelling("rope.scaling.factor", "rope.scale_linear"), given, STRETCHES, least=1)


def _ignored(view: View) -> float:
    view.get("rope.scaling.factor", "rope.scale_linear")
    return 1.0


def _weight(view: View, architecture: Architecture) -> float:
    """mscale_all_dim, which files of some architectures hold a tenth of."""
    if architecture.yarn not in ("weight", "betas and weight"):
        return 0.0
    given = view.number("rope.scaling.yarn_log_multiplier", reason="it weighs a logarithm", default=0.0) or 0.0
    return round(10 * given, 9) if architecture.yarn == "weight" else given


def _ratio(name: str, factor: float, weight: float) -> float:
    """The factor of cosines and sines; mscale is 1 for llama.cpp, but equals mscale_all_dim in DeepSeek 2."""
    mscale = weight if name == "deepseek2" and weight else 1.0
    return (1 + 0.1 * mscale * math.log(factor)) / (1 + 0.1 * weight * math.log(factor))


def _yarn(view: View, architecture: Architecture, factor: float, original: int, magnitude: float) -> Call:
    fast, slow = architecture.beta_fast, 1.0
    if architecture.yarn in ("betas and weight", "all"):
        fast = view.number("rope.scaling.yarn_beta_fast", reason=RAMP, default=fast, above=0) or fast
        slow = view.number("rope.scaling.yarn_beta_slow", reason=RAMP, default=slow, above=0) or slow
    if not slow < fast:
        raise ConfigError(
            f"{view.name('rope.scaling.yarn_beta_slow')} must be less than {view.name('rope.scaling.yarn_beta_fast')}, "
            f"since the ramp runs between them; got {slow:g} and {fast:g}."
        )
    if architecture.yarn == "all":
        part = view.number("rope.scaling.yarn_ext_factor", reason="it mixes two frequencies", default=1.0)
        if part not in (1.0, -1.0):
            raise ConfigError(
                f"{view.name('rope.scaling.yarn_ext_factor')} must be 1, since Situs mixes as YaRN's paper does; got "
                f"{part:g}."
            )
    usual = math.isclose(magnitude, 1 + 0.1 * math.log(factor), rel_tol=1e-9)
    return Call.of(
        "YaRN",
        factor=factor,
        original_length=original,
        beta_fast=None if fast == 32 else fast,
        beta_slow=None if slow == 1 else slow,
        attention_factor=None if usual else magnitude,
    )


def _divisors(
    view: View, architecture: Architecture, tensors: Mapping[str, Any], length: int, original: int, pairs: int
) -> tuple[list[float] | None, list[Note]]:
    """What tensors divide frequencies by, pair by pair."""
    present = [name for name in (FREQS, LONG, SHORT) if name in tensors]
    if not present or not pairs:
        return None, []
    if architecture.factors is None:
        raise ConfigError(
            f"{present[0]} must be left out, since llama.cpp loads no file of {view.path} that has it; got "
            f"{len(tensors[present[0]])} numbers."
        )
    if architecture.factors == "unused":
        return None, [Note(present[0], f"changes nothing: llama.cpp does not read it for {view.path}")]
    notes = []
    chosen = FREQS
    if FREQS not in tensors:
        chosen = LONG if length > original else SHORT
        side = f"more than {original:,}" if chosen == LONG else f"not more than {original:,}"
        if LONG in tensors and SHORT in tensors:
            text = f"serves all sequences: llama.cpp chooses by the size of its context, and {length:,} is {side}"
            notes.append(Note(chosen, text))
        if chosen not in tensors:
            return None, [Note(present[0], f"changes nothing at a context of {length:,} tokens")]
    given: Sequence[Any] = tensors[chosen]
    if len(given) < pairs:
        raise ConfigError(
            f"{chosen} must have {pairs} numbers, one for each pair of channels that is rotated; got {len(given)}."
        )
    reason = "it divides a frequency"
    return [require_number(f"{chosen}[{pair}]", given[pair], reason, above=0) for pair in range(pairs)], notes


def _by_pair(divisors: list[float], magnitude: float, base: float, length: int, original: int) -> Call | None:
    """The scaling that divides frequencies so, by its own name where they are those of a formula."""
    if magnitude == 1:
        if all(each == 1 for each in divisors):
            return None
        moving = sum(each < NEVER for each in divisors)
        if all(each == 1 for each in divisors[:moving]):
            return Call.of("ProportionalScaling", fraction=moving / len(divisors))
        factor, (before, low, high) = max(divisors), LLAMA3
        if _close(divisors, llama3(factor, base, len(divisors))):
            return Call.of(
                "Llama3Scaling", factor=factor, original_length=before, low_frequency_factor=low,
                high_frequency_factor=high,
            )  # fmt: skip
    factor = max(length / original, 1.0)
    usual = math.sqrt(1 + math.log(factor) / math.log(original)) if original > 1 else 1.0
    return Call.of(
        "LongRoPE",
        factor=factor,
        original_length=max(original, 2),
        short_factors=divisors,
        long_factors=divisors,
        attention_factor=None if math.isclose(magnitude, usual, rel_tol=1e-6) and factor > 1 else magnitude,
    )


def llama3(factor: float, base: float, pairs: int, bounds: tuple[int, float, float] = LLAMA3) -> list[float]:
    """What Llama 3's scaling divides frequencies by, pair by pair; bounds are the original length and two of turns."""
    original, low, high = bounds
    found = []
    for pair in range(pairs):
        turns = original * base ** (-pair / pairs) / (2 * math.pi)
        kept = min(max((turns - low) / (high - low), 0.0), 1.0) if high > low else float(turns > low)
        found.append(1 / ((1 - kept) / factor + kept))
    return found


def _close(given: Sequence[float], expected: Sequence[float]) -> bool:
    return all(math.isclose(a, b, rel_tol=1e-5) for a, b in zip(given, expected, strict=True))
