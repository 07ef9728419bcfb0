"""What an engine does otherwise than transformers, layer by layer: said in a sentence each, and nothing else changed.

An engine's reading starts from transformers'. What comes to the same numbers stays as it is written there, so that two
readings are equal where nothing differs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from situs.models.calls import Call
from situs.models.numbers import ROTATIONS, rotation_call
from situs.models.positions import Layer, ModelPositions, Note, spans
from situs.models.readers.llama_cpp.scaling import NEVER


def merged(before: Sequence[Layer], after: Sequence[Layer]) -> tuple[tuple[Layer, ...], tuple[Note, ...]]:
    """Layers as an engine has them, and a note for each thing that differs from transformers'."""
    found: dict[tuple[Layer, Layer], tuple[Layer, list[str]]] = {}
    layers: list[Layer] = []
    said: dict[str, list[int]] = {}
    for index, pair in enumerate(zip(before, after, strict=True)):
        if pair not in found:
            found[pair] = _merge(*pair)
        layer, sentences = found[pair]
        layers.append(layer)
        for sentence in sentences:
            said.setdefault(sentence, []).append(index)
    notes = (Note(f"layer{'s' * (len(at) > 1)} {spans(tuple(at))}", text) for text, at in said.items())
    return tuple(layers), tuple(notes)


def with_main(model: ModelPositions, part: ModelPositions) -> ModelPositions:
    """The same model with another part in the place of its main one."""
    if model.main is model:
        return part
    for name, each in model.submodels.items():
        if each.main is model.main:
            return replace(model, submodels={**model.submodels, name: with_main(each, part)})
    return model


def _merge(before: Layer, after: Layer) -> tuple[Layer, list[str]]:
    if before == after:
        return before, []
    said: list[str] = []
    changed: dict[str, Any] = {}
    if (before.kind, before.window, before.chunk) != (after.kind, after.window, after.chunk):
        said.append(f"{_seen(after)}, where transformers has {_seen(before)}")
        changed |= {"kind": after.kind, "window": after.window, "chunk": after.chunk}
    if after.heads is not None and before.heads is not None and before.heads.dim != after.heads.dim:
        said.append(f"heads of {after.heads.dim} channels, where transformers has {before.heads.dim}")
        changed["heads"] = after.heads
    calls, sentences = _merge_calls(before, after)
    said += sentences
    changed["calls"] = calls
    for name, words in (("scale", "a softmax scale of"), ("softcap", "a softcap of")):
        one, other = getattr(before, name), getattr(after, name)
        if one != other and not (one and other and math.isclose(one, other, rel_tol=1e-6)):
            told = [f"{words} {each:.6g}" if each else f"no {name}" for each in (other, one)]
            said.append(f"{told[0]}, where transformers has {told[1]}")
            changed[name] = other
    for name, yes, no in (("causal", "causal attention", "attention to what follows"), ("sinks", "sinks", "no sinks")):
        one, other = getattr(before, name), getattr(after, name)
        if one != other:
            said.append(f"{yes if other else no}, where transformers has {yes if one else no}")
            changed[name] = other
    return replace(before, **changed), said


def _merge_calls(before: Layer, after: Layer) -> tuple[tuple[Call, ...], list[str]]:
    old, new = rotation_call(before), rotation_call(after)
    rest, others = ([call for call in each.calls if call.cls not in ROTATIONS] for each in (before, after))
    said: list[str] = []
    calls: list[Call] = []
    if new is not None and old is not None:
        same, said = _merge_rotary(old, new)
        calls.append(same)
    elif new is not None:
        calls.append(new)
        said.append(f"rotates with base {new.option('base'):,.0f}, where transformers does not rotate")
    elif old is not None:
        said.append(f"does not rotate, where transformers does with base {old.option('base'):,.0f}")
    if set(others) != set(rest):
        told = [" + ".join(map(repr, each)) or "no temperature or bias" for each in (others, rest)]
        said.append(f"{told[0]}, where transformers has {told[1]}")
        return (*calls, *others), said
    return (*calls, *rest), said


