"""A bias of the distance that each token mixes from shared profiles.

Model    Inkling, as released in transformers.

    b[h, i, j] = sum_r R[h, i, r] P[r, p_i - p_j]   for 0 <= p_i - p_j < extent, 0 elsewhere
"""

import numpy as np
from numpy.typing import NDArray


def bias(
    relative: NDArray[np.float64],
    profiles: NDArray[np.float64],
    query_positions: NDArray[np.int64],
    key_positions: NDArray[np.int64],
) -> NDArray[np.float64]:
    """What is added to the scaled scores.

    Shapes: relative (h, n, r), profiles (r, extent), query_positions (n,), key_positions (m,) -> (h, n, m).
    """
    heads, queries, rank = relative.shape
    added = np.zeros((heads, queries, len(key_positions)))
    for i in range(queries):
        for j in range(len(key_positions)):
            distance = int(query_positions[i]) - int(key_positions[j])
            if 0 <= distance < profiles.shape[1]:
                for head in range(heads):
                    added[head, i, j] = sum(relative[head, i, r] * profiles[r, distance] for r in range(rank))
    return added
