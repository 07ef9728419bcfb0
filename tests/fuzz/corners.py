"""Corners: cases written by hand, of kinds that kernels have been wrong at, so that every run meets them."""

from __future__ import annotations

from typing import Any

from tests.fuzz.cases import Case, Shard
from tests.fuzz.layer_cases import LayerCase

SHIFTED: dict[str, Any] = {
    "positions": "Positions.explicit(torch.arange(300) + 150)",
    "key_positions": "Positions.range(300)",
    "queries": 300,
    "keys": 300,
}
HOLES: dict[str, Any] = {
    "positions": "Positions.from_mask(padding(2, 300, 'holes', seed=1))",
    "batch": 2,
    "queries": 300,
    "keys": 300,
    "padding": "anything",
}
LEFT: dict[str, Any] = {
    "positions": "Positions.from_mask(padding(2, 40, 'left', seed=0))",
    "batch": 2,
    "queries": 40,
    "keys": 40,
    "padding": "nan",
}
ZIGZAG: dict[str, Any] = {
    "positions": "Positions.range(256)",
    "queries": 128,
    "keys": 256,
    "shard": Shard(rank=0, world_size=2, layout="zigzag"),
}

PACKED: dict[str, Any] = {"positions": "Positions.packed([3, 0, 30, 39])", "queries": 72, "keys": 72}
SINGLE: dict[str, Any] = {"dtype": "float32", "parameter_dtype": "float32"}

SHAW = "situs.Shaw(num_heads=2, head_dim=8, max_distance=16)"
SHAW_OF_KEYS = "situs.Shaw(num_heads=2, head_dim=8, max_distance=16, values=False)"
DEBERTA = "situs.Deberta(dim=6, num_heads=2, head_dim=8, max_distance=16)"
CLAMPED = "situs.TransformerXL(dim=6, num_heads=2, head_dim=8, clamp_len=16)"
PRODUCTS_OF_POSITIONS = "situs.Deberta(dim=6, num_heads=2, head_dim=8, max_distance=16, terms=('p2p',))"
COPE = "situs.CoPE(num_heads=2, head_dim=8, max_position={})"
BAND = "Blocked(num_heads=2, reach=40, kind='band')"
TUPE = "situs.Tupe(dim=6, num_heads=2, head_dim=8, max_length=64, relative_buckets=8)"
ROTARY = "situs.Rotary(head_dim=8)"
ALIBI = "situs.ALiBi(num_heads=2)"
FIRE = "situs.Fire(num_heads=2, threshold=4.3)"
YARN = "situs.Rotary(head_dim=8, scaling=situs.YaRN(factor=16.0, original_length=64, mscale_all_dim=1.0))"

CORNERS: dict[str, Case | LayerCase] = {
    # a content term that meets neither queries nor keys, beside a rotation
    "rotary and deberta's products of positions": Case(-1, (ROTARY, PRODUCTS_OF_POSITIONS), queries=15, keys=15),
    # a query that sees no key of one stretch
    "shaw where queries are shifted": Case(-1, (SHAW,), **SHIFTED),
    "shaw of keys where queries are shifted": Case(-1, (SHAW_OF_KEYS,), **SHIFTED),
    "deberta where queries are shifted": Case(-1, (DEBERTA,), **SHIFTED),
    "clamped transformer xl where queries are shifted": Case(-1, (CLAMPED,), **SHIFTED),
    "cope of one row": Case(-1, (COPE.format(1),), queries=600, keys=600),
    "a bias of -inf on zigzag shards": Case(-1, (BAND,), **ZIGZAG),
    "a bias of -inf on zigzag shards without a causal mask": Case(-1, (BAND,), causal=False, **ZIGZAG),
    "shaw on zigzag shards": Case(-1, (SHAW,), **ZIGZAG),
    # padding that holds anything
    "fire and padding": Case(-1, (FIRE,), **LEFT),
    "cope and padding": Case(-1, (COPE.format(5),), **LEFT),
    "rotary and padding": Case(-1, (ROTARY,), **LEFT),
    "a mask and padding": Case(-1, (ALIBI,), mask="mask('bool', (2, 2, 40, 40), seed=1)", **LEFT),
    "rotary and many holes": Case(-1, (ROTARY,), **HOLES),
    "alibi and many holes": Case(-1, (ALIBI,), **HOLES),
    "shaw and many holes": Case(-1, (SHAW,), **HOLES),
    "tupe and padding": Case(-1, (TUPE,), **LEFT),
    "a cache and padding": LayerCase(-1, (ROTARY,), batch=2, chunks=(9, 1, 1), prompts=(4, 9), padding="nan"),
    # scales
    "shaw and a scale of 0": Case(-1, (SHAW,), queries=600, keys=600, scale=0.0),
    "tupe and a scale of 0": Case(-1, (TUPE,), queries=40, keys=40, scale=0.0),
    "cope and a scale of 0": Case(
        0, ("situs.CoPE(num_heads=2, head_dim=8, scaled=False)",), queries=300, keys=300, scale=0.0
    ),
    "a scale of the caller's and one of yarn's": Case(-1, (YARN,), scale=0.3),
    "a negative scale": Case(-1, (ALIBI,), queries=40, keys=40, scale=-0.4),
    # masks of few axes, and nothing at all
    "a mask of one axis": Case(-1, (ALIBI,), mask="mask('bool', (8,), seed=1)"),
    "a mask of no axis": Case(-1, (ROTARY,), mask="mask('float', (), seed=1)"),
    "a mask that every query shares": Case(-1, (SHAW,), mask="mask('float', (1, 8), seed=1)"),
    "no queries": Case(-1, (SHAW,), positions="Positions.range(0)", key_positions="Positions.range(8)", queries=0),
    "no keys": Case(-1, (ALIBI,), positions="Positions.range(8)", key_positions="Positions.range(0)", keys=0),
    # caches
    "eviction of keys that two pairings rotated": LayerCase(
        -1,
        (ROTARY, "situs.Rotary(head_dim=8, base=100.0, pairing='interleaved')"),
        chunks=(33, 3, 1),
        evicted=(1, 25, 2),
    ),
}

# FlexAttention, compiled for each
FLEX: dict[str, Case] = {
    "alibi of 40": Case(-1, (ALIBI,), queries=40, keys=40, **SINGLE),
    "alibi of 72": Case(-1, (ALIBI,), queries=72, keys=72, **SINGLE),
    "alibi of 128": Case(-1, (ALIBI,), queries=128, keys=128, **SINGLE),
    "alibi of 129": Case(-1, (ALIBI,), queries=129, keys=129, causal=False, **SINGLE),
    "rotary of 33": Case(-1, (ROTARY,), queries=33, keys=33, **SINGLE),
    "fire of 72": Case(-1, (FIRE,), queries=72, keys=72, causal=False, window=7, **SINGLE),
    "t5, packed": Case(-1, ("situs.T5Bias(num_heads=2)",), **PACKED, **SINGLE),
    "a bias of -inf, few queries": Case(-1, (BAND,), queries=5, keys=130, **SINGLE),
    "rotary and alibi, padded": Case(-1, (ROTARY, ALIBI), **LEFT, **SINGLE),
    "alibi, grouped": Case(-1, ("situs.ALiBi(num_heads=4)",), heads=4, kv_heads=1, queries=64, keys=64, **SINGLE),
}
