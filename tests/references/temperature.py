"""Temperatures of queries, by the formulas of released models.

Papers   Nakanishi, arXiv:2501.19399 (scalable softmax); Su 2021 (log n); others from released code.

    q'_i = t(i) q_i
"""

import math

import numpy as np
from numpy.typing import NDArray


def factor(position: int, dialect: str, length: int, a: float) -> float:
    """``t(i)`` at one position."""
    i = position
    steps = {"llama4": (i + 1) // length, "ministral3": i // length}
    if dialect in steps:
        return 1.0 + a * math.log(1 + steps[dialect])
    if dialect == "inkling":
        return 1.0 + a * max(0.0, math.log((i + 1) / length))
    if dialect == "log_n":
        return max(1.0, math.log(i + 1, length))
    if dialect == "power":
        return math.pow(1 + (i + 1) / length, a)
    raise ValueError(dialect)


def scalable_softmax(scores: NDArray[np.float64], s: float, b: float) -> NDArray[np.float64]:
    """Softmax of ``(s log n + b) z`` over the n keys that each row of a causal matrix sees. Shape: (n, n)."""
    weights = np.zeros_like(scores)
    for row in range(len(scores)):
        seen = (s * math.log(row + 1) + b) * scores[row, : row + 1]
        powers = np.exp(seen - seen.max())
        weights[row, : row + 1] = powers / powers.sum()
    return weights
