"""Two-axis relative positions of MViTv2, ViTDet and SAM.

Papers   arXiv:2112.01526, section 4.1; arXiv:2203.16527; arXiv:2304.02643.

    added[h, i, j] = q_i . R_h[y_i - y_j + H - 1] + q_i . R_w[x_i - x_j + W - 1]

The released code adds it as it is; by the paper the softmax scale multiplies it too.
"""

import numpy as np
from numpy.typing import NDArray


def term(
    q: NDArray[np.float64],
    query: NDArray[np.int64],
    key: NDArray[np.int64],
    down: NDArray[np.float64],
    across: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Shapes: q (h, n, d), query (n, 2), key (m, 2), down (2H - 1, d), across (2W - 1, d) -> (h, n, m)."""
    heads, queries = q.shape[:2]
    added = np.zeros((heads, queries, len(key)))
    for head in range(heads):
        for i in range(queries):
            for j in range(len(key)):
                dy, dx = (int(query[i, axis] - key[j, axis]) for axis in range(2))
                rows = down[dy + len(down) // 2] + across[dx + len(across) // 2]
                added[head, i, j] = q[head, i] @ rows
    return added
