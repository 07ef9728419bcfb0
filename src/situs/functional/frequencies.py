"""Frequencies: how fast each channel pair is rotated, in radians per position.

    w_i = base^(-2i / dim),    i = 0 .. dim/2 - 1                   (Vaswani et al. 2017; Su et al. 2021)

Several coordinates (images, video, text among images) share the pairs of one head; an *axis map*
says which coordinate rotates which pair. All of it is computed once, on the host, in float64.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from situs.arguments import refuse, require_base, require_choice, require_count, require_floating, require_several

Spacing = Literal["exclusive", "inclusive"]


def rotary_frequencies(dim: int, base: float | Tensor = 10000.0) -> Float64[Tensor, "*heads pairs"]:
    """Compute the ladder ``base^(-2i/dim)``; a tensor of bases, one a head, gives one ladder a head."""
    require_frequencies(dim, base)
    exponents = torch.arange(0, dim, 2, dtype=torch.float64, device="cpu") / dim
    bases = torch.as_tensor(base, dtype=torch.float64, device="cpu")
    return bases.unsqueeze(-1) ** -exponents


def require_frequencies(dim: object, base: object) -> None:
    """Raise unless a ladder can be made of so many channels and such a base, or one for each head."""
    require_count("dim", dim, "it counts channels", least=1)
    if isinstance(base, Tensor) and base.ndim:
        require_floating("base", base, "wavelengths grow by its powers")
    else:
        require_base(base)


def sinusoidal_frequencies(dim: int, base: float, spacing: Spacing) -> Float64[Tensor, "pairs"]:
    """Compute the ladder of a sinusoidal table.

    ``spacing="exclusive"`` is the paper's: the slowest wavelength stays below ``2 pi base``.
    ``spacing="inclusive"`` is tensor2tensor's and fairseq's, which reaches it.
    """
    dim = require_count("dim", dim, "it counts channels", least=1)
    base = require_base(base)
    require_choice("spacing", spacing, ("exclusive", "inclusive"), "the slowest wavelength is left out or reached")
    count = (dim + 1) // 2
    steps = torch.arange(count, dtype=torch.float64, device="cpu")
    exponents = 2 * steps / dim if spacing == "exclusive" else steps / max(count - 1, 1)
    return base**-exponents


def _require_sections(given: object) -> tuple[int, ...]:
    """Numbers of pairs, one an axis."""
    several = require_several("sections", given, "each axis has a number of pairs")
    return tuple([require_count("sections", each, "they count pairs", least=0) for each in several])


def contiguous_axis_map(sections: tuple[int, ...]) -> Int64[Tensor, "pairs"]:
    """Map each pair to an axis, in blocks: ``(2, 1, 1)`` gives ``0 0 1 2``."""
    sections = _require_sections(sections)
    axes = torch.arange(len(sections), device="cpu")
    return axes.repeat_interleave(torch.tensor(sections, device="cpu"))


def interleaved_axis_map(sections: tuple[int, ...]) -> Int64[Tensor, "pairs"]:
    """Map each pair to an axis, in turns: ``(2, 1, 1)`` gives ``0 1 2 0``.

    Axis ``a > 0`` owns every pair ``a, a + n, a + 2n ...`` below ``n * sections[a]``; axis 0 owns the rest.
    """
    sections = _require_sections(sections)
    count = len(sections)
    axis_map = torch.zeros(sum(sections), dtype=torch.int64, device="cpu")
    for axis in range(1, count):
        axis_map[axis : count * sections[axis] : count] = axis
    return axis_map


def time_last_axis_map(sections: tuple[int, ...]) -> Int64[Tensor, "pairs"]:
    """Map each pair to an axis: all but axis 0 in turns, then axis 0: ``(1, 2, 2)`` gives ``1 2 1 2 0``."""
    time, *others = _require_sections(sections)
    if len(set(others)) > 1:
        reason = "one pair of each is dealt in turns"
        refuse(ValueError, "sections", "be one for all axes but the first", reason, str((time, *others)))
    turns = torch.arange(1, len(others) + 1, device="cpu").repeat(others[0] if others else 0)
    return torch.cat((turns, torch.zeros(time, dtype=torch.int64, device="cpu")))
