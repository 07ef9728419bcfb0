"""A right call of every public callable, small enough to be made hundreds of times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import situs
from situs import Positions
from tests.wrong_calls import example_functions, example_modules
from tests.wrong_calls.making import (
    DIM,
    FIGURE,
    HEAD_DIM,
    HEADS,
    LENGTH,
    SIZES,
    STRETCH,
    attention,
    cache,
    heads,
    pages,
    rotation_table,
    tokens,
)

CALLS = example_modules.CALLS | example_functions.CALLS

ALSO: dict[str, Callable[[], dict[str, Any]]] = {
    "Attention.forward": lambda: {"x": tokens(), "cache": cache(), "mask": torch.ones(5, 8, dtype=torch.bool)},
    "KVCache": lambda: {"batch": 1, "num_heads": HEADS, "head_dim": HEAD_DIM, "window": 4},
    "KVCache.crop": lambda: {"length": [2, 3]},
    "KVCache.reorder": lambda: {"rows": torch.tensor([1, 0])},
    "Positions.packed": lambda: {"cu_seqlens": torch.tensor([0, 2, 5]), "length": 5},
    "Positions.range": lambda: {"length": 4, "start": torch.tensor([1, 2])},
    "Positions.with_sequence_length": lambda: {"sequence_length": torch.tensor([[9]])},
    "Scaling.resolve": lambda: {"dim": HEAD_DIM, "base": torch.tensor([1e4, 1e5]), "sequence_length": 128},
    "RotationEncoding.forward": lambda: {"x": heads(), "positions": torch.arange(LENGTH)},
    "Rotary.rerotate": lambda: {
        "keys": heads(), "old_positions": 0, "new_positions": 3, "source": situs.Rotary(head_dim=HEAD_DIM),
    },
    "RotationEncoding.rotation_matrix": lambda: {"position": [3]},
    "RoPEMixed.forward": lambda: {"x": heads(), "positions": Positions.grid(1, LENGTH).ids},
    "RoPEMixed.rotation_matrix": lambda: {"position": [3, 4.5]},
    "BiasEncoding.forward": lambda: {"query_positions": torch.arange(3), "key_positions": torch.arange(4)},
    "SwinBias.forward": lambda: {"query_positions": Positions.grid(3, 3).ids},
    "Boxes.forward": lambda: {"query_positions": pages().ids},
    "ALiBi": lambda: {
        "num_heads": HEADS, "slopes": [0.5, 0.25], "asymmetric": True, "slopes_ahead": [0.5, 0.25],
    },
    "SwinBias": lambda: {"num_heads": HEADS, "version": "v2"},
    "T5Bias": lambda: {"num_heads": HEADS, "buckets": "clipped", "bidirectional": False},
    "Rotary": lambda: {"head_dim": HEAD_DIM, "base": [1e4, 1e5], "scaling": situs.YaRN(**STRETCH)},
    "situs.attend": lambda: {**attention(), "positions": torch.arange(5), "mask": torch.zeros(5, 5)},
    "situs.plots.decay": lambda: {**FIGURE, "encodings": {"steep": situs.ALiBi(num_heads=2)}},
}  # fmt: skip
"""A second right call, where an argument may be of several kinds."""

MADE: dict[str, Callable[[], Any]] = {
    "KVCache": cache,
    "Positions": lambda: Positions.range(8),
    "Deberta.tie": lambda: situs.Deberta(**SIZES, dim=DIM, max_distance=16, share_att_key=True),
    "Tupe": lambda: situs.Tupe(**SIZES, dim=DIM, relative_buckets=32),
    "Rotary.join_keys": lambda: situs.Rotary(head_dim=HEAD_DIM, rotary_dim=4, channels="trailing"),
    "RotationTable": rotation_table,
}
"""Objects that methods are called on, where the example of the constructor makes none that has everything."""
