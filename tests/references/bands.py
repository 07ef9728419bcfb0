"""Extension without training: attention whose rotations differ by band of distance, in float64.

Papers   Self-Extend, Jin et al., arXiv:2401.01325, algorithm 1; dual-chunk attention, An et al., arXiv:2402.17463,
         section 3; ReRoPE and Leaky ReRoPE, Su 2023, https://kexue.fm/archives/9708.

Each method is written as its authors have it: whole matrices of scores, one for each kind of positions, of which a mask
picks. Positions are 0, 1, 2, ... and attention is causal. Channels are paired by halves.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Scores = Callable[[Array, Array], Array]
"""Takes queries and keys (sequence, dim); gives scores (query, key) before they are scaled."""


def rotated(x: Array, positions: Array, base: float) -> Array:
    """R(p) x: channels c and c + dim/2 are a pair, rotated by p base^(-2c / dim). Shape: (sequence, dim)."""
    half = x.shape[1] // 2
    out = np.empty_like(x)
    for c in range(half):
        angle = positions * base ** (-2 * c / x.shape[1])
        out[:, c] = x[:, c] * np.cos(angle) - x[:, c + half] * np.sin(angle)
        out[:, c + half] = x[:, c] * np.sin(angle) + x[:, c + half] * np.cos(angle)
    return out


def self_extend(window: int, group: int, base: float) -> Scores:
    """Algorithm 1: neighbours by their positions, others by grouped ones, shifted to follow the window."""

    def scores(q: Array, k: Array) -> Array:
        p = np.arange(len(q), dtype=np.float64)
        neighbours = rotated(q, p, base) @ rotated(k, p, base).T
        grouped = np.floor(p / group)
        shift = window - window // group
        others = rotated(q, grouped + shift, base) @ rotated(k, grouped, base).T
        return np.asarray(np.where(p[:, None] - p[None, :] < window, neighbours, others), dtype=np.float64)

    return scores


def rerope(window: int, base: float) -> Scores:
    """Beyond the window every distance is the window: queries at that position, keys at 0."""

    def scores(q: Array, k: Array) -> Array:
        p = np.arange(len(q), dtype=np.float64)
        near = rotated(q, p, base) @ rotated(k, p, base).T
        far = rotated(q, np.full_like(p, window), base) @ k.T
        return np.asarray(np.where(p[:, None] - p[None, :] < window, near, far), dtype=np.float64)

    return scores


def leaky_rerope(window: int, leak: float, base: float) -> Scores:
    """Beyond the window the distance goes on in steps of ``leak``."""

    def scores(q: Array, k: Array) -> Array:
        p = np.arange(len(q), dtype=np.float64)
        near = rotated(q, p, base) @ rotated(k, p, base).T
        far = rotated(q, (p + window / leak - window) * leak, base) @ rotated(k, p * leak, base).T
        return np.asarray(np.where(p[:, None] - p[None, :] < window, near, far), dtype=np.float64)

    return scores


def dual_chunk(chunk_size: int, local_size: int, base: float) -> Scores:
    """Chunk by chunk: the queries of one meet its own keys, those of the chunk before, and all earlier ones."""

    def scores(q: Array, k: Array) -> Array:
        size = chunk_size - local_size
        p = np.arange(len(q), dtype=np.float64) % size
        keys, found = rotated(k, p, base), np.zeros((len(q), len(k)))
        for begin in range(0, len(q), size):
            own = slice(begin, begin + size)
            found[own, own] = rotated(q[own], p[own], base) @ keys[own].T
            if begin >= size:
                before = slice(begin - size, begin)
                found[own, before] = rotated(q[own], np.minimum(p[own] + size, chunk_size), base) @ keys[before].T
            if begin >= 2 * size:
                earlier = slice(0, begin - size)
                found[own, earlier] = rotated(q[own], np.full_like(p[own], chunk_size), base) @ keys[earlier].T
        return found

    return scores


def attention(q: Array, k: Array, v: Array, scores: Scores) -> Array:
    """Causal attention of one head. Shapes: (sequence, dim)."""
    found = scores(q, k) / np.sqrt(q.shape[1])
    found[np.triu_indices(len(q), 1)] = -np.inf
    weights = np.exp(found - found.max(-1, keepdims=True))
    return np.asarray(weights @ v / weights.sum(-1, keepdims=True), dtype=np.float64)
