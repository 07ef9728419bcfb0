"""What a model was trained on, as far as its configuration tells: a length, and the frequencies at that length.

A file that declares more than the original length of its scaling says that the model is made for the longer one with
these frequencies (Llama 3.1, DeepSeek). Whether it was trained so, or somebody only wrote it down, no file tells. An
engine that leaves the scaling out knows the original length alone.
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
    inferred: bool = False
    """Whether no setting says the first: it is the declared length through the factor of the scaling."""

    @property
    def is_scaled(self) -> bool:
        """Whether the frequencies of the configuration are those of training."""
        return self.declared > self.plain

    @property
    def length(self) -> int:
        """The longest text that the model knows."""
        return max(self.plain, self.declared)


def training_of(model: ModelPositions) -> Training | None:
    """What a stack of layers was trained on; None where its configuration names no length.

    A factor without an original length (Gemma 3's linear one) is that by which the declared length was reached.
    """
    declared, original = model.lengths.declared, model.lengths.original
    first = original or declared
    if first is None:
        return None
    if original is None:
        plain = max(1, round(first / _factor(model)))
        return Training(plain, first, inferred=plain != first)
    scaled = any(call.option("scaling") is not None for layer in model.layers for call in layer.calls)
    return Training(first, declared or first) if scaled else Training(first, first)


def _factor(model: ModelPositions) -> float | int:
    """The factor of a scaling that is the same at every length."""
    scalings = (call.option("scaling") for layer in model.layers for call in layer.calls if layer.kind == "full")
    static = (each.option("factor") for each in scalings if each is not None and each.cls != "DynamicNTKScaling")
    return next(static, None) or 1.0


def unscaled(call: Call) -> Call:
    """The call of a rotation without its scaling; channels that a scaling leaves without positions stay so."""
    scaling = call.option("scaling")
    if scaling is not None and scaling.cls == "ProportionalScaling":
        return call.replace(scaling=scaling.replace(factor=None))
    return call.replace(scaling=None)
