"""Extend a loaded model to longer texts: the scaling that ``situs.models.extend`` chooses, set on the live model."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from situs import models
from situs.huggingface.configurations import configurations_of
from situs.huggingface.planning_rotation import rotary_modules
from situs.huggingface.rotating import refuse_within_bands
from situs.models.extendable import Method
from situs.models.extending import BASES, Extension, main_path, main_settings
from situs.models.numbers import rotation_of
from situs.models.positions import ModelPositions

LENGTHS = ("max_position_embeddings", "original_max_position_embeddings")
LEFT = ("inv_freq", "max_seq_len_cached")
"""How the names of what texts leave in a rotary module end: LongRoPE's frequencies of long ones, the longest length."""
CLOSE = 1e-5  # of frequencies, which transformers computes in float32


def extend(
    model: nn.Module,
    target: int | None = None,
    method: Method | None = None,
    *,
    factor: float | int | None = None,
    original: int | None = None,
    factors: Mapping[str, Sequence[float | int]] | None = None,
) -> Extension:
    """Extend a loaded model to texts of ``target`` tokens, in place; give what was set, and what it changes.

    The arguments and what is refused are those of ``situs.models.extend``. Configuration and frequencies change
    together, so that ``save_pretrained`` saves a model that loads as it runs. Where anything fails the model stays
    as it was.
    """
    if not isinstance(model, PreTrainedModel):
        raise TypeError(
            f"model must be a model of transformers, since its configuration and its rotary modules are changed; got "
            f"{type(model).__name__}."
        )
    refuse_within_bands(model, "extended", since="bands have the frequencies of before")
    before = models.read(model.config)
    longer = models.extend(before, target=target, method=method, factor=factor, original=original, factors=factors)
    path = main_path(longer.config, before)
    part: Any = model.config
    for key in path:
        part = getattr(part, key)
    rotary = rotary_modules(model, part.model_type, since="frequencies are set")
    settings = main_settings(dict(longer.config), before)
    if getattr(part, BASES, None) != settings.get(BASES, getattr(part, BASES, None)):
        raise ValueError(
            f"method must leave bases as they are, since layers of {part.model_type} find their cosines by them; got "
            f"{longer.method!r}. Save the model, and load it with the configuration that situs.models.extend gives."
        )
    configs = list({id(each): each for each in (part, *(module.config for module in rotary))}.values())
    with _undone_on_error([*configs, *model.modules()]):
        base = part.rope_parameters.get("rope_theta")
        for config in configs:
            own = config.rope_parameters.get("rope_theta")
            config.rope_parameters = copy.deepcopy(settings["rope_parameters"])
            if own != base:  # of a module for the layers that have this base
                config.rope_parameters["rope_theta"] = own
            for key in LENGTHS:
                if key in settings and hasattr(config, key):
                    setattr(config, key, settings[key])
        for module in rotary:
            _make_anew(module)
        _set_scales(model, before.main, longer.positions.main)
        _require_set(rotary, longer)
    return longer


@contextmanager
def extended(
    model: nn.Module,
    target: int | None = None,
    method: Method | None = None,
    *,
    factor: float | int | None = None,
    original: int | None = None,
    factors: Mapping[str, Sequence[float | int]] | None = None,
) -> Iterator[Extension]:
    """Extend a loaded model for the length of a ``with`` block; it is as it was afterwards, whatever ran in between.

    Scalings that follow the text (dynamic) leave the frequencies of the longest text in a model; a new block begins
    without them.
    """
    with restored(model):
        yield extend(model, target, method, factor=factor, original=original, factors=factors)


@contextmanager
def restored(model: nn.Module) -> Iterator[None]:
    """Give a model back its configurations, and what it had beside its weights, after a ``with`` block."""
    restore = _restoring([*configurations_of(model), *model.modules()])
    try:
        yield
    finally:
        restore()


@contextmanager
def _undone_on_error(objects: list[Any]) -> Iterator[None]:
    """Give objects back the attributes that they had where anything fails."""
    restore = _restoring(objects)
    try:
        yield
    except BaseException:
        restore()
        raise


def _restoring(objects: list[Any]) -> Callable[[], None]:
    """Note the classes, attributes and buffers of objects, and give the function that restores them."""
    held = [(each, type(each), dict(vars(each))) for each in objects]
    buffers = [(each, dict(each._buffers)) for each in objects if isinstance(each, nn.Module)]

    def restore() -> None:
        for each, cls, attributes in held:
            if type(each) is not cls:  # accelerated since, or restored
                each.__class__ = cls
            vars(each).clear()
            vars(each).update(attributes)
        for module, own in buffers:
            module._buffers.clear()
            module._buffers.update(own)

    return restore


def _make_anew(module: Any) -> None:
    """Give a rotary module the frequencies that its configuration says now, and nothing that texts left in it."""
    made = type(module)(module.config)
    for name in [name for name in vars(module) if name.endswith(LEFT) and name not in vars(made)]:
        delattr(module, name)
    device = next((each.device for each in module.buffers()), torch.device("cpu"))
    for name, value in vars(made).items():
        if not name.startswith("_") and name != "training":
            setattr(module, name, value)
    for name, buffer in made._buffers.items():
        module._buffers[name] = None if buffer is None else buffer.to(device)


def _set_scales(model: Any, before: ModelPositions, after: ModelPositions) -> None:
    """Set the softmax scales of layers where the scaling changes them, as YaRN does in latent attention."""
    for module in model.modules():
        number, scale = getattr(module, "layer_idx", None), getattr(module, "scaling", None)
        if not isinstance(number, int) or not isinstance(scale, float) or number >= len(before.layers):
            continue
        old, new = before.layers[number].scale, after.layers[number].scale
        if old is not None and new is not None and old != new and math.isclose(scale, old, rel_tol=1e-6):
            module.scaling = new


def _require_set(rotary: list[Any], longer: Extension) -> None:
    """Raise unless the rotary modules of a model rotate as its new configuration is read."""
    moving = longer.method in ("dynamic", "longrope")  # which choose by the text, and are at rest now
    length = longer.original if moving else longer.target
    buffers = [each for module in rotary for name, each in module.named_buffers() if name.endswith("inv_freq")]
    for _, layer in longer.positions.main.groups():
        rotation = rotation_of(layer, length)
        if rotation is None:
            continue
        expected = torch.tensor(rotation.frequencies, dtype=torch.float64).abs().sort().values
        if not any(_alike(buffer, expected) for buffer in buffers):
            raise RuntimeError(
                f"frequencies of {type(rotary[0]).__name__} must be those of the extended configuration; they are not. "
                f"The model is as it was. Please report its configuration."
            )


def _alike(buffer: Tensor, expected: Tensor) -> bool:
    found = buffer.detach().cpu().double().flatten().abs().sort().values
    return found.shape == expected.shape and torch.allclose(found, expected, rtol=CLOSE, atol=0)
