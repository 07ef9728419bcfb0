"""What an encoding is: a module named by the place where it acts on attention.

    place         class             it computes
    input         InputEncoding     x + p(i)
    query         QueryKeyEncoding  t(i) q, keys as they are
    query/key     QueryKeyEncoding  R(i) q, R(j) k
    score         BiasEncoding      + b(i, j), the same for any content
    score         ScoreEncoding     + g(q_i, k_j, i, j)
    value         ValueEncoding     sum_j a_ij (v_j + r_ij)
    value         ValueMap          M(i) sum_j a_ij N(j) v_j
    nowhere       NoPE              nothing, the control

An encoding of your own subclasses one of them, keeps its options under their own names, and is then
checked by ``situs.check_encoding`` and run by ``situs.attention``. Masks are never an encoding's business.
"""

from __future__ import annotations

import functools
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from situs.arguments import refuse, require_choice, require_count, require_flag, told
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


@dataclass(frozen=True)
class Feature:
    """Declare a side input: numbers that an encoding takes of each token and head, beside its query and key.

    >>> import situs
    >>> situs.ProjectedBias(num_heads=4, rank=16).features
    {'relative': Feature(width=16, role='query', tempered=False)}
    """

    width: int
    """Numbers of each token and head."""
    role: Role = "query"
    """Whether queries have it, or keys, with which it is then cached."""
    tempered: bool = False
    """Whether a Temperature that multiplies queries multiplies it too."""

    def __post_init__(self) -> None:
        require_count("width", self.width, "it counts the numbers of a token and head", least=1)
        require_role(self.role)
        require_flag("tempered", self.tempered, "a temperature multiplies it or not")


class Encoding(nn.Module, ABC):
    """Tell what all encodings have: where they act, what they take, how they are made again."""

    place: ClassVar[str]
    """Where it acts: "input", "query", "query and key", "score", "score and value", "value" or "nowhere"."""

    tags: frozenset[str] = frozenset()
    """Properties that ``check_encoding`` then proves; see ``situs.checks.TAGS``."""

    axes: int = 1
    """Coordinates of a position."""

    num_heads: int | None = None
    """Heads of the queries that it is made for; None where any will do."""

    head_dim: int | None = None
    """Channels of a head that it is made for; None where any will do."""

    usable_length: int | None = None
    """Positions that it can encode, 0 .. usable_length - 1; None where they do not end."""

    extent: tuple[int, ...] | None = None
    """Sizes of the window that positions of a document must fit into, one per axis; None where there is none."""

    softmax_scale: float | None = None
    """The factor of q . k that the method was made for; None is the usual 1 / sqrt(head_dim)."""

    softmax_factor: float = 1.0
    """What multiplies that factor, as YaRN's temperature does for DeepSeek's models."""

    reach: float = math.inf
    """How far from 0 positions may lie."""

    whole: bool = False
    """Whether positions must be whole numbers, as for methods that look them up in a table."""

    takes_unplaced: bool = False
    """Whether tokens without a position (``Positions.placed``), such as [CLS], mean something to it."""

    resolved: Mapping[str, object] = {}
    """What the options came to, for ``describe``."""

    features: Mapping[str, Feature] = {}
    """Side inputs of each token that it takes beside queries and keys, by name; encodings of scores may have some, and
    compute them from hidden states by a method ``project(x)``."""

    causal_only: bool = False
    """Whether it is defined for keys alone that are no later than the query."""

    settled: frozenset[str] = frozenset()
    """Options that others were computed from when it was made, and that cannot be assigned to later."""

    def __init__(self) -> None:
        super().__init__()
        self.register_load_state_dict_pre_hook(_drop_legacy_keys)  # type: ignore[no-untyped-call]

    def __setattr__(self, name: str, value: Any) -> None:
        if "_modules" not in self.__dict__ and name != "__dict__":  # which a copy is given whole
            raise AttributeError(
                f"{type(self).__name__} must call super().__init__() before it assigns to self, since torch.nn.Module "
                f"is set up there; got self.{name} = ... first. Make super().__init__() the first line of __init__."
            )
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
        names = [name for name in inspect.signature(type(self).__init__).parameters if name != "self"]
        for name in names:
            if not hasattr(self, name) or self._is_inherited(name):  # nn.Module would say that there is no config
                made = type(self).__name__
                raise TypeError(
                    f"{made} must keep its option {name} under that name, since it is made again from it; got no such "
                    f"attribute. Write self.{name} = {name} in __init__."
                )
        return {name: getattr(self, name) for name in names}

    def _is_inherited(self, name: str) -> bool:
        """Whether an option, such as num_heads, is only what all encodings have before they are told."""
        held = {*self.__dict__, *self._parameters, *self._buffers, *self._modules}
        return name not in held and getattr(type(self), name, None) is vars(Encoding).get(name, self)

    def scale_for(self, head_dim: int) -> float:
        """Compute the factor of q . k that this method asks for."""
        if type(head_dim) is not int or head_dim < 1:
            head_dim = require_count("head_dim", head_dim, "it counts channels", least=1)
        own = 1 / math.sqrt(head_dim) if self.softmax_scale is None else self.softmax_scale
        return own * self.softmax_factor

    def describe(self) -> dict[str, Any]:
        """List everything that was chosen or derived."""
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
        """Write the options as they are given to make it."""
        return ", ".join(f"{name}={value!r}" for name, value in self.config.items())


