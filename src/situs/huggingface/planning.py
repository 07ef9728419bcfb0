"""What of a model Situs takes over: which modules get another class, which ask the interface, and what is left."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from situs.huggingface.classes import family_of, is_known, original, rotating_stand_in, stand_in, why_left
from situs.huggingface.families import Family
from situs.huggingface.origin import ancestor_of, folder_of
from situs.huggingface.planning_rotation import plan_rotations


@dataclass(frozen=True)
class Plan:
    """Say what becomes of a model's attention."""

    replaced: list[tuple[nn.Module, type[Family]]]
    """Modules, with the class that they get."""
    asking: list[nn.Module]
    """Modules that ask transformers' interface for attention."""
    left: dict[str, str]
    """Classes of modules that keep their own code, and why."""
    configurations: list[Any]
    """Configurations that name the attention of those modules."""
    rotating: list[tuple[nn.Module, type[Family]]]
    """Rotary modules, and those of the asking that rotate, with the class that they get."""
    rotated_by_own: dict[str, str]
    """Classes of rotary modules that keep their own code, and why."""

    def runs_by_name(self, name: str) -> bool:
        """Whether configurations name an attention and layers ask for it."""
        asked = self.asking or any(_asks(original(each) or type(each)) for each, _ in self.replaced)
        return bool(asked) and any(getattr(each, "_attn_implementation", None) == name for each in self.configurations)

    def __str__(self) -> str:
        """A line for each class."""
        runs = {_class_name(module): made.runs for module, made in self.replaced}
        lines = [
            f"{count} x {name}: {runs[name]}, its class replaced"
            for name, count in _counted(each for each, _ in self.replaced).items()
        ]
        exact = {id(each) for each, _ in self.rotating}
        for ending, modules in (
            ("", [each for each in self.asking if id(each) not in exact]),
            (", rotated in float32", [each for each in self.asking if id(each) in exact]),
        ):
            lines += [
                f"{count} x {name}: on situs.attend, by transformers' interface{ending}"
                for name, count in _counted(modules).items()
            ]
        asking = set(map(id, self.asking))
        lines += [
            f"{count} x {name}: exact angles, cosines in float32, its class replaced"
            for name, count in _counted(each for each, _ in self.rotating if id(each) not in asking).items()
        ]
        lines += [f"{name}: left as it is, since {why}" for name, why in (self.left | self.rotated_by_own).items()]
        return "\n".join(lines)


def _counted(modules: Iterable[nn.Module]) -> Counter[str]:
    """How many modules are of each class, by its name in transformers."""
    return Counter(map(_class_name, modules))


def _class_name(module: nn.Module) -> str:
    return (original(module) or type(module)).__name__


def plan(model: nn.Module) -> Plan:
    """Look what Situs can take over; nothing is changed."""
    replaced, asking, left = [], [], {}
    others = _of_other_code(model)
    for module in model.modules():
        family, cls = family_of(module), original(module) or type(module)
        if (other := others.get(folder_of(ancestor_of(cls)))) is not None and (
            family is not None or _is_attention(cls)
        ):
            left[cls.__name__] = f"{other} inherits from an attention class with code that Situs does not know"
        elif family is not None and (reason := family.cannot(module)):
            left[cls.__name__] = reason
        elif family is not None:
            replaced.append((module, stand_in(module)))
        elif _is_attention(cls) and _asks(ancestor_of(cls)):
            asking.append(module)
        elif _is_attention(cls):
            left[cls.__name__] = why_left(module)
    attending = {id(each) for each, made in replaced if made.runs == Family.runs}
    served = attending | set(map(id, asking))
    rotations = plan_rotations(model, asking)
    rotating = [(each, rotating_stand_in(each)) for each in rotations.served]
    return Plan(replaced, asking, left, _configurations(model, served), rotating, rotations.left)


def _configurations(model: nn.Module, served: set[int]) -> list[Any]:
    """The configurations of models that have served modules, each once."""
    found = {}
    for each in model.modules():
        if isinstance(each, PreTrainedModel) and any(id(module) in served for module in each.modules()):
            found[id(each.config)] = each.config
    for each in model.modules():  # layers of one's own configuration, as in the stacks of T5
        config = getattr(each, "config", None)
        if id(each) in served and config is not None:
            found[id(config)] = config
    return list(found.values())


def _is_attention(cls: type) -> bool:
    """Whether a class of transformers forms scores itself, or one that inherits from it."""
    ancestor = ancestor_of(cls)
    return bool(folder_of(ancestor)) and "Attention" in ancestor.__name__ and _forms_scores(ancestor)


def _of_other_code(model: nn.Module) -> dict[str, str]:
    """Find classes that inherit from an attention class and do not ask transformers' interface as it does, by its
    folder. Layers of a model share masks and biases, so that the others of the folder keep their own code too."""
    found = {}
    for module in model.modules():
        cls = original(module) or type(module)
        ancestor = ancestor_of(cls)
        if ancestor is not cls and _is_attention(cls) and (is_known(ancestor) or not _asks(_with_forward(cls))):
            found[folder_of(ancestor)] = cls.__name__
    return found


def _with_forward(cls: type) -> type:
    """The class that a class has its forward from."""
    return next(each for each in cls.__mro__ if "forward" in vars(each))


@cache
def _source(cls: type) -> str:
    try:
        return inspect.getsource(cls)
    except (OSError, TypeError):
        return ""


def _asks(cls: type) -> bool:
    return "ALL_ATTENTION_FUNCTIONS.get_interface(" in _source(cls)


def _forms_scores(cls: type) -> bool:
    return _asks(cls) or any(each in _source(cls) for each in ("softmax(", "scaled_dot_product_attention("))
