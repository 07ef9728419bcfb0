"""A right call of every function, rotation table and figure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import situs
from situs.lab.naming import parse
from situs.plots import sitters
from tests.wrong_calls.making import (
    DIM,
    FIGURE,
    HEAD_DIM,
    circle,
    heads,
    rotation_table,
)

CALLS: dict[str, Callable[[], dict[str, Any]]] = {
    # functions
    "situs.check_encoding": lambda: {"encoding": situs.NoPE()},
    "situs.convert_pairing": lambda: {
        "weight": torch.ones(16, 4), "head_dim": HEAD_DIM, "source": "halves", "target": "interleaved",
    },
    "situs.create": lambda: {"name": "none"},
    "situs.entry": lambda: {"name": "none"},
    "situs.register": lambda: {"name": "of_a_test", "paper": "", "formula": ""},
    "situs.schedule": lambda: {"pattern": ["none"], "num_layers": 2},
    "situs.functional.as_complex": lambda: {"x": heads(), "pairing": "halves"},
    "situs.functional.contiguous_axis_map": lambda: {"sections": (2, 1, 1)},
    "situs.functional.from_complex": lambda: {"z": torch.ones(3, 4, dtype=torch.complex64), "pairing": "halves"},
    "situs.functional.grid_coordinates": lambda: {"sizes": (2, 3)},
    "situs.functional.interleaved_axis_map": lambda: {"sections": (2, 1, 1)},
    "situs.functional.multimodal_coordinates": lambda: {"segments": [2, situs.Vision(1, 2, 2)]},
    "situs.functional.normalised_coordinates": lambda: {"sizes": (2, 3)},
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
    "situs.functional.rotate_real": lambda: {"x": heads(), "cos": circle(), "sin": circle(), "pairing": "halves"},
    "situs.functional.rotation_matrix": lambda: {"cos": circle(), "sin": circle(), "pairing": "halves"},
    "situs.functional.shift_matrix": lambda: {
        "offset": 1.0, "frequencies": torch.ones(4, dtype=torch.float64), "dim": 8, "layout": "interleaved",
    },
    "situs.functional.sinusoidal_frequencies": lambda: {"dim": 8, "base": 1e4, "spacing": "exclusive"},
    "situs.functional.sinusoids": lambda: {"cos": circle(), "sin": circle(), "dim": 8, "layout": "interleaved"},
    "situs.functional.skips": lambda: {"count": 4, "high": 9, "chunks": 2, "seed": 0},
    "situs.functional.stretches": lambda: {"axes": 2, "seed": 0},
    "situs.functional.time_last_axis_map": lambda: {"sections": (1, 2, 2)},
    "situs.functional.stretch": lambda: {"table": torch.ones(6, DIM), "length": 9},
    "situs.functional.unit_circle": lambda: {
        "positions": torch.arange(5)[:, None], "frequencies": torch.ones(4), "dtype": torch.float32,
    },
    "RotationTable": lambda: {"cos": circle()[None, None], "sin": circle()[None, None]},
    "RotationTable.at": lambda: {"index": 1},
    "RotationTable.require_fit": lambda: {"x": heads()},
    "situs.rotation.rotate": lambda: {"x": heads(), "table": rotation_table(), "pairing": "halves"},
    "situs.rotation.rotate_both": lambda: {
        "query": heads(), "key": heads(), "table": rotation_table(), "pairing": "halves",
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
    "situs.plots.named": lambda: {"names": "alibi", "untrained": True},
    "situs.plots.order": lambda: {"encodings": situs.NoPE()},
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
    "situs.plots.factors": lambda: {"encodings": situs.Temperature(original_length=8), "length": 32},
    "situs.plots.wavelengths": lambda: {"encodings": situs.Rotary(head_dim=8), "train_length": 32},
}  # fmt: skip
