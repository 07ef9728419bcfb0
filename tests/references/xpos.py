"""xPos: rotary encoding with an exponential decay.

Paper    Sun et al., arXiv:2212.10554, section 3.

    query_n = zeta^(n / B) R_n q,    key_m = zeta^(-m / B) R_m k,
    zeta_i = (2i / dim + gamma) / (1 + gamma)

so the score of pair i carries zeta_i^((n - m) / B). Departures: B (``scale_base``) and the
``centre`` taken from every position are the authors' code; the centre cancels in the score.
"""

import math

import numpy as np
from numpy.typing import NDArray


def scales(dim: int, gamma: float = 0.4) -> NDArray[np.float64]:
    """zeta, rising towards 1 with the pair index. Shape: (dim/2,)."""
    return np.array([(2 * i / dim + gamma) / (1 + gamma) for i in range(dim // 2)], dtype=np.float64)


def rotate(
    x: NDArray[np.float64],
    positions: NDArray[np.float64],
    frequencies: NDArray[np.float64],
    role: str,
    gamma: float = 0.4,
    scale_base: float = 512,
    centre: float = 0.0,
    pairing: str = "interleaved",
) -> NDArray[np.float64]:
    """Rotate and scale each row as a query or a key.

    Shapes: x (n, D), positions (n,), frequencies (R,), 2R <= D -> (n, D), channels from 2R on untouched.
    """
    pairs = len(frequencies)
    zeta = scales(2 * pairs, gamma)
    sign = {"query": 1.0, "key": -1.0}[role]
    encoded: NDArray[np.float64] = x.copy()
    for row, position in enumerate(positions):
        for i in range(pairs):
            first, second = {"interleaved": (2 * i, 2 * i + 1), "halves": (i, i + pairs)}[pairing]
            scale = zeta[i] ** (sign * (position - centre) / scale_base)
            cosine, sine = math.cos(position * frequencies[i]), math.sin(position * frequencies[i])
            encoded[row, first] = scale * (cosine * x[row, first] - sine * x[row, second])
            encoded[row, second] = scale * (sine * x[row, first] + cosine * x[row, second])
    return encoded
