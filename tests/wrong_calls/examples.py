"""A right call of every public callable, small enough to be made hundreds of times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import situs
from situs import Positions
from situs.lab.naming import parse
from situs.plots import sitters

BATCH, HEADS, LENGTH, HEAD_DIM, DIM = 2, 2, 5, 8, 16


def _tokens() -> Tensor:
    return torch.ones(BATCH, LENGTH, DIM)


def _heads(length: int = LENGTH) -> Tensor:
    return torch.ones(BATCH, HEADS, length, HEAD_DIM)


def _attention() -> dict[str, Any]:
    return {
        "query": _heads(), "key": _heads(), "value": _heads(), "encoding": situs.ALiBi(num_heads=HEADS), "causal": True,
        "positions": Positions.range(LENGTH), "key_positions": Positions.range(LENGTH),
        "mask": torch.ones(LENGTH, LENGTH, dtype=torch.bool), "window": 3, "scale": 0.5, "dropout": 0.0,
    }  # fmt: skip


def _sharded() -> dict[str, Any]:
    call = _attention()
    return {
        name: call[name] for name in ("query", "key", "value", "positions", "encoding", "causal", "window", "scale")
    }


def _circle() -> Tensor:
    return torch.ones(LENGTH, HEAD_DIM // 2)


def _rotation_table() -> situs.rotation.RotationTable:
    return situs.rotation.RotationTable(_circle()[None, None], _circle()[None, None])


def _scores() -> dict[str, Any]:
    return {
        "query": _heads(), "key": _heads(), "query_positions": Positions.range(LENGTH),
        "key_positions": Positions.range(LENGTH), "scale": 0.5,
        "visible": torch.ones(BATCH, HEADS, LENGTH, LENGTH, dtype=torch.bool),
    }  # fmt: skip


def _cache() -> situs.KVCache:
    cache = situs.KVCache(batch=BATCH, num_heads=HEADS, head_dim=HEAD_DIM, max_length=16)
    cache.append(_heads(3), _heads(3))
    return cache


SIZES: dict[str, Any] = {"num_heads": HEADS, "head_dim": HEAD_DIM}
STRETCH: dict[str, Any] = {"factor": 2.0, "original_length": 64}
FIGURE = {"length": 8, "dark": False}

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
    "InputEncoding.forward": lambda: {"x": _tokens(), "positions": Positions.range(LENGTH)},
    "NoPE.forward": lambda: {"x": _tokens(), "positions": Positions.range(LENGTH)},
    "RotationEncoding.forward": lambda: {"x": _heads(), "positions": Positions.range(LENGTH)},
    "RotationEncoding.both": lambda: {
        "query": _heads(), "key": _heads(), "positions": Positions.range(LENGTH),
        "key_positions": Positions.range(LENGTH),
    },
    "RotationEncoding.inverse": lambda: {"x": _heads(), "positions": Positions.range(LENGTH)},
    "RotationEncoding.reach_in": lambda: {"dtype": torch.float32},
    "RotationEncoding.rerotate": lambda: {
        "keys": _heads(), "old_positions": Positions.range(LENGTH), "new_positions": Positions.range(LENGTH, start=3),
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
    "ScoreEncoding.forward": _scores,
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
    "situs.attend": _attention,
    "situs.explain": _attention,
    "situs.attention.reference": _attention,
    "situs.attention.attend_sharded": _sharded,
    "situs.attention.visibility": lambda: {
        "query_positions": Positions.range(3), "key_positions": Positions.range(4), "causal": True, "window": 2,
    },
    "Attention": lambda: {"dim": DIM, "num_heads": HEADS, "head_dim": HEAD_DIM},
    "Attention.forward": lambda: {
        "x": _tokens(), "positions": Positions.range(LENGTH), "context": _tokens(),
        "context_positions": Positions.range(LENGTH), "mask": torch.ones(LENGTH, LENGTH, dtype=torch.bool),
    },
    "Attention.make_cache": lambda: {"batch": 1, "max_length": 4},
    "KVCache": lambda: {"batch": BATCH, "num_heads": HEADS, "head_dim": HEAD_DIM, "max_length": 16},
    "KVCache.admit": lambda: {"positions": Positions.range(2, start=3), "count": 2},
    "KVCache.append": lambda: {
        "keys": _heads(2), "values": _heads(2), "valid": torch.ones(BATCH, 2, dtype=torch.bool),
    },
    "KVCache.crop": lambda: {"length": 2},
    "KVCache.evict": lambda: {"count": 1},
    "KVCache.extend": lambda: {
        "query": _heads(2), "key": _heads(2), "value": _heads(2), "positions": Positions.range(2, start=3),
        "encodings": [situs.ALiBi(num_heads=HEADS)],
    },
    "KVCache.positions_of_next": lambda: {"count": 2},
    # functions
    "situs.check_encoding": lambda: {"encoding": situs.NoPE()},
    "situs.convert_pairing": lambda: {
        "weight": torch.ones(16, 4), "head_dim": HEAD_DIM, "source": "halves", "target": "interleaved",
    },
    "situs.create": lambda: {"name": "none"},
    "situs.entry": lambda: {"name": "none"},
    "situs.register": lambda: {"name": "of_a_test", "paper": "", "formula": ""},
    "situs.schedule": lambda: {"pattern": ["none"], "num_layers": 2},
    "situs.functional.as_complex": lambda: {"x": _heads(), "pairing": "halves"},
    "situs.functional.contiguous_axis_map": lambda: {"sections": (2, 1, 1)},
    "situs.functional.from_complex": lambda: {"z": torch.ones(3, 4, dtype=torch.complex64), "pairing": "halves"},
    "situs.functional.grid_coordinates": lambda: {"sizes": (2, 3)},
    "situs.functional.interleaved_axis_map": lambda: {"sections": (2, 1, 1)},
    "situs.functional.multimodal_coordinates": lambda: {"segments": [2, situs.Vision(1, 2, 2)]},
    "situs.functional.pairing_permutation": lambda: {"head_dim": 8, "source": "halves", "target": "interleaved"},
    "situs.functional.randomised": lambda: {"count": 4, "high": 9, "seed": 0},
    "situs.functional.range_unit_circle": lambda: {
        "start": 0, "length": 4, "frequencies": torch.ones(4, dtype=torch.float64), "dtype": torch.float32,
        "device": torch.device("cpu"),
    },
    "situs.functional.reduced_angles": lambda: {"positions": torch.arange(5)[:, None], "frequencies": torch.ones(4)},
    "situs.functional.resize_grid": lambda: {"table": torch.ones(6, DIM), "old": (2, 3), "new": (3, 4)},
    "situs.functional.rotary_frequencies": lambda: {"dim": HEAD_DIM},
    "situs.functional.rotate_complex": lambda: {
        "z": torch.ones(5, 4, dtype=torch.complex64), "polar": torch.ones(5, 4, dtype=torch.complex64),
    },
    "situs.functional.rotate_matrix": lambda: {"x": torch.ones(5, 8), "matrix": torch.ones(5, 8, 8)},
    "situs.functional.rotate_real": lambda: {"x": _heads(), "cos": _circle(), "sin": _circle(), "pairing": "halves"},
    "situs.functional.rotation_matrix": lambda: {"cos": _circle(), "sin": _circle(), "pairing": "halves"},
    "situs.functional.shift_matrix": lambda: {
        "offset": 1.0, "frequencies": torch.ones(4, dtype=torch.float64), "dim": 8, "layout": "interleaved",
    },
    "situs.functional.sinusoidal_frequencies": lambda: {"dim": 8, "base": 1e4, "spacing": "exclusive"},
    "situs.functional.sinusoids": lambda: {"cos": _circle(), "sin": _circle(), "dim": 8, "layout": "interleaved"},
    "situs.functional.skips": lambda: {"count": 4, "high": 9, "chunks": 2, "seed": 0},
    "situs.functional.stretch": lambda: {"table": torch.ones(6, DIM), "length": 9},
    "situs.functional.unit_circle": lambda: {
        "positions": torch.arange(5)[:, None], "frequencies": torch.ones(4), "dtype": torch.float32,
    },
    "RotationTable": lambda: {"cos": _circle()[None, None], "sin": _circle()[None, None]},
    "RotationTable.at": lambda: {"index": 1},
    "RotationTable.require_fit": lambda: {"x": _heads()},
    "situs.rotation.rotate": lambda: {"x": _heads(), "table": _rotation_table(), "pairing": "halves"},
    "situs.rotation.rotate_both": lambda: {
        "query": _heads(), "key": _heads(), "table": _rotation_table(), "pairing": "halves",
    },
    "situs.lab.naming.parse": lambda: {"text": "rotary"},
    "situs.lab.naming.parse_all": lambda: {"text": "rotary,alibi"},
    "situs.lab.naming.require_additions": lambda: {"method": parse("rotary+random"), "known": ["random"]},
    # figures
    "situs.plots.attention": lambda: {**FIGURE, "encodings": situs.ALiBi(num_heads=2)},
    "situs.plots.bias": lambda: {**FIGURE, "encodings": situs.ALiBi(num_heads=2)},
    "situs.plots.decay": lambda: {**FIGURE, "encodings": situs.ALiBi(num_heads=2)},
    "situs.plots.dimensions": lambda: {**FIGURE, "encodings": situs.Sinusoidal(dim=DIM), "channels": (0, 1)},
    "situs.plots.distance": lambda: {**FIGURE, "encodings": situs.ALiBi(num_heads=2)},
    "situs.plots.grid": lambda: {"encodings": situs.LearnedGrid(dim=DIM, size=(3, 4)), "size": (3, 4)},
    "situs.plots.likeness": lambda: {**FIGURE, "encodings": situs.ALiBi(num_heads=2)},
    "situs.plots.rotation": lambda: {**FIGURE, "encodings": situs.Rotary(head_dim=8), "pair": 1},
    "situs.plots.scalings": lambda: {"encodings": situs.Rotary(head_dim=8), "train_length": 32, "length": 64},
    "situs.plots.scores": lambda: {
        **FIGURE, "encodings": situs.Shaw(num_heads=2, head_dim=8), "query": torch.ones(2, 8, 8),
        "key": torch.ones(2, 8, 8),
    },
    "situs.plots.similarity": lambda: {**FIGURE, "encodings": situs.Rotary(head_dim=8)},
    "situs.plots.sitters": lambda: {"given": situs.NoPE()},
    "situs.plots.speeds": lambda: {**FIGURE, "encodings": situs.Rotary(head_dim=8)},
    "situs.plots.suiting": lambda: {"sitter": sitters(situs.NoPE())[0]},
    "situs.plots.table": lambda: {**FIGURE, "encodings": situs.Sinusoidal(dim=DIM)},
    "situs.plots.wavelengths": lambda: {"encodings": situs.Rotary(head_dim=8), "train_length": 32},
}  # fmt: skip

ALSO: dict[str, Callable[[], dict[str, Any]]] = {
    "Attention.forward": lambda: {"x": _tokens(), "cache": _cache(), "mask": torch.ones(5, 8, dtype=torch.bool)},
    "Positions.packed": lambda: {"cu_seqlens": torch.tensor([0, 2, 5]), "length": 5},
    "Positions.range": lambda: {"length": 4, "start": torch.tensor([1, 2])},
    "Positions.with_sequence_length": lambda: {"sequence_length": torch.tensor([[9]])},
    "Scaling.resolve": lambda: {"dim": HEAD_DIM, "base": torch.tensor([1e4, 1e5]), "sequence_length": 128},
    "RotationEncoding.forward": lambda: {"x": _heads(), "positions": torch.arange(LENGTH)},
    "Rotary.rerotate": lambda: {
        "keys": _heads(), "old_positions": 0, "new_positions": 3, "source": situs.Rotary(head_dim=HEAD_DIM),
    },
    "RotationEncoding.rotation_matrix": lambda: {"position": [3]},
    "BiasEncoding.forward": lambda: {"query_positions": torch.arange(3), "key_positions": torch.arange(4)},
    "SwinBias.forward": lambda: {"query_positions": Positions.grid(3, 3).ids},
    "ALiBi": lambda: {
        "num_heads": HEADS, "slopes": [0.5, 0.25], "asymmetric": True, "slopes_ahead": [0.5, 0.25],
    },
    "SwinBias": lambda: {"num_heads": HEADS, "version": "v2"},
    "T5Bias": lambda: {"num_heads": HEADS, "buckets": "clipped", "bidirectional": False},
    "Rotary": lambda: {"head_dim": HEAD_DIM, "base": [1e4, 1e5], "scaling": situs.YaRN(**STRETCH)},
    "situs.attend": lambda: {**_attention(), "positions": torch.arange(5), "mask": torch.zeros(5, 5)},
    "situs.plots.decay": lambda: {**FIGURE, "encodings": {"steep": situs.ALiBi(num_heads=2)}},
}  # fmt: skip
"""A second right call, where an argument may be of several kinds."""

MADE: dict[str, Callable[[], Any]] = {
    "KVCache": _cache,
    "Positions": lambda: Positions.range(8),
    "Deberta.tie": lambda: situs.Deberta(**SIZES, dim=DIM, max_distance=16, share_att_key=True),
    "Tupe": lambda: situs.Tupe(**SIZES, dim=DIM, relative_buckets=32),
    "RotationTable": _rotation_table,
}
"""Objects that methods are called on, where the example of the constructor makes none that has everything."""
