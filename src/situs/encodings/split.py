"""Splits: which coordinate rotates which channel pair, where a position has more than one.

Axial     each axis has pairs and a ladder of its own     RoPE-ViT, arXiv:2403.13298; Pixtral; Flux; Wan; Gemma 4
Sections  one ladder, its pairs dealt out to the axes     M-RoPE, arXiv:2409.12191; Qwen3-VL; ERNIE 4.5 VL

A ladder is what one base gives: the frequencies ``base^(-2i/dim)`` of ``dim`` channels, scaled or not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, final

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from situs.arguments import (
    refuse,
    require_base,
    require_choice,
    require_count,
    require_floating,
    require_several,
    told,
)
from situs.encodings.bands import refuse_bands
from situs.encodings.stretch import ScaledFrequencies, Scaling
from situs.functional.frequencies import (
    contiguous_axis_map,
    interleaved_axis_map,
    require_frequencies,
    rotary_frequencies,
    time_last_axis_map,
)

_EACH = "each axis has its own"
_COUNTS = "it counts coordinates"


class Ladder(NamedTuple):
    """Hold what makes one ladder of frequencies."""

    dim: int
    base: float | Tensor
    scaling: Scaling | None

    def resolve(self, sequence_length: int | Tensor | None) -> ScaledFrequencies:
        """Compute the frequencies of ``dim / 2`` pairs."""
        if self.scaling is None:
            return ScaledFrequencies(rotary_frequencies(self.dim, self.base))
        return self.scaling.resolve(self.dim, self.base, sequence_length)


class Split(ABC):
    """Share a head's pairs among coordinates."""

    axes: int
    """Coordinates of a position."""

    halves: Literal["head", "axis"] = "head"
    """Whether halves that make pairs are those of all that is rotated, or of each axis' block."""

    text_has_one: ClassVar[bool] = False
    """Whether a single position may stand for all coordinates, as text's does among images."""

    @abstractmethod
    def ladders(self, rotary_dim: int, base: float | Tensor, scaling: Scaling | None) -> tuple[Ladder, ...]:
        """List the ladders that pairs are dealt from, where ``base`` and ``scaling`` serve all that have no own; raises
        where the sizes do not fit."""

    @abstractmethod
    def deal(
        self, ladder: Float64[Tensor, "*heads ladder"]
    ) -> tuple[Float64[Tensor, "*heads pairs"], Int64[Tensor, "pairs"]]:
        """Give each pair its frequency and axis; ``ladder`` has all ladders, one after another."""


