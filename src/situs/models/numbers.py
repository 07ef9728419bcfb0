"""What a layer's rotation comes to at a length, as numbers in float64, read off the encoding that runs.

    pair i of a head is rotated by  frequencies[i] * coordinate[axis_of_pair[i]]  and multiplied by factor

Some scalings choose by the length of the sequence (dynamic NTK, LongRoPE), so that a length belongs to the question.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from situs.models.calls import Call
from situs.models.positions import Layer

if TYPE_CHECKING:
    from situs.encodings.lerope import LeRoPE
    from situs.encodings.rotary import Rotary

ROTATIONS = ("Rotary", "LeRoPE")
"""Classes that rotate queries and keys of released models."""


@dataclass(frozen=True)
class Rotation:
    """Hold how queries and keys are rotated."""

    head_dim: int
    rotary_dim: int
    pairing: str
    channels: str
    frequencies: tuple[float, ...]
    """Radians per position, of each pair; negative where the rotation is reversed."""
    axis_of_pair: tuple[int, ...]
    """Which coordinate of a position rotates each pair."""
    axes: int
    blocks: tuple[int, ...]
    """Channels of each axis, where pairs are halves of their axis' block; empty where they are halves of a head."""
    factor: float
    """Of cosines and sines."""


def rotation_call(layer: Layer) -> Call | None:
    """The call that makes a layer's rotation; None where it does not rotate."""
    return next((call for call in layer.calls if call.cls in ROTATIONS), None)


def rotation_of(layer: Layer, length: int | None = None) -> Rotation | None:
    """How a layer rotates, in a sequence of a length where that matters; None where it does not rotate.

    >>> from situs import models
    >>> from situs.models.numbers import rotation_of
    >>> sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 1}
    >>> rotation_of(models.read({"model_type": "llama", **sizes}).layer(0)).frequencies
    (1.0, 0.1, 0.01, 0.001)
    """
    call = rotation_call(layer)
    return None if call is None else rotation_by(call, length)


def rotation_by(call: Call, length: int | None = None) -> Rotation:
    """How the rotation that a call makes rotates."""
    from situs.positions import Positions

    made = call.build()
    rotary: Rotary | LeRoPE = made.without_bands if call.cls == "Rotary" else made
    positions = Positions.range(1)
    if rotary.axes > 1 and not made.text_has_one:
        positions = Positions.grid(*(1,) * rotary.axes)
    if length is not None:
        positions = positions.with_sequence_length(length)
    frequencies = tuple(rotary.frequencies_at(positions).detach().flatten().tolist())
    return Rotation(
        head_dim=rotary.head_dim,
        rotary_dim=rotary.rotary_dim,
        pairing=rotary.pairing,
        channels=rotary.channels,
        frequencies=frequencies,
        axis_of_pair=tuple(made.axis_of_pair.tolist()) if call.cls == "Rotary" else (0,) * len(frequencies),
        axes=rotary.axes,
        blocks=tuple(rotary.blocks),
        factor=float(rotary.magnitude_of(positions, "query")),
    )
