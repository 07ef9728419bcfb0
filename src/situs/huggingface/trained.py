"""Trained encodings of a loaded model: its tables of positions, in the encodings that its configuration is read as."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from situs import models
from situs.encodings.base import Encoding
from situs.models.calls import Call
from situs.models.positions import ModelPositions

TABLE = (
    r"(position_embeddings?|embed_positions|wpe|positions_embed|position_embeds_layer|position_embedding|pos_embed)"
    r"(\.weight)?"
)
WEIGHTS: Mapping[str, Mapping[str, str]] = {
    "Learned": {"table": TABLE},
    "LearnedGrid": {"table": TABLE},
    "T5Bias": {"table": r"relative_attention_bias\.weight"},
    "SwinBias": {"table": r"relative_position_bias_table"},
    "Deberta": {
        "table": r"rel_embeddings\.weight",
        "norm.weight": r"encoder\.LayerNorm\.weight",
        "norm.bias": r"encoder\.LayerNorm\.bias",
        "query_projection.weight": r"(pos_q_proj|pos_query_proj)\.weight",
        "query_projection.bias": r"(pos_q_proj|pos_query_proj)\.bias",
        "key_projection.weight": r"(pos_proj|pos_key_proj)\.weight",
        "key_projection.bias": r"(pos_proj|pos_key_proj)\.bias",
    },
}
"""Where the parameters of encodings stand in models: how the names of their weights end."""
PARTS = {"text": r"text|language", "vision": r"vision|visual", "audio": r"audio|speech"}
"""What modules of a part are called, where it is not the name of the part."""


@dataclass(frozen=True)
class TrainedEncodings:
    """Hold a model's encodings with the numbers that it was trained to: copies, which the model does not share."""

    input: tuple[Encoding, ...] = ()
    layers: tuple[tuple[Encoding, ...], ...] = ()
    submodels: Mapping[str, TrainedEncodings] = field(default_factory=dict)


def encodings_of(model: nn.Module) -> TrainedEncodings:
    """Take the position encodings out of a loaded model, with its trained tables.

    They are what ``situs.models.read(model.config)`` has for the input and for every layer of the parts that the model
    has: ``T5EncoderModel`` has no decoder. Raises where a trained
    parameter is not found, rather than give one that was drawn at random.
    """
    if not isinstance(model, PreTrainedModel):
        raise TypeError(f"model must be a model of transformers, since it is read by its configuration; got "
                        f"{type(model).__name__}.")  # fmt: skip
    return _taken(_Stack(model, ()), models.read(model.config))


def _taken(stack: _Stack, read: ModelPositions) -> TrainedEncodings:
    with_class: dict[str, int] = {}
    layers = []
    for layer in read.layers:
        made = []
        for call in layer.calls:
            number = with_class.get(call.cls, 0)
            with_class[call.cls] = number + 1
            made.append(stack.filled(call, number, _layers_with(call.cls, read)))
        layers.append(tuple(made))
    return TrainedEncodings(
        tuple(stack.filled(call, 0, 1) for call in read.input),
        tuple(layers),
        {
            name: _taken(part, positions)
            for name, positions in read.submodels.items()
            if (part := stack.part(name)).weights  # T5EncoderModel has no decoder
        },
    )


def _layers_with(cls: str, read: ModelPositions) -> int:
    """How many layers have an encoding of this class."""
    return sum(any(call.cls == cls for call in layer.calls) for layer in read.layers)


class _Stack:
    """Find weights and modules of one part of a model."""

    def __init__(self, model: nn.Module, path: tuple[str, ...]) -> None:
        self.model, self.path = model, path
        self.weights = {name: each for name, each in model.state_dict(keep_vars=True).items() if self._has(name)}
        self.modules = {name: each for name, each in model.named_modules() if self._has(name)}

    def part(self, name: str) -> _Stack:
        """A part of this part."""
        return _Stack(self.model, (*self.path, name))

    def _has(self, name: str) -> bool:
        """Whether a name lies in this part: under words of its path, and in no other part where it is the text."""
        head = name.rpartition(".")[0]
        if self.path[-1:] == ("text",):
            return not re.search(f"{PARTS['vision']}|{PARTS['audio']}", head)
        return all(re.search(PARTS.get(part, part), head) for part in self.path)

    def filled(self, call: Call, number: int, count: int) -> Encoding:
        """An encoding with trained parameters: the one with this number among as many that are alike."""
        encoding: Encoding = call.build()
        state: dict[str, Tensor] = {}
        for name, own in encoding.state_dict().items():
            pattern = WEIGHTS.get(call.cls, {}).get(name)
            if pattern is None:
                raise ValueError(
                    f"model must have encodings whose weights are known by name, since others would be drawn at "
                    f"random; got {call.cls}, whose {name} is not."
                )
            found = self._found(pattern, self.weights, number, count, f"{name} of {call.cls}")
            state[name] = found.detach().reshape(own.shape) if found.numel() == own.numel() else found
            if state[name].shape != own.shape or found.shape[-1] != own.shape[-1]:
                raise ValueError(
                    f"{name} of {call.cls} must have shape {tuple(own.shape)}, since the configuration says so; the "
                    f"model's has {tuple(found.shape)}."
                )
        if state:
            encoding.to(next(iter(state.values())).dtype)
            encoding.load_state_dict(state)
        if getattr(encoding, "share_att_key", False):
            tied = {side: self._found(f"{side}_proj", self.modules, number, count, side) for side in ("query", "key")}
            encoding.tie(**tied)  # type: ignore[operator]
        return encoding

    def _found(self, pattern: str, among: Mapping[str, Any], number: int, count: int, words: str) -> Any:
        """The weight or module whose name ends so: one for all layers, or one for each."""
        ending = re.compile(rf"(?:^|.*\.){pattern}")
        found = [each for name, each in among.items() if ending.fullmatch(name)]
        if len(found) == 1:
            return found[0]
        if len(found) == count and count:
            return found[number]
        raise ValueError(
            f"model must have {words} once, or once for each of {count} layers, since it is taken by its name; got "
            f"{len(found)}."
        )
