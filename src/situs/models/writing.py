"""Write what a model does with positions: as a configuration, or as what engines take beside one.

    transformers      config.json in today's spelling, rope_parameters
    legacy            config.json as transformers of before version 5 reads it, rope_theta and rope_scaling
    vllm-overrides    --hf-overrides of vLLM, with --max-model-len where it would serve another length
    llama.cpp-flags   --rope-scaling and its kind

What layers do is written as the layers say it, so that calls may have been changed since they were read; everything
that is no position is copied from the settings that the model was read from. What was written is read again: where
that gives other positions, nothing is returned and an error tells what settings cannot say.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, cast, overload

from situs.models.positions import ModelPositions, Pairing
from situs.models.readers.facts import Facts, facts_of
from situs.models.readers.families import family_of
from situs.models.readers.vision import STACKS
from situs.models.reading import READERS, read_config
from situs.models.sources.strict import ConfigError
from situs.models.writers.checking import require_as_many, require_same
from situs.models.writers.flags import flags
from situs.models.writers.overrides import overrides
from situs.models.writers.ropes import sayable
from situs.models.writers.settings import Settings, Spelling, has_rope
from situs.registry.spelling import did_you_mean

Form = Literal["transformers", "legacy", "vllm-overrides", "llama.cpp-flags"]
FORMS = ("transformers", "legacy", "vllm-overrides", "llama.cpp-flags")


@overload
def write(
    model_positions: ModelPositions,
    *,
    form: Literal["transformers", "legacy"] = "transformers",
    pairing: Pairing | None = None,
) -> dict[str, Any]: ...


@overload
def write(
    model_positions: ModelPositions,
    *,
    form: Literal["vllm-overrides", "llama.cpp-flags"],
    pairing: Pairing | None = None,
) -> str: ...


def write(
    model_positions: ModelPositions, *, form: Form = "transformers", pairing: Pairing | None = None
) -> dict[str, Any] | str:
    """Write a model's positions: a configuration as a dict, or what is pasted behind an engine's command.

    form: "transformers" and "legacy" give a whole configuration, in today's spelling and in that of before
        version 5; "vllm-overrides" and "llama.cpp-flags" give a string for the command line.
    pairing: that of the weights, where they have been converted since the model was read, as those beside Meta's
        ``params.json`` are for transformers. No setting says it.

    Raises ConfigError where a form cannot say what the layers do.

    >>> from situs import models
    >>> sizes = {"model_type": "qwen3", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}
    >>> scaling = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    >>> model = models.read({**sizes, "rope_theta": 1e6, "rope_scaling": scaling})
    >>> models.write(model)["rope_parameters"]
    {'rope_type': 'yarn', 'rope_theta': 1000000.0, 'factor': 4.0, 'original_max_position_embeddings': 32768}
    >>> models.write(model, form="llama.cpp-flags")
    '--rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 32768 --rope-freq-base 1000000'
    """
    if not isinstance(model_positions, ModelPositions):
        raise TypeError(
            f"model_positions must be what situs.models.read gives; got {model_positions!r:.80}. Read it first."
        )
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(FORMS)}; got {form!r}.{did_you_mean(str(form), FORMS)}")
    if pairing not in (None, "halves", "interleaved"):
        raise ValueError(f"pairing must be 'halves', 'interleaved' or None; got {pairing!r}.")
    if form == "llama.cpp-flags":
        return flags(model_positions.main, _read_again(model_positions.main))
    if form == "vllm-overrides":
        paired = _sayable(_paired(model_positions, None))
        return overrides(paired, _written(paired, "today"), _config(_read_again(paired), "today"))
    paired = model_positions if pairing is None else _paired(model_positions, pairing)
    return _written(paired, "today" if form == "transformers" else "older")


def _written(model: ModelPositions, spelling: Spelling) -> dict[str, Any]:
    """The whole configuration, once it has been read again."""
    model = _sayable(model)
    config = _config(model, spelling)
    require_same(model, read_config(config, "", model_type=model.model_type))
    return config


def _config(model: ModelPositions, spelling: Spelling) -> dict[str, Any]:
    if not model.config:
        raise ConfigError(
            f"config of {model.model_type} must be the settings that it was read from, since all but positions is "
            f"taken from there; got none. Read the model with situs.models.read."
        )
    config = cast("dict[str, Any]", copy.deepcopy(_plain(model.config)))
    facts = facts_of(model.model_type) or Facts()
    keys = {key.removesuffix("_config"): key for key in facts.parts}
    for name, part in model.submodels.items():
        if name in keys and part.config:
            config[keys[name]] = _config(part, spelling)
    if not model.layers:
        return config
    before = _read_again(model)
    require_as_many(model, before)
    settings = Settings(model, config, family_of(model.model_type), facts)
    if model.model_type in STACKS:
        settings.write_stack_base(before, spelling)
    elif model.model_type not in READERS or has_rope(model):
        types = settings.write_schedule(before, spelling)
        settings.write_rope(types, spelling)
    return config


def _plain(value: Any) -> Any:
    """Mappings as dicts, which JSON has."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def _read_again(model: ModelPositions) -> ModelPositions:
    """What the settings say that a model was read from."""
    return read_config(model.config, "", model_type=model.model_type, whatever=True)


def _sayable(model: ModelPositions) -> ModelPositions:
    """The same positions by calls that settings can say."""
    alpha = family_of(model.model_type).alpha
    layers = {layer: replace(layer, calls=tuple(sayable(call, alpha=alpha) for call in layer.calls))
              for layer in dict.fromkeys(model.layers)}  # fmt: skip
    return replace(
        model,
        layers=tuple(layers[layer] for layer in model.layers),
        submodels={name: _sayable(part) for name, part in model.submodels.items()},
    )


def _paired(model: ModelPositions, pairing: Pairing | None) -> ModelPositions:
    """The same model with other pairs of channels in the layers of its text: those that its model type has where none
    are said, since an engine pairs by its own copy of the weights."""
    if not model.layers:
        main = model.main
        parts = {name: _paired(each, pairing) if each.main is main else each for name, each in model.submodels.items()}
        return replace(model, submodels=parts)
    own: list[Pairing] = [pairing or layer.pairing for layer in _read_again(model).layers]
    if len(own) != len(model.layers):
        return model
    return replace(model, layers=tuple(layer.paired(each) for layer, each in zip(model.layers, own, strict=True)))
