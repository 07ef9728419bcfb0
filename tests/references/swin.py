"""Swin's relative position bias inside a window: a table (v1) or a network over log-spaced offsets (v2).

Papers   Liu et al., arXiv:2103.14030, section 3.2; v2, Liu et al., arXiv:2111.09883, section 3.3.

    v1    bias[h, i, j] = table[row(q_i - k_j), h],    row(dh, dw) = (dh + Wh - 1)(2 Ww - 1) + dw + Ww - 1
    v2    bias[h, i, j] = 16 sigmoid(W2 relu(W1 x(q_i - k_j) + b1))_h

        x(d) = sign(d) log2(1 + 8 |d| / (W - 1)) / log2(8)    on each axis

Positions are (row, column) in a window of Wh rows and Ww columns. Unlike in the other biases, offsets are
query - key, as the released tables are laid out.

Departures: the v2 paper spaces offsets as sign(d) log(1 + |d|), and leaves the bias unbounded; the scaling by
8 / (W - 1), the logarithm to base 8 and the 16 sigmoid are the released code's. There W is the window the model
was pretrained with, if it is given as more than 0, so that the same offset in a larger window keeps its place.
"""

import math

import numpy as np
from numpy.typing import NDArray


def table_row(dh: int, dw: int, window: tuple[int, int]) -> int:
    """The row of the offset ``(dh, dw)`` = query - key, out of (2 Wh - 1)(2 Ww - 1)."""
    height, width = window
    if not (abs(dh) < height and abs(dw) < width):
        raise ValueError((dh, dw))
    return (dh + height - 1) * (2 * width - 1) + (dw + width - 1)


def bias_v1(
    table: NDArray[np.float64],
    window: tuple[int, int],
    query: NDArray[np.int64],
    key: NDArray[np.int64],
) -> NDArray[np.float64]:
    """The table's bias. Shapes: table ((2 Wh - 1)(2 Ww - 1), h), query (n, 2), key (m, 2) -> (h, n, m)."""
    values = np.zeros((table.shape[1], len(query), len(key)))
    for i, at in enumerate(query):
        for j, seen in enumerate(key):
            values[:, i, j] = table[table_row(int(at[0]) - int(seen[0]), int(at[1]) - int(seen[1]), window)]
    return values


def bias_with_cls(
    table: NDArray[np.float64],
    window: tuple[int, int],
    query: list[tuple[int, int] | None],
    key: list[tuple[int, int] | None],
) -> NDArray[np.float64]:
    """BEiT's bias (arXiv:2106.08254, released code), where None is a token without a cell: its table ends on the rows
    from such a token to a cell, from a cell to such a token, and between two. Shapes: table ((2 Wh - 1)(2 Ww - 1) + 3,
    h), n queries, m keys -> (h, n, m)."""
    values = np.zeros((table.shape[1], len(query), len(key)))
    for i, at in enumerate(query):
        for j, seen in enumerate(key):
            if at is None:
                row = len(table) - (1 if seen is None else 3)
            else:
                row = len(table) - 2 if seen is None else table_row(at[0] - seen[0], at[1] - seen[1], window)
            values[:, i, j] = table[row]
    return values


def bias_of_distances(
    table: NDArray[np.float64],
    window: tuple[int, int],
    query: NDArray[np.int64],
    key: NDArray[np.int64],
) -> NDArray[np.float64]:
    """LeViT's bias (arXiv:2104.01136, section 4.2). Shapes: table (Wh Ww, h), query (n, 2), key (m, 2) -> (h, n, m)."""
    values = np.zeros((table.shape[1], len(query), len(key)))
    for i, at in enumerate(query):
        for j, seen in enumerate(key):
            values[:, i, j] = table[abs(int(at[0] - seen[0])) * window[1] + abs(int(at[1] - seen[1]))]
    return values


def log_coordinates(
    dh: float, dw: float, window: tuple[int, int], pretrained_window: tuple[int, int] = (0, 0)
) -> NDArray[np.float64]:
    """The v2 network's input for the offset ``(dh, dw)`` = query - key. Shape: (2,)."""
    sizes = pretrained_window if pretrained_window[0] > 0 else window
    coordinates = np.zeros(2)
    for axis, (offset, size) in enumerate(zip((dh, dw), sizes, strict=True)):
        if offset:  # a window of one row or column has no other offset, and nothing to divide by
            coordinates[axis] = math.copysign(math.log2(1 + 8 * abs(offset) / (size - 1)) / math.log2(8), offset)
    return coordinates


def bias_v2(
    window: tuple[int, int],
    pretrained_window: tuple[int, int],
    query: NDArray[np.float64],
    key: NDArray[np.float64],
    first_weight: NDArray[np.float64],
    first_bias: NDArray[np.float64],
    second_weight: NDArray[np.float64],
) -> NDArray[np.float64]:
    """The network's bias, between 0 and 16.

    Shapes: query (n, 2), key (m, 2), first_weight (width, 2), first_bias (width,), second_weight (h, width)
    -> (h, n, m).
    """
    values = np.zeros((len(second_weight), len(query), len(key)))
    for i, at in enumerate(query):
        for j, seen in enumerate(key):
            x = log_coordinates(float(at[0] - seen[0]), float(at[1] - seen[1]), window, pretrained_window)
            hidden = np.maximum(first_weight @ x + first_bias, 0.0)
            values[:, i, j] = 16 / (1 + np.exp(-(second_weight @ hidden)))
    return values
