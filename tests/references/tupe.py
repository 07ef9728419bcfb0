"""Untied absolute positions (TUPE-A), with the first token untied from all positions.

Paper    Ke, He & Liu, arXiv:2006.15595, sections 3.1 and 3.2.

    A_ij = (q_i . k_j + t_ij) / sqrt(2 d)
    t_ij = theta_1 where i is [CLS];  else theta_2 where j is [CLS];  else (p_i U_Q) . (p_j U_K)

Departures: the paper resets after scaling, so that its own thetas are the ones here over sqrt(2 d). The released
code puts a layer norm before U_Q and U_K, gives both a bias, and takes the thetas from the table (``thetas``).
Its table starts with a row for theta_1 alone, so that position p reads row p + 1.
"""

import math

import numpy as np
from numpy.typing import NDArray


def scale(dim: int) -> float:
    """Of the content and of the position products alike, which keeps the variance of one product over sqrt(d)."""
    return 1 / math.sqrt(2 * dim)


def layer_norm(
    x: NDArray[np.float64], weight: NDArray[np.float64], bias: NDArray[np.float64], eps: float = 1e-5
) -> NDArray[np.float64]:
    """Each row to mean 0 and variance 1, then scaled and shifted. Shapes: x (n, D), weight and bias (D,) -> (n, D)."""
    normed = np.zeros_like(x)
    for index, vector in enumerate(x):
        centred = vector - vector.mean()
        normed[index] = weight * centred / math.sqrt((centred**2).mean() + eps) + bias
    return normed


def project(
    x: NDArray[np.float64], U: NDArray[np.float64], bias: NDArray[np.float64] | None, heads: int
) -> NDArray[np.float64]:
    """Each row through U, a block of outputs for each head.

    Shapes: x (n, model_dim), U (h*d, model_dim), bias (h*d,) -> (h, n, d).
    """
    dim = len(U) // heads
    projected = np.zeros((heads, len(x), dim))
    for head in range(heads):
        block = slice(head * dim, (head + 1) * dim)
        projected[head] = x @ U[block].T + (0.0 if bias is None else bias[block])
    return projected


def thetas(
    P: NDArray[np.float64],
    U_Q: NDArray[np.float64],
    U_K: NDArray[np.float64],
    heads: int,
    bias_Q: NDArray[np.float64] | None = None,
    bias_K: NDArray[np.float64] | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The released theta_1 and theta_2: rows 0 and 1 of the table, each against itself. Shapes: two of (h,)."""
    p_Q = project(P[:2], U_Q, bias_Q, heads)
    p_K = project(P[:2], U_K, bias_K, heads)
    theta_1 = np.array([p_Q[head, 0] @ p_K[head, 0] for head in range(heads)])
    theta_2 = np.array([p_Q[head, 1] @ p_K[head, 1] for head in range(heads)])
    return theta_1, theta_2


def term(
    query_positions: NDArray[np.int64],
    key_positions: NDArray[np.int64],
    P: NDArray[np.float64],
    U_Q: NDArray[np.float64],
    U_K: NDArray[np.float64],
    heads: int,
    theta_1: NDArray[np.float64] | None = None,
    theta_2: NDArray[np.float64] | None = None,
    cls_position: int = 0,
    first_row: int = 0,
    bias_Q: NDArray[np.float64] | None = None,
    bias_K: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """t, on the scale of the raw products; a theta of None leaves its pairs as they are.

    Position p reads row ``p + first_row``, which is 1 in the released code.

    Shapes: query_positions (n,), key_positions (m,), P (length, model_dim), U_Q and U_K (h*d, model_dim),
    thetas (h,), biases (h*d,) -> (h, n, m).
    """
    p_Q = project(P, U_Q, bias_Q, heads)
    p_K = project(P, U_K, bias_K, heads)
    added = np.zeros((heads, len(query_positions), len(key_positions)))
    for head in range(heads):
        for i, query in enumerate(query_positions):
            for j, key in enumerate(key_positions):
                if query == cls_position and theta_1 is not None:
                    added[head, i, j] = theta_1[head]
                elif query != cls_position and key == cls_position and theta_2 is not None:
                    added[head, i, j] = theta_2[head]
                else:
                    added[head, i, j] = p_Q[head, query + first_row] @ p_K[head, key + first_row]
    return added
