"""Positions of padded, packed and sharded sequences.

Padded: a real token stands at the number of real tokens before it in its row, padding at 0.
Packed: each document counts from 0.
Zigzag, of context parallelism (Llama 3, arXiv:2407.21783, section 3.3.2): of 2W equal chunks, rank r
of W holds chunk r and chunk 2W - 1 - r, so that causal work is even across ranks.
"""

import numpy as np
from numpy.typing import NDArray


def from_mask(mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Positions of the real tokens, 0 at padding. Shapes: mask (batch, length), True = real -> same."""
    positions = np.zeros(mask.shape, dtype=np.int64)
    for row in range(mask.shape[0]):
        for column in range(mask.shape[1]):
            if mask[row, column]:
                positions[row, column] = sum(1 for real in mask[row, :column] if real)
    return positions


def packed(lengths: list[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The position and the document of each token. Shapes: two of (sum(lengths),)."""
    ids = [position for length in lengths for position in range(length)]
    documents = [document for document, length in enumerate(lengths) for _ in range(length)]
    return np.array(ids, dtype=np.int64), np.array(documents, dtype=np.int64)


def zigzag(length: int, world_size: int, rank: int) -> NDArray[np.int64]:
    """The slots that ``rank`` holds, ``length`` a multiple of 2 world_size. Shape: (length/world_size,)."""
    if length % (2 * world_size):
        raise ValueError(length)
    size = length // (2 * world_size)
    chunks = [list(range(chunk * size, (chunk + 1) * size)) for chunk in range(2 * world_size)]
    return np.array(chunks[rank] + chunks[2 * world_size - 1 - rank], dtype=np.int64)
