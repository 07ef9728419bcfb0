"""The table: features of torch, and encodings. Tests run its cells; docs/torch.md is written from what they record."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import situs
from situs import Encoding
from tests.torch_features.forms import FORMS, SIZES, Form

SLOW = os.environ.get("SITUS_SLOW") == "1"

FEATURES: dict[str, dict[str, str]] = {
    "compile": {
        "range": "`torch.compile(fullgraph=True)`, forward and backward, at lengths 40, 72, 150 and 300",
        "growing": "these lengths take at most two graphs",
        "mask in graph": "padded rows, `Positions.from_mask` called inside the graph",
        "padded": "padded rows, positions made outside",
        "packed": "packed documents, positions made outside",
        "cu_seqlens in graph": "packed documents, `Positions.packed(cu_seqlens=...)` called inside the graph",
    },
    "compile with a cache": {
        "prefill": "prompts into an empty `KVCache`, at lengths 40, 72, 150 and 300 in at most two graphs",
        "decode": "single tokens behind 40, 41, 72, 150 and 299 others, in at most two graphs",
    },
    "export": {
        "grad": "`torch.export` with a dynamic length; the program gives outputs and gradients at other lengths",
        "no_grad": "the same under `torch.no_grad`",
        "strict": "the same with `strict=True`, gradients included",
        "mask": "a dynamic length, and `Positions.from_mask` inside the program",
    },
    "checkpoint": {
        "reentrant": "`torch.utils.checkpoint(use_reentrant=True)`",
        "non-reentrant": "`torch.utils.checkpoint(use_reentrant=False)`",
        "dropout": "both with dropout in attention, which `preserve_rng_state` draws again",
    },
    "torch.func": {
        "grad": "`grad` of inputs",
        "functional_call": "`grad` of parameters handed over by `functional_call`",
        "vjp": "`vjp`",
        "vmap": "`vmap` over a batch of inputs, forward and with `grad`",
        "ensemble": "`vmap` over parameters from `stack_module_state`, forward and with `grad`",
        "jacrev": "`jacrev`",
        "jvp": "`jvp`, forward mode",
        "second order": "`grad` of `grad`",
    },
    "autocast": {
        "train": "`torch.autocast` to bfloat16, forward and backward",
        "cache": "prefill and decode with a cache under `torch.autocast`",
        "cache, then cast": "a cache made before `module.to(torch.bfloat16)`, filled after it",
        "cast, then cache": "a cache made after `module.to(torch.bfloat16)`",
    },
    "gradient modes": {
        "no_grad": "`torch.no_grad`",
        "inference_mode": "`torch.inference_mode`, with prefill and decode",
        "its cache outside": "a cache made and filled in `torch.inference_mode`, used outside of it",
    },
    "without memory": {
        "meta": "made and run on the meta device, padded rows included; then `to_empty` and `load_state_dict`",
        "fake inputs": "made outside, and run under `FakeTensorMode(allow_non_fake_inputs=True)`",
    },
    "processes and threads": {
        "DDP": "`DistributedDataParallel` on two ranks",
        "FSDP2": "`fully_shard` on two ranks",
        "threads": "eight threads, forward and backward through one module",
    },
    "copies": {
        "deepcopy": "`copy.deepcopy` of a module that has run",
        "pickle": "`pickle` of a module that has run",
        "weights_only": "`torch.save` of `state_dict()`, `torch.load(weights_only=True)`",
        "module": "`torch.save` of the module, `torch.load(weights_only=False)`",
    },
}
"""Columns by group, each with what is asserted in it."""

PLANNED = 320  # the whole sequence, where a scaling of rotary wants to be told


def _rotary(**options: Any) -> Encoding:
    return situs.Rotary(head_dim=SIZES["head_dim"], **options)


def _dynamic_ntk() -> Encoding:
    name = next(name for name in ("DynamicNTKScaling", "DynamicNTK") if name in situs.__all__)
    return _rotary(scaling=getattr(situs, name)(factor=2.0, original_length=64))


def _longrope() -> Encoding:
    factors: dict[str, Any] = {"short_factors": (1.0,) * 4, "long_factors": (1.0, 2.0, 3.0, 4.0)}
    return _rotary(scaling=situs.LongRoPE(factor=4.0, original_length=64, **factors))


ROWS: dict[str, Callable[[], Encoding]] = {
    **{name: lambda name=name: situs.entry(name).build(**SIZES) for name in situs.names()},  # type: ignore[misc]
    "rotary+dynamic_ntk": _dynamic_ntk,
    "rotary+longrope": _longrope,
    "rotary+selfextend": lambda: _rotary(scaling=situs.SelfExtend(window=24, group=4)),
    "rotary+yarn": lambda: _rotary(scaling=situs.YaRN(factor=4.0, original_length=64)),
    "rotary+axial": lambda: _rotary(split=situs.Axial(axes=2)),
}
"""Every registered encoding, and rotary's scalings and splits."""
BY_LENGTH = ("rotary+dynamic_ntk", "rotary+longrope")
UNCACHED = ("swin", "boxes", "vitdet")
"""What `Attention` does not decode: encodings of cells and boxes, whose positions a cache of tokens does not hold."""

COVERED: set[tuple[str, str]] = set()
"""The columns that tests have named; the tests of the page hold it against the table."""


@dataclass(frozen=True)
class Cell:
    """Some features of one group, and an encoding in one of the ways to run it."""

    group: str
    features: tuple[str, ...]
    row: str
    form: str

    def build(self, **options: Any) -> Form:
        """The module to run, the same in every call."""
        return FORMS[self.form].seeded(ROWS[self.row], planned=PLANNED if self.row in BY_LENGTH else None, **options)

    def __str__(self) -> str:
        return f"{self.row}-{self.form}"


def covers(group: str, *features: str, cached: bool = False, thin: bool = False) -> pytest.MarkDecorator:
    """Run a test for every encoding, by ``attend`` and by ``Attention``; unless SITUS_SLOW=1 by one of them, and of a
    ``thin`` test, which compiles for each, a thirtieth of the cases, always the same."""
    for feature in features:
        assert feature in FEATURES[group], f"{group}: {feature} is no column of the table"
        COVERED.add((group, feature))
    cells = [
        Cell(group, features, row, form)
        for row in ROWS
        for form in FORMS
        if not (cached and form == "Attention" and row in UNCACHED)
    ]
    if not SLOW:
        chosen = {row: [*FORMS][zlib.crc32(repr((group, features, row)).encode()) % len(FORMS)] for row in ROWS}
        alone = {row for row in ROWS if cached and row in UNCACHED}
        cells = [cell for cell in cells if cell.form == chosen[cell.row] or (cell.row in alone and not thin)]
    if thin and not SLOW:
        cells.sort(key=lambda cell: zlib.crc32(repr(cell).encode()))
        cells = cells[: -(-len(cells) // 15)]
    return pytest.mark.parametrize("cell", cells, ids=str)
