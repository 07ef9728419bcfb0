"""ALiBi: a penalty proportional to the distance, steeper or gentler from head to head.

Paper    Press et al., arXiv:2108.12409, section 3; slopes as in the authors' ``get_slopes``.

    bias[h, i, j] = -m_h |j - i|,    m_h = 2^(-8 h / H),    h = 1 .. H,    H a power of two

Other head counts: the slopes of the largest power of two P below H, then every second slope of 2P heads,
starting from the first, until there are H.

Departures: MPT's slopes have bias_max in place of 8, and at 8 are the same numbers in the same order, though
built from the next power of two above H. Keys ahead of the query, which the paper masks, have slopes of their
own: equal ones are the authors' symmetric form for encoders, different ones their nonsymmetric form without
masks. The released models add m_h j, which differs by m_h i, a constant of the row that the softmax cannot see.
"""

import numpy as np
from numpy.typing import NDArray


def slopes(num_heads: int) -> NDArray[np.float64]:
    """The authors' slopes. Shape: (num_heads,)."""
    power = 1
    while 2 * power <= num_heads:
        power *= 2
    steps = [8 * head / power for head in range(1, power + 1)]
    steps += [8 * head / (2 * power) for head in range(1, 2 * power + 1, 2)]
    return np.array([2.0**-step for step in steps[:num_heads]], dtype=np.float64)


def slopes_with_maximum(num_heads: int, bias_max: float) -> NDArray[np.float64]:
    """MPT's slopes. Shape: (num_heads,)."""
    power = 1
    while power < num_heads:
        power *= 2
    steps = [bias_max * head / power for head in range(1, power + 1)]
    if power != num_heads:
        steps = steps[1::2] + steps[0::2]
    return np.array([2.0**-step for step in steps[:num_heads]], dtype=np.float64)


def bias(
    slopes_behind: NDArray[np.float64],
    slopes_ahead: NDArray[np.float64],
    query: NDArray[np.float64],
    key: NDArray[np.float64],
) -> NDArray[np.float64]:
    """The bias. Shapes: slopes_behind and slopes_ahead (h,), query (n,), key (m,) -> (h, n, m)."""
    values = np.zeros((len(slopes_behind), len(query), len(key)))
    for head in range(len(slopes_behind)):
        for i, at in enumerate(query):
            for j, seen in enumerate(key):
                offset = float(seen) - float(at)
                slope = slopes_ahead[head] if offset > 0 else slopes_behind[head]
                values[head, i, j] = -slope * abs(offset)
    return values
