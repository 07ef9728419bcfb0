"""A rotary call as rope parameters: what settings say of its base, its share of a head and its scaling.

    Rotary(head_dim=128, base=1e6, scaling=YaRN(factor=4.0, original_length=32768))
    {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 32768}

Some scalings have no name in settings, and another call rotates alike: NTK is a larger base, NTK by parts is YaRN with
an attention factor of 1.
"""

from __future__ import annotations

import math
from typing import Any

from situs.models.calls import Call
from situs.models.sources.strict import ConfigError

TYPES = {
    "LinearScaling": "linear",
    "DynamicNTKScaling": "dynamic",
    "NTKScaling": "dynamic",
    "YaRN": "yarn",
    "LongRoPE": "longrope",
    "Llama3Scaling": "llama3",
    "ProportionalScaling": "proportional",
}
"""The rope type of each scaling; NTK's is Hunyuan's."""

NAMES = {
    "original_length": "original_max_position_embeddings",
    "short_factors": "short_factor",
    "long_factors": "long_factor",
    "low_frequency_factor": "low_freq_factor",
    "high_frequency_factor": "high_freq_factor",
    "fraction": "partial_rotary_factor",
}
"""The keys of options that have another name in settings."""


def sayable(call: Call, *, alpha: bool = False) -> Call:
    """Find the call that rotates alike and that settings can say.

    alpha: whether the model type says NTK by its factor, as Hunyuan does, and not by a larger base.
    """
    scaling = call.option("scaling")
    if not isinstance(scaling, Call):
        return call
    factor, original, target = (scaling.option(name) for name in ("factor", "original_length", "target_length"))
    if target is not None:
        factor = target / original if factor is None else factor
        original = round(target / factor) if original is None else original
    if scaling.cls in ("LinearScaling", "NTKScaling"):
        original = None
    scaling = scaling.replace(factor=factor, original_length=original, target_length=None)
    if scaling.cls == "NTKByPartsScaling":
        scaling = Call("YaRN", scaling.options).replace(attention_factor=1.0)
    if scaling.cls == "YaRN":
        scaling = _plain_yarn(scaling)
    if scaling.cls == "NTKScaling" and not alpha:
        channels = call.option("rotary_dim") or call.option("head_dim")
        return call.replace(base=call.option("base", 10000.0) * factor ** (channels / (channels - 2)), scaling=None)
    return call.replace(scaling=scaling)


def _plain_yarn(scaling: Call) -> Call:
    """Leave out options that say what holds without them."""
    if scaling.option("dialect", "hf") != "hf":
        raise ConfigError(
            f"dialect of YaRN must be 'hf', since released models ramp over pairs and no setting says otherwise; got "
            f"{scaling.option('dialect')!r}."
        )
    kept: dict[str, Any] = {"dialect": None}
    if scaling.option("truncate") is True:
        kept["truncate"] = None
    if scaling.option("mscale_all_dim") is None or scaling.option("mscale_dialect") == "deepseek":
        kept["mscale_dialect"] = None
    return scaling.replace(**kept)


def rope_parameters(rotary: Call, *, share: float | None = None) -> dict[str, Any]:
    """Say what a rotary call does, in today's spelling; ``share`` is that of the channels which are rotated."""
    base = rotary.option("base", 10000.0)
    if not isinstance(base, (int, float)):
        raise ConfigError(f"base must be a number, since rope_theta is one for all heads; got {len(base)} of them.")
    found: dict[str, Any] = {"rope_type": "default", "rope_theta": base}
    if share is not None:
        found["partial_rotary_factor"] = share
    scaling = rotary.option("scaling")
    return found if scaling is None else found | scaling_settings(scaling)


def scaling_settings(scaling: Call) -> dict[str, Any]:
    """Say what a scaling does."""
    if scaling.cls not in TYPES:
        raise ConfigError(
            f"scaling must be one that settings can say, such as YaRN, since no configuration has a rope type for "
            f"others; got {scaling.cls}."
        )
    found: dict[str, Any] = {"rope_type": TYPES[scaling.cls]}
    if scaling.cls == "NTKScaling":
        return found | {"factor": 1.0, "alpha": scaling.option("factor")}
    for name, value in scaling.options:
        if name != "mscale_dialect" and not (name == "original_length" and scaling.cls == "DynamicNTKScaling"):
            found[NAMES.get(name, name)] = list(value) if isinstance(value, tuple) else value
    return found


def older(parameters: dict[str, Any]) -> dict[str, Any] | None:
    """Say in ``rope_scaling`` what rope parameters say, without base and share; None where nothing is left.

    Transformers has checked since 4.31 that linear and dynamic scalings have ``type`` and ``factor`` alone, and Phi 3
    that its lists stand beside ``type``; later types are found under ``rope_type``, and elsewhere under ``type``.
    """
    left = {key: value for key, value in parameters.items() if key not in ("rope_theta", "partial_rotary_factor")}
    kind = left.pop("rope_type")
    if kind == "proportional":
        raise ConfigError(
            "rope_type must be one that transformers had before version 5, since the older spelling is for that; got "
            "'proportional'. Write form='transformers'."
        )
    if kind == "default" and not left:
        return None
    names = {"type": kind} if kind in ("linear", "dynamic", "longrope") else {"rope_type": kind, "type": kind}
    return {**names, **left}


def share_of(rotary: Call, told: object) -> float:
    """The share of a head's channels that is rotated, as ``told`` where that gives as many."""
    dim = rotary.option("head_dim")
    channels = rotary.option("rotary_dim") or dim
    if isinstance(told, (int, float)) and int(dim * told) == channels:
        return told
    share: float = channels / dim
    return share if int(dim * share) == channels else math.nextafter(share, 1.0)
