"""A short hash of what a model does with positions, so that two programs can tell whether they agree.

It goes by what is computed, not by how it is written or cached: frequencies, factors, schedules and biases, with nine
digits. Two spellings of the same model have one fingerprint; another base, window, pairing or scale has another.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from situs.models.positions import Layer, ModelPositions, spans
from situs.models.reading import as_positions

if TYPE_CHECKING:
    from situs.encodings.base import Encoding

DIGITS = 16
"""Hexadecimal digits: two different models have the same by chance once in 10^19."""


def fingerprint(source: object) -> str:
    """Hash what a model does with positions: 16 hexadecimal digits, the same on every machine.

    source: anything that `read` takes, or what it gave.

    >>> from situs import models
    >>> sizes = {"hidden_size": 2048, "num_attention_heads": 16, "num_hidden_layers": 4, "model_type": "llama"}
    >>> old = {**sizes, "rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}}
    >>> new = {**sizes, "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5}}
    >>> models.fingerprint(old) == models.fingerprint(new)
    True
    """
    text = json.dumps(_told(as_positions(source)), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def _told(model: ModelPositions) -> dict[str, Any]:
    return {
        "input": [_plain(call.outline().config) | {"class": call.cls} for call in model.input],
        "layers": {spans(numbers): _layer(layer) for numbers, layer in model.groups()},
        "parts": {name: _told(part) for name, part in model.submodels.items()},
    }


def _layer(layer: Layer) -> dict[str, Any]:
    held = {name: _plain(value) for name, value in vars(layer).items() if name not in ("calls", "encodings", "cached")}
    return {**held, "encodings": [_encoding(call.outline()) for call in layer.calls]}


def _encoding(encoding: Encoding) -> dict[str, Any]:
    """Its options; for a rotation the frequencies and the factor that they come to, unless both go by the length."""
    told = {"class": type(encoding).__name__, **_plain(encoding.config)}
    rotary = getattr(encoding, "rotary", encoding)
    frequencies = getattr(rotary, "frequencies", None)
    if frequencies is None or getattr(rotary, "by_length", True) or getattr(rotary, "by_pair", False):
        return told
    if frequencies.is_meta:  # parameters, which no configuration tells
        return told
    resolved = {"frequencies": _plain(frequencies.tolist()), "factor": _plain(getattr(rotary, "rotation_factor", 1.0))}
    return {name: each for name, each in told.items() if name not in ("base", "scaling")} | resolved


def _plain(value: Any) -> Any:
    """Numbers with nine digits, and everything else as JSON holds it."""
    if isinstance(value, bool) or value is None or isinstance(value, (int, str)):
        return value
    if isinstance(value, float):
        return f"{value:.8e}"
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return repr(value) if not hasattr(value, "__dict__") else [type(value).__name__, _plain(vars(value))]