def _merge_rotary(old: Call, new: Call) -> tuple[Call, list[str]]:
    """The rotation of an engine, with pairs laid out as in the checkpoint that transformers reads."""
    said: list[str] = []
    changed: dict[str, Any] = {}
    if _enlarged(old) is not None and math.isclose(_enlarged(old) or 0, new.option("base"), rel_tol=1e-6):
        new = new.replace(base=old.option("base"), scaling=old.option("scaling"))
    for name, words, default in (("base", "base", None), ("rotary_dim", "rotated channels", "all")):
        one, other = old.option(name, default), new.option(name, default)
        if one != other:
            shown = [f"{each:,.6g}" if isinstance(each, float) else str(each) for each in (other, one)]
            said.append(f"{words} {shown[0]}, where transformers has {shown[1]}")
            changed[name] = new.option(name)
    one, other = old.option("scaling"), new.option("scaling")
    if canonical(one) != canonical(other):
        said.append(f"{shown_scaling(other)}, where transformers has {shown_scaling(one)}")
        changed["scaling"] = other
    if old.option("split") != new.option("split"):
        said.append(f"coordinates by {new.option('split')!r}, where transformers has {old.option('split')!r}")
        changed["split"] = new.option("split")
    return (old.replace(**changed) if changed else old), said


def _enlarged(call: Call) -> float | None:
    """The base that NTK scaling comes to; None for other scalings."""
    scaling: Call | None = call.option("scaling")
    if scaling is None or scaling.cls != "NTKScaling":
        return None
    width = call.option("rotary_dim", call.option("head_dim"))
    return float(call.option("base") * scaling.option("factor") ** (width / max(width - 2, 1)))


def magnitude(scaling: Call | None) -> float | tuple[float, ...]:
    """What a scaling multiplies cosines and sines by; two numbers where they go by the length."""
    if scaling is None or scaling.cls not in ("YaRN", "LongRoPE"):
        return 1.0
    given: float | None = scaling.option("attention_factor")
    if given is not None:
        return given
    factor: float = scaling.option("factor")
    if scaling.cls == "LongRoPE":
        if scaling.option("short_mscale") is not None:
            return scaling.option("short_mscale"), scaling.option("long_mscale")
        return 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(scaling.option("original_length")))
    weights = scaling.option("mscale"), scaling.option("mscale_all_dim")
    if all(weights):
        one, other = (yarn_magnitude(factor, weight) for weight in weights)
        return one / other
    return yarn_magnitude(factor)


def yarn_magnitude(factor: float | int, weight: float | int = 1.0) -> float:
    """YaRN's factor of cosines and sines."""
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def canonical(scaling: Call | None) -> Any:
    """What a scaling comes to: equal for two that are written differently and compute the same."""
    if scaling is None or (scaling.cls == "LinearScaling" and scaling.option("factor") == 1):
        return None
    if scaling.cls not in ("YaRN", "LongRoPE"):
        return scaling
    found = magnitude(scaling)
    number = tuple(round(each, 7) for each in (found if isinstance(found, tuple) else (found,)))
    if scaling.cls == "YaRN":
        ramp = scaling.option("beta_fast", 32.0), scaling.option("beta_slow", 1.0), scaling.option("truncate", True)
        return "YaRN", scaling.option("factor"), scaling.option("original_length"), ramp, number
    short, long = scaling.option("short_factors"), scaling.option("long_factors")
    return "LongRoPE", None if short == long else scaling.option("original_length"), short, long, number


def shown_scaling(scaling: Call | None) -> str:
    """A scaling in few words."""
    if scaling is None:
        return "frequencies as trained"
    if scaling.cls != "LongRoPE":
        return repr(scaling)
    numbers = magnitude(scaling)
    times = " and ".join(f"{each:.6g}" for each in (numbers if isinstance(numbers, tuple) else (numbers,)))
    factors, also = scaling.option("short_factors"), f", and cosines and sines times {times}"
    if factors != scaling.option("long_factors"):
        original = scaling.option("original_length")
        return f"short factors up to {original:,} tokens and long ones beyond{also}"
    still = [str(pair) for pair, each in enumerate(factors) if each >= NEVER]
    if len(still) < sum(each != 1 for each in factors):
        return f"one list of factors at every length{also}"
    return f"pairs {', '.join(still)} standing still" if still else f"frequencies as trained{also}"


def _seen(layer: Layer) -> str:
    if layer.kind == "linear":
        return "a state instead of attention"
    if layer.kind == "none":
        return "no attention"
    if layer.chunk is not None:
        return f"chunks of {layer.chunk:,}"
    return "attention to all tokens" if layer.window is None else f"a window of {layer.window:,}"
