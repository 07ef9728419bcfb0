"""--hf-overrides of vLLM, with --max-model-len where it would serve another length.

vLLM replaces an object at the top level of a configuration and merges one within a part, after it has read the file. So
the base is always repeated, and keys that would be left over within a part are set to what they are without being said.
Its YaRN knows no attention_factor but attn_factor, which multiplies 0.1 ln(factor) + 1; its LongRoPE knows two mscales.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping
from typing import Any

from situs.models.engines.vllm import CHUNKED
from situs.models.numbers import rotation_call
from situs.models.positions import ModelPositions
from situs.models.readers.facts import Facts, facts_of
from situs.models.readers.ladders import CHUNKS
from situs.models.readers.view import told
from situs.models.sources.strict import ConfigError
from situs.models.writers.settings import has_rope

UNSAID = {
    "factor": 1.0, "partial_rotary_factor": 1.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": True,
    "attn_factor": 1.0, "apply_yarn_scaling": True, "attention_factor": None, "mscale": None, "mscale_all_dim": None,
    "short_mscale": None, "long_mscale": None,
}  # fmt: skip
"""What keys of rope parameters are without being said."""


def overrides(model: ModelPositions, config: dict[str, Any], before: dict[str, Any]) -> str:
    """What makes vLLM do as a model does; ``config`` and ``before`` are its settings and those that it was read from,
    both in today's spelling."""
    path, main = _main(model)
    for key in path:
        config, before = config[key], before[key]
    if not has_rope(main):
        raise ConfigError(
            f"{main.model_type} must have rope parameters, since nothing else of positions is set by overrides; got a "
            f"model without."
        )
    if main.model_type in CHUNKED and config.get(CHUNKS) is not None:
        raise ConfigError(
            f"{CHUNKS} must be removed from the file first, since vLLM rotates by it and reads no scaling beside it, "
            f"and overrides remove nothing; got {told(config[CHUNKS])}."
        )
    changed = {key: value for key, value in config.items() if key != "rope_parameters" and before.get(key) != value}
    left = before.get("rope_parameters") or {} if path else {}
    changed["rope_parameters"] = _parameters(main, config["rope_parameters"], left)
    for key in reversed(path):
        changed = {key: changed}
    length = _length(main)
    words = ["--hf-overrides", json.dumps(changed)]
    return shlex.join(words if length is None else [*words, "--max-model-len", str(length)])


def _main(model: ModelPositions) -> tuple[list[str], ModelPositions]:
    """The part that rope parameters belong to, and the keys that lead to it."""
    path: list[str] = []
    while not model.layers and model.submodels:
        keys = {key.removesuffix("_config"): key for key in (facts_of(model.model_type) or Facts()).parts}
        name = next(name for name, each in model.submodels.items() if each.main is model.main)
        if name not in keys:  # an encoder and a decoder in one object of settings
            break
        path.append(keys[name])
        model = model.submodels[name]
    return path, model.main


def _parameters(main: ModelPositions, parameters: dict[str, Any], left: Mapping[str, Any]) -> dict[str, Any]:
    """Rope parameters as vLLM reads them, for all layers or by type of layer."""
    latent = any(layer.heads is not None and layer.heads.latent is not None for layer in main.layers)
    if "rope_type" in parameters:
        return _object(parameters, left, latent=latent)
    return {
        label: None if each is None else _object(each, left.get(label) or {}, latent=latent)
        for label, each in parameters.items()
    }


def _object(parameters: dict[str, Any], left: Mapping[str, Any], *, latent: bool) -> dict[str, Any]:
    found, kind = dict(parameters), parameters["rope_type"]
    if kind == "dynamic" and "alpha" not in parameters:
        raise ConfigError(
            "scaling must give texts of all lengths the same frequencies, since vLLM has one table for all; got "
            "dynamic. Take yarn or ntk."
        )
    if kind == "yarn":
        given, own = _magnitudes(parameters, latent=latent)
        found |= {} if math.isclose(given, own) else {"attn_factor": given / own}
    if kind == "longrope" and "attention_factor" in parameters:
        found |= dict.fromkeys(("short_mscale", "long_mscale"), parameters["attention_factor"])
    return found | {key: UNSAID[key] for key in left if key in UNSAID and key not in found}


def _magnitudes(parameters: Mapping[str, Any], *, latent: bool) -> tuple[float, float]:
    """What YaRN multiplies cosines and sines by, and what vLLM does where it is told no more."""
    factor, weights = parameters["factor"], (parameters.get("mscale"), parameters.get("mscale_all_dim"))
    plain = _magnitude(factor, 1.0)
    ratio = _magnitude(factor, weights[0] or 1.0) / _magnitude(factor, weights[1] or 1.0) if all(weights) else plain
    return parameters.get("attention_factor") or ratio, ratio if latent else plain


def _magnitude(factor: float, weight: float) -> float:
    return 0.1 * weight * math.log(factor) + 1.0


def _length(main: ModelPositions) -> int | None:
    """The length to ask for, where vLLM would serve another: the original one under LongRoPE; and what is declared,
    stretched once more, under linear scaling."""
    calls = [call for call in map(rotation_call, main.layers) if call is not None]
    scaling = next((call.option("scaling") for call in calls if call.option("scaling") is not None), None)
    declared, original = main.lengths.declared, main.lengths.original
    if scaling is None or declared is None:
        return None
    if scaling.cls == "LongRoPE":
        return declared if declared > scaling.option("original_length") else None
    if scaling.cls == "LinearScaling" and original is not None and "gemma3" not in main.model_type:
        covered = round(original * scaling.option("factor"))
        return None if covered == round(declared * scaling.option("factor")) else covered
    return None
