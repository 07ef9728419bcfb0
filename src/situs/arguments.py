"""Arguments: what a single argument must be, and one wording for every one that is not.

    NAME must be RULE, since REASON; got VALUE. CURE

Each check takes the argument's name, what was given and the reason of the rule, and returns what was given as Python's
own number where it is one. Another kind of thing is a TypeError, a value out of bounds a ValueError. What rules know of
positions and encodings is in ``positions/require.py`` and ``encodings/fitting.py``.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, SupportsIndex, TypeVar, cast

import torch
from torch import Tensor
from torch._subclasses import FakeTensor

T = TypeVar("T")

WIDE = (torch.float32, torch.float64)

LONGEST = 80
"""Characters of a value that are shown; of longer ones the type is."""


def refuse(error: type[Exception], name: str, rule: str, reason: str, got: str, cure: str = "") -> NoReturn:
    """Raise in the words that all errors about arguments have."""
    raise error(f"{name} must {rule}, since {reason}; got {got}.{cure and ' '}{cure}")


def told(given: object) -> str:
    """A value as an error shows it: tensors and arrays by shape and dtype, long values by their type."""
    shape, dtype = getattr(given, "shape", None), getattr(given, "dtype", None)
    if shape is not None and dtype is not None and not isinstance(given, type):
        kind = "a tensor" if isinstance(given, Tensor) else f"an {type(given).__name__}"
        return f"{kind} of shape {tuple(shape)} and dtype {dtype}" if len(shape) else repr(given)
    try:
        shown = repr(given)
    except ValueError:  # whole numbers of more digits than Python writes
        shown = ""
    return shown if 0 < len(shown) <= LONGEST else f"a {type(given).__name__}"


def require_count(name: str, given: object, reason: str, *, least: int | None = None, most: int | None = None) -> int:
    """A whole number within bounds; those of other libraries are taken as well."""
    ours = isinstance(given, (int, torch.SymInt))  # which in a graph stays the symbol it is
    try:
        if isinstance(given, (bool, Tensor)) and (not isinstance(given, Tensor) or given.dtype == torch.bool):
            raise TypeError
        number = cast(int, given) if ours else operator.index(cast(SupportsIndex, given))
    except (TypeError, RuntimeError):  # a tensor without values raises the latter
        refuse(TypeError, name, "be a whole number", reason, told(given))
    if (least is not None and number < least) or (most is not None and number > most):
        refuse(ValueError, name, _bounds(least, None, most, None), reason, _digits(number))
    return number


def _digits(number: float | int) -> str:
    """A whole number as an error shows it: one that nobody can read by how long it is."""
    if type(number) is int and number.bit_length() > 200:
        return f"one of about {round(number.bit_length() * math.log10(2)):,} digits"
    return str(number)


def require_counts(reason: str, *, least: int = 1, **given: object) -> tuple[int, ...]:
    """Several whole numbers by their names, each at least so large, for one reason."""
    return tuple([require_count(name, each, reason, least=least) for name, each in given.items()])


def require_number(
    name: str,
    given: object,
    reason: str,
    *,
    least: float | int | None = None,
    above: float | int | None = None,
    most: float | int | None = None,
    below: float | int | None = None,
) -> float | int:
    """A finite number within bounds, as Python's own; NumPy's and tensors without axes are taken too."""
    number = as_number(name, given, reason)
    if number - number != 0:  # of what is not finite; a graph has no other word for it
        refuse(ValueError, name, "be finite", reason, str(number))
    if abs(number) > sys.float_info.max:  # of a whole number
        refuse(ValueError, name, "be at most 1.8e308 in size", reason, _digits(number))
    low = (least is None or number >= least) and (above is None or number > above)
    high = (most is None or number <= most) and (below is None or number < below)
    if not (low and high):
        refuse(ValueError, name, _bounds(least, above, most, below), reason, str(number))
    return number


def as_number(name: str, given: Any, reason: str) -> float | int:
    """A real number as Python's own, finite or not."""
    if type(given) in (int, float):
        return cast(float, given)
    if not isinstance(given, (str, bytes, bool, complex)) and not getattr(given, "ndim", 0):
        try:
            if getattr(given, "dtype", None) in (torch.bool, "bool"):
                raise TypeError
            return float(given)
        except (TypeError, ValueError, RuntimeError):
            pass
    refuse(TypeError, name, "be a number", reason, told(given))


