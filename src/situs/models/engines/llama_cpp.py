"""A configuration as llama.cpp runs it: what its converter writes of it, read as its own files are.

Settings that the converter does not write, or that its architecture does not read, change nothing in llama.cpp; the
result says so. Pairs stay as the checkpoint has them: where llama.cpp pairs neighbours and the checkpoint halves, the
converter moves channels of the weights.
"""

from __future__ import annotations

from dataclasses import replace

from situs.models.engines.conversions import ALIKE, BUNDLES, CONVERSIONS
from situs.models.engines.converting import converted
from situs.models.engines.merging import merged, with_main
from situs.models.numbers import rotation_call
from situs.models.positions import Layer, ModelPositions, Note
from situs.models.readers.llama_cpp.architectures import ARCHITECTURES, LEFT_OUT
from situs.models.readers.llama_cpp.settings import FARTHEST, read_gguf
from situs.models.sources.strict import ConfigError


def as_llama_cpp(model: ModelPositions) -> ModelPositions:
    """What llama.cpp makes of a model that transformers reads so."""
    part = model.main
    if model.model_type in ALIKE:
        return _alike(model)
    row = CONVERSIONS.get(part.model_type)
    if part is not model and model.model_type not in BUNDLES:
        row = None
    if row is None:
        raise ConfigError(
            f"model_type must be one that llama.cpp converts, since it has no architecture for others; got "
            f"'{model.model_type}'."
        )
    if model.model_type == "mistral3" and part.model_type == "mistral":
        row = replace(row, architecture="mistral3")
    if part.model_type == "gemma3_text" and not part.layers[0].causal:
        row = replace(row, architecture="gemma-embedding")
    if row.architecture in LEFT_OUT:
        note = Note("", f"llama.cpp runs it as {row.architecture}, which was not checked: read as transformers runs it")
        return with_main(model, replace(part, notes=(*part.notes, note)))
    if all(layer.heads is None for layer in part.layers):
        return _alike(model)
    keys, tensors, notes = converted(part, row)
    found = read_gguf(keys, tensors)
    layers, differing = merged(part.layers, _laid_out(found.layers, part.layers))
    if not ARCHITECTURES[row.architecture].checked:
        notes.append(Note("", f"llama.cpp's {row.architecture} was not checked: read as most of its architectures are"))
    said = (*part.notes, *notes, *found.notes, *differing)
    lengths = replace(part.lengths, served=found.lengths.served)
    return with_main(model, replace(part, layers=layers, lengths=lengths, notes=said))


def _laid_out(layers: tuple[Layer, ...], own: tuple[Layer, ...]) -> list[Layer]:
    """The same layers with pairs as the checkpoint has them."""
    call = next((each for layer in own if (each := rotation_call(layer)) is not None), None)
    if call is None:
        return list(layers)
    found = []
    for layer in layers:
        calls = [each.replace(pairing=call.option("pairing")) if each.cls == "Rotary" else each for each in layer.calls]
        found.append(replace(layer, calls=tuple(calls)))
    return found


def _alike(model: ModelPositions) -> ModelPositions:
    """A model that llama.cpp runs as transformers does, but for T5's farthest distance."""
    parts = {name: _alike(part) for name, part in model.submodels.items()}
    far = [_nearer(layer) for layer in model.layers]
    layers, notes = merged(model.layers, far)
    lengths = replace(model.lengths, served=model.lengths.declared)
    return replace(model, submodels=parts, layers=layers, lengths=lengths, notes=(*model.notes, *notes))


def _nearer(layer: Layer) -> Layer:
    calls = (call.replace(max_distance=FARTHEST) if call.cls == "T5Bias" else call for call in layer.calls)
    return replace(layer, calls=tuple(calls))
