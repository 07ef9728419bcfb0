"""Forget gates: scores fall by the logarithms of all gates between key and query.

Paper    Lin et al., arXiv:2503.02130, eq. 5.

    d[h, i, j] = sum over l = j+1 .. i of log sigmoid(f[h, l])
"""

import math

import numpy as np
from numpy.typing import NDArray


def log_gate(f: float) -> float:
    """log(1 / (1 + exp(-f))), without overflow."""
    return min(f, 0.0) - math.log1p(math.exp(-abs(f)))


def decay(gates: NDArray[np.float64]) -> NDArray[np.float64]:
    """What is added to the scaled scores of one document, 0 above the diagonal. Shapes: (h, n) -> (h, n, n)."""
    heads, tokens = gates.shape
    added = np.zeros((heads, tokens, tokens))
    for head in range(heads):
        for i in range(tokens):
            for j in range(i):
                added[head, i, j] = sum(log_gate(float(gates[head, between])) for between in range(j + 1, i + 1))
    return added
