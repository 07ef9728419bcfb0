"""What families share."""

from __future__ import annotations

from torch import nn


def dropout_of(module: nn.Module, probability: float) -> float:
    """The dropout of weights that is in force."""
    return probability if module.training else 0.0


def refuse_weights(output_attentions: object) -> None:
    """Raise if weights are asked for."""
    if output_attentions:
        raise ValueError(
            "output_attentions must be False while a model is accelerated, since no weights are formed; got True. Call "
            "situs.huggingface.restore(model) first."
        )
