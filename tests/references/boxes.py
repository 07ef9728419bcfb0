"""Biases of the text and of boxes on a page, in logarithmic buckets.

Papers   LayoutLMv2, arXiv:2012.14740, section 2.2; UDOP, arXiv:2212.02623.

    bias[h, i, j] = factor * sum over axes a of table_a[bucket(trunc(r_a (x_a[j] - x_a[i]))), h]

with T5's bidirectional buckets (arXiv:1910.10683, appendix): half of each direction's rows hold single distances, the
others grow up to max_distance.
"""

import math

import numpy as np
from numpy.typing import NDArray


def bucket(offset: int, rows: int, max_distance: int) -> int:
    """The row of an offset, key minus query; keys ahead have the upper half."""
    half = rows // 2
    first = half if offset > 0 else 0
    distance, exact = abs(offset), half // 2
    if distance < exact:
        return first + distance
    grown = exact + int(math.log(distance / exact) / math.log(max_distance / exact) * (half - exact))
    return first + min(grown, half - 1)


def bias(
    tables: list[NDArray[np.float64]],
    max_distances: list[int],
    resolution: list[float],
    factor: float,
    query: NDArray[np.float64],
    key: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Shapes: tables of (rows, h), one an axis; query (n, axes), key (m, axes) -> (h, n, m)."""
    total = np.zeros((tables[0].shape[1], len(query), len(key)))
    for i in range(len(query)):
        for j in range(len(key)):
            for axis, table in enumerate(tables):
                steps = int((key[j, axis] - query[i, axis]) * resolution[axis])
                total[:, i, j] += factor * table[bucket(steps, len(table), max_distances[axis])]
    return total