Encodings: TypeAlias = Encoding | Sequence[Encoding] | nn.Module | None


def as_encodings(given: Encodings, name: str = "encoding") -> list[Encoding]:
    """List one encoding, several (a list or ModuleList), or none; ``name`` is what errors call it."""
    if given is None or isinstance(given, Encoding):
        return [] if given is None else [given]
    checked: list[Encoding] = []
    for each in given if isinstance(given, (list, tuple, nn.ModuleList)) else [given]:
        if not isinstance(each, Encoding):
            cure = f"Use situs.create({each!r}, ...)." if isinstance(each, str) else ""
            cure = f"Make one: {each.__name__}(...)." if isinstance(each, type) and issubclass(each, Encoding) else cure
            reason = "it tells attention where tokens stand"
            refuse(TypeError, name, "be a situs.Encoding or a list of them", reason, told(each), cure)
        checked.append(each)
    return checked


class InputEncoding(Encoding):
    """Add positions to the token embeddings, before the first layer."""

    place = "input"

    @abstractmethod
    def forward(
        self, x: Float[Tensor, "batch sequence dim"], positions: PositionsLike = None
    ) -> Float[Tensor, "batch sequence dim"]:
        """Add positions to ``x``."""


class QueryKeyEncoding(Encoding):
    """Change queries and keys so that their products know the positions."""

    place = "query and key"
    head_dim: int

    changes_keys: bool = True
    """Whether keys are changed at all; a method that changes queries alone acts on the place "query"."""

    widens: bool = False
    """Whether vectors come back with more channels; a cache then holds keys as they were, and every step changes
    them."""

    by_pair: bool = False
    """Whether a query and a key are changed by the positions of both, so that only attention can do it."""

    @abstractmethod
    def forward(
        self,
        x: Float[Tensor, "batch heads sequence head_dim"],
        positions: PositionsLike = None,
        *,
        role: Role = "query",
    ) -> Float[Tensor, "batch heads sequence _"]:
        """Change queries or keys by their positions; ``role`` matters to methods that treat them apart."""


def require_role(role: object) -> None:
    """Raise unless vectors are queries or keys."""
    if not isinstance(role, str) or role not in ("query", "key"):
        require_choice("role", role, ("query", "key"), "a vector is one or the other")


def _drop_legacy_keys(
    module: nn.Module, state: dict[str, Tensor], prefix: str, *_: object
) -> None:  # a function, not a method, so that modules stay picklable
    own = {prefix + name for name in (*module._parameters, *module._buffers)}
    for key in [key for key in state if key.startswith(prefix)]:
        if key.removeprefix(prefix) in LEGACY_KEYS and key not in own:
            del state[key]


def is_autocast(device: str) -> bool:
    """Whether autocast is on for this kind of device."""
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def autocast_off(device: str) -> AbstractContextManager[object]:
    """Compute within it in the dtypes that tensors have, on this device."""
    return torch.autocast(device, enabled=False) if is_autocast(device) else nullcontext()


def without_autocast(function: F) -> F:
    """Decorate a function to compute in the dtypes as they are, whatever autocast is on; the first tensor tells the
    device."""

    @functools.wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        for each in (*args, *kwargs.values()):
            if isinstance(each, (Tensor, Positions)):
                with autocast_off(each.device.type):
                    return function(*args, **kwargs)
        return function(*args, **kwargs)

    return plain  # type: ignore[return-value]


def computing_dtype(dtype: torch.dtype) -> torch.dtype:
    """Choose the dtype to compute in for tensors of ``dtype``: float32 or wider."""
    return torch.float64 if dtype == torch.float64 else torch.float32
