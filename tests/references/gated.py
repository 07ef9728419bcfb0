"""A bias of the offset times a gate of the query's token.

Paper    Chen et al., WavLM, arXiv:2110.13900, section III-A.

    r[h, i, j] = d + u d + (1 - u) s_h g d,   d = b_h(j - i),   u = 1 - sigmoid(first),   g = sigmoid(second)

with both of them products of the head's channels of token i. The paper names u and g update and reset.
"""

import math

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


def gates(x: Numbers, weight: Numbers, shift: Numbers, strength: Numbers) -> Numbers:
    """What multiplies the bias of each token. Shapes: x (n, dim), weight (2, dim / h), shift (2,), strength (h,) ->
    (h, n)."""
    heads, width = len(strength), weight.shape[1]
    found = np.zeros((heads, len(x)))
    for head in range(heads):
        for i, token in enumerate(x):
            part = token[head * width : (head + 1) * width]
            first, second = (
                1 / (1 + math.exp(-(float(w @ part) + float(b)))) for w, b in zip(weight, shift, strict=True)
            )
            update = 1 - first
            found[head, i] = 1 + update + (1 - update) * strength[head] * second
    return found


def bias(gate: Numbers, by_pair: Numbers) -> Numbers:
    """What is added to the scaled scores. Shapes: gate (h, n), by_pair (h, n, m) -> (h, n, m)."""
    added = np.zeros(by_pair.shape)
    for head, query, key in np.ndindex(*by_pair.shape):
        added[head, query, key] = gate[head, query] * by_pair[head, query, key]
    return added
