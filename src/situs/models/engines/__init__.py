"""The same file as each engine reads it: what transformers, vLLM and llama.cpp make of a configuration.

vllm.py         vLLM's rules of rotations and windows; vllm_lengths.py how much it serves
llama_cpp.py    what llama.cpp's converter writes (converting.py, rows in conversions.py), read as its own files are
merging.py      what differs from transformers, layer by layer
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

from situs.models.engines.llama_cpp import as_llama_cpp
from situs.models.engines.vllm import as_vllm
from situs.models.positions import ModelPositions, Note
from situs.models.sources.source import Source, load
from situs.models.sources.strict import ConfigError
from situs.registry.spelling import did_you_mean

Engine = Literal["transformers", "vllm", "llama.cpp"]
ENGINES: tuple[Engine, ...] = get_args(Engine)

READS: dict[Engine, Callable[[ModelPositions, Source], ModelPositions]] = {
    "transformers": lambda model, source: model,
    "vllm": lambda model, source: as_vllm(model, source.folder),
    "llama.cpp": lambda model, source: as_llama_cpp(model),
}


def require_engine(engine: object) -> Engine:
    """Raise for the name of an engine that is not known."""
    for each in ENGINES:
        if engine == each:
            return each
    near = did_you_mean(engine, ENGINES) if isinstance(engine, str) else ""
    raise ValueError(
        f"engine must be one of {', '.join(ENGINES)}, since each reads files by rules of its own; got {engine!r:.80}."
        f"{near}"
    )


def as_engine(model: ModelPositions, source: Source, engine: Engine) -> ModelPositions:
    """What an engine makes of a model that transformers reads so."""
    if source.form == "params" and engine != "transformers":
        note = Note("", f"{engine} reads params.json by rules of its own, which were not checked")
        return ModelPositions(**{**vars(model), "notes": (*model.notes, note)})
    return READS[engine](model, source)


def readings(source: object) -> dict[str, ModelPositions | ConfigError]:
    """Read a configuration as each engine does: what it makes of it, or why it does not run it.

    source: anything that `situs.models.read` takes. A GGUF file is llama.cpp's alone.

    >>> from situs.models import engines
    >>> sizes = {"hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32}
    >>> found = engines.readings({"model_type": "mistral", "sliding_window": 4096, **sizes})
    >>> [note.text for note in found["llama.cpp"].notes]
    ['attention to all tokens, where transformers has a window of 4,096']
    """
    from situs.models.reading import read  # which reads by these engines

    loaded = load(source)
    found: dict[str, ModelPositions | ConfigError] = {}
    for engine in ENGINES:
        try:
            if loaded.form == "gguf" and engine != "llama.cpp":
                raise refused_gguf(loaded, engine)
            found[engine] = read(loaded, engine=engine)
        except ConfigError as problem:
            found[engine] = problem
    return found


def refused_gguf(source: Source, engine: Engine) -> ConfigError:
    """What to say of a GGUF file that is to be read as another engine than llama.cpp would."""
    return ConfigError(
        f"source must be a configuration of transformers for engine {engine}, since GGUF files are llama.cpp's own; "
        f"got {source.name}. Give the config.json that it was converted from."
    )
