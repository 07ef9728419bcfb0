"""Bounds of numbers and other rules that no annotation tells, by the argument's name, or by that of its call."""

from __future__ import annotations

import math
from typing import Any

import torch

from situs import ALiBi, Positions, Rotary, Vision

SIGNED = frozenset({"seed", "start", "first", "dim of convert_pairing", "number", "position", "offset of Sinusoidal"})
"""Whole numbers that may be negative, besides those that stand for positions."""

NATURAL = frozenset(
    {
        "length of Positions.*", "length of KVCache.crop", "length of range_unit_circle", "count", "offset", "prefix",
        "padding_row", "first_head", "sinks", "rank", "index", "axis", "head", "pair", "sequence_length", "segments",
        "lengths", "channels", "sizes of Sections", "sizes of grid_coordinates", "sections", "high",
        "batch of Positions.*", "max_ahead", "rows of KVCache.reorder", "local_size",
        "rotary_dim of convert_pairing", "rotary_dim of pairing_permutation",
    }
)  # fmt: skip
"""Whole numbers that may be 0."""

FLOATS: dict[str, tuple[float, ...]] = {
    "base": (-1.0, 0.0, 1.0),
    "dropout": (-0.1, 1.0, 1.5),
    "init_std": (-1.0,),
    "rate": (-1.0, 0.0),
    "threshold": (-1.0, 0.0),
    "gamma": (-1.0, 0.0),
    "scale_base": (-1.0, 0.0),
    "factor": (0.5, -1.0),
    "factor of ALiBi": (),
    "factor of Positions.scaled": (),
    "init_base": (-1.0, 0.0, 1.0),
    "shift of stretches": (-1.0,),
    "shift of augmented": (-1.0,),
    "jitter": (-1.0, 0.0, 0.5),
    "rescale": (-1.0, 0.0, 0.5),
    "step": (-1.0, 0.0),
    "bases": (-1.0, 0.0, 1.0),
    "factor of Temperature": (-1.0, 0.0),
    "short_mscale": (-1.0, 0.0),
    "long_mscale": (-1.0, 0.0),
    "factor of Boxes": (),
    "fraction": (-0.5, 1.5),
    "leak": (-0.5, 1.5),
    "beta_fast": (-1.0, 0.5),
    "beta_slow": (-1.0, 33.0),
    "low_frequency_factor": (-1.0, 0.0, 5.0),
    "high_frequency_factor": (-1.0, 0.5),
    "attention_factor": (-1.0, 0.0),
    "time_step": (-1.0,),
}
"""Numbers out of bounds; those of arguments that are not here have none."""

BESIDE: dict[str, tuple[Any, ...]] = {
    "name of entry": ("rotery",),
    "name of create": ("rotery",),
    "axes": (4, 7),
    "axes of Axial": (),
    "axes of stretches": (),
    "head_dim of Rotary": (7,),
    "head_dim of XPos": (7,),
    "value_dim of RotaryValue": (7,),
    "rotary_dim": (7, 99),
    "cosine_dim": (7,),
    "dim of TransformerXL": (7,),
    "buckets of Deberta": (7,),
    "terms": (["c2p", "c2p"], ["p3p"], []),
    "relative_buckets": (7, 512),
    "num_kv_heads": (3,),
    "encoding of Attention": (ALiBi(num_heads=5), [ALiBi(num_heads=5)], Rotary(head_dim=64)),
    "key of attend": (torch.zeros(2, 2, 5, 8, dtype=torch.float64), torch.zeros(2, 3, 5, 8)),
    "key of explain": (torch.zeros(2, 2, 5, 8, dtype=torch.float64),),
    "key of reference": (torch.zeros(2, 2, 5, 8, dtype=torch.float64),),
    "value of attend": (torch.zeros(2, 2, 4, 8),),
    "mask of from_mask": (torch.full((2, 3), 7), torch.zeros(2, 3)),
    "mask": (torch.ones(7, 7, dtype=torch.bool), torch.ones(5, 5, dtype=torch.int64)),
    "x of as_complex": (torch.zeros(3, 7), torch.zeros(3, 8, dtype=torch.float16)),
    "ids": (torch.zeros(1, 1, 1, 1), torch.tensor(3), torch.tensor([0.0, math.nan]), torch.arange(3.0).bfloat16()),
    "lengths": ([-1], torch.ones(2, 2)),
    "cu_seqlens": (torch.tensor([1, 3]), torch.tensor([0, 3, 2])),
    "segments": ([Vision],),
    "rows": ([], [Positions.range(3), 3], Positions.range(3)),
    "key of Positions.__getitem__": (slice(0, 3, 2), slice("a", 3)),
    "sequence_length of Positions.with_sequence_length": (torch.tensor([3, 4]), torch.zeros(1, 1)),
    "pattern": ([3], [], [["none", 3]]),
    "world_size": (3,),
    "rank": (4,),
    "rank of ProjectedBias": (0, -1),
    "count of KVCache.evict": (99,),
    "length of KVCache.crop": (99, [99, 1], [1], torch.ones(2)),
    "rows of KVCache.reorder": ([], [2], torch.ones(2), torch.tensor([-1]), Positions.range(3)),
    "head": (99,),
    "pair": (99,),
    "index": (99,),
    "axis": (5,),
}
"""Values that their type allows and their meaning does not."""

MOVED = frozenset({"frequencies"})
"""Tensors that are moved to the device of others, since they are the host's constants."""

APART = frozenset({"LeRoPE", "RoPEMixed", "Rotary", "XPos"})
"""Encodings that rotate queries and keys each by itself, and count axes from the last, since torch.func takes the first
away."""

OFFLOADED = frozenset({"Attention.forward"})
"""Modules whose parameters may be brought to the device of the tokens when torch's own modules in them are called."""

TIED = frozenset({"dim", "head_dim", "pairs"})
"""Axes whose size must be the same wherever they are named."""


def _named(table: Any, call: str, name: str) -> str | None:
    """The key under which a table speaks of an argument: that of its call, of its class, or of its name."""
    *owner, short = call.split(".")
    keys = [f"{name} of {call}", f"{name} of {short}", f"{name} of {'.'.join(owner)}.*", name]
    return next((key for key in keys if key in table), None)


def outside(call: str, name: str, kind: type) -> list[Any]:
    """Numbers of a type that lie outside an argument's bounds."""
    if kind is float:
        found = _named(FLOATS, call, name)
        return [] if found is None else list(FLOATS[found])
    if _named(FLOATS, call, name):
        return []
    if _named(SIGNED, call, name):
        return []
    return [-1] if _named(NATURAL, call, name) else [-1, 0]


def beside(call: str, name: str) -> list[Any]:
    """Values that only this argument refuses."""
    found = _named(BESIDE, call, name)
    return [] if found is None else list(BESIDE[found])
