"""Scaled dot-product attention, with a bias and grouped heads.

Papers   Vaswani et al., arXiv:1706.03762, eq. 1; grouped heads, Ainslie et al., arXiv:2305.13245.

    out[h, i] = sum_j softmax_j(scale q[h, i] . k[g, j] + bias[h, i, j]) v[g, j],    g = h // (H / Hk)

with j over the allowed keys only; a query that may see no key gives zeros.
"""

import math

import numpy as np
from numpy.typing import NDArray


def attention(
    q: NDArray[np.float64],
    k: NDArray[np.float64],
    v: NDArray[np.float64],
    allowed: NDArray[np.bool_],
    scale: float,
    bias: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """The attended values.

    Shapes: q (h, n, d), k (hk, m, d), v (hk, m, dv), allowed (n, m), bias (h, n, m) -> (h, n, dv).
    """
    heads, queries = q.shape[:2]
    output = np.zeros((heads, queries, v.shape[2]))
    for head in range(heads):
        group = head // (heads // k.shape[0])
        for row in range(queries):
            seen = [column for column in range(k.shape[1]) if allowed[row, column]]
            if not seen:
                continue
            scores = [scale * float(q[head, row] @ k[group, column]) for column in seen]
            if bias is not None:
                scores = [score + float(bias[head, row, column]) for score, column in zip(scores, seen, strict=True)]
            largest = max(scores)  # taken off so that exp cannot overflow
            weights = [math.exp(score - largest) for score in scores]
            for weight, column in zip(weights, seen, strict=True):
                output[head, row] += weight / sum(weights) * v[group, column]
    return output
