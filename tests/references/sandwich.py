"""Sandwich: the inner product of two sinusoidal encodings, compressed from head to head.

Paper    Chi et al., arXiv:2212.10356.

    bias[h, i, j] = p_i . p_j / (8 h / H) = (H / 8h) sum_k cos((i - j) base^(-2k / dim)),    h = 1 .. H

with p the sinusoidal encoding of width dim, so that the sum has dim/2 terms and is dim/2 at distance 0.

Departures, each told apart by an argument: ``first`` is where k starts, 0 as in Vaswani et al.,
arXiv:1706.03762, or 1 as in NeMo; ``centred`` takes dim/2 off the sum, as NeMo does, which makes the bias 0
at distance 0 and changes no attention, being a constant of the head.
"""

import math

import numpy as np
from numpy.typing import NDArray


def inner_product(offset: float, dim: int, base: float = 10000.0, first: int = 0) -> float:
    """p_i . p_j for ``offset`` = key - query, dim even; at most dim/2."""
    return math.fsum(math.cos(offset * base ** (-2 * k / dim)) for k in range(first, first + dim // 2))


def ratios(num_heads: int) -> NDArray[np.float64]:
    """What the bias of each head is divided by: even steps up to 8. Shape: (num_heads,)."""
    return np.array([8 * head / num_heads for head in range(1, num_heads + 1)], dtype=np.float64)


def bias(
    num_heads: int,
    query: NDArray[np.float64],
    key: NDArray[np.float64],
    dim: int = 128,
    base: float = 10000.0,
    first: int = 0,
    centred: bool = False,
) -> NDArray[np.float64]:
    """The bias. Shapes: query (n,), key (m,) -> (num_heads, n, m)."""
    values = np.zeros((num_heads, len(query), len(key)))
    for i, at in enumerate(query):
        for j, seen in enumerate(key):
            product = inner_product(float(seen) - float(at), dim, base, first)
            values[:, i, j] = (product - (dim / 2 if centred else 0.0)) / ratios(num_heads)
    return values
