"""Transformer-XL's relative attention, with a projected sinusoid and two global biases.

Paper    Dai et al., arXiv:1901.02860, section 3.3; with keys on both sides, XLNet, arXiv:1906.08237.

    A_ij = q_i . k_j  +  q_i . W_kR r_(i-j)  +  u . k_j  +  v . W_kR r_(i-j)
              (a)              (b)               (c)           (d)

Terms (b), (c) and (d) are given here; the softmax scale 1 / sqrt(d) multiplies all four.

Departures, each from the released code: r holds all the sines, then all the cosines, where the paper
points to Vaswani et al.'s interleaving, as conformers have it; Gemma 3n's audio encoder reaches the slowest wavelength;
``clamp_len`` holds distances within [-clamp_len, clamp_len].
"""

import math

import numpy as np
from numpy.typing import NDArray


def sinusoid(
    distance: float,
    model_dim: int,
    base: float = 10000.0,
    layout: str = "concatenated",
    spacing: str = "exclusive",
) -> NDArray[np.float64]:
    """r at a distance, query minus key, model_dim even. Shape: (model_dim,)."""
    if model_dim % 2:
        raise ValueError(model_dim)
    half = model_dim // 2
    steps = half if spacing == "exclusive" else max(half - 1, 1)
    angles = [distance * base ** (-i / steps) for i in range(half)]
    if layout == "interleaved":
        return np.array([wave(angle) for angle in angles for wave in (math.sin, math.cos)])
    return np.array([math.sin(angle) for angle in angles] + [math.cos(angle) for angle in angles])


def term(
    q: NDArray[np.float64],
    k: NDArray[np.float64],
    query_positions: NDArray[np.float64],
    key_positions: NDArray[np.float64],
    u: NDArray[np.float64],
    v: NDArray[np.float64],
    W_kR: NDArray[np.float64],
    clamp_len: float | None = None,
    base: float = 10000.0,
    layout: str = "concatenated",
    spacing: str = "exclusive",
) -> NDArray[np.float64]:
    """Everything beyond the raw products.

    Shapes: q (h, n, d), k (h, m, d), query_positions (n,), key_positions (m,), u and v (h, d),
    W_kR (h*d, model_dim) -> (h, n, m).
    """
    heads, queries, dim = q.shape
    keys = k.shape[1]
    projection = W_kR.reshape(heads, dim, W_kR.shape[1])
    added = np.zeros((heads, queries, keys))
    for i in range(queries):
        for j in range(keys):
            distance = float(query_positions[i] - key_positions[j])
            if clamp_len is not None:
                distance = min(max(distance, -clamp_len), clamp_len)
            r = sinusoid(distance, W_kR.shape[1], base, layout, spacing)
            for head in range(heads):
                position_key = projection[head] @ r
                b = q[head, i] @ position_key
                c = u[head] @ k[head, j]
                d = v[head] @ position_key
                added[head, i, j] = b + c + d
    return added
