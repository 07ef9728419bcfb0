"""FIRE: a learned function of the distance, as a share of what the query can see.

Paper    Li et al., arXiv:2310.04418; the network as in the appendix's code.

    bias[h, i, j] = f_h(psi(i - j) / psi(max(L, i))),    psi(x) = log(c x + 1),    c, L > 0

with positions from 0 on and f one hidden layer, f(x) = W2 relu(w1 x + b1) + b2.

Departures, each the appendix's code: psi takes absolute values, so that keys ahead of the query, outside
the paper's formula, stand where those as far behind do; ``eps`` is added to the denominator. The threshold L
is learned there as |multiplier * 512|; here it is given whole.
"""

import math

import numpy as np
from numpy.typing import NDArray


def psi(x: float, c: float) -> float:
    """The logarithmic transform of a distance, whatever the signs."""
    return math.log(abs(c * x) + 1)


def share(query: float, key: float, c: float, threshold: float, eps: float = 0.0) -> float:
    """The network's input; in [0, 1] for keys at 0 or later that the query may see."""
    return psi(query - key, c) / (psi(max(threshold, query), c) + eps)


def bias(
    query: NDArray[np.float64],
    key: NDArray[np.float64],
    c: float,
    threshold: float,
    first_weight: NDArray[np.float64],
    first_bias: NDArray[np.float64],
    second_weight: NDArray[np.float64],
    second_bias: NDArray[np.float64],
    eps: float = 0.0,
) -> NDArray[np.float64]:
    """The bias.

    Shapes: query (n,), key (m,), first_weight and first_bias (width,), second_weight (h, width),
    second_bias (h,) -> (h, n, m).
    """
    values = np.zeros((len(second_bias), len(query), len(key)))
    for i, at in enumerate(query):
        for j, seen in enumerate(key):
            x = share(float(at), float(seen), c, threshold, eps)
            hidden = np.maximum(first_weight * x + first_bias, 0.0)
            values[:, i, j] = second_weight @ hidden + second_bias
    return values
