"""Stretching a learned position table to another length.

Row i of the new table is read at i (n - 1) / (m - 1) of the old one, linearly between its two
neighbours: the corners are aligned, so the first and the last row are kept exactly.
"""

import numpy as np
from numpy.typing import NDArray


def interpolate(table: NDArray[np.float64], new_length: int) -> NDArray[np.float64]:
    """The resized table; a single new row is the old first one. Shapes: (n, dim) -> (new_length, dim)."""
    resized = np.zeros((new_length, table.shape[1]))
    for row in range(new_length):
        # Whole-number division: the rows that fall on an old row are copies of it, without rounding.
        steps = max(new_length - 1, 1)
        lower, remainder = divmod(row * (len(table) - 1), steps)
        weight = remainder / steps
        upper = min(lower + 1, len(table) - 1)
        resized[row] = (1 - weight) * table[lower] + weight * table[upper]
    return resized
