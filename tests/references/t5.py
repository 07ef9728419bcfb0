"""T5's relative position bias: a learned number per head and per bucket of offsets.

Paper    Raffel et al., arXiv:1910.10683, section 2.1; buckets as in mesh-tensorflow's
         ``_relative_position_bucket``.

    bias[h, i, j] = table[bucket(j - i), h]

Of B buckets a direction the first E = B // 2 hold one distance n each; the others grow geometrically:

    bucket(n) = n                                              for n < E
    bucket(n) = min(B - 1, E + floor((B - E) log(n / E) / log(D / E)))    for n >= E,  D = max_distance

Two directions take half of the buckets each, keys ahead of the query the second half; with one
direction, keys ahead count as distance 0.

Departures: the floor is taken in integers, since

    (B - E) log(n / E) / log(D / E) >= t    if and only if    n^(B - E) E^t >= D^t E^(B - E),

where the released code rounds a float32 logarithm. ``clipped_row`` is the plain table, one row per
distance up to a maximum, that Shaw et al., arXiv:1803.02155, clip to.
"""

import numpy as np
from numpy.typing import NDArray


def bucket(offset: int, bidirectional: bool, num_buckets: int, max_distance: int) -> int:
    """The bucket of ``offset`` = key - query."""
    first = 0
    if bidirectional:
        num_buckets //= 2
        first = num_buckets if offset > 0 else 0
        distance = abs(offset)
    else:
        distance = max(-offset, 0)
    exact = num_buckets // 2
    if not 0 < exact < max_distance:
        raise ValueError((num_buckets, max_distance))
    if distance < exact:
        return first + distance
    steps = num_buckets - exact
    step = 0
    while step + 1 < steps and distance**steps * exact ** (step + 1) >= max_distance ** (step + 1) * exact**steps:
        step += 1
    return first + exact + step


def clipped_row(offset: int, max_distance: int, bidirectional: bool) -> int:
    """The row of ``offset`` = key - query, out of 2 max_distance + 1, or max_distance + 1 with one direction."""
    if bidirectional:
        return max(-max_distance, min(max_distance, offset)) + max_distance
    return min(max(-offset, 0), max_distance)


def bias(
    table: NDArray[np.float64],
    query: NDArray[np.int64],
    key: NDArray[np.int64],
    max_distance: int,
    bidirectional: bool,
    rows: str = "bucketed",
) -> NDArray[np.float64]:
    """The bias, one bucket per row of the table. Shapes: table (rows, h), query (n,), key (m,) -> (h, n, m)."""
    values = np.zeros((table.shape[1], len(query), len(key)))
    for i, at in enumerate(query):
        for j, seen in enumerate(key):
            offset = int(seen) - int(at)
            if rows == "bucketed":
                row = bucket(offset, bidirectional, len(table), max_distance)
            elif rows == "clipped":
                row = clipped_row(offset, max_distance, bidirectional)
            else:
                raise ValueError(rows)
            values[:, i, j] = table[row]
    return values
