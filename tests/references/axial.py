"""Rotary of images and videos as models have it: coordinates, frequencies and the layout of channels.

    Flux            each axis its own ladder, neighbours paired            github.com/black-forest-labs/flux
    Qwen-Image      the same; rows and columns counted from the centre     arXiv:2508.02324
    Wan             the same; the head in sixths, the rest is time's       arXiv:2503.20314
    HunyuanVideo    the same; base 256                                     arXiv:2412.03603
    Cosmos          halves; NTK scaling of each axis; time in frames at 24 a second      arXiv:2501.03575
    DINOv3          halves; angles are 2 pi times coordinates in -1 .. 1   arXiv:2508.10104
    Gemma 4         halves of each axis' block
    RoPE-Mixed      angle x f_x + y f_y, learned per head                  arXiv:2403.13298, section 3.2

Departures: none; every position is computed by itself, in float64.
"""

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def qwen_image_coordinates(frames: int, height: int, width: int, index: int) -> NDArray[np.int64]:
    """Frame, row and column of each cell. The first ``n - n // 2`` rows are negative, the others count from 0."""
    rows = [*range(-(height - height // 2), 0), *range(height // 2)]
    columns = [*range(-(width - width // 2), 0), *range(width // 2)]
    return np.array([(index + frame, row, column) for frame in range(frames) for row in rows for column in columns])


def cosmos_coordinates(frames: int, height: int, width: int, fps: float, base_fps: float = 24.0) -> Array:
    """Frame by its time, row and column of each cell."""
    cells = [(f / fps * base_fps, r, c) for f in range(frames) for r in range(height) for c in range(width)]
    return np.array(cells, dtype=np.float64)


def dinov3_coordinates(height: int, width: int, normalise: str) -> Array:
    """Row and column of each patch's centre in -1 .. 1."""
    down, right = {
        "separate": (height, width),
        "max": (max(height, width),) * 2,
        "min": (min(height, width),) * 2,
    }[normalise]
    centres = [
        (2 * ((row + 0.5) / down) - 1, 2 * ((column + 0.5) / right) - 1)
        for row in range(height)
        for column in range(width)
    ]
    return np.array(centres, dtype=np.float64)


def own_ladders(
    dims: tuple[int, ...], bases: tuple[float, ...], factors: tuple[float, ...] | None = None
) -> list[Array]:
    """A ladder for each axis; Cosmos multiplies its base by ``factor^(dim / (dim - 2))``."""
    scaled = factors or (1.0,) * len(dims)
    return [
        np.array([(base * factor ** (dim / max(dim - 2, 1))) ** (-2 * i / dim) for i in range(dim // 2)])
        for dim, base, factor in zip(dims, bases, scaled, strict=True)
    ]


def angles(coordinates: Array, ladders: list[Array]) -> Array:
    """Shapes: coordinates (n, axes) -> the angle of every pair, axis by axis (n, pairs)."""
    return np.concatenate([np.outer(coordinates[:, axis], ladder) for axis, ladder in enumerate(ladders)], -1)


def rotate(x: Array, angle: Array, layout: str, blocks: tuple[int, ...] = ()) -> Array:
    """Rotate pair i of each row by its angle. Shapes: x (n, d), angle (n, pairs), 2 pairs <= d -> (n, d).

    layout: "interleaved", "halves", or "blocks" of halves, whose channels ``blocks`` counts.
    """
    pairs = angle.shape[-1]
    if layout == "interleaved":
        where = [(2 * i, 2 * i + 1) for i in range(pairs)]
    elif layout == "halves":
        where = [(i, i + pairs) for i in range(pairs)]
    else:
        where, begin = [], 0
        for block in blocks:
            where += [(begin + i, begin + block // 2 + i) for i in range(block // 2)]
            begin += block
    rotated: Array = x.copy()
    for row in range(len(x)):
        for i, (a, b) in enumerate(where):
            cos, sin = math.cos(angle[row, i]), math.sin(angle[row, i])
            rotated[row, a] = x[row, a] * cos - x[row, b] * sin
            rotated[row, b] = x[row, a] * sin + x[row, b] * cos
    return rotated


def ernie_axes(height: int, width: int, time: int) -> list[int]:
    """ERNIE 4.5 VL's axis of each pair, 0 time, 1 height, 2 width: height and width alternate, then time."""
    assert height == width
    return [1 + pair % 2 for pair in range(height + width)] + [0] * time


def mixed_angles(coordinates: Array, frequencies: Array) -> Array:
    """Shapes: coordinates (n, 2), frequencies (2, heads, pairs) -> (heads, n, pairs)."""
    down, right = coordinates[:, 0], coordinates[:, 1]
    return np.stack(
        [
            np.outer(down, of_rows) + np.outer(right, of_columns)
            for of_rows, of_columns in zip(*frequencies, strict=True)
        ]
    )
