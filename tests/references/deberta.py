"""DeBERTa's disentangled attention: content against position, position against content.

Paper    He et al., arXiv:2006.03654, section 3.1; log buckets, from the authors' version 2 (no formula in print).

    A_ij = (q_i . k_j  +  q_i . Kr[delta(i, j)]  +  k_j . Qr[delta(j, i)]) / sqrt(3 d)
                              c2p                       p2c
    delta(i, j) = clip(i - j + span, 0, 2 span - 1)

with Kr, Qr the projections of 2 span rows shared by the layers. In version 2 a log bucket stands for i - j.

Departures, each chosen by ``query_row``: all released code reads p2c at delta(i, j), the "same" row as c2p,
where the paper has the "mirrored" delta(j, i). Position against position (p2p), which the paper drops, is
Qr["mirrored"] . Kr[delta(i, j)] by the paper's eq. 2; the authors' code has it "anchored", with Qr at
the query's distance from position 0.
Log buckets grow on past max_position, and read row 0 there; the authors' last code first holds the distance
within max_position - 1, and never reads row 0.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Bucket = Callable[[int], int]


def scale(dim: int, terms: int) -> float:
    """Of q . k and of each of the ``terms`` beside it: 1 / sqrt(3 d) for c2p and p2c."""
    return 1 / math.sqrt(dim * (1 + terms))


def clip_bucket(distance: int, span: int) -> int:
    """The distance, query minus key, held within the 2 span rows."""
    return max(-span, min(span - 1, distance))


def log_bucket(distance: int, bucket_size: int, max_position: int) -> int:
    """The distance itself up to mid = bucket_size // 2, then logarithmic, odd in the distance.

    ``sign * (mid + ceil(log(|distance| / mid) / log((max_position - 1) / mid) * (mid - 1)))``,
    which is ``sign * (2 mid - 1)`` at max_position - 1 and grows on beyond it.
    """
    mid = bucket_size // 2
    size = abs(int(distance))  # of any size, as NumPy's integers are not
    if size <= mid:
        return distance
    if max_position - 1 <= mid:
        raise ValueError(max_position)
    # The least whole number at or above the quotient of logarithms, found among integers: rounding
    # in a logarithm moves distances that fall on a boundary, max_position - 1 first of all.
    steps = 0
    while (max_position - 1) ** steps * mid ** (mid - 1) < size ** (mid - 1) * mid**steps:
        steps += 1
    return mid + steps if distance > 0 else -(mid + steps)


def row(bucket: int, span: int) -> int:
    """The row of a bucketed distance among 2 span."""
    return clip_bucket(bucket, span) + span


def rows(
    query_positions: NDArray[np.int64],
    key_positions: NDArray[np.int64],
    span: int,
    query_row: str,
    bucket: Bucket = int,
) -> NDArray[np.int64]:
    """The row each pair reads. Shapes: query_positions (n,), key_positions (m,) -> (n, m)."""
    chosen = np.zeros((len(query_positions), len(key_positions)), dtype=np.int64)
    for i, query in enumerate(query_positions):
        for j, key in enumerate(key_positions):
            distance = {"same": query - key, "mirrored": key - query, "anchored": query}[query_row]
            chosen[i, j] = row(bucket(int(distance)), span)
    return chosen


def content_to_position(
    q: NDArray[np.float64],
    query_positions: NDArray[np.int64],
    key_positions: NDArray[np.int64],
    Kr: NDArray[np.float64],
    bucket: Bucket = int,
) -> NDArray[np.float64]:
    """c2p, on the scale of the raw products.

    Shapes: q (h, n, d), query_positions (n,), key_positions (m,), Kr (h, 2*span, d) -> (h, n, m).
    """
    at = rows(query_positions, key_positions, Kr.shape[1] // 2, "same", bucket)
    term = np.zeros((len(q), *at.shape))
    for head, i, j in np.ndindex(*term.shape):
        term[head, i, j] = q[head, i] @ Kr[head, at[i, j]]
    return term


def position_to_content(
    k: NDArray[np.float64],
    query_positions: NDArray[np.int64],
    key_positions: NDArray[np.int64],
    Qr: NDArray[np.float64],
    bucket: Bucket = int,
    query_row: str = "same",
) -> NDArray[np.float64]:
    """p2c, on the scale of the raw products.

    Shapes: k (h, m, d), query_positions (n,), key_positions (m,), Qr (h, 2*span, d) -> (h, n, m).
    """
    at = rows(query_positions, key_positions, Qr.shape[1] // 2, query_row, bucket)
    term = np.zeros((len(k), *at.shape))
    for head, i, j in np.ndindex(*term.shape):
        term[head, i, j] = k[head, j] @ Qr[head, at[i, j]]
    return term


def position_to_position(
    query_positions: NDArray[np.int64],
    key_positions: NDArray[np.int64],
    Qr: NDArray[np.float64],
    Kr: NDArray[np.float64],
    bucket: Bucket = int,
    query_row: str = "anchored",
) -> NDArray[np.float64]:
    """p2p, on the scale of the raw products.

    Shapes: query_positions (n,), key_positions (m,), Qr and Kr (h, 2*span, d) -> (h, n, m).
    """
    span = Kr.shape[1] // 2
    # An anchored row is the bare query position: the authors slice Qr from its middle row on.
    query_at = rows(query_positions, key_positions, span, query_row, int if query_row == "anchored" else bucket)
    key_at = rows(query_positions, key_positions, span, "same", bucket)
    term = np.zeros((len(Kr), *key_at.shape))
    for head, i, j in np.ndindex(*term.shape):
        term[head, i, j] = Qr[head, query_at[i, j]] @ Kr[head, key_at[i, j]]
    return term
