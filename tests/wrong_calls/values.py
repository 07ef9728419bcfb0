"""Wrong values for an argument, derived from its annotation and from the right value that an example has.

A pool of common mistakes is tried on every argument, less what one of its types takes; tensors, sequences, positions
and encodings add mistakes of their own kind. What a type takes is taken in full: NumPy's whole numbers are sizes, and
float positions are positions.
"""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import AbstractArray
from torch import Tensor, nn

from situs import ALiBi, Encoding, KVCache, Positions
from tests.wrong_calls import bounds

POOL: tuple[Any, ...] = (
    None, True, "three", b"three", 2.5, math.nan, math.inf, 3, 1j, [1, 2], {"a": 1}, np.ones(2), torch.ones(2, 3), ...,
)  # fmt: skip
"""What people hand over by mistake, whatever the argument is."""

WRONG_DTYPES = {
    "float": (torch.int64, torch.bool, torch.complex64),
    "int": (torch.float32, torch.bool, torch.complex64),
    "bool": (torch.float32, torch.int64),
    "complex": (torch.float32, torch.int64),
    "num": (torch.bool, torch.complex64),
    "any": (),
}


def wrong_values(call: str, name: str, annotation: Any, right: Any, others: Mapping[str, Any]) -> list[Any]:
    """Make wrong values for an argument of a call; ``others`` are the others, and the object it is called on."""
    kinds = flattened(annotation)
    found = [each for each in POOL if not any(_takes(kind, each, kinds) for kind in kinds)]
    for kind in kinds:
        found += _of_kind(call, name, kind, right, {**others, "kinds": kinds})
    tensors = [kind for kind in kinds if is_tensor(kind)]
    if tensors and isinstance(right, Tensor):
        found += _tensors(call, name, tensors, right, others)
    return [*found, *bounds.beside(call, name)]