@final
@dataclass(frozen=True, kw_only=True)
class Axial(Split):
    """Deal pairs in blocks, one per axis, of equal size unless ``dims`` tells the channels of each.

    ``ladder="own"``: every axis has the full ladder of its share of the channels (RoPE-ViT, Qwen2-VL's vision).
    ``ladder="shared"``: one ladder over the whole head, dealt out in turns (Pixtral).
    ``dims=(16, 56, 56)``: channels of each axis (Flux, Qwen-Image, HunyuanVideo; Wan has ``(44, 42, 42)``).
    ``bases``, ``scalings``: one for each axis, instead of Rotary's (Cosmos scales time alone).
    ``halves="axis"``: with pairing "halves", the two halves are those of each axis' block instead of the head's
    (Gemma 4's vision).

    >>> from situs import Axial, NTKScaling, Rotary
    >>> flux = Rotary(head_dim=128, pairing="interleaved", split=Axial(dims=(16, 56, 56)))
    >>> flux.axes, flux.axis_of_pair.bincount().tolist()
    (3, [8, 28, 28])
    >>> cosmos = Axial(dims=(44, 42, 42), scalings=(NTKScaling(factor=2.0), None, None))
    """

    axes: int | None = None  # type: ignore[assignment]  # 2, or as many as dims, once made
    ladder: Literal["own", "shared"] = "own"
    dims: tuple[int, ...] | None = None
    bases: tuple[float, ...] | None = None
    scalings: tuple[Scaling | None, ...] | None = None
    halves: Literal["head", "axis"] = "head"

    def __post_init__(self) -> None:
        given: dict[str, Any] = {name: getattr(self, name) for name in ("dims", "bases", "scalings")}
        several = {
            name: tuple([_OF_AXIS[name](each) for each in require_several(name, values, _EACH)])
            for name, values in given.items()
            if values is not None
        }
        counts = [len(values) for values in several.values()]
        for name, values in several.items():
            if not values:
                refuse(ValueError, name, "be one or more", _EACH, "none")
        axes = (counts or [2])[0] if self.axes is None else require_count("axes", self.axes, _COUNTS, least=1)
        require_choice("ladder", self.ladder, ("own", "shared"), "axes repeat a ladder or share one")
        require_choice(
            "halves", self.halves, ("head", "axis"), "pairs reach over the head or stay in their axis' block"
        )
        for name, values in several.items():
            if len(values) != axes:
                refuse(ValueError, name, f"be {axes}, one for each axis", _EACH, str(len(values)))
            if self.ladder == "shared":
                refuse(ValueError, name, 'be left out with ladder="shared"', "one ladder serves all axes", told(values))
            object.__setattr__(self, name, values)
        object.__setattr__(self, "axes", axes)

    @property
    def _count(self) -> int:
        assert self.axes is not None
        return self.axes

    def ladders(self, rotary_dim: int, base: float | Tensor, scaling: Scaling | None) -> tuple[Ladder, ...]:
        rotary_dim = _require_ladders(rotary_dim, base, scaling)
        total = rotary_dim if self.dims is None else sum(self.dims)
        if total != rotary_dim:
            reason, made = "every rotated channel belongs to an axis", f"{self.dims}, which makes {total}"
            cure = f"Leave the rest unrotated with rotary_dim={total}." if total < rotary_dim else ""
            refuse(ValueError, "dims", f"add up to rotary_dim={rotary_dim}", reason, made, cure)
        if self.dims is None and rotary_dim % (2 * self._count):
            raise ValueError(
                f"rotary_dim must be a multiple of {2 * self._count}, since {self._count} axes get whole pairs each; "
                f"got {rotary_dim}."
            )
        if self.scalings is not None and scaling is not None:
            refuse(ValueError, "scaling", "be left out where each axis has its own", "one of them acts", told(scaling))
        if self.bases is not None and isinstance(base, Tensor) and base.ndim:
            reason, shape = "bases tells those of the axes", f"{base.numel()} bases"
            refuse(ValueError, "base", "be one number with Axial(bases=...)", reason, shape)
        if self.ladder == "shared":
            return (Ladder(rotary_dim, base, scaling),)
        dims = self.dims or (rotary_dim // self._count,) * self._count
        bases = (base,) * self._count if self.bases is None else self.bases
        scalings = (scaling,) * self._count if self.scalings is None else self.scalings
        return tuple([Ladder(*each) for each in zip(dims, bases, scalings, strict=True)])

    def deal(self, ladder: Tensor) -> tuple[Tensor, Tensor]:
        require_floating("ladder", ladder, "it holds frequencies")
        if self.dims is not None:
            return ladder, contiguous_axis_map(tuple([dim // 2 for dim in self.dims]))
        if self.ladder == "shared":
            ladder = torch.cat([ladder[..., axis :: self._count] for axis in range(self._count)], -1)
        return ladder, contiguous_axis_map((ladder.shape[-1] // self._count,) * self._count)


@final
@dataclass(frozen=True, kw_only=True)
class Sections(Split):
    """Deal ``sizes`` pairs to time, height and width (M-RoPE); one position for all three is plain rotary.

    ``order="contiguous"`` gives them in blocks (Qwen2-VL), ``"interleaved"`` in turns (Qwen3-VL), ``"time_last"``
    deals height and width in turns, and time the slowest pairs (ERNIE 4.5 VL, whose ``mrope_section`` of
    ``[22, 22, 20]``, height, width and time, is ``sizes=(20, 22, 22)`` here).

    >>> from situs import Rotary, Sections
    >>> ernie = Sections(sizes=(2, 3, 3), order="time_last")
    >>> Rotary(head_dim=16, pairing="interleaved", split=ernie).axis_of_pair.tolist()
    [1, 2, 1, 2, 1, 2, 0, 0]
    """

    text_has_one: ClassVar[bool] = True

    sizes: tuple[int, ...]
    order: Literal["contiguous", "interleaved", "time_last"] = "contiguous"

    def __post_init__(self) -> None:
        sizes = require_several("sizes", self.sizes, "each axis has a number of pairs")
        counts = tuple([require_count("sizes", size, "they count pairs", least=0) for size in sizes])
        object.__setattr__(self, "sizes", counts)
        require_choice("order", self.order, tuple(_AXIS_MAPS), "sections are dealt in blocks or in turns")
        if len(self.sizes) < 2:
            raise ValueError(f"sizes must be two or more, since each axis has a number of pairs; got {self.sizes}.")
        if self.order == "time_last" and len(set(self.sizes[1:])) > 1:
            raise ValueError(
                f"sizes must be one for all axes but the first, since order='time_last' deals one pair of each in "
                f"turns; got {self.sizes}."
            )
        if self.order == "interleaved":
            dealt = interleaved_axis_map(self.sizes).bincount(minlength=len(self.sizes)).tolist()
            if tuple(dealt) != self.sizes:
                raise ValueError(
                    f"sizes must leave each axis its turns, since interleaved sections are dealt one pair an axis in "
                    f"turns; got {self.sizes}, of which the axes would get {tuple(dealt)}."
                )

    @property
    def axes(self) -> int:  # type: ignore[override]
        """Coordinates of a position."""
        return len(self.sizes)

    def ladders(self, rotary_dim: int, base: float | Tensor, scaling: Scaling | None) -> tuple[Ladder, ...]:
        rotary_dim = _require_ladders(rotary_dim, base, scaling)
        if 2 * sum(self.sizes) != rotary_dim:
            raise ValueError(
                f"sizes must add up to {rotary_dim // 2}, the number of pairs in rotary_dim={rotary_dim} channels; "
                f"got {self.sizes}, which makes {sum(self.sizes)}."
            )
        return (Ladder(rotary_dim, base, scaling),)

    def deal(self, ladder: Tensor) -> tuple[Tensor, Tensor]:
        require_floating("ladder", ladder, "it holds frequencies")
        return ladder, _AXIS_MAPS[self.order](self.sizes)


_AXIS_MAPS = {
    "contiguous": contiguous_axis_map,
    "interleaved": interleaved_axis_map,
    "time_last": time_last_axis_map,
}


def _require_ladders(rotary_dim: object, base: object, scaling: object) -> int:
    """Raise unless ladders can be made of these."""
    if scaling is not None and not isinstance(scaling, Scaling):
        refuse(TypeError, "scaling", "be a situs.Scaling or None", "it changes frequencies", told(scaling))
    dim = require_count("rotary_dim", rotary_dim, "it counts channels", least=1)
    require_frequencies(dim, base)
    return dim


def _require_dim(given: object) -> int:
    """The channels of an axis, in whole pairs."""
    dim = require_count("dims", given, "they count channels", least=2)
    if dim % 2:
        refuse(ValueError, "dims", "be even", "each axis gets whole pairs of channels", str(dim))
    return dim


def _require_base_of_axis(given: object) -> float:
    """The base of an axis."""
    return float(require_base(given, "bases"))


def _require_scaling_of_axis(given: object) -> Scaling | None:
    """A scaling of one axis does not choose by length, which belongs to the whole sequence."""
    if given is not None and not isinstance(given, Scaling):
        cure = "Use such as situs.NTKScaling(factor=2.0)."
        refuse(TypeError, "scalings", "be a situs.Scaling or None for each axis", "they change frequencies",
               told(given), cure)  # fmt: skip
    refuse_bands("scalings", given, "Axial")
    if given is not None and given.by_length:
        reason, cure = "a coordinate has no sequence length", "Give it to Rotary(scaling=...), for all axes."
        refuse(ValueError, "scalings", "not choose by length", reason, type(given).__name__, cure)
    return given


_OF_AXIS: dict[str, Callable[[object], Any]] = {
    "dims": _require_dim,
    "bases": _require_base_of_axis,
    "scalings": _require_scaling_of_axis,
}
