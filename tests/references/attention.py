"""Scaled dot-product attention, with a bias, grouped heads, a cap of the scores and sinks.

Papers   Vaswani et al., arXiv:1706.03762, eq. 1; grouped heads, Ainslie et al., arXiv:2305.13245;
         caps, Gemma team, arXiv:2408.00118, section 2; sinks, OpenAI, arXiv:2508.10925, section 2.1.

    s[h, i, j] = scale q[h, i] . k[g, j] + bias[h, i, j],    g = h // (H / Hk);    capped: c tanh(s / c)
    out[h, i]  = sum_j exp(s[h, i, j]) v[g, j] / (exp(sink[h]) + sum_j exp(s[h, i, j]))

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
    softcap: float | None = None,
    sinks: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """The attended values.

    Shapes: q (h, n, d), k (hk, m, d), v (hk, m, dv), allowed (n, m), bias (h, n, m), sinks (h,) -> (h, n, dv).
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
            if softcap is not None:
                scores = [softcap * math.tanh(score / softcap) for score in scores]
            largest = max(scores)  # taken off so that exp cannot overflow
            weights = [math.exp(score - largest) for score in scores]
            total = sum(weights) + (0.0 if sinks is None else math.exp(float(sinks[head]) - largest))
            for weight, column in zip(weights, seen, strict=True):
                output[head, row] += weight / total * v[group, column]
    return output
