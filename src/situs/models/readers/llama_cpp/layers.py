"""Which layers of a GGUF file slide, rotate or attend at all, as llama.cpp decides it."""

from __future__ import annotations

from typing import Literal

from situs.models.readers.llama_cpp.architectures import Architecture
from situs.models.readers.view import View, told
from situs.models.sources.strict import ConfigError

WINDOW, PATTERN = "attention.sliding_window", "attention.sliding_window_pattern"
LAYERS = "it counts layers"
KEYS = "it counts the keys that a query sees"

Attends = Literal["full", "linear", "none"]


def window_of(view: View, architecture: Architecture, layers: int) -> int | None:
    """The window of layers that slide; None where none does."""
    if architecture.slides is None:
        return None
    given = view.count(WINDOW, reason=KEYS, least=0)
    if architecture.slides == "chunks" and given == 0:
        raise ConfigError(
            f"{view.name(WINDOW)} must not be 0, since what llama.cpp does without chunks was not checked; got 0."
        )
    if (architecture.when == "given" and not given) or (architecture.when == "64 layers" and layers != 64):
        return None
    if architecture.fixed:
        return architecture.window
    if not given and architecture.window is None:
        raise ConfigError(f"{view.name(WINDOW)} must be given, since layers of {view.path} slide; got {told(given)}.")
    return given or architecture.window


def sliding(view: View, architecture: Architecture, layers: int, window: int | None) -> list[bool]:
    """Whether each layer slides."""
    if window is None:
        return [False] * layers
    given = view.config.get(PATTERN)
    if isinstance(given, list) and not architecture.lists:  # for which llama.cpp takes the period
        found = _periodic(architecture, architecture.period or 0, layers)
        if [bool(each) for each in given] == found:
            view.get(PATTERN)
        return found
    if isinstance(given, list):
        return flags(view, PATTERN, view.get(PATTERN), layers)
    period = view.count(PATTERN, reason=LAYERS, default=architecture.period, least=0)
    if period is None:
        raise ConfigError(
            f"{view.name(PATTERN)} must be given, since it tells which layers of {view.path} slide; got none."
        )
    if architecture.period is None:  # one number for all layers
        return [bool(period)] * layers
    return _periodic(architecture, period, layers)


def _periodic(architecture: Architecture, period: int, layers: int) -> list[bool]:
    if period == 0:
        return [True] * layers
    whole = 0 if architecture.first else period - 1
    return [layer % period != whole for layer in range(layers)]


def flags(view: View, key: str, given: list[object], layers: int) -> list[bool]:
    """A truth value for each layer; more of them are for layers behind the last."""
    if len(given) < layers or not all(each in (0, 1) for each in given):
        raise ConfigError(f"{view.name(key)} must be {layers} truth values, one for each layer; got {told(given)}.")
    return [bool(each) for each in given[:layers]]


def rotating(view: View, architecture: Architecture, layers: int, slides: list[bool]) -> list[bool]:
    """Whether each layer rotates."""
    kind = architecture.rotates
    if architecture.rope == "none":
        return [False] * layers
    if kind == "sliding" or (kind == "sliding, or all without a window" and any(slides)):
        return slides
    if kind == "but every 4th":
        return [(layer + 1) % 4 != 0 for layer in range(layers)]
    if kind == "but every 4th from 0":
        return [layer % 4 != 0 for layer in range(layers)] if any(slides) else [True] * layers
    if kind == "rope_pattern":
        given = view.get("attention.rope_pattern")
        if given is None:
            return [True] * layers
        return flags(view, "attention.rope_pattern", given if isinstance(given, list) else [given], layers)
    if kind == "finetuned":
        return [view.flag("rope.scaling.finetuned", default=True)] * layers
    return [kind != "32 layers" or layers == 32] * layers


def attending(
    view: View, architecture: Architecture, layers: int, keys: list[int], queries: list[int]
) -> list[Attends]:
    """Whether each layer attends, has a state instead, or neither."""
    kind = architecture.states
    if kind == "all":
        return ["linear"] * layers
    found: list[Attends] = ["full" if queries[layer] and keys[layer] else "none" for layer in range(layers)]
    if kind == "heads":
        return ["linear" if each == "none" else each for each in found]
    if kind == "interval":
        given = view.get("attention.recurrent_layers")
        if given is not None:
            states = flags(view, "attention.recurrent_layers", given if isinstance(given, list) else [given], layers)
        else:
            every = view.count("full_attention_interval", reason=LAYERS, default=architecture.interval) or 1
            states = [(layer + 1) % every != 0 for layer in range(layers)]
        return ["linear" if state else each for state, each in zip(states, found, strict=True)]
    if kind is None and "none" in found:
        key = "attention.head_count" if 0 in queries[:layers] else "attention.head_count_kv"
        raise ConfigError(f"{view.name(key)} must be 1 or more, since every layer of {view.path} attends; got 0.")
    return found
