"""Rotary modules of transformers, made from a configuration alone and run in float64."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import warnings
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch import Tensor

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

transformers.logging.set_verbosity_error()

OF = {  # where a file has several modules, the one of this model type
    "qwen2_5_omni_text": "Qwen2_5OmniRotaryEmbedding",
    "qwen2_5_omni_talker": "Qwen2_5OmniRotaryEmbedding",
    "qwen2_5_vl_text": "Qwen2_5_VLRotaryEmbedding",
    "paddleocr_vl_text": "PaddleOCRRotaryEmbedding",
    "qwen3_omni_moe_talker_code_predictor": "Qwen3OmniMoeRotaryEmbedding",
    "qwen3_omni_moe_talker_text": "Qwen3OmniMoeTalkerRotaryEmbedding",
    "qwen3_omni_moe_text": "Qwen3OmniMoeThinkerTextRotaryEmbedding",
    "step3p5": "Step3p7RotaryEmbedding",
}


def config_of(model_type: str, **settings: Any) -> Any:
    """A configuration with its defaults, but for some settings."""
    return CONFIG_MAPPING[model_type](**settings)


def modeling_of(config: Any) -> Any:
    """The module that has a configuration's model."""
    return importlib.import_module(type(config).__module__.replace(".configuration_", ".modeling_"))


def rotary_class(config: Any) -> type[Any] | None:
    """The class of a configuration's rotary module; None where it has none."""
    module = modeling_of(config)
    if config.model_type in OF:
        return getattr(module, OF[config.model_type])  # type: ignore[no-any-return]
    found = []
    for name, each in vars(module).items():
        if inspect.isclass(each) and "Rotary" in name and each.__module__ == module.__name__:
            parameter = inspect.signature(each.__init__).parameters.get("config")
            if parameter is not None:
                found.append((type(config).__name__ not in str(parameter.annotation), each))
    return min(found, key=lambda pair: pair[0])[1] if found else None


def rotary_module(config: Any) -> Any:
    """A configuration's rotary module."""
    made = rotary_class(config)
    assert made is not None
    return made(config)


def frequencies(module: Any, layer_type: str) -> Tensor:
    """The frequencies of a rotary module, for a type of layer where they differ."""
    own = getattr(module, f"{layer_type}_inv_freq", None)
    found: Tensor = module.inv_freq if own is None else own
    return found


def factor(module: Any, layer_type: str) -> float:
    """What cosines and sines are multiplied by."""
    found = getattr(module, f"{layer_type}_attention_scaling", None)
    return float(module.attention_scaling if found is None else found)


_to = torch.Tensor.to


def _to_double(tensor: Tensor, *args: Any, **options: Any) -> Tensor:
    """Convert as asked, but to float64 where float32 was."""
    args = tuple(torch.float64 if each is torch.float32 else each for each in args)
    options = {name: torch.float64 if each is torch.float32 else each for name, each in options.items()}
    return _to(tensor, *args, **options)


@contextlib.contextmanager
def in_float64() -> Iterator[None]:
    """Compute in float64 wherever a model asks for float32."""
    double, to = torch.Tensor.double, _to_double
    with mock.patch.object(torch.Tensor, "float", double), mock.patch.object(torch.Tensor, "to", to):
        yield


def cosines_and_sines(module: Any, exact: Tensor, positions: Tensor, layer_type: str) -> tuple[Tensor, Tensor]:
    """What a rotary module gives at positions, with frequencies in float64 and every step after them too."""
    name = f"{layer_type}_inv_freq" if hasattr(module, f"{layer_type}_inv_freq") else "inv_freq"
    before, init = getattr(module, name), getattr(module, "rope_init_fn", None)
    setattr(module, name, exact)
    if init is not None and inspect.signature(init).parameters:  # Phi-MoE computes its frequencies at every call
        module.rope_init_fn = lambda config, **options: (exact, init(config, **options)[1])
    takes = inspect.signature(module.forward).parameters
    more = {"layer_type": layer_type} if "layer_type" in takes else {}
    try:
        with in_float64():
            found = module(torch.zeros(1, dtype=torch.float64), positions, **more)
    finally:
        setattr(module, name, before)
        if init is not None:
            module.rope_init_fn = init
    return found  # type: ignore[no-any-return]
