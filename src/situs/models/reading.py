"""Read what a released model does with positions.

A configuration is one stack of layers, or has parts with a configuration of their own (``text_config``,
``vision_config`` ...), which become submodels. Each stack is read by the reader of its model type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from situs.models.engines import Engine, as_engine, refused_gguf, require_engine
from situs.models.positions import ModelPositions, Note
from situs.models.readers import biases, fixed, reformer, tables, vision
from situs.models.readers.facts import Facts, facts_of, model_types
from situs.models.readers.families import FAMILIES, GENERAL, Family, family_of
from situs.models.readers.keys import POSITIONS, is_positional
from situs.models.readers.llama_cpp.settings import read_gguf
from situs.models.readers.rotary import read_rotary
from situs.models.readers.view import View, told
from situs.models.sources.params import translated
from situs.models.sources.source import load
from situs.models.sources.strict import ConfigError
from situs.registry.spelling import did_you_mean

Reader = Callable[[View, str, Family, Facts], ModelPositions]

ROTARY = ("rope_parameters", "rope_scaling", "rope_theta")

READERS: dict[str, Reader] = {
    **vision.READERS, **tables.READERS, **fixed.READERS, **reformer.READERS, **biases.READERS,
}  # fmt: skip
"""Of model types whose positions are told otherwise than by rope parameters; the others are read by `read_rotary`."""

FIXED = frozenset({**vision.READERS, **fixed.READERS})
"""Model types that rotate by frequencies of their own, which no scaling in a configuration changes."""


def read(source: object, *, engine: Engine = "transformers") -> ModelPositions:
    """Read a configuration: what its model does with positions, layer by layer.

    source: a ``config.json``, a folder with one, a dict, JSON text, "-" for standard input, a config of transformers,
        Meta's ``params.json``, or a GGUF file, which is read as llama.cpp runs it. Nothing is downloaded, and no code
        that it names is run.
    engine: whose reading it is: "transformers", "vllm" or "llama.cpp". `notes` say where the others differ from the
        first, `lengths.served` how long a text they serve where they are not told otherwise.

    >>> from situs import models
    >>> sizes = {"hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 4, "num_hidden_layers": 4}
    >>> model = models.read({"model_type": "cohere2", "sliding_window": 4096, **sizes})
    >>> model
    cohere2
      layers 0-2: Rotary(head_dim=128, base=10000.0, pairing='interleaved'), window 4,096
      layer 3: no positions
    >>> model.layer(0).window, model.layer(3).encodings
    (4096, ())
    """
    engine, loaded = require_engine(engine), load(source)
    if loaded.form == "gguf":
        if engine == "vllm":
            raise refused_gguf(loaded, engine)
        return read_gguf(loaded.config, loaded.tensors)
    if loaded.form == "params":
        found = read_config(translated(loaded.config), "", family=replace(GENERAL, interleaved=True))
    else:
        found = read_config(loaded.config, "")
    return as_engine(found, loaded, engine)


def as_positions(source: object) -> ModelPositions:
    """What `read` gave, or what it gives for a source."""
    return source if isinstance(source, ModelPositions) else read(source)


def read_config(
    config: Mapping[str, Any],
    path: str,
    *,
    model_type: str | None = None,
    whatever: bool = False,
    family: Family | None = None,
) -> ModelPositions:
    """Read one object of settings; ``model_type`` is what it is where it does not say, or ``whatever`` it says."""
    name = model_type if whatever else config.get("model_type", model_type)
    if not isinstance(name, str) or not name:
        raise ConfigError(
            f"{path + '.' if path else ''}model_type must name a model type, since settings mean different things by "
            f"it; got {told(name)}."
        )
    facts = facts_of(name)
    known = facts or Facts()
    view = View(config, path=path, defaults=known.keys, renamed=known.renamed)
    submodels = _submodels(view, known)
    if submodels and name not in READERS and not view.says("num_hidden_layers"):
        found = ModelPositions(name)
        _require_no_override(view, name, known, submodels)
    else:
        reader = _reader(view, name, known)
        if reader is None:
            note = Note(view.path, f"{name} is not read: no positions of it are known")
            return ModelPositions(name, verified=False, submodels=submodels, notes=(note,), config=config)
        found = reader(view, name, family or family_of(name), known)
    pairing: Any = view.choice(
        "situs_pairing", choices=("halves", "interleaved"), reason="channels are paired one way or the other"
    )
    if pairing is not None:
        layers = tuple(layer.paired(pairing) for layer in found.layers)
        if layers != found.layers:
            alone = "only Situs reads it; transformers, vLLM and llama.cpp pair channels otherwise in this model type, "
            note = Note(view.name("situs_pairing"), f"{alone}and run these weights wrong")
            found = replace(found, layers=layers, notes=(*found.notes, note))
    verified = name in READERS or name in FAMILIES or bool(submodels)
    notes = tuple(_unread(view, name, verified=verified))
    parts = {**found.submodels, **submodels}
    return replace(found, verified=verified, submodels=parts, notes=(*found.notes, *notes), config=config)


def _reader(view: View, model_type: str, facts: Facts) -> Reader | None:
    """Who reads a model type: one that is in no table is read as rotary where its settings say that it is. None for a
    part of a model that may be no stack of attention at all, such as a codec."""
    rotates = bool(facts.theta or facts.rope) or any(view.says(key) for key in ROTARY)
    if model_type in READERS:
        return READERS[model_type]
    if model_type in FAMILIES or rotates:
        return read_rotary
    if view.path:
        return None
    raise ConfigError(
        f"model_type must be one that is known, or have rope parameters, since nothing else tells how a model reads "
        f"positions; got {told(model_type)}.{did_you_mean(model_type, model_types())}"
    )


def _submodels(view: View, facts: Facts) -> dict[str, ModelPositions]:
    """The parts that are models, by the first word of their setting: text, vision, audio ..."""
    found: dict[str, ModelPositions] = {}
    for key, model_type in facts.parts.items():
        part = view.part(key)
        own = None if part is None else part.config.get("model_type")
        if part is not None and (own or model_type):
            # Qwen 3 VL's vision calls itself by the name of the whole, and others by names that nothing has
            fixed = bool(model_type) and own not in (*READERS, *FAMILIES)
            read = read_config(part.config, part.path, model_type=model_type, whatever=fixed)
            found[key.removesuffix("_config")] = read
    return found


def _require_no_override(
    view: View, model_type: str, facts: Facts, submodels: Mapping[str, ModelPositions]
) -> None:  # fmt: skip
    """Raise for rope parameters beside the parts: no part reads them. Those that the class writes by itself are BLT's,
    and say nothing."""
    usual = {"rope_type": "default", "rope_theta": facts.theta}
    for key in ("rope_parameters", "rope_scaling"):
        if view.get(key) not in (None, usual):
            part = "text" if "text" in submodels else next(iter(submodels))
            raise ConfigError(
                f"{view.name(key)} must stand in one of the parts of {model_type}, since none of them reads it from "
                f"here; got {told(view.get(key))}. Put it into {view.name(part + '_config')}."
            )


def _unread(view: View, model_type: str, *, verified: bool) -> Iterator[Note]:
    """Refuse what speaks of positions and is not understood; tell what is understood and changes nothing."""
    for key, value in view.unread().items():
        if not is_positional(key) or value is False:
            continue
        if key in POSITIONS and verified:
            yield Note(view.name(key), f"{told(value)} changes nothing: {model_type} does not read it")
            continue
        raise ConfigError(
            f"{view.name(key)} must be a setting that is understood, since it speaks of positions; got {told(value)}."
            f"{did_you_mean(key, sorted(POSITIONS))}"
        )
