"""A right call of every encoding, scaling, constructor of positions, and of attention and their methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import situs
from situs import Positions
from situs.attention.cache import Step
from tests.wrong_calls.making import (
    BATCH,
    DIM,
    HEAD_DIM,
    HEADS,
    LENGTH,
    SIZES,
    STRETCH,
    attention,
    heads,
    scores,
    sharded,
    tokens,
)

CALLS: dict[str, Callable[[], dict[str, Any]]] = {
    # encodings
    "ALiBi": lambda: {"num_heads": HEADS},
    "CoPE": lambda: SIZES,
    "Deberta": lambda: {**SIZES, "dim": DIM, "max_distance": 16, "terms": ("c2p", "p2c")},
    "Fire": lambda: {"num_heads": HEADS},
    "Kerple": lambda: {"num_heads": HEADS},
    "Learned": lambda: {"dim": DIM, "max_length": 12},
    "LearnedGrid": lambda: {"dim": DIM, "size": (3, 4)},
    "NoPE": lambda: {},
    "Rotary": lambda: {"head_dim": HEAD_DIM},
    "Sandwich": lambda: {"num_heads": HEADS},
    "Shaw": lambda: SIZES,
    "Sinusoidal": lambda: {"dim": DIM},
    "SwinBias": lambda: {"num_heads": HEADS, "window": (3, 3), "trained_window": (3, 3)},
    "T5Bias": lambda: {"num_heads": HEADS},
    "TransformerXL": lambda: {**SIZES, "dim": DIM},
    "Tupe": lambda: {**SIZES, "dim": DIM},
    "XPos": lambda: {"head_dim": HEAD_DIM},
    "Encoding.scale_for": lambda: {"head_dim": HEAD_DIM},
    "InputEncoding.forward": lambda: {"x": tokens(), "positions": Positions.range(LENGTH)},
    "NoPE.forward": lambda: {"x": tokens(), "positions": Positions.range(LENGTH)},
    "RotationEncoding.forward": lambda: {"x": heads(), "positions": Positions.range(LENGTH)},
    "RotationEncoding.both": lambda: {
        "query": heads(), "key": heads(), "positions": Positions.range(LENGTH),
        "key_positions": Positions.range(LENGTH),
    },
    "RotationEncoding.inverse": lambda: {"x": heads(), "positions": Positions.range(LENGTH)},
    "RotationEncoding.reach_in": lambda: {"dtype": torch.float32},
    "RotationEncoding.rerotate": lambda: {
        "keys": heads(), "old_positions": Positions.range(LENGTH), "new_positions": Positions.range(LENGTH, start=3),
        "source": None,
    },
    "RotationEncoding.rotation_matrix": lambda: {"position": 3.0},
    "RotationEncoding.table": lambda: {"positions": Positions.range(LENGTH)},
    "BiasEncoding.forward": lambda: {"query_positions": Positions.range(3), "key_positions": Positions.range(4)},
    "BiasEncoding.score_mod": lambda: {"query_positions": Positions.range(3), "key_positions": Positions.range(4)},
    "OffsetBias.by_offset": lambda: {"offsets": torch.arange(-3, 4)},
    "SwinBias.forward": lambda: {"query_positions": Positions.grid(3, 3), "key_positions": Positions.grid(3, 3)},
    "SwinBias.score_mod": lambda: {"query_positions": Positions.grid(3, 3), "key_positions": Positions.grid(3, 3)},
    "SwinBias.by_offset": lambda: {"offsets": torch.zeros(4, 2, dtype=torch.int64)},
    "SwinBias.resize": lambda: {"window": (5, 5)},
    "PositionProduct.by_offset": lambda: {"offsets": torch.arange(-3, 4)},
    "T5Bias.rows_of": lambda: {"offsets": torch.arange(-3, 4)},
    "ScoreEncoding.forward": scores,
    "ValueEncoding.gathered": lambda: {
        "weights": torch.ones(BATCH, HEADS, LENGTH, LENGTH), "query_positions": Positions.range(LENGTH),
        "key_positions": Positions.range(LENGTH),
    },
    "Deberta.tie": lambda: {"query": nn.Linear(DIM, 16), "key": nn.Linear(DIM, 16)},
    "Learned.extend": lambda: {"new_length": 20},
    "LearnedGrid.resize": lambda: {"size": (4, 5)},
    "Sinusoidal.encode": lambda: {"positions": Positions.range(LENGTH)},
    "Sinusoidal.frequencies": lambda: {"axis": 0},
    "Sinusoidal.shift_matrix": lambda: {"offset": 2.0},
    # scalings and splits
    "LinearScaling": lambda: {"factor": 2.0},
    "NTKScaling": lambda: {"factor": 2.0},
    "DynamicNTKScaling": lambda: STRETCH,
    "NTKByPartsScaling": lambda: STRETCH,
    "YaRN": lambda: STRETCH,
    "LongRoPE": lambda: {**STRETCH, "short_factors": [1.0] * 4, "long_factors": [2.0] * 4},
    "LongRoPE.is_long": lambda: {"sequence_length": 70},
    "Llama3Scaling": lambda: STRETCH,
    "ProportionalScaling": lambda: {"fraction": 0.5},
    "SelfExtend": lambda: {"window": 4, "group": 2},
    "ReRoPE": lambda: {"window": 4},
    "DualChunk": lambda: {"chunk_size": 8, "local_size": 2},
    "Bands.bands": lambda: {"causal": True},
    "Bands.distances": lambda: {"query": torch.arange(5), "key": torch.arange(5)},
    "Bands.lags": lambda: {"query": torch.arange(5), "key": torch.arange(5)},
    "Scaling.resolve": lambda: {"dim": HEAD_DIM, "base": 10000.0},
    "Axial": lambda: {"axes": 2},
    "Sections": lambda: {"sizes": (2, 1, 1)},
    "Split.ladder_dim": lambda: {"rotary_dim": HEAD_DIM},
    "Axial.deal": lambda: {"ladder": torch.ones(2, dtype=torch.float64)},
    "Sections.deal": lambda: {"ladder": torch.ones(4, dtype=torch.float64)},
    "Vision": lambda: {"time": 1, "height": 2, "width": 2},
    # positions
    "Positions.__getitem__": lambda: {"key": slice(1, 3)},
    "Positions.batch": lambda: {"rows": [Positions.range(2), Positions.range(3)]},
    "Positions.continued": lambda: {"count": 2},
    "Positions.explicit": lambda: {
        "ids": torch.arange(6).view(2, 3), "documents": torch.zeros(2, 3, dtype=torch.int64),
        "valid": torch.ones(2, 3, dtype=torch.bool), "sequence_length": 3,
    },
    "Positions.from_mask": lambda: {"mask": torch.ones(2, 3, dtype=torch.bool)},
    "Positions.gathered": lambda: {"world_size": 2},
    "Positions.grid": lambda: {"sizes": (2, 3)},
    "Positions.mixed": lambda: {"segments": [2, situs.Vision(1, 2, 2)]},
    "Positions.of": lambda: {"value": Positions.range(4), "length": 4, "batch": 1},
    "Positions.pack": lambda: {"rows": [Positions.range(2), Positions.range(3)]},
    "Positions.packed": lambda: {"lengths": [2, 3]},
    "Positions.randomised": lambda: {"high": 20, "seed": 0, "count": 8},
    "Positions.range": lambda: {"length": 4, "start": 1},
    "Positions.row": lambda: {"number": 0},
    "Positions.shard": lambda: {"rank": 0, "world_size": 2},
    "Positions.skipped": lambda: {"high": 20, "seed": 0, "count": 8},
    "Positions.to": lambda: {"device": "cpu"},
    "Positions.with_sequence_length": lambda: {"sequence_length": 9},
    # attention
    "situs.attend": attention,
    "situs.explain": attention,
    "situs.attention.reference": attention,
    "situs.attention.attend_sharded": sharded,
    "situs.attention.visibility": lambda: {
        "query_positions": Positions.range(3), "key_positions": Positions.range(4), "causal": True, "window": 2,
    },
    "Attention": lambda: {"dim": DIM, "num_heads": HEADS, "head_dim": HEAD_DIM},
    "Attention.forward": lambda: {
        "x": tokens(), "positions": Positions.range(LENGTH), "context": tokens(),
        "context_positions": Positions.range(LENGTH), "mask": torch.ones(LENGTH, LENGTH, dtype=torch.bool),
    },
    "Attention.make_cache": lambda: {"batch": 1, "max_length": 4},
    "KVCache": lambda: {"batch": BATCH, "num_heads": HEADS, "head_dim": HEAD_DIM, "max_length": 16},
    "KVCache.admit": lambda: {"positions": Positions.range(2, start=3), "count": 2},
    "KVCache.append": lambda: {
        "keys": heads(2), "values": heads(2), "valid": torch.ones(BATCH, 2, dtype=torch.bool),
    },
    "KVCache.crop": lambda: {"length": 2},
    "KVCache.evict": lambda: {"count": 1},
    "KVCache.extend": lambda: {
        "query": heads(2), "key": heads(2), "value": heads(2), "positions": Positions.range(2, start=3),
        "encodings": [situs.ALiBi(num_heads=HEADS)],
    },
    "KVCache.positions_of_next": lambda: {"count": 2},
    "KVCache.withdraw": lambda: {
        "step": Step(
            heads(2), heads(2), heads(2), [], Positions.range(2), Positions.range(2), 1.0,
            before=(0, None, (), None, True),
        )
    },
}  # fmt: skip
