"""Attention of a loaded model on ``situs.attend``: the same weights, the same outputs, in place and reversible."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from torch import nn

from situs.huggingface.checking import AccelerationError, answers_before, require_same
from situs.huggingface.classes import original
from situs.huggingface.configurations import give_back, name_attention
from situs.huggingface.families.borrowing import HELD
from situs.huggingface.growing import let_be, let_grow
from situs.huggingface.interface import NAME, TAKEN
from situs.huggingface.planning import Plan, plan
from situs.huggingface.rotating import refuse_within_bands

Model = TypeVar("Model", bound=nn.Module)
WHOLE = "situs_whole"
"""The attribute of every module of an accelerated model that knows which model that is."""


class Whole:
    """Know the model that was accelerated; copies and pickles of its parts do not belong to it."""

    def __init__(self, model: nn.Module | None = None) -> None:
        self._model = None if model is None else weakref.ref(model)

    def around(self, part: nn.Module) -> nn.Module | None:
        """The accelerated model that a module is a part of; None where it is that model, or a copy."""
        found = None if self._model is None else self._model()
        if found is None or found is part or not any(each is part for each in found.modules()):
            return None
        return found

    def __deepcopy__(self, memo: dict[int, Any]) -> Whole:
        """Belong to no model."""
        return Whole()

    def __reduce__(self) -> tuple[type[Whole], tuple[()]]:
        """Belong to no model."""
        return Whole, ()


def accelerate(model: Model, *, check: bool = True) -> Model:
    """Run the attention of a model on ``situs.attend``, in place; give the model itself.

    Queries and keys of rotary models are rotated in float32 by exact angles, whatever the model's dtype. Weights and
    their names stay as they are, and ``restore`` undoes it. ``check`` compares a small input before and after, and
    restores the model and raises if they differ. ``describe`` tells what was replaced and what was left.
    """
    _require_model(model)
    if WHOLE in vars(model):
        return model
    refuse_within_bands(model, "accelerated or restored", since="both set its attention")
    parts = _accelerated_parts(model)
    _undo(model)
    try:
        _take_over_checked(model, check)
    except BaseException:
        for part in parts:
            _take_over(part, plan(part))
        raise
    return model


def _take_over_checked(model: nn.Module, check: bool) -> None:
    """Accelerate a model of which nothing is; it is as it was where anything fails."""
    found = plan(model)
    if not (found.replaced or found.asking):
        kept = f" {found}." if found.left else ""
        raise ValueError(
            "model must have attention that Situs knows, since otherwise there is nothing to accelerate; got "
            f"{type(model).__name__}.{kept}"
        )
    if any(getattr(each, "output_attentions", False) for each in found.configurations):
        raise ValueError(
            "output_attentions of a model's configuration must be False before it is accelerated, since no weights are "
            "formed then; got True. Set model.config.output_attentions = False first."
        )
    if found.left:
        warnings.warn(f"Some attention of {type(model).__name__} keeps its own code. {found}", stacklevel=3)
    before = answers_before(model) if check else None
    _take_over(model, found)
    if before is not None:
        try:
            require_same(model, before)
        except AccelerationError:
            _undo(model)
            raise
        except Exception as problem:
            _undo(model)
            raise AccelerationError(
                f"{type(model).__name__} must run accelerated as it did before; it raised {type(problem).__name__}: "
                f"{str(problem).rstrip('.')}. The model was restored. Please report its configuration."
            ) from problem


def _take_over(model: nn.Module, found: Plan) -> None:
    """Give modules their classes, configurations that name the attention, and caches room to grow."""
    name_attention(model, found.configurations, TAKEN)
    let_grow(model)
    for module, made in (*found.replaced, *found.rotating):
        module.__class__ = made
    whole = Whole(model)
    for module in model.modules():
        vars(module)[WHOLE] = whole


def restore(model: Model) -> Model:
    """Give a model its own attention back, and all parts of it; give the model itself."""
    _require_model(model)
    whole = _whole_around(model)
    if whole is not None:
        raise ValueError(
            f"model must be the one that was accelerated, since its other parts hand over what own code does not take; "
            f"got a {type(model).__name__} that is a part of an accelerated {type(whole).__name__}."
        )
    refuse_within_bands(model, "accelerated or restored", since="both set its attention")
    _undo(model)
    return model


def _undo(model: nn.Module) -> None:
    """Give modules their own classes and configurations back."""
    give_back(model)
    for module in model.modules():
        let_be(module)
        before = original(module)
        if before is not None:
            module.__class__ = before
            vars(module).pop(HELD, None)
        vars(module).pop(WHOLE, None)


def _whole_around(model: nn.Module) -> nn.Module | None:
    """The accelerated model that a model is a part of, if any."""
    held: Whole | None = vars(model).get(WHOLE)
    return None if held is None else held.around(model)


def _accelerated_parts(model: nn.Module) -> list[nn.Module]:
    """The parts of a model that were accelerated, the outermost of each."""
    if WHOLE in vars(model):
        return [model]
    return [part for child in model.children() for part in _accelerated_parts(child)]


def _require_model(model: object) -> None:
    """Raise where a name or a folder is given instead of a model."""
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"model must be a loaded model, since its modules are given other classes; got {type(model).__name__}. "
            "Load it with AutoModel.from_pretrained first."
        )


def describe(model: nn.Module) -> str:
    """Tell which attention of a model runs on ``situs.attend``, or would, and what is left, and why."""
    _require_model(model)
    found, whole, parts = plan(model), _whole_around(model), _accelerated_parts(model)
    if whole is not None:
        state = f"accelerated, as a part of {type(whole).__name__}"
    elif WHOLE in vars(model):
        state = "accelerated"
    elif parts:
        state = f"accelerated in part ({', '.join(type(each).__name__ for each in parts)}). accelerate() would give:"
    elif found.runs_by_name(NAME):
        state = f'not accelerated, but on situs.attend by attn_implementation="{NAME}". accelerate() would give:'
    elif found.replaced or found.asking:
        state = "not accelerated. accelerate() would give:"
    else:
        state = "not accelerated, since it has no attention that Situs can take over."
    return f"{type(model).__name__}, {state}\n{found}".rstrip()


@contextmanager
def accelerated(model: Model, *, check: bool = True) -> Iterator[Model]:
    """Accelerate a model for the length of a ``with`` block; one that was accelerated before stays so."""
    _require_model(model)
    before = WHOLE in vars(model)
    try:
        yield accelerate(model, check=check)
    finally:
        if not before and _whole_around(model) is None:
            restore(model)