def _bounds(
    least: float | int | None, above: float | int | None, most: float | int | None, below: float | int | None
) -> str:
    """The rule of a number within bounds, in words."""
    if least is not None and most is not None:
        return f"lie in {least} .. {most}"
    low = f"at least {least}" if least is not None else f"more than {above}" if above is not None else ""
    high = f"at most {most}" if most is not None else f"below {below}" if below is not None else ""
    if low and high:
        return f"be {low} and {high}"
    return f"be {least} or more" if least is not None else f"be {low or high}"


def require_dropout(dropout: object) -> float | int:
    """A probability below 1."""
    return require_number("dropout", dropout, "it is a probability and 1 leaves nothing", least=0, below=1)


def require_spread(given: object) -> float | int:
    """The standard deviation that weights are drawn with."""
    return require_number("init_std", given, "weights are drawn with that standard deviation", least=0)


def require_base(given: object, name: str = "base") -> float | int:
    """The base that wavelengths grow by."""
    return require_number(name, given, "wavelengths grow by its powers", above=1)


def require_bases(given: object) -> float | int | tuple[float, ...]:
    """One base, or several, each of which wavelengths grow by."""
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable) or getattr(given, "ndim", 1) == 0:
        return require_base(given)
    bases = require_several("base", given, "wavelengths grow by its powers")
    if not bases:
        refuse(ValueError, "base", "be a number, or have one for each head", "wavelengths grow by its powers", "none")
    return tuple(float(require_base(each)) for each in bases)


def require_flag(name: str, given: object, reason: str) -> bool:
    """True or False, and nothing that merely counts as one of them."""
    if not isinstance(given, bool):
        refuse(TypeError, name, "be True or False", reason, told(given))
    return given


def require_flags(reason: str, **given: object) -> None:
    """Several flags by their names, for one reason."""
    for name, each in given.items():
        require_flag(name, each, reason)


def is_word(given: object, words: tuple[str, ...]) -> bool:
    """Whether a string is one of a few; nothing else is compared with them, since arrays compare item by item."""
    return isinstance(given, str) and given in words


def require_choice(name: str, given: T, choices: tuple[object, ...], reason: str) -> T:
    """One of a few values, of the very type that they have."""
    if not any(type(given) is type(choice) and given == choice for choice in choices):
        refuse(ValueError, name, f"be one of {', '.join(map(repr, choices))}", reason, told(given))
    return given


def require_several(name: str, given: object, reason: str) -> tuple[Any, ...]:
    """Several values in order: a list, a tuple, an array or a tensor of one axis, and no text."""
    if isinstance(given, (str, bytes, dict, set)) or not isinstance(given, Iterable) or getattr(given, "ndim", 1) != 1:
        refuse(TypeError, name, "be a sequence", reason, told(given))
    return tuple(given.tolist() if isinstance(given, Tensor) and given.device.type != "meta" else given)


def require_size(name: str, given: Any, reason: str) -> tuple[int, int]:
    """A height and a width, each 1 or more."""
    if isinstance(given, (str, bytes)) or not isinstance(given, Sequence) or len(given) != 2:
        refuse(ValueError, name, "be (height, width)", reason, told(given))
    height, width = (require_count(name, each, reason, least=1) for each in given)
    return height, width


def require_instance(name: str, given: object, kind: type, reason: str, called: str, cure: str = "") -> None:
    """Something of a kind that people know as ``called``."""
    if not isinstance(given, kind):
        refuse(TypeError, name, f"be {called}", reason, told(given), cure)


def require_tensor(name: str, given: object, reason: str) -> Tensor:
    """A tensor, and nothing that could be made one."""
    if not isinstance(given, Tensor):
        got = type(given).__name__
        refuse(TypeError, name, "be a tensor", reason, got, "Use torch.as_tensor(...) on lists and arrays.")
    return given


def require_floating(name: str, given: object, reason: str) -> Tensor:
    """A tensor of a real floating-point dtype of 16 bits or more."""
    if isinstance(given, Tensor) and given.is_floating_point() and given.dtype.itemsize > 1:
        return given
    tensor = require_tensor(name, given, reason)
    if tensor.is_floating_point():
        cure = f"Convert it with {name}.to(torch.bfloat16)."
        refuse(TypeError, name, "have 16 bits or more per number", reason, str(tensor.dtype), cure)
    cure = f"Use torch.view_as_real({name})." if tensor.is_complex() else f"Convert it with {name}.float()."
    refuse(TypeError, name, "be of a real floating-point dtype", reason, str(tensor.dtype), cure)


