"""The classes that stand in for classes of transformers.

A module is accelerated by giving it a class of Situs', which is its own class with some methods replaced. Nothing else
about it changes: parameters, hooks and names of weights stay, copies and pickles are accelerated too, and giving it its
own class back restores it. Each such class is made from the original and a family's methods (``families``) when it is
first asked for, and is an attribute of this module under its name, by which pickles find it.

    deberta_v2_DisentangledSelfAttention    a class of the table of families
    llama__LlamaAttention                   a class that rotates, of which there are too many for a table
"""

from __future__ import annotations

import inspect
from functools import cache
from importlib import import_module
from typing import Any, cast

from torch import nn

from situs.huggingface.families import FAMILIES, LEFT, Family, Known
from situs.huggingface.origin import ROTARY, folder_of

SEPARATED = "__"
"""Between folder and class in names of classes that rotate."""


class TransformersChangedError(RuntimeError):
    """Tell that a class of transformers is not the one that Situs knows."""


def stand_in(module: nn.Module) -> type[Family]:
    """The class that accelerates a module of a known family, or has."""
    return _made(_name(original(module) or type(module)))


def rotating_stand_in(module: nn.Module) -> type[Family]:
    """The class that rotates exactly for a module, or gives it exact cosines; the module was found to take it."""
    cls = original(module) or type(module)
    return _made(f"{folder_of(cls)}{SEPARATED}{cls.__name__}")


def original(module: nn.Module) -> type[nn.Module] | None:
    """The class that an accelerated module had; None where it is not accelerated."""
    found: type[nn.Module] | None = vars(type(module)).get("original")
    return found


def _name(cls: type) -> str:
    """``deberta_v2_DisentangledSelfAttention`` for that class of transformers' deberta_v2."""
    return f"{folder_of(cls)}_{cls.__name__}"


def family_of(module: nn.Module) -> type[Family] | None:
    """The methods that a module would get, or has; None where Situs does not know it."""
    known = FAMILIES.get(_name(original(module) or type(module)))
    return None if known is None else _family(known)


def is_known(cls: type) -> bool:
    """Whether a class of transformers is one of a family."""
    return _name(cls) in FAMILIES


def why_left(module: nn.Module) -> str:
    """Why attention that belongs to no family keeps its own code."""
    return LEFT.get(_name(type(module)), "Situs does not know it")


def _family(known: Known) -> type[Family]:
    found: type[Family] = getattr(import_module(f"situs.huggingface.families.{known.file}"), known.family)
    return found


def _known(name: str) -> Known:
    if name in FAMILIES:
        return FAMILIES[name]
    folder, _, cls = name.partition(SEPARATED)
    return Known(folder, cls, "rotary", "ExactAngles" if ROTARY in cls else "ExactRotation")


@cache
def _made(name: str) -> type[Family]:
    known = _known(name)
    file = f"modeling_{known.modelling or known.model}"
    before = getattr(import_module(f"transformers.models.{known.model}.{file}"), known.cls)
    family = _family(known)
    for method, expected in family.expects.items():
        found = tuple(inspect.signature(getattr(before, method)).parameters) if hasattr(before, method) else ()
        if found[: len(expected)] != expected:
            import transformers

            raise TransformersChangedError(
                f"{known.cls}.{method} of transformers must take ({', '.join(expected)}), since Situs stands in for "
                f"it; got ({', '.join(found)}) in transformers {transformers.__version__}. Install a version that "
                'Situs was tested with: pip install "situs[huggingface]".'
            )
    own = {"original": before, "__module__": __name__, "__qualname__": name}
    return cast("type[Family]", type(name, (family, before), {**family.methods(before), **own}))


def __getattr__(name: str) -> Any:
    """Find a class by its name, as pickles do."""
    folder, separated, cls = name.partition(SEPARATED)
    if name in FAMILIES or (folder and separated and cls):
        return _made(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
