"""Relative position vectors added to keys and values.

Paper    Shaw et al., arXiv:1803.02155, eqs. 3 and 4.

    e_ij = q_i . (k_j + a^K[clip(j - i, -K, K)]),    z_i = sum_j w_ij (v_j + a^V[clip(j - i, -K, K)])

Only what the two tables add is given here: q_i . a^K[...] beside the raw product q_i . k_j, which
the softmax scale multiplies together, and sum_j w_ij a^V[...] beside the attended values.

Departures: the paper shares a table among the heads of a layer; a table for each head is allowed too. Tables may reach
``ahead`` rows ahead and the rest behind, have nothing beyond, and be written from ahead to behind.
"""

import numpy as np
from numpy.typing import NDArray


def row(offset: float, count: int, ahead: int | None, nothing: bool, mirrored: bool) -> int | None:
    """The row, of ``count``, for a whole-numbered offset, key minus query: 0 is the farthest to the left, or, mirrored,
    to the right; None where it has none."""
    ahead = (count - 1) // 2 if ahead is None else ahead
    behind = count - 1 - ahead
    if nothing and not -behind <= offset <= ahead:
        return None
    clipped = int(min(max(offset, -behind), ahead))
    return ahead - clipped if mirrored else clipped + behind


def by_head(table: NDArray[np.float64], heads: int) -> NDArray[np.float64]:
    """One table for each head. Shapes: (2K+1, d) or (heads, 2K+1, d) -> (heads, 2K+1, d)."""
    return np.broadcast_to(table, (heads, *table.shape[-2:]))


def key_term(
    q: NDArray[np.float64],
    query_positions: NDArray[np.float64],
    key_positions: NDArray[np.float64],
    table: NDArray[np.float64],
    ahead: int | None = None,
    nothing: bool = False,
    mirrored: bool = False,
) -> NDArray[np.float64]:
    """What a^K adds to the raw products.

    Shapes: q (h, n, d), query_positions (n,), key_positions (m,), table ([h,] 2K+1, d) -> (h, n, m).
    """
    heads, queries = q.shape[:2]
    tables = by_head(table, heads)
    term = np.zeros((heads, queries, len(key_positions)))
    for head in range(heads):
        for i in range(queries):
            for j in range(len(key_positions)):
                offset = key_positions[j] - query_positions[i]
                at = row(offset, tables.shape[1], ahead, nothing, mirrored)
                term[head, i, j] = 0.0 if at is None else q[head, i] @ tables[head, at]
    return term


def value_term(
    weights: NDArray[np.float64],
    query_positions: NDArray[np.float64],
    key_positions: NDArray[np.float64],
    table: NDArray[np.float64],
    ahead: int | None = None,
    nothing: bool = False,
    mirrored: bool = False,
) -> NDArray[np.float64]:
    """What a^V adds to the attended values.

    Shapes: weights (h, n, m), query_positions (n,), key_positions (m,), table ([h,] 2K+1, dv) -> (h, n, dv).
    """
    heads, queries, keys = weights.shape
    tables = by_head(table, heads)
    term = np.zeros((heads, queries, tables.shape[2]))
    for head in range(heads):
        for i in range(queries):
            for j in range(keys):
                offset = key_positions[j] - query_positions[i]
                at = row(offset, tables.shape[1], ahead, nothing, mirrored)
                term[head, i] += 0.0 if at is None else weights[head, i, j] * tables[head, at]
    return term