def require_real(name: str, given: object, reason: str) -> Tensor:
    """A tensor of real numbers, whole or not."""
    tensor = require_tensor(name, given, reason)
    if tensor.is_complex() or tensor.dtype == torch.bool:
        refuse(TypeError, name, "be real numbers", reason, f"dtype {tensor.dtype}")
    return tensor


def require_complex(name: str, given: object, reason: str) -> Tensor:
    """A tensor of complex numbers."""
    tensor = require_tensor(name, given, reason)
    if not tensor.is_complex():
        refuse(TypeError, name, "be of a complex dtype", reason, str(tensor.dtype), "Use torch.complex(real, imag).")
    return tensor


def require_axes_of(name: str, given: Tensor, axes: tuple[str, ...], reason: str, *, more: bool = False) -> None:
    """A tensor with an axis for each of these names, or with ``more`` before them."""
    if given.ndim < len(axes) or (given.ndim > len(axes) and not more):
        shape = f"({', '.join((*['...'] * more, *axes))}{',' * (len(axes) == 1 and not more)})"
        refuse(ValueError, name, f"have shape {shape}", reason, f"shape {tuple(given.shape)}")


def require_same_device(name: str, given: Tensor, other_name: str, other: Tensor) -> None:
    """A tensor that is where another is."""
    if given.device != other.device:
        reason, cure = "they meet there", f'Move it with {name}.to("{other.device}").'
        refuse(ValueError, name, f"be on the device of {other_name}, {other.device}", reason, str(given.device), cure)


def require_same_shape(name: str, given: Tensor, other_name: str, other: Tensor, reason: str) -> None:
    """A tensor of another's shape and device."""
    if given.shape != other.shape:
        shapes = f"shape {tuple(given.shape)} for {other_name} of shape {tuple(other.shape)}"
        refuse(ValueError, name, f"have the shape of {other_name}", reason, shapes)
    require_same_device(name, given, other_name, other)


def require_whole_numbers(name: str, given: object, reason: str) -> Tensor:
    """A tensor of integers."""
    tensor = require_tensor(name, given, reason)
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        refuse(TypeError, name, "be whole numbers", reason, f"dtype {tensor.dtype}")
    return tensor


def require_bool(name: str, given: object, reason: str) -> Tensor:
    """A tensor of true and false."""
    tensor = require_tensor(name, given, reason)
    if tensor.dtype != torch.bool:
        refuse(TypeError, name, "be bool", reason, f"dtype {tensor.dtype}", f"Use {name}.bool().")
    return tensor


def require_text(name: str, given: object, reason: str) -> str:
    """A string."""
    if not isinstance(given, str):
        refuse(TypeError, name, "be a string", reason, told(given))
    return given


def require_device(given: object) -> torch.device:
    """A device, or the name of one."""
    if isinstance(given, torch.device):
        return given
    try:
        if not isinstance(given, str):
            raise TypeError
        return torch.device(given)
    except (TypeError, RuntimeError):
        refuse(TypeError, "device", 'be a torch.device or a name such as "cpu" or "cuda:0"', "tensors live there",
               told(given))  # fmt: skip


def require_dtype(given: object, reason: str) -> torch.dtype:
    """A real floating-point dtype of 16 bits or more."""
    if not isinstance(given, torch.dtype) or (given not in WIDE and not given.is_floating_point):
        refuse(TypeError, "dtype", "be a real floating-point dtype such as torch.float32", reason, told(given))
    if given.itemsize < 2:
        refuse(TypeError, "dtype", "have 16 bits or more per number", reason, str(given), "Use torch.bfloat16.")
    return given


def is_deferred(tensor: Tensor) -> bool:
    """Whether reading the tensor's values would make the host wait, or break a graph; fake tensors have none."""
    return tensor.device.type != "cpu" or torch.compiler.is_compiling() or isinstance(tensor, FakeTensor)


def require_everywhere(condition: Tensor, rule: str, got: Callable[[], object], cure: str) -> None:
    """Raise unless a condition holds for all values, with what was ``got``; where they may not be read, the device
    asserts it, which makes nobody wait."""
    if condition.device.type == "meta":
        return
    if is_deferred(condition):
        torch._assert_async(condition.all(), f"{rule}. {cure}")
    elif not bool(condition.all()):
        raise ValueError(f"{rule}; got {got()}. {cure}")
