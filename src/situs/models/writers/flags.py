"""Flags of llama.cpp: --rope-scaling, --rope-scale, --rope-freq-base, and those of YaRN.

llama.cpp rotates by what its file says, and flags go before that: but only for layers without a window, since sliding
ones have a base and a scale of their own in the file. Lists of factors are tensors of the file. The magnitude of YaRN
is 0.1 ln(factor) + 1, whatever --yarn-attn-factor says, and the ends of its ramp are rounded to whole pairs.
"""

from __future__ import annotations

import math
from typing import Any

from situs.models.calls import Call
from situs.models.numbers import rotation_call
from situs.models.positions import ModelPositions
from situs.models.readers.view import told
from situs.models.sources.strict import ConfigError
from situs.models.writers.ropes import TYPES, sayable

IN_FILE = {
    "LongRoPE": "its lists are tensors of the file, rope_factors_long and rope_factors_short",
    "Llama3Scaling": "its factors are a tensor of the file, rope_freqs",
    "ProportionalScaling": "its factors are a tensor of the file, rope_freqs",
}
CONVERT = "Write it into a config.json, and convert that with convert_hf_to_gguf.py."


def flags(main: ModelPositions, before: ModelPositions) -> str:
    """What makes llama.cpp rotate as a model does; ``before`` is what the model was read as."""
    rotary = _only(main)
    old = next((call for call in map(rotation_call, before.layers) if call is not None), None)
    scaling, base = rotary.option("scaling"), rotary.option("base", 10000.0)
    for each in (scaling, None if old is None else old.option("scaling")):
        if each is not None and each.cls in IN_FILE:
            raise ConfigError(
                f"scaling must be one that flags of llama.cpp can set or replace, since "
                f"{IN_FILE[each.cls]}; got {TYPES[each.cls]}. {CONVERT}"
            )
    if scaling is None:
        words = ["none"]
    elif scaling.cls == "LinearScaling":
        words = ["linear", "--rope-scale", _number(scaling.option("factor"))]
    elif scaling.cls == "YaRN":
        words = ["yarn", *_yarn(scaling)]
    else:
        raise ConfigError(
            f"scaling must be one that flags of llama.cpp can say, which are linear and yarn, since it rotates by one "
            f"base at all lengths and distances; got {TYPES.get(scaling.cls, scaling.cls)}."
        )
    return " ".join(["--rope-scaling", *words, "--rope-freq-base", _number(base)])


def _only(main: ModelPositions) -> Call:
    """The rotation that all layers have."""
    kinds = {layer.kind for layer, call in zip(main.layers, map(rotation_call, main.layers), strict=True) if call}
    calls = [sayable(call) for call in map(rotation_call, main.layers) if call is not None]
    if not calls:
        raise ConfigError(
            f"{main.model_type} must rotate, since no other positions are set by flags of llama.cpp; got a model "
            f"without rotary."
        )
    alike = {(call.option("base"), call.option("scaling")) for call in calls}
    if len(alike) > 1:
        raise ConfigError(
            f"base and scaling must be those of all layers, since flags of llama.cpp are for all; got {len(alike)} "
            f"that differ. {CONVERT}"
        )
    if kinds & {"sliding", "chunked"} and len({layer.kind for layer in main.layers} - {"linear", "none"}) > 1:
        raise ConfigError(
            f"layers must all attend alike, since llama.cpp takes the base and the scale of sliding layers from its "
            f"file, where flags do not reach; got {' and '.join(sorted(kinds))} that rotate. {CONVERT}"
        )
    return calls[0]


def _yarn(scaling: Call) -> list[str]:
    factor = scaling.option("factor")
    plain = 0.1 * math.log(factor) + 1.0
    rules: list[tuple[str, Any, bool, str]] = [
        ("attention_factor", f"{plain:.6g}, or left out", _is(scaling, "attention_factor", plain),
         "llama.cpp computes it from the factor, whatever --yarn-attn-factor says"),
        ("mscale_all_dim", "left out", not scaling.option("mscale_all_dim"),
         "it is the file's own, rope.scaling.yarn_log_multiplier"),
        ("truncate", "true", scaling.option("truncate", True), "llama.cpp rounds the ends of the ramp to whole pairs"),
    ]  # fmt: skip
    for name, rule, kept, reason in rules:
        if not kept:
            got = told(scaling.option(name))
            raise ConfigError(f"{name} of YaRN must be {rule}, since {reason}; got {got}. {CONVERT}")
    found = ["--rope-scale", _number(factor), "--yarn-orig-ctx", _number(scaling.option("original_length"))]
    for name, usual in (("beta_fast", 32.0), ("beta_slow", 1.0)):
        if scaling.option(name, usual) != usual:
            found += [f"--yarn-{name.replace('_', '-')}", _number(scaling.option(name))]
    return found


def _is(scaling: Call, name: str, usual: float) -> bool:
    given = scaling.option(name)
    return given is None or math.isclose(given, usual, rel_tol=1e-6)


def _number(value: float | int) -> str:
    """A number as a person writes it."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))
