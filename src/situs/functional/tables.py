"""Tables: making a learned table of positions longer or larger.

What was learnt at a few positions is the only evidence there is, so new rows come from interpolation
between old ones, or are left to be learnt.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import interpolate

from situs.arguments import (
    refuse,
    require_axes_of,
    require_choice,
    require_count,
    require_flag,
    require_floating,
    require_size,
)


def stretch(table: Float[Tensor, "old dim"], length: int) -> Float[Tensor, "length dim"]:
    """Interpolate a table linearly to another length; the first and the last row stay as they are."""
    require_floating("table", table, "its rows are interpolated")
    require_axes_of("table", table, ("rows", "dim"), "each position has a row")
    length = require_count("length", length, "it counts rows", least=1)
    if len(table) == length:
        return table.clone()
    columns = interpolate(table.double().T.unsqueeze(0), size=length, mode="linear", align_corners=True)
    stretched = columns.squeeze(0).T.to(table.dtype)
    stretched[0], stretched[-1] = table[0], table[-1]
    return stretched


def resize_rows(table: Float[Tensor, "old dim"], length: int) -> Float[Tensor, "length dim"]:
    """Interpolate a table linearly to another length, where rows are stretches whose outer ends stay, as an image's
    cells do in ``resize_grid``."""
    require_floating("table", table, "its rows are interpolated")
    require_axes_of("table", table, ("rows", "dim"), "each offset has a row")
    length = require_count("length", length, "it counts rows", least=1)
    if len(table) == length:
        return table.clone()
    wide = table if table.dtype == torch.float64 else table.float()
    return interpolate(wide.T.unsqueeze(0), size=length, mode="linear").squeeze(0).T.to(table.dtype)


def resize_grid(
    table: Float[Tensor, "cells dim"],
    old: tuple[int, int],
    new: tuple[int, int],
    *,
    mode: Literal["bicubic", "bilinear"] = "bicubic",
    antialias: bool = False,
    align_corners: bool = False,
) -> Float[Tensor, "new_cells dim"]:
    """Resize a row-major image table, as vision transformers are fine-tuned at another resolution.

    ``align_corners``: the corner cells stay as they are and the others are spread between them; otherwise cells are
    squares and their outer edges stay.
    """
    require_floating("table", table, "its rows are interpolated")
    require_axes_of("table", table, ("cells", "dim"), "each cell has a row")
    old, new = require_size("old", old, "cells lie in a grid"), require_size("new", new, "cells lie in a grid")
    require_choice("mode", mode, ("bicubic", "bilinear"), "cells are interpolated one of these ways")
    require_flag("antialias", antialias, "the grid is smoothed before it shrinks or not")
    require_flag("align_corners", align_corners, "corner cells stay as they are or not")
    if old[0] * old[1] != len(table):
        shape = f"{old} for a table of shape {tuple(table.shape)}"
        refuse(ValueError, "old", f"have {len(table)} cells", "the table has a row for each", shape)
    if old == new:
        return table.clone()
    wide = table if table.dtype == torch.float64 else table.float()
    image = wide.reshape(1, *old, -1).permute(0, 3, 1, 2)
    resized = interpolate(image, size=new, mode=mode, align_corners=align_corners, antialias=antialias)
    return resized.permute(0, 2, 3, 1).reshape(new[0] * new[1], -1).to(table.dtype)


def with_more_rows(table: Float[Tensor, "old dim"], new_rows: Float[Tensor, "more dim"]) -> Float[Tensor, "all dim"]:
    """Append new rows behind the old ones, which stay bit for bit."""
    return torch.cat((table, new_rows.to(table)))
