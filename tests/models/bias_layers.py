"""Layers of transformers with relative positions, and those that a configuration is read as, on the same tensors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from situs import Encoding, Positions
from situs.attention import reference
from situs.models.positions import Layer, ModelPositions, Note
from situs.models.readers.biases import READERS
from situs.models.readers.facts import Facts, facts_of
from situs.models.readers.families import family_of
from situs.models.readers.view import View
from situs.models.reading import _unread
from tests.parity.attention_probe import SeenAttention, enliven

TOLERANCE = 1e-9  # in float64, where some sinusoids are of angles up to a few hundred


def read_dict(config: Mapping[str, Any]) -> tuple[ModelPositions, list[Note]]:
    """What a configuration is read as, and notes of what is not read."""
    model_type = config["model_type"]
    facts = facts_of(model_type) or Facts()
    view = View(config, defaults=facts.keys, renamed=facts.renamed)
    found = READERS[model_type](view, model_type, family_of(model_type), facts)
    return found, list(_unread(view, model_type, verified=True))


def read_config(config: Any) -> ModelPositions:
    """What a configuration of transformers is read as, every positional setting of it."""
    found, unread = read_dict(json.loads(config.to_json_string(use_diff=False)))
    assert not unread
    return found


def lively(model: Any) -> Any:
    """A model in float64 with weights that matter, tables and biases of about unit size too."""
    enliven(model.double().eval())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if any(part in name for part in ("rel_", "relative", "pos_bias", "bias_u", "bias_v", "r_r_bias", "r_w_bias",
                                             "position", "per_dim", "distance_embedding")):  # fmt: skip
                parameter.normal_(std=0.7)
            elif "norm" in name.lower():
                parameter.normal_(mean=float(name.endswith("weight")), std=0.2)
    return model


def made(layer: Layer, *states: Mapping[str, Any] | None) -> list[Encoding]:
    """The encodings of a layer, in float64, with weights of transformers' layer."""
    encodings = [call.build().double() for call in layer.calls]
    for encoding, state in zip(encodings, states, strict=True):
        if state is not None:
            encoding.load_state_dict({name: each.detach() for name, each in state.items()})
    return encodings


@torch.no_grad()
def assert_attends(
    seen: SeenAttention, layer: Layer, encodings: list[Encoding], *, positions: Positions | None = None,
    effect: float = 0.02, **options: Any,
) -> None:  # fmt: skip
    """A layer as it is read gives what transformers' layer gave; and without its encodings it does not."""
    heads = layer.heads
    assert heads is not None
    assert (seen.query.shape[1], seen.query.shape[3]) == (heads.queries, heads.dim)
    assert (seen.key.shape[1], seen.value.shape[3]) == (heads.keys, heads.values)
    told = {**layer.options(), **options}
    given = (seen.query, seen.key, seen.value)
    out = reference(*given, encoding=encodings, positions=positions, **told)
    told.pop("features", None)
    plain = reference(*given, positions=positions, **told)
    error, difference = (float((each - seen.output).abs().max()) for each in (out, plain))
    assert error <= TOLERANCE, f"off by {error:.2e}"
    assert difference > effect or not encodings, "the layer hardly depends on positions"


def table_of(encoding: Encoding) -> Tensor:
    """The table of an encoding of the input."""
    found: Tensor = encoding.table  # type: ignore[assignment]
    return found