def flattened(annotation: Any) -> list[Any]:
    """List the types of a union, each once; a literal stands for its words."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return list({str(kind): kind for each in typing.get_args(annotation) for kind in flattened(each)}.values())
    return [type(None) if annotation is None else annotation]


def _takes(kind: Any, value: Any, kinds: list[Any]) -> bool:
    """Whether a value of the pool may be right for one of the types, as far as its type goes."""
    if kind is Any:
        return True
    if kind is bool:
        return isinstance(value, bool)
    if kind is int or kind is typing.SupportsIndex:
        return type(value) is int
    if kind is float:
        return type(value) is int or (type(value) is float and math.isfinite(value))
    if kind is str:
        return isinstance(value, str) and torch.device not in kinds  # a device's name is not any word
    if is_tensor(kind):
        return isinstance(value, Tensor)
    origin = typing.get_origin(kind)
    if origin is Literal:
        return value in typing.get_args(kind) if isinstance(value, str) else False
    if origin in (tuple, list, Sequence, Iterable):
        return isinstance(value, (list, tuple, np.ndarray, Tensor))
    if origin is not None:
        return isinstance(value, origin)
    return isinstance(value, kind)


def is_tensor(kind: Any) -> bool:
    """Whether an annotation is a tensor, with or without a shape."""
    return kind is Tensor or (isinstance(kind, type) and issubclass(kind, AbstractArray))


def _of_kind(call: str, name: str, kind: Any, right: Any, others: Mapping[str, Any]) -> list[Any]:
    """The mistakes that one type invites."""
    if kind in (int, float):  # a number that stands for positions is the first, which may be any
        return [] if Positions in others["kinds"] else bounds.outside(call, name, kind)
    if is_tensor(kind):
        return []
    origin = typing.get_origin(kind)
    if origin in (tuple, list, Sequence, Iterable):
        return _sequences(call, name, kind, right)
    if kind is torch.dtype:
        return [torch.int64, torch.complex64]
    if kind is Positions:
        return _positions(others)
    if kind is Encoding:
        return [ALiBi, nn.Linear(2, 2)]
    return [kind] if isinstance(kind, type) and kind not in (type(None), bool, str, nn.Module, Any) else []


def _tensors(call: str, name: str, kinds: list[Any], right: Tensor, others: Mapping[str, Any]) -> list[Any]:
    """Another dtype, more or fewer axes, another size where two must agree, and another device."""
    sorts = {_sort(kind) for kind in kinds}
    axes = ["..."] if kinds[0] is Tensor else kinds[0].dim_str.split()
    dtypes = set.intersection(*(set(WRONG_DTYPES[sort]) for sort in sorts))
    found: list[Any] = [torch.ones_like(right, dtype=dtype) for dtype in sorted(dtypes, key=str)]
    apart = call.split(".")[0] in bounds.APART
    if "..." not in axes:
        free = apart or any(axis.startswith("*") for axis in axes)
        found += [right[0], right[None]] if not free else [right.flatten()[0]] if len(axes) > 1 else []
    if sorts <= {"float", "bool", "complex"} and not apart and _has_tensors(call, name, others):
        found.append(right.to("meta"))
    if axes[-1] in bounds.TIED and _tied(axes[-1], name, others):
        found.append(right[..., :-1])
    if axes[0] == "batch" and not apart and _tied("batch", name, others):
        found.append(torch.cat((right, right)))
    return found


def _has_tensors(call: str, name: str, others: Mapping[str, Any]) -> bool:
    """Whether an argument meets tensors of other arguments, or of the object, that must be on its device."""
    if name in bounds.MOVED or call in bounds.OFFLOADED:
        return False
    beside = [each for key, each in others.items() if key not in (name, *bounds.MOVED)]
    owned = [each for one in beside if isinstance(one, nn.Module) for each in one.parameters()]
    cached = [each.keys for each in beside if isinstance(each, KVCache)]
    return bool(owned or cached or [each for each in beside if isinstance(each, Tensor)])


def _sort(kind: Any) -> str:
    """Which numbers a tensor holds, by its annotation: one sort of dtypes, or several."""
    if kind is Tensor or not isinstance(kind.dtypes, (list, tuple)):
        return "any"
    sorts = {next(sort for sort in ("float", "complex", "bool", "int") if sort in each) for each in kind.dtypes}
    return sorts.pop() if len(sorts) == 1 else "num" if "bool" not in sorts else "any"


def _tied(axis: str, name: str, others: Mapping[str, Any]) -> bool:
    """Whether another argument, or the object, has the size of an axis."""
    said = others["annotations"]
    given = [kind for key, kind in said.items() if key != name and others.get(key) is not None]
    shapes = [each for kind in given for each in flattened(kind) if is_tensor(each)]
    named = any(axis in kind.dim_str.split() for kind in shapes if kind is not Tensor)
    return named or hasattr(others.get("self"), axis)


def _sequences(call: str, name: str, kind: Any, right: Any) -> list[Any]:
    """A wrong first item, and too few or too many where their number is told."""
    items, given = typing.get_args(kind), list(right) if isinstance(right, (list, tuple)) else []
    of_items = flattened(items[0])
    plain = [each for each in POOL if isinstance(each, (type(None), bool, str, int, float, complex))]
    wrong = [each for each in plain if not any(_takes(one, each, of_items) for one in of_items)]
    wrong += bounds.outside(call, name, int) if int in of_items else []
    found: list[Any] = [[each, *given[1:]] for each in wrong]
    if typing.get_origin(kind) is tuple and ... not in items:
        found += [tuple(given[:1]), (*given, *given[:1])]
    return found


def _positions(others: Mapping[str, Any]) -> list[Any]:
    """Ids that are no positions, and as many as there are no tokens."""
    found: list[Any] = [Positions]
    if any(is_tensor(kind) for kind in others["kinds"]):
        ids = torch.arange(3.0)
        found += [ids.masked_fill(ids == 1, math.nan), ids.bool(), ids.to(torch.complex64), ids.half(), torch.tensor(1)]
        found += [torch.zeros(1, 1, 1, 1, dtype=torch.int64)]
    said = others["annotations"]
    counted = [key for key in said if Positions not in flattened(said[key]) and key in others]
    if any(isinstance(others[key], Tensor) or key in ("length", "count") for key in counted):
        found.append(Positions.range(99))
    return found
