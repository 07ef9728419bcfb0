"""KERPLE: the distance under a conditionally positive definite kernel with learned parameters per head.

Paper    Chi et al., arXiv:2205.09921, the logarithmic and the power variant.

    log      bias[h, i, j] = -r1_h log(1 + r2_h |j - i|),    r1, r2 > 0
    power    bias[h, i, j] = -r1_h |j - i|^(r2_h),           r1 > 0,  0 < r2 <= 2

Departures: none. The released code clamps r1 and r2 from below at 0.01; clamping is left to the caller.
"""

import math

import numpy as np
from numpy.typing import NDArray


def kernel(distance: float, r1: float, r2: float, variant: str) -> float:
    """The bias of one head at one distance, ``distance`` >= 0."""
    if variant == "log":
        return -r1 * math.log(1 + r2 * distance)
    if variant == "power":
        return -r1 * math.pow(distance, r2)
    raise ValueError(variant)


def bias(
    r1: NDArray[np.float64],
    r2: NDArray[np.float64],
    query: NDArray[np.float64],
    key: NDArray[np.float64],
    variant: str,
) -> NDArray[np.float64]:
    """The bias. Shapes: r1 and r2 (h,), query (n,), key (m,) -> (h, n, m)."""
    values = np.zeros((len(r1), len(query), len(key)))
    for head in range(len(r1)):
        for i, at in enumerate(query):
            for j, seen in enumerate(key):
                distance = abs(float(seen) - float(at))
                values[head, i, j] = kernel(distance, float(r1[head]), float(r2[head]), variant)
    return values
