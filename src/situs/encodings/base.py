"""What an encoding is: a module named by the place where it acts on attention.

    place         class             it computes
    input         InputEncoding     x + p(i)
    query/key     QueryKeyEncoding  R(i) q, R(j) k
    score         BiasEncoding      + b(i, j), the same for any content
    score         ScoreEncoding     + g(q_i, k_j, i, j)
    value         ValueEncoding     sum_j a_ij (v_j + r_ij)
    nowhere       NoPE              nothing, the control

An encoding of your own subclasses one of them, keeps its options under their own names, and is then
checked by ``situs.check_encoding`` and run by ``situs.attention``. Masks are never an encoding's business.
"""

from __future__ import annotations

import functools
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from situs.positions import Positions, PositionsLike

Role = Literal["query", "key"]
F = TypeVar("F", bound=Callable[..., Any])

# Tables that other implementations store in checkpoints, though they follow from the configuration.
LEGACY_KEYS = frozenset(
    {
        "inv_freq",
        "original_inv_freq",
        "freqs",
        "cos_cached",
        "sin_cached",
        "position_ids",
        "pe",
        "_float_tensor",
        "scale",
    }
)


class Encoding(nn.Module, ABC):
    """The common ground of all encodings."""

    place: ClassVar[str]
    """Where it acts: "input", "query and key", "score", "score and value" or "nowhere"."""

    tags: frozenset[str] = frozenset()
    """Properties that ``check_encoding`` then proves; see ``situs.checks.TAGS``."""

    axes: int = 1
    """Coordinates a position has."""

    softmax_scale: float | None = None
    """The factor of q . k that the method was made for; None is the usual 1 / sqrt(head_dim)."""

    softmax_factor: float = 1.0
    """What multiplies that factor, as YaRN's temperature does for DeepSeek's models."""

    reach: float = math.inf
    """How far from 0 positions may lie."""

    whole: bool = False
    """Whether positions must be whole numbers, as for methods that look them up in a table."""

    resolved: Mapping[str, object] = {}
    """What the options came to, for ``describe``."""

    settled: frozenset[str] = frozenset()
    """Options that other numbers were computed from when it was made, and that cannot be assigned to later."""

    def __init__(self) -> None:
        super().__init__()
        self.register_load_state_dict_pre_hook(_drop_legacy_keys)  # type: ignore[no-untyped-call]

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.settled and name in self.__dict__:
            made = type(self).__name__
            raise AttributeError(
                f"{name} must be given when {made} is made, since what it computes with follows from it then; got "
                f"{name}={value!r} for one made with {name}={self.__dict__[name]!r}. Make a new one: "
                f"{made}(**(encoding.config | {{{name!r}: ...}}))."
            )
        super().__setattr__(name, value)

    @property
    def config(self) -> dict[str, Any]:
        """The arguments that make this encoding again."""
        return {
            name: getattr(self, name) for name in inspect.signature(type(self).__init__).parameters if name != "self"
        }

    def scale_for(self, head_dim: int) -> float:
        """The factor of q . k that this method asks for."""
        own = 1 / math.sqrt(head_dim) if self.softmax_scale is None else self.softmax_scale
        return own * self.softmax_factor

    def describe(self) -> dict[str, Any]:
        """Everything that was chosen or derived: nothing hidden."""
        summary: dict[str, Any] = {
            "encoding": type(self).__name__,
            "place": self.place,
            **self.config,
            **self.resolved,
        }
        summary["softmax_scale"] = "1/sqrt(head_dim)" if self.softmax_scale is None else self.softmax_scale
        summary["softmax_factor"] = self.softmax_factor
        summary["parameters"] = sum(parameter.numel() for parameter in self.parameters())
        summary["tags"] = sorted(self.tags)
        return summary

    def extra_repr(self) -> str:
        """Its options, as written to make it."""
        return ", ".join(f"{name}={value!r}" for name, value in self.config.items())


Encodings: TypeAlias = Encoding | Sequence[Encoding] | nn.Module | None


def as_encodings(given: Encodings) -> list[Encoding]:
    """One encoding, several (a list or ModuleList), or none, as a list."""
    if given is None or isinstance(given, Encoding):
        return [] if given is None else [given]
    checked: list[Encoding] = []
    for each in given if isinstance(given, (list, tuple, nn.ModuleList)) else [given]:
        if not isinstance(each, Encoding):
            cure = f" Use situs.create({each!r}, ...)." if isinstance(each, str) else ""
            raise TypeError(f"encoding must be a situs.Encoding or a list of them; got {type(each).__name__}.{cure}")
        checked.append(each)
    return checked


class InputEncoding(Encoding):
    """Adds position to the token embeddings, before the first layer."""

    place = "input"

    @abstractmethod
    def forward(
        self, x: Float[Tensor, "batch sequence dim"], positions: PositionsLike = None
    ) -> Float[Tensor, "batch sequence dim"]:
        """``x`` with its positions in it."""


class QueryKeyEncoding(Encoding):
    """Changes queries and keys so that their products know the positions."""

    place = "query and key"
    head_dim: int

    @abstractmethod
    def forward(
        self,
        x: Float[Tensor, "batch heads sequence head_dim"],
        positions: PositionsLike = None,
        *,
        role: Role = "query",
    ) -> Float[Tensor, "batch heads sequence head_dim"]:
        """Queries or keys with their positions in them; ``role`` matters to methods that treat them apart."""


