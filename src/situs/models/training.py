"""What a model was trained on, as far as its configuration tells: a length, and the frequencies at that length.

A file that declares more than the original length of its scaling says that the model is made for the longer one with
these frequencies (Llama 3.1, DeepSeek). Whether it was trained so, or somebody only wrote it down, no file tells.
"""

from __future__ import annotations

from dataclasses import dataclass

from situs.models.calls import Call
from situs.models.positions import ModelPositions


@dataclass(frozen=True)
class Training:
    """Hold the lengths that a model knows."""

    plain: int
    """With frequencies that no scaling has touched, or at which the scaling leaves them alone."""
    declared: int
    """With the frequencies of its configuration."""

    @property
    def length(self) -> int:
        """The longest text that the model knows."""
        return max(self.plain, self.declared)


def training_of(model: ModelPositions) -> Training | None:
    """What a stack of layers was trained on; None where its configuration names no length."""
    declared, original = model.lengths.declared, model.lengths.original
    first = original or declared
    return None if first is None else Training(first, declared or first)


def unscaled(call: Call) -> Call:
    """The call of a rotation without its scaling; channels that a scaling leaves without positions stay so."""
    scaling = call.option("scaling")
    if scaling is not None and scaling.cls == "ProportionalScaling":
        return call.replace(scaling=scaling.replace(factor=None))
    return call.replace(scaling=None)
