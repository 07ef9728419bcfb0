"""Everything public that can be called, found from the lists of names and the classes behind them."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import situs
import situs.attention
import situs.functional
import situs.lab.naming
import situs.plots
import situs.rotation
from situs.lab.probing import sitters

NAMESPACES: tuple[ModuleType, ...] = (
    situs,
    situs.attention,
    situs.functional,
    situs.rotation,
    situs.plots,
    situs.lab.naming,
)

HOOKS = frozenset(
    {
        "rule", "vectors", "value_vectors", "query_vectors", "key_vectors", "coordinates_at", "frequencies_at",
        "magnitude_of", "farthest_of", "require_agreement", "far_keys", "far_vector", "plan_for", "by_row", "moved",
    }
)  # fmt: skip
"""What authors of encodings write, and kernels call in every block with what was checked when the call came in."""


@dataclass(frozen=True)
class Public:
    """One callable: a function, a constructor, or a method of a class that can be made."""

    name: str
    function: Callable[..., Any]
    owner: type | None = None
    """The class whose instance a method is called on; None for functions, constructors and static methods."""
    defined: tuple[str, ...] = ()
    """The names under which an example may stand: its own, and those of the classes that it is inherited from."""

    @property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """The arguments, without the instance and without further keywords, which go to other callables."""
        found = list(inspect.signature(self.function).parameters.values())
        found = found[1:] if self.owner is not None else found
        return {each.name: each for each in found if each.kind is not inspect.Parameter.VAR_KEYWORD}

    @property
    def annotations(self) -> dict[str, Any]:
        """What each argument is annotated with, evaluated where it was written."""
        scope = _scope(self.function)
        return {name: _evaluated(each.annotation, scope) for name, each in self.parameters.items()}


def _scope(function: Any) -> dict[str, Any]:
    """The names that an annotation may use: those of its module, and of the modules that its class inherits from, since
    a dataclass's fields are annotated where each was declared."""
    homes = reversed(function.__mro__) if isinstance(function, type) else [inspect.unwrap(function)]
    names = {name: value for home in homes for name, value in vars(sys.modules[home.__module__]).items()}
    drawn: Any = sitters.Drawn
    return {**names, "Drawn": eval(drawn, vars(sitters))}


def _evaluated(annotation: Any, scope: dict[str, Any]) -> Any:
    while isinstance(annotation, str):
        annotation = eval(annotation, scope)
    return annotation


def callables() -> list[Public]:
    """List every public callable once, under the first name that it has."""
    found: dict[int, Public] = {}
    for namespace in NAMESPACES:
        for name in namespace.__all__:
            value = getattr(namespace, name)
            if isinstance(value, type):
                for each in _of_class(value):
                    found.setdefault(hash((each.name, each.function)), each)
            elif inspect.isfunction(value):
                full = f"{namespace.__name__}.{name}"
                found.setdefault(id(value), Public(full, value, defined=(full,)))
    return sorted(found.values(), key=lambda each: each.name)


def _of_class(cls: type) -> Iterator[Public]:
    """The constructor and the methods of a class; none of one that others must complete first."""
    constructors = [name for name in vars(cls) if isinstance(inspect.getattr_static(cls, name), staticmethod)]
    if inspect.isabstract(cls) or cls is situs.Encoding or (is_record(cls) and not constructors):
        return
    if not is_record(cls):
        yield Public(cls.__name__, cls, defined=(cls.__name__,))
    for name in dir(cls):
        static = inspect.getattr_static(cls, name)
        if (name.startswith("_") and name != "__getitem__") or name in HOOKS or isinstance(static, property):
            continue
        function = getattr(cls, name)
        if not inspect.isfunction(function) or not inspect.unwrap(function).__module__.startswith("situs."):
            continue
        defined = tuple(f"{base.__name__}.{name}" for base in cls.__mro__ if name in vars(base))
        defined = (f"{cls.__name__}.{name}", *defined)
        yield Public(defined[0], function, None if isinstance(static, staticmethod) else cls, defined)


def is_record(cls: type) -> bool:
    """Whether only the library makes it, to hand something back: a dataclass that checks nothing, a tuple, an error."""
    plain = dataclasses.is_dataclass(cls) and not hasattr(cls, "__post_init__")
    return plain or issubclass(cls, (tuple, Exception))
