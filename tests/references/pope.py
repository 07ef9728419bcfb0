"""PoPE: polar coordinate position embedding.

Paper    Gopalakrishnan et al., arXiv:2509.10534, section 3.

    score(i, j) = sum_c softplus(q_ic) softplus(k_jc) cos((j - i) t_c + delta_c),   t_c = base^(-c/d)
"""

import math

import numpy as np
from numpy.typing import NDArray


def scores(
    query: NDArray[np.float64],
    key: NDArray[np.float64],
    query_positions: NDArray[np.int64],
    key_positions: NDArray[np.int64],
    delta: NDArray[np.float64],
    base: float = 10000.0,
) -> NDArray[np.float64]:
    """Unscaled scores of one head. Shapes: query (n, d), key (m, d), delta (d,) -> (n, m)."""
    dim = query.shape[-1]
    found = np.zeros((len(query), len(key)))
    for i, q in enumerate(query):
        for j, k in enumerate(key):
            offset = int(key_positions[j]) - int(query_positions[i])
            for c in range(dim):
                phase = offset * base ** (-c / dim) + delta[c]
                found[i, j] += math.log1p(math.exp(q[c])) * math.log1p(math.exp(k[c])) * math.cos(phase)
    return found
