"""Box biases: learned numbers for the offset in the text and for the offsets of boxes on a page, in buckets.

Papers   Xu et al. (LayoutLMv2), arXiv:2012.14740, section 2.2; Huang et al. (LayoutLMv3), arXiv:2204.08387; Tang et al.
         (UDOP), arXiv:2212.02623, after Powalski et al. (TILT), arXiv:2102.09550.
Acts on  scores.    Learned: yes, the buckets of all axes x heads.    Relative: yes, in every axis.

    score[h, i, j] = q_i . k_j / sqrt(d) + text[bucket(j - i), h] + x[bucket(x_j - x_i), h] + y[bucket(y_j - y_i), h]

Positions have three coordinates, (text, x, y): each token's place in the text and the place of its box on the page.
``positions`` makes them from boxes. Buckets are T5's, each axis with a number and a reach of its own. The table holds
the rows of the text first, then those of x, then those of y.

Departures: other axes than these three will do, one or more. UDOP gives boxes as shares of the page and counts offsets
in hundredths, truncated towards 0 (``resolution``); LayoutLMv3 divides the bias by sqrt(d) with q . k (``factor``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, final

import torch
from jaxtyping import Bool, Int, Num
from torch import Tensor, nn

from situs.arguments import (
    refuse,
    require_choice,
    require_count,
    require_number,
    require_real,
    require_several,
    require_spread,
    require_whole_numbers,
)
from situs.encodings.bias import OffsetBias, Rule
from situs.functional.buckets import t5_rows
from situs.positions import Positions, require
from situs.registry import register

_AN_AXIS = "each axis has buckets of its own"


@final
@register(
    name="boxes",
    paper="Xu et al. 2021, LayoutLMv2: Multi-modal Pre-training for Visually-rich Document Understanding, "
    "arXiv:2012.14740",
    formula="q_i . k_j / sqrt(d) + text[bucket(j - i), h] + x[bucket(x_j - x_i), h] + y[bucket(y_j - y_i), h]",
    dialects={
        "LayoutLMv2": "the defaults, and softmax_scale=None",
        "LayoutLMv3": 'factor=1 / sqrt(head_dim), boxes at "left_bottom"',
        "UDOP": "num_buckets=(32, 32, 32), max_distance=(128, 100, 100), resolution=(1, 100, 100), softmax_scale=1.0, "
        'boxes at their "centre"',
    },
)
class Boxes(OffsetBias):
    """Add a learned number for each bucket of offsets in the text, and across and down a page.

    >>> import situs, torch
    >>> boxes = torch.randint(0, 1000, (1, 6, 4))  # left, top, right, bottom
    >>> layout = situs.Boxes(num_heads=2)
    >>> query = key = value = torch.randn(1, 2, 6, 8)
    >>> situs.attend(query, key, value, encoding=layout, positions=layout.positions(boxes)).shape
    torch.Size([1, 2, 6, 8])
    """

    tags = frozenset({"relative", "bounded", "far", "learned"})

    def __init__(
        self,
        *,
        num_heads: int,
        num_buckets: Sequence[int] = (32, 64, 64),
        max_distance: Sequence[int] | int = (128, 256, 256),
        resolution: Sequence[float | int] | None = None,
        factor: float = 1.0,
        softmax_scale: float | None = None,
        init_std: float = 0.02,
    ) -> None:
        """
        num_heads: heads, each with its own numbers.
        num_buckets: rows of each axis: of the text, of x and of y; one more axis for each further number.
        max_distance: of each axis, or of all, the distance in steps from which on all offsets share a row.
        resolution: of each axis, steps to a unit of its coordinate, to which offsets are truncated; 1 if left out.
        factor: what multiplies the bias: 1 / sqrt(head_dim) for LayoutLMv3.
        softmax_scale: factor of q . k; None for 1 / sqrt(head_dim), 1 for UDOP, whose attention is T5's.
        init_std: standard deviation of the normal start.
        """
        super().__init__()
        self.num_heads = require_count("num_heads", num_heads, "each has numbers of its own", least=1)
        self.num_buckets = _whole_numbers("num_buckets", num_buckets)
        axes = len(self.num_buckets)
        several = (max_distance,) * axes if isinstance(max_distance, int) else max_distance
        self.max_distance = _whole_numbers("max_distance", several)
        steps = (1.0,) * axes if resolution is None else require_several("resolution", resolution, _AN_AXIS)
        given = tuple([float(require_number("resolution", each, "it counts steps", above=0)) for each in steps])
        self.resolution = None if resolution is None else given
        self.factor = require_number("factor", factor, "the bias is multiplied by it")
        if softmax_scale is not None:
            softmax_scale = require_number("softmax_scale", softmax_scale, "it multiplies q . k")
        self.softmax_scale = softmax_scale
        self.init_std = require_spread(init_std)
        for name, each in (("max_distance", self.max_distance), ("resolution", given)):
            if len(each) != axes:
                reason = f"{_AN_AXIS} and num_buckets has {axes}"
                refuse(ValueError, name, f"be {axes} number{'s' * (axes > 1)}", reason, str(each))
        for rows, far in zip(self.num_buckets, self.max_distance, strict=True):
            _require_buckets(rows, far)
        self.axes = axes
        self._steps = given
        self._rows = [t5_rows(*each, True) for each in zip(self.num_buckets, self.max_distance, strict=True)]
        self._starts = [sum(self.num_buckets[:axis]) for axis in range(axes)]
        self.table = nn.Parameter(torch.empty(sum(self.num_buckets), num_heads))
        self.resolved = {"rows": sum(self.num_buckets)}
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the table anew."""
        self.table.normal_(std=self.init_std)

    def rule(self, device: torch.device, dtype: torch.dtype) -> Rule:
        """Sum up ``table[bucket(offset), head]`` over the axes."""
        table = self.table.to(dtype) * self.factor
        rows = [start + each.to(device) for start, each in zip(self._starts, self._rows, strict=True)]
        steps, bounds = self._steps, self.max_distance

        def look_up(*given: Tensor) -> Tensor:
            *offsets, head = given
            parts = []
            for offset, own, step, far in zip(offsets, rows, steps, bounds, strict=True):
                counted = offset if step == 1 and not offset.is_floating_point() else _counted(offset, step)
                parts.append(table[own[counted.clamp(-far, far) + far], head])
            total: Tensor = sum(parts[1:], parts[0])
            return total

        return look_up

    def positions(
        self,
        boxes: Num[Tensor, "batch sequence 4"],
        *,
        text: Int[Tensor, "#batch sequence"] | None = None,
        valid: Bool[Tensor, "batch sequence"] | None = None,
        anchor: Literal["left_bottom", "centre"] = "left_bottom",
    ) -> Positions:
        """Make positions of tokens from their boxes.

        boxes: left, top, right and bottom edge of each token's box.
        text: each token's place in the text, counted from 0 if left out.
        valid: true at real tokens; others are padding.
        anchor: the point of a box that stands for it: its "left_bottom" corner (LayoutLM), or its "centre" (UDOP).
        """
        require_choice("anchor", anchor, ("left_bottom", "centre"), "one point of a box stands for it")
        require_real("boxes", boxes, "tokens have places on a page")
        if self.axes != 3:
            raise ValueError(
                f"num_buckets must be of the text, of x and of y for positions of boxes, since they have these three "
                f"coordinates; got {self.num_buckets}."
            )
        if boxes.ndim != 3 or boxes.shape[-1] != 4:
            refuse(
                ValueError, "boxes", "have shape (batch, sequence, 4)", "a box has four edges", str(tuple(boxes.shape))
            )
        if text is None:
            text = torch.arange(boxes.shape[1], device=boxes.device)[None]
        require_whole_numbers("text", text, "they are positions")
        if text.ndim != 2 or text.shape[1] != boxes.shape[1] or text.shape[0] not in (1, boxes.shape[0]):
            wanted = f"have shape ({boxes.shape[0]}, {boxes.shape[1]})"
            got = f"shape {tuple(text.shape)} for boxes of shape {tuple(boxes.shape)}"
            refuse(ValueError, "text", wanted, "each of the boxes has a place in it", got)
        if anchor == "left_bottom":
            across, down = boxes[..., 0], boxes[..., 3]
        else:
            wide = boxes if boxes.is_floating_point() else boxes.double()
            across, down = wide[..., [0, 2]].mean(-1), wide[..., [1, 3]].mean(-1)
        whole = not across.is_floating_point()
        ids = torch.stack(
            [each.long() if whole else each.double() for each in (text.expand_as(across), across, down)], -1
        )
        if valid is not None:
            require.valid(valid)
            require.one_a_token("valid", valid, ids)
            ids = ids.masked_fill(~valid.unsqueeze(-1), 0)
        return Positions.explicit(ids, valid=valid)


def _counted(offset: Tensor, step: float) -> Tensor:
    """Count steps in an offset, in float32 as released code does, since buckets begin at whole numbers of them."""
    return (offset.float() * step).long()


def _whole_numbers(name: str, given: Any) -> tuple[int, ...]:
    counts = tuple([require_count(name, each, _AN_AXIS, least=1) for each in require_several(name, given, _AN_AXIS)])
    if not counts:
        refuse(ValueError, name, "be one number or more", _AN_AXIS, "none")
    return counts


def _require_buckets(rows: int, far: int) -> None:
    """Raise unless both directions have single and growing distances."""
    if rows < 4:
        raise ValueError(
            f"num_buckets must be at least 4 on every axis, since each direction has single and growing distances; got "
            f"{rows}."
        )
    if far <= rows // 4:
        raise ValueError(
            f"max_distance must be more than {rows // 4}, since that many buckets hold a single distance; got {far}."
        )
