"""Sinusoidal encodings, in one and in several axes.

Paper    Vaswani et al., arXiv:1706.03762, section 3.5.

    PE[p, 2i] = sin(p w_i),    PE[p, 2i + 1] = cos(p w_i),    w_i = base^(-2i / dim)

Departures, each a released convention: the "concatenated" layout and the "inclusive" spacing
w_i = base^(-i / (n - 1)) over n frequencies are those of tensor2tensor, fairseq and Whisper.
"""

import math

import numpy as np
from numpy.typing import NDArray


def frequencies(dim: int, base: float, layout: str, spacing: str) -> NDArray[np.float64]:
    """The angular frequencies, fastest first. Shape: (ceil(dim/2),), concatenated (floor(dim/2),)."""
    count = {"interleaved": math.ceil(dim / 2), "concatenated": dim // 2}[layout]
    # An odd concatenated width ends on a zero column, which takes no part in the ladder.
    width = {"interleaved": dim, "concatenated": 2 * count}[layout]
    if spacing == "exclusive":
        exponents = [2 * i / width for i in range(count)]
    elif spacing == "inclusive":
        exponents = [i / (count - 1) if count > 1 else 0.0 for i in range(count)]
    else:
        raise ValueError(spacing)
    return np.array([base**-exponent for exponent in exponents], dtype=np.float64)


def channels(index: int, count: int, layout: str) -> tuple[int, int]:
    """Where the sine and the cosine of frequency ``index`` out of ``count`` stand."""
    return {"interleaved": (2 * index, 2 * index + 1), "concatenated": (index, count + index)}[layout]


def table(
    positions: NDArray[np.float64],
    dim: int,
    base: float = 10000.0,
    layout: str = "interleaved",
    spacing: str = "exclusive",
    cosines_first: bool = False,
) -> NDArray[np.float64]:
    """The encoding of each position; with ``cosines_first``, each is the other's channel. Shapes: positions (n,) ->
    (n, dim)."""
    ladder = frequencies(dim, base, layout, spacing)
    encoding = np.zeros((len(positions), dim))
    for row, position in enumerate(positions):
        for index, frequency in enumerate(ladder):
            first, second = channels(index, len(ladder), layout)
            angle = position * frequency
            encoding[row, first] = math.cos(angle) if cosines_first else math.sin(angle)
            if second < dim:  # an odd interleaved width ends on the first
                encoding[row, second] = math.sin(angle) if cosines_first else math.cos(angle)
    return encoding


def grid(
    coordinates: NDArray[np.float64],
    dim: int,
    base: float = 10000.0,
    layout: str = "interleaved",
    spacing: str = "exclusive",
) -> NDArray[np.float64]:
    """One 1-D table per axis, side by side. Shapes: coordinates (n, axes) -> (n, dim)."""
    axes = coordinates.shape[1]
    widths = [dim // axes + (1 if axis < dim % axes else 0) for axis in range(axes)]
    blocks = [table(coordinates[:, axis], width, base, layout, spacing) for axis, width in enumerate(widths)]
    return np.concatenate(blocks, axis=1)


def shift_matrix(
    offset: float,
    dim: int,
    base: float = 10000.0,
    layout: str = "interleaved",
    spacing: str = "exclusive",
) -> NDArray[np.float64]:
    """M with table(p + offset) = M table(p) for every p, dim even. Shape: (dim, dim)."""
    if dim % 2:
        raise ValueError(dim)
    ladder = frequencies(dim, base, layout, spacing)
    shift = np.zeros((dim, dim))
    for index, frequency in enumerate(ladder):
        sine, cosine = channels(index, len(ladder), layout)
        # sin(a + b) = cos(b) sin(a) + sin(b) cos(a);  cos(a + b) = -sin(b) sin(a) + cos(b) cos(a)
        shift[sine, sine] = math.cos(offset * frequency)
        shift[sine, cosine] = math.sin(offset * frequency)
        shift[cosine, sine] = -math.sin(offset * frequency)
        shift[cosine, cosine] = math.cos(offset * frequency)
    return shift