def _drop_legacy_keys(
    module: nn.Module, state: dict[str, Tensor], prefix: str, *_: object
) -> None:  # a function, not a method, so that modules stay picklable
    own = {prefix + name for name in (*module._parameters, *module._buffers)}
    for key in [key for key in state if key.startswith(prefix)]:
        if key.removeprefix(prefix) in LEGACY_KEYS and key not in own:
            del state[key]


def require_positions(positions: object, reason: str) -> None:
    """Raise unless these are a `Positions`."""
    if not isinstance(positions, Positions):
        kind = type(positions).__name__
        raise TypeError(
            f"positions must be a situs.Positions, since {reason}; got {kind}. Use Positions.explicit(ids) for a "
            f"tensor of positions, or Positions.range(length)."
        )


def require_axes(encoding: Encoding, positions: Positions) -> None:
    """Raise if positions have more or fewer coordinates than the encoding takes."""
    if positions.axes != encoding.axes:
        raise ValueError(
            f"positions must have {encoding.axes} coordinate{'s' * (encoding.axes > 1)} a place, since this "
            f"{type(encoding).__name__} encodes that many; got {positions.axes} in {positions!r}."
        )


def require_whole(encoding: Encoding, positions: Positions) -> None:
    """Raise if the encoding looks positions up and these are fractions."""
    if encoding.whole and positions.given_ids is not None and positions.given_ids.is_floating_point():
        raise TypeError(
            f"positions must be whole numbers, since {type(encoding).__name__} looks them up in a table; got dtype "
            f"{positions.given_ids.dtype}."
        )


def require_choice(name: str, value: object, choices: tuple[object, ...], reason: str) -> None:
    """Raise unless ``value`` is one of ``choices``."""
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} must be one of {listed}, since {reason}; got {value!r}.")


def require_number(name: str, value: Any, reason: str) -> float | int:
    """A real number as Python's own; NumPy's and tensors without axes are taken too. Raise for anything else."""
    if type(value) in (int, float):
        return value  # type: ignore[no-any-return]
    if not isinstance(value, (str, bytes, bool, complex)) and not getattr(value, "ndim", 0):
        try:
            return float(value)
        except (TypeError, ValueError, RuntimeError):
            pass
    raise TypeError(f"{name} must be a number, since {reason}; got {value!r}.")


def require_finite(name: str, value: Any, reason: str) -> float | int:
    """The same, but neither infinite nor not a number."""
    number = require_number(name, value, reason)
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite, since {reason}; got {value}.")
    return number


def require_base(base: Any) -> float | int:
    """A base as Python's own number; raise unless wavelengths grow by it."""
    bases = require_bases(base)
    if isinstance(bases, tuple):
        raise TypeError(f"base must be a number, since wavelengths grow by its powers; got {base!r}.")
    return bases


def require_bases(base: Any) -> float | int | tuple[float, ...]:
    """The same for one base, or a sequence of them."""
    reason = "wavelengths grow by its powers"
    several = isinstance(base, Iterable) and not isinstance(base, (str, bytes)) and getattr(base, "ndim", 1) != 0
    bases = tuple(require_number("base", each, reason) for each in (base if several else (base,)))
    if not bases or not all(each > 1 for each in bases):
        raise ValueError(f"base must be more than 1, since {reason}; got {base}.")
    if math.inf in bases:
        raise ValueError(f"base must be finite, since {reason}; got {base}.")
    return tuple(map(float, bases)) if several else bases[0]


def require_dropout(dropout: float) -> None:
    """Raise unless it is a probability below 1."""
    if not 0 <= dropout < 1:
        raise ValueError(
            f"dropout must be at least 0 and below 1, since it is a probability and 1 leaves nothing; got {dropout}."
        )


def require_width(encoding: Encoding, name: str, x: Tensor, width: int) -> None:
    """Raise unless the last axis of ``x`` has the encoding's width, and its numbers can hold fractions."""
    if x.shape[-1] != width:
        raise ValueError(
            f"x must have {width} channels, since {type(encoding).__name__} was made with {name}={width}; "
            f"got shape {tuple(x.shape)}."
        )
    if not x.is_floating_point():
        cure = "Hand over torch.view_as_real(x).flatten(-2)" if x.is_complex() else "Convert it with x.float()"
        raise TypeError(
            f"x must be of a real floating-point dtype, since {type(encoding).__name__} computes with real fractions; "
            f"got {x.dtype}. {cure}."
        )


def require_embeddings(encoding: Encoding, x: Tensor, dim: int) -> None:
    """Raise unless ``x`` is (batch, sequence, dim), in numbers that can hold fractions."""
    if x.ndim != 3:
        raise ValueError(
            f"x must have shape (batch, sequence, {dim}), since {type(encoding).__name__} is added to embeddings; "
            f"got shape {tuple(x.shape)}."
        )
    require_width(encoding, "dim", x, dim)


def autocast_off(device: str) -> AbstractContextManager[object]:
    """Within, what is computed on the device is computed in the dtypes that tensors have."""
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        return torch.autocast(device, enabled=False)
    return nullcontext()


def without_autocast(function: F) -> F:
    """Decorator: compute in the dtypes as they are, whatever autocast is on; the first tensor tells the device."""

    @functools.wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        given = (each for each in (*args, *kwargs.values()) if isinstance(each, (Tensor, Positions)))
        first = next(given, None)
        with autocast_off("meta" if first is None else first.device.type):
            return function(*args, **kwargs)

    return plain  # type: ignore[return-value]


def computing_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype to compute in for tensors of ``dtype``: float32 or wider."""
    return torch.float64 if dtype == torch.float64 else torch.float32
