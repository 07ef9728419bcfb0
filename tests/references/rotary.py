"""Rotary encodings: plain, partial, axial and multimodal.

Paper    Su et al., arXiv:2104.09864, section 3.2.2.

    R_p = blockdiag over pairs i of [[cos p w_i, -sin p w_i], [sin p w_i, cos p w_i]],
    w_i = base^(-2i / dim)

Departures: pairing "halves" turns channels (i, i + dim/2), as in GPT-NeoX and Llama checkpoints.
Several axes: each pair turns by the coordinate of one axis, chosen as in axial vision models,
Pixtral (arXiv:2410.07073), or M-RoPE (Qwen2-VL, arXiv:2409.12191; Qwen3-VL's interleaving).
"""

import math

import numpy as np
from numpy.typing import NDArray


def frequencies(dim: int, base: float = 10000.0) -> NDArray[np.float64]:
    """The ladder base^(-2i / dim). Shape: (dim/2,)."""
    return np.array([base ** (-2 * i / dim) for i in range(dim // 2)], dtype=np.float64)


def matrix(position: float, frequencies: NDArray[np.float64], pairing: str) -> NDArray[np.float64]:
    """The dense rotation R_p. Shapes: frequencies (D/2,) -> (D, D)."""
    pairs = len(frequencies)
    rotation = np.zeros((2 * pairs, 2 * pairs))
    for i, frequency in enumerate(frequencies):
        first, second = {"interleaved": (2 * i, 2 * i + 1), "halves": (i, i + pairs)}[pairing]
        rotation[first, first] = math.cos(position * frequency)
        rotation[first, second] = -math.sin(position * frequency)
        rotation[second, first] = math.sin(position * frequency)
        rotation[second, second] = math.cos(position * frequency)
    return rotation


def rotate(
    x: NDArray[np.float64],
    positions: NDArray[np.float64],
    frequencies: NDArray[np.float64],
    pairing: str,
    factor: float = 1.0,
) -> NDArray[np.float64]:
    """``factor * R_p`` on the first 2R channels of each row, the rest untouched (partial rotary).

    Shapes: x (n, D), positions (n,), frequencies (R,) or one ladder a row (n, R), 2R <= D -> (n, D).
    """
    ladders = np.broadcast_to(frequencies, (len(x), frequencies.shape[-1]))
    width = 2 * frequencies.shape[-1]
    rotated: NDArray[np.float64] = x.copy()
    for row in range(len(x)):
        rotated[row, :width] = factor * matrix(positions[row], ladders[row], pairing) @ x[row, :width]
    return rotated


def axial_frequencies(
    rotary_dim: int, axes: int, base: float, ladder: str
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The frequency and the axis of each pair, axis block by axis block. Shapes: two of (rotary_dim/2,)."""
    if ladder == "own":
        blocks = [frequencies(rotary_dim // axes, base) for _ in range(axes)]
    elif ladder == "shared":  # Pixtral deals one full ladder out to the axes in turn
        blocks = [frequencies(rotary_dim, base)[axis::axes] for axis in range(axes)]
    else:
        raise ValueError(ladder)
    axis_of_pair = [axis for axis, block in enumerate(blocks) for _ in block]
    return np.concatenate(blocks), np.array(axis_of_pair, dtype=np.int64)


def section_axes(sections: list[int], interleaved: bool) -> NDArray[np.int64]:
    """M-RoPE's axis of each pair, 0 time, 1 height, 2 width. Shape: (sum(sections),)."""
    if not interleaved:
        axes = [axis for axis, size in enumerate(sections) for _ in range(size)]
        return np.array(axes, dtype=np.int64)
    axes = []
    for pair in range(sum(sections)):
        # Height and width each fill their third of the cycle until their section is spent.
        axis = pair % 3
        axes.append(axis if pair < 3 * sections[axis] else 0)
    return np.array(axes, dtype=np.int64)


def rotate_axes(
    x: NDArray[np.float64],
    coordinates: NDArray[np.float64],
    frequencies: NDArray[np.float64],
    axis_of_pair: NDArray[np.int64],
    pairing: str,
) -> NDArray[np.float64]:
    """Turn pair i of row n by ``coordinates[n, axis_of_pair[i]] * frequencies[i]``.

    Shapes: x (n, D), coordinates (n, axes), frequencies and axis_of_pair (R,), 2R <= D -> (n, D).
    """
    width = 2 * len(frequencies)
    rotated: NDArray[np.float64] = x.copy()
    for row in range(len(x)):
        angles = np.array([coordinates[row, a] * f for a, f in zip(axis_of_pair, frequencies, strict=True)])
        rotated[row, :width] = matrix(1.0, angles, pairing) @ x[row, :width]
    return rotated
