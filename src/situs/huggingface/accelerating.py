"""Attention of a loaded model on ``situs.attend``: the same weights, the same outputs, in place and reversible."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from torch import nn
from transformers import PreTrainedModel

from situs.huggingface.checking import AccelerationError, answers_before, require_same
from situs.huggingface.classes import original
from situs.huggingface.families.borrowing import HELD
from situs.huggingface.interface import NAME
from situs.huggingface.planning import plan
from situs.huggingface.rotating import NAME as ROTATING

Model = TypeVar("Model", bound=nn.Module)
BEFORE = "situs_before"
"""The attribute of an accelerated model that says which attention its configurations named before."""


def accelerate(model: Model, *, check: bool = True) -> Model:
    """Run the attention of a model on ``situs.attend``, in place; give the model itself.

    Queries and keys of rotary models are rotated in float32 by exact angles, whatever the model's dtype. Weights and
    their names stay as they are, and ``restore`` undoes it. ``check`` compares a small input before and after, and
    restores the model and raises if they differ. ``describe`` tells what was replaced and what was left.
    """
    if BEFORE in vars(model):
        return model
    _refuse_bands(model)
    found = plan(model)
    if not (found.replaced or found.asking):
        kept = f" {found}." if found.left else ""
        raise ValueError(
            "model must have attention that Situs knows, since otherwise there is nothing to accelerate; got "
            f"{type(model).__name__}.{kept}"
        )
    if found.left:
        warnings.warn(f"Some attention of {type(model).__name__} keeps its own code. {found}", stacklevel=2)
    before = answers_before(model) if check else None
    vars(model)[BEFORE] = [(config, config._attn_implementation) for config in found.configurations]
    for config in found.configurations:
        config._attn_implementation_internal = NAME  # the setter refuses models that do not ask the interface
    for module, made in (*found.replaced, *found.rotating):
        module.__class__ = made
    if before is not None:
        try:
            require_same(model, before)
        except AccelerationError:
            restore(model)
            raise
        except Exception as problem:
            restore(model)
            raise AccelerationError(
                f"{type(model).__name__} must run accelerated as it did before; it raised {type(problem).__name__}: "
                f"{problem}. The model was restored. Please report its configuration."
            ) from problem
    return model


def restore(model: Model) -> Model:
    """Give a model its own attention back; give the model itself."""
    if BEFORE not in vars(model):
        if any(original(each) is not None for each in model.modules()):
            raise ValueError(
                f"model must be the one that was accelerated, since its configurations are restored with it; got a "
                f"{type(model).__name__} that is a part of it."
            )
        return model
    _refuse_bands(model)
    for module in model.modules():
        before = original(module)
        if before is not None:
            module.__class__ = before
            vars(module).pop(HELD, None)
    for config, implementation in vars(model).pop(BEFORE):
        config._attn_implementation_internal = implementation
    return model


def _refuse_bands(model: nn.Module) -> None:
    """Raise within ``rotated_in_bands``, which names the attention of configurations too."""
    configs = [each.config for each in model.modules() if isinstance(each, PreTrainedModel)]
    if any(each._attn_implementation == ROTATING for each in configs):
        raise ValueError(
            f"model must be accelerated or restored outside of rotated_in_bands(), since both set its attention; got a "
            f"{type(model).__name__} within such a block."
        )


def describe(model: nn.Module) -> str:
    """Tell which attention of a model runs on ``situs.attend``, or would, and what is left, and why."""
    state = "accelerated" if BEFORE in vars(model) else "not accelerated; accelerate() would put"
    return f"{type(model).__name__}, {state}\n{plan(model)}"


@contextmanager
def accelerated(model: Model, *, check: bool = True) -> Iterator[Model]:
    """Accelerate a model for the length of a ``with`` block."""
    try:
        yield accelerate(model, check=check)
    finally:
        restore(model)
