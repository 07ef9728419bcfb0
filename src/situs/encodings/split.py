"""Splits: which coordinate rotates which channel pair, where a position has more than one.

Axial     each axis has pairs and a ladder of its own     RoPE-ViT, arXiv:2403.13298; Pixtral
Sections  one ladder, its pairs dealt out to the axes     M-RoPE, arXiv:2409.12191; Qwen3-VL
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from situs.arguments import require_choice, require_count, require_floating, require_several
from situs.functional.frequencies import contiguous_axis_map, interleaved_axis_map


class Split(ABC):
    """Share a head's pairs among coordinates."""

    axes: int
    """Coordinates of a position."""

    text_has_one: ClassVar[bool] = False
    """Whether a single position may stand for all coordinates, as text's does among images."""

    @abstractmethod
    def ladder_dim(self, rotary_dim: int) -> int:
        """Tell how many channels one ladder of frequencies covers; raises where the sizes do not fit."""

    @abstractmethod
    def deal(
        self, ladder: Float64[Tensor, "*heads ladder"]
    ) -> tuple[Float64[Tensor, "*heads pairs"], Int64[Tensor, "pairs"]]:
        """Give each pair its frequency and axis."""


@final
@dataclass(frozen=True, kw_only=True)
class Axial(Split):
    """Deal pairs in equal blocks, one an axis.

    ``ladder="own"``: every axis has the full ladder of its share of the channels (RoPE-ViT, Qwen2-VL's vision).
    ``ladder="shared"``: one ladder over the whole head, dealt out in turns (Pixtral).
    """

    axes: int = 2
    ladder: Literal["own", "shared"] = "own"

    def __post_init__(self) -> None:
        require_choice("axes", self.axes, (2, 3), "images have two and videos three")
        require_choice("ladder", self.ladder, ("own", "shared"), "axes repeat a ladder or share one")

    def ladder_dim(self, rotary_dim: int) -> int:
        rotary_dim = require_count("rotary_dim", rotary_dim, "it counts channels", least=1)
        if rotary_dim % (2 * self.axes):
            raise ValueError(
                f"rotary_dim must be a multiple of {2 * self.axes}, since {self.axes} axes get whole pairs each; got "
                f"{rotary_dim}."
            )
        return rotary_dim // self.axes if self.ladder == "own" else rotary_dim

    def deal(self, ladder: Tensor) -> tuple[Tensor, Tensor]:
        require_floating("ladder", ladder, "it holds frequencies")
        if self.ladder == "own":
            frequencies = torch.cat([ladder] * self.axes, -1)
        else:
            frequencies = torch.cat([ladder[..., axis :: self.axes] for axis in range(self.axes)], -1)
        return frequencies, contiguous_axis_map((frequencies.shape[-1] // self.axes,) * self.axes)


@final
@dataclass(frozen=True, kw_only=True)
class Sections(Split):
    """Deal ``sizes`` pairs to time, height and width (M-RoPE); one position for all three is plain rotary.

    ``order="contiguous"`` gives them in blocks (Qwen2-VL), ``"interleaved"`` in turns (Qwen3-VL).
    """

    text_has_one: ClassVar[bool] = True

    sizes: tuple[int, ...]
    order: Literal["contiguous", "interleaved"] = "contiguous"

    def __post_init__(self) -> None:
        sizes = require_several("sizes", self.sizes, "each axis has a number of pairs")
        counts = tuple([require_count("sizes", size, "they count pairs", least=0) for size in sizes])
        object.__setattr__(self, "sizes", counts)
        require_choice("order", self.order, ("contiguous", "interleaved"), "sections are dealt in blocks or in turns")
        if len(self.sizes) < 2:
            raise ValueError(f"sizes must be two or more, since each axis has a number of pairs; got {self.sizes}.")
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

    def ladder_dim(self, rotary_dim: int) -> int:
        rotary_dim = require_count("rotary_dim", rotary_dim, "it counts channels", least=1)
        if 2 * sum(self.sizes) != rotary_dim:
            raise ValueError(
                f"sizes must add up to {rotary_dim // 2}, the number of pairs in rotary_dim={rotary_dim} channels; "
                f"got {self.sizes}, which makes {sum(self.sizes)}."
            )
        return rotary_dim

    def deal(self, ladder: Tensor) -> tuple[Tensor, Tensor]:
        require_floating("ladder", ladder, "it holds frequencies")
        deal = contiguous_axis_map if self.order == "contiguous" else interleaved_axis_map
        return ladder, deal(self.sizes)
