"""A bias that a small network makes of the offset.

Paper    Wang et al., CrossFormer, arXiv:2108.00154 (dynamic position bias), and x-transformers' DynamicPositionBias.

    bias[h, i, j] = (W_out z_n)_h,   z_0 = d or sign(d) log(1 + |d|),  d = p_i - p_j
    z_l = act(norm_l(W_l z_(l-1) + b_l))

The output's bias is left out, since it is the same for all keys.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


def activation(x: float, kind: str) -> float:
    """The paper's rectifier, Phenaki's, which falls by 0.1 below 0, or x-transformers' x sigmoid(x)."""
    if kind == "silu":
        return x / (1 + math.exp(-x)) if x > -700 else 0.0
    return max(x, 0.0) if kind == "relu" else max(x, 0.1 * x)


def normalised(x: Numbers, gain: Numbers, shift: Numbers) -> Numbers:
    """Mean 0 and variance 1 over the units, times a gain, plus a shift."""
    mean = sum(x) / len(x)
    variance = sum((each - mean) ** 2 for each in x) / len(x)
    return (x - mean) / math.sqrt(variance + 1e-5) * gain + shift


def bias(
    query: Numbers,
    key: Numbers,
    layers: Sequence[tuple[Numbers, Numbers]],
    norms: Sequence[tuple[Numbers, Numbers]],
    out: Numbers,
    kind: str,
    log_distance: bool,
) -> Numbers:
    """The bias. Shapes: query (n, axes), key (m, axes), weights (width, in) and biases (width,), gains and shifts
    (width,), or none; out (h, width) -> (h, n, m)."""
    values = np.zeros((len(out), len(query), len(key)))
    for i, at in enumerate(query):
        for j, seen in enumerate(key):
            z = np.array([float(one) - float(other) for one, other in zip(at, seen, strict=True)])
            if log_distance:
                z = np.array([math.copysign(math.log(1 + abs(each)), each) for each in z])
            for number, (weight, shift) in enumerate(layers):
                z = weight @ z + shift
                if norms:
                    z = normalised(z, *norms[number])
                z = np.array([activation(each, kind) for each in z])
            values[:, i, j] = out @ z
    return values
