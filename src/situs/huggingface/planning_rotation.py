"""Which models rotate so that Situs can do it for them: rotary modules, and all layers that their cosines go to.

Cosines in float32 would make queries and keys float32 in code that does not expect them, so that a file of transformers
is served whole or not at all: each module of it that has cosines must be one whose rotation is known.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import Any

from torch import nn

from situs.huggingface.classes import family_of, original
from situs.huggingface.families.rotary_forms import APPLY, form_of, layout_of
from situs.huggingface.origin import ROTARY, ancestor_of, folder_of


@dataclass(frozen=True)
class Rotations:
    """Say which modules rotate, or give cosines, as Situs does."""

    served: list[nn.Module]
    left: dict[str, str]
    """Classes of rotary modules that keep their own code, and why."""


def rotary_modules(model: nn.Module, model_type: str, *, since: str) -> list[Any]:
    """Find the rotary modules of the part of a model that has a type; raises where there are none, or without numbers.

    since: what is done with them.
    """
    found = [
        each
        for each in model.modules()
        if ROTARY in type(each).__name__ and getattr(getattr(each, "config", None), "model_type", None) == model_type
    ]
    if not found:
        raise ValueError(
            f"model must make its cosines in a module named {ROTARY}, since {since} there; {type(model).__name__} has "
            f"none for {model_type}."
        )
    if any(buffer.is_meta for each in found for buffer in each.buffers()):
        raise ValueError(
            f"model must have numbers, since {since} in its rotary modules; got a {type(model).__name__} on the meta "
            f"device. Load it first."
        )
    return found


def plan_rotations(model: nn.Module, asking: Collection[nn.Module]) -> Rotations:
    """Look whose rotation Situs can take over, among a model's rotary modules and the layers that ask transformers'
    interface for attention."""
    files: dict[str, list[nn.Module]] = defaultdict(list)
    for module in model.modules():
        cls = ancestor_of(_class(module))
        if cls.__module__.endswith(f".{folder_of(cls)}.modeling_{folder_of(cls)}"):
            files[cls.__module__].append(module)
    served: list[nn.Module] = []
    left: dict[str, str] = {}
    known = {id(each) for each in asking}
    for modules in files.values():
        rotary = [each for each in modules if ROTARY in ancestor_of(_class(each)).__name__]
        if not rotary:
            continue
        layers = [each for each in modules if each not in rotary and has_cosines(_class(each))]
        reason = _why_not(rotary, layers, known)
        if reason is None:
            served += rotary + [each for each in layers if family_of(each) is None]
        else:
            left |= {_class(each).__name__: reason for each in rotary}
    return Rotations(served, left)


def _class(module: nn.Module) -> Any:
    return original(module) or type(module)


def _why_not(rotary: list[nn.Module], layers: list[nn.Module], asking: Collection[int]) -> str | None:
    """Why the modules of a file must keep their own code; None if they need not."""
    for module in (*rotary, *layers):
        if not folder_of(_class(module)):
            return f"{_class(module).__name__} is none of transformers' classes"
        if "forward" in vars(module):
            return f"forward of {_class(module).__name__} was replaced"
    layouts = set()
    for module in rotary:
        layouts.add(layout_of(_class(module)))
        if None in layouts:
            return f"{_class(module).__name__} does more than multiply positions by frequencies"
    if not layers:
        return "no layer was found that rotates by it"
    for module in layers:
        cls, family = _class(module), family_of(module)
        if id(module) not in asking and not (family is not None and family.rotates):
            return f"{cls.__name__} does not ask transformers' interface for attention"
        rotating = getattr(inspect.getmodule(cls), APPLY, None)
        form = None if rotating is None else form_of(rotating)
        if form is None or not _calls_it_alone(cls):
            return f"{cls.__name__} rotates in a way of its own"
        layouts.add(form.layout)
    return None if len(layouts) == 1 else "cosines are laid out in several ways"


@cache
def has_cosines(cls: type) -> bool:
    """Whether any method of a class has a variable of cosines."""
    return any("cos" in method.__code__.co_varnames for method in _methods(cls))


@cache
def _calls_it_alone(cls: Any) -> bool:
    """Whether the forward of a class calls the function that rotates, and nothing else of it takes cosines."""
    forward = cls.forward
    if not isinstance(forward, FunctionType) or hasattr(forward, "__wrapped__"):
        return False
    called = [forward.__globals__.get(each) for each in forward.__code__.co_names]
    rotating = [each for each in called if isinstance(each, FunctionType) and "cos" in each.__code__.co_varnames]
    others = [each for each in _methods(cls) if each is not forward and "cos" in each.__code__.co_varnames]
    return rotating == [forward.__globals__.get(APPLY)] and not others


def _methods(cls: type) -> list[FunctionType]:
    """The functions of a class and of those that it inherits from in transformers, without their decorators."""
    own = [each for base in cls.__mro__ if folder_of(base) for each in vars(base).values() if inspect.isfunction(each)]
    return [each for each in map(inspect.unwrap, own) if isinstance(each, FunctionType)]
