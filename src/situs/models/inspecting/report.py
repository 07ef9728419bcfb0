"""Inspect a configuration: what its positions do at a length, layer by layer, and what to set instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from situs.models.engines import ENGINES, Engine, readings
from situs.models.fingerprints import fingerprint
from situs.models.inspecting.advice import Advice, advise
from situs.models.inspecting.memory import Cache, caches_of, table_bytes
from situs.models.inspecting.others import lines_of, table_lines
from situs.models.inspecting.pairs import Pair, angle_errors, pairs_of, scaling_in
from situs.models.inspecting.plain import as_plain
from situs.models.inspecting.words import render
from situs.models.numbers import rotation_call, rotation_of
from situs.models.positions import Layer, ModelPositions, spans
from situs.models.readers.view import require_count
from situs.models.reading import read
from situs.models.sources.source import load
from situs.models.sources.strict import ConfigError
from situs.models.training import Training, training_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ASSUMED = 4096
"""Tokens, where neither the caller nor the configuration names a length."""
TEXT = ("", "text", "encoder", "decoder", "language", "llm", "thinker")
"""Parts that read as many tokens as the text has."""


@dataclass(frozen=True)
class Group:
    """Hold what equal layers do at the target."""

    layers: str
    layer: Layer
    pairs: tuple[Pair, ...]
    errors: Mapping[str, float]
    """Of angles, in radians, where they are formed in a dtype."""
    scaling: str
    """What a scaling of rotary changes here, or why nothing."""
    others: tuple[str, ...]


@dataclass(frozen=True)
class Part:
    """Hold what one stack of layers does at the target."""

    name: str
    model: ModelPositions
    training: Training | None
    groups: tuple[Group, ...]
    tables: tuple[str, ...]
    caches: tuple[Cache, ...]
    table_bytes: int


@dataclass(frozen=True, repr=False)
class Report:
    """Hold what a model does with positions in texts of ``target`` tokens: as text, as data, and as a figure."""

    model: ModelPositions
    engine: Engine
    target: int
    parts: tuple[Part, ...]
    advice: Advice
    fingerprint: str
    engines: Mapping[str, tuple[str, ...]]
    """How each engine reads the same file."""

    def render(self, *, width: int = 80, colour: bool = False, pairs: bool = False) -> str:
        """The report as text; ``pairs`` lists each pair of channels by itself."""
        return render(self, width=width, colour=colour, pairs=pairs)

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data, every pair by itself."""
        return as_plain(self)

    def figure(self, *, dark: bool = False) -> Figure:
        """Draw the spectrum, with the trained and the target length in it."""
        draw = import_module("situs.plots.context")  # which stands above this layer, and needs matplotlib
        figure: Figure = draw.context(self, dark=dark)
        return figure

    def __str__(self) -> str:
        return self.render()

    __repr__ = __str__


def inspect(source: object, *, target: int | None = None, engine: Engine = "transformers") -> Report:
    """Inspect what a model's positions do in texts of ``target`` tokens.

    source: anything that `read` takes.
    target: the length that the model declares if left out.
    engine: whose reading of the file is inspected; the others' are listed beside it.

    >>> from situs import models
    >>> sizes = {"hidden_size": 2048, "num_attention_heads": 16, "num_hidden_layers": 4}
    >>> report = models.inspect({"model_type": "llama", "max_position_embeddings": 4096, **sizes}, target=16384)
    >>> report.advice.headline
    'Set yarn with factor 4 for 16,384 tokens.'
    """
    loaded = load(source)
    engine = "llama.cpp" if loaded.form == "gguf" else engine
    model = read(loaded, engine=engine)
    lengths = model.main.lengths
    wanted = lengths.declared or lengths.limit or ASSUMED if target is None else require_count(
        "target", target, "it counts tokens"
    )  # fmt: skip
    parts = tuple(
        _part(each, wanted if name.rpartition(".")[2] in TEXT else None, name) for name, each in model.stacks()
    )
    return Report(
        model, engine, wanted, parts, advise(model, wanted), fingerprint(model), _engines(loaded, engine, wanted)
    )


def _part(model: ModelPositions, target: int | None, name: str) -> Part:
    training = training_of(model)
    if target is None:
        return Part(name, model, training, (), (), (), 0)
    rotates = any(rotation_call(layer) is not None for layer in model.layers)
    groups = []
    for numbers, layer in model.groups():
        rotation = rotation_of(layer, target)
        pairs = () if rotation is None or training is None else pairs_of(layer, training, target)
        farthest = target if layer.kind != "full" else min(target, layer.reach or target)  # chunks count anew
        errors = {} if rotation is None else angle_errors(rotation, farthest)
        scaling = scaling_in(layer, target, training) if rotates else ""
        groups.append(Group(spans(numbers), layer, pairs, errors, scaling, tuple(lines_of(layer, target))))
    return Part(name, model, training, tuple(groups), tuple(table_lines(model, target)), caches_of(model, target),
                table_bytes(model, target))  # fmt: skip


MORE = {"vllm": "--max-model-len", "llama.cpp": "-c"}
"""The option by which an engine serves another length than by default."""


def _engines(source: object, inspected: Engine, target: int) -> dict[str, tuple[str, ...]]:
    """A few sentences for each engine on how it reads the same file."""
    found: dict[str, tuple[str, ...]] = {}
    every = readings(source)
    first = every["transformers"]
    expected = None if isinstance(first, ConfigError) else fingerprint(first)
    for engine in ENGINES:
        reading = every[engine]
        if isinstance(reading, ConfigError):
            found[engine] = (str(reading),)
            continue
        lines = []
        served = reading.main.lengths.served
        why = f"vLLM serves {served or 0:,} tokens where it is not told otherwise"
        reasons = [note.text.removeprefix(why) for note in reading.main.notes if note.text.startswith(why)]
        if served is not None:
            more = f"; {MORE[engine]} {target} for this length" if served < target and engine in MORE else ""
            lines.append(f"serves {served:,} tokens by default{''.join(reasons)}{more}")
        if engine != "transformers" and not isinstance(first, ConfigError):
            known = {str(note) for note in (*first.notes, *first.main.notes)}
            told = (str(note) for note in (*reading.notes, *reading.main.notes) if not note.text.startswith(why))
            notes = [text for text in told if text not in known]
            unchecked = any("not checked" in note for note in notes)
            alike = fingerprint(reading) == expected
            same = "same positions as transformers" if alike else "other positions than transformers"
            lines += ([] if unchecked and alike else [same]) + notes
        above = engine == "transformers" and inspected == engine
        found[engine] = tuple(dict.fromkeys(lines)) or ("as above" if above else "see --engine transformers",)
    return found
