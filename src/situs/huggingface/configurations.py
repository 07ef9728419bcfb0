"""Configurations of accelerated models: copies that name Situs' attention, in the place of those that modules had.

Several models may share one configuration, of which one is accelerated. So its modules get copies, and no other model
sees the name. What is set on a copy meanwhile is set on the original when that comes back.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import nn

IMPLEMENTATION = "_attn_implementation_internal"
"""The attribute that names a configuration's attention; the setter refuses models that do not ask the interface."""
SWAPPED = "situs_configurations"
"""The attribute of a module that has the originals of its configurations, by the names of its attributes."""


@dataclass(eq=False)
class Copied:
    """Hold a configuration and the copy that stands in its place."""

    original: Any
    copied: Any
    noted: dict[str, Any]
    """The attributes of the copy when it was made."""

    def write_back(self) -> None:
        """Set on the original what was set on the copy; but for the name of the attention."""
        now, own = vars(self.copied), vars(self.original)
        for name in (self.noted.keys() | now.keys()) - {IMPLEMENTATION}:
            if name not in now:
                own.pop(name, None)
            elif name not in self.noted or now[name] is not self.noted[name]:
                own[name] = now[name]


def name_attention(model: nn.Module, configurations: Iterable[Any], name: str) -> None:
    """Give the modules of a model copies of configurations, which name its attention."""
    originals = {id(each): each for each in configurations}
    copies = {number: copy.copy(each) for number, each in originals.items()}
    for each in copies.values():
        vars(each).update({own: copies[id(part)] for own, part in vars(each).items() if id(part) in copies})
        vars(each)[IMPLEMENTATION] = name
    held = {number: Copied(originals[number], each, dict(vars(each))) for number, each in copies.items()}
    for module in model.modules():
        swapped = {own: held[id(config)] for own, config in vars(module).items() if id(config) in held}
        if swapped:
            vars(module).update({own: each.copied for own, each in swapped.items()})
            vars(module)[SWAPPED] = swapped


def give_back(model: nn.Module) -> None:
    """Give the modules of a model their own configurations back."""
    for module in model.modules():
        for own, each in vars(module).pop(SWAPPED, {}).items():
            each.write_back()
            if vars(module).get(own) is each.copied:
                vars(module)[own] = each.original


def configurations_of(model: nn.Module) -> list[Any]:
    """Find the configurations of a model's modules, and the originals of copies, each once."""
    found = [config for each in model.modules() if (config := getattr(each, "config", None)) is not None]
    found += [each.original for module in model.modules() for each in vars(module).get(SWAPPED, {}).values()]
    return list({id(each): each for each in found}.values())
