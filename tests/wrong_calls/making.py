"""The sizes, tensors and objects that right calls are made from."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import situs
from situs import Positions

BATCH, HEADS, LENGTH, HEAD_DIM, DIM = 2, 2, 5, 8, 16


def tokens() -> Tensor:
    """Embeddings."""
    return torch.ones(BATCH, LENGTH, DIM)


def heads(length: int = LENGTH) -> Tensor:
    """Queries, keys or values."""
    return torch.ones(BATCH, HEADS, length, HEAD_DIM)


def attention() -> dict[str, Any]:
    """Arguments of attention, all of them."""
    return {
        "query": heads(), "key": heads(), "value": heads(), "encoding": situs.ALiBi(num_heads=HEADS), "causal": True,
        "positions": Positions.range(LENGTH), "key_positions": Positions.range(LENGTH),
        "mask": torch.ones(LENGTH, LENGTH, dtype=torch.bool), "window": 3, "scale": 0.5, "dropout": 0.0,
    }  # fmt: skip


def sharded() -> dict[str, Any]:
    """Those of them that sharded attention takes."""
    call = attention()
    return {
        name: call[name] for name in ("query", "key", "value", "positions", "encoding", "causal", "window", "scale")
    }


def circle() -> Tensor:
    """Cosines or sines."""
    return torch.ones(LENGTH, HEAD_DIM // 2)


def rotation_table() -> situs.rotation.RotationTable:
    """A table that fits the heads."""
    return situs.rotation.RotationTable(circle()[None, None], circle()[None, None])


def pages() -> Positions:
    """Positions of tokens on a page: in the text, across and down."""
    return Positions.explicit(torch.zeros(BATCH, LENGTH, 3, dtype=torch.int64))


def scores() -> dict[str, Any]:
    """Arguments of an encoding that adds to the scores by content."""
    return {
        "query": heads(), "key": heads(), "query_positions": Positions.range(LENGTH),
        "key_positions": Positions.range(LENGTH), "scale": 0.5,
        "visible": torch.ones(BATCH, HEADS, LENGTH, LENGTH, dtype=torch.bool),
    }  # fmt: skip


def cache() -> situs.KVCache:
    """A cache with three tokens."""
    cache = situs.KVCache(batch=BATCH, num_heads=HEADS, head_dim=HEAD_DIM, max_length=16)
    cache.append(heads(3), heads(3))
    return cache


SIZES: dict[str, Any] = {"num_heads": HEADS, "head_dim": HEAD_DIM}
STRETCH: dict[str, Any] = {"factor": 2.0, "original_length": 64}
FIGURE = {"length": 8, "dark": False}
