"""The three position ids of M-RoPE.

Paper    Wang et al., Qwen2-VL, arXiv:2409.12191, section 2.1.

Text advances time, height and width together. A vision segment of (t, h, w) patches starts at the
next free position p, and patch (a, b, c) gets (p + a, p + b, p + c). What follows starts at the
largest id so far plus one.
"""

import numpy as np
from numpy.typing import NDArray


def ids(segments: list[int | tuple[int, int, int]]) -> tuple[NDArray[np.int64], int]:
    """The ids of every token, and how far the next free position lies from the token count.

    Shape: segments, text lengths or (t, h, w) grids -> ids (n, 3).
    """
    tokens: list[tuple[int, int, int]] = []
    free = 0
    for segment in segments:
        if isinstance(segment, int):
            tokens += [(free + i, free + i, free + i) for i in range(segment)]
        else:
            time, height, width = segment
            tokens += [(free + a, free + b, free + c) for a in range(time) for b in range(height) for c in range(width)]
        free = max((max(token) for token in tokens), default=-1) + 1
    return np.array(tokens, dtype=np.int64).reshape(-1, 3), free - len(tokens)
