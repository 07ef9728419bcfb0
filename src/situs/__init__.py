"""Situs: every position encoding for Transformers.

>>> import situs, torch
>>> rotary = situs.Rotary(head_dim=64, pairing="halves")
>>> queries = rotary(torch.randn(2, 8, 16, 64))
"""

import importlib
from typing import TYPE_CHECKING

from situs import attention, functional
from situs.encodings import (
    BiasEncoding,
    Encoding,
    InputEncoding,
    OffsetBias,
    OffsetScore,
    OffsetVectors,
    PairBias,
    PlaceScore,
    QueryKeyEncoding,
    RotationEncoding,
    ScaledFrequencies,
    Scaling,
    ScoreEncoding,
    Split,
    ValueEncoding,
)
from situs.functional.grids import Vision
from situs.functional.pairing import convert_pairing
from situs.positions import Positions
from situs.registry import create, entry, names, register

if TYPE_CHECKING:
    from situs import plots as plots
    from situs.attention.cache import KVCache
    from situs.attention.dispatch import Explanation, attend, explain
    from situs.attention.layer import Attention
    from situs.checks import CheckReport, EncodingCheckError, check_encoding
    from situs.encodings.alibi import ALiBi
    from situs.encodings.cope import CoPE
    from situs.encodings.deberta import Deberta
    from situs.encodings.fire import Fire
    from situs.encodings.kerple import Kerple
    from situs.encodings.learned import Learned
    from situs.encodings.learned_grid import LearnedGrid
    from situs.encodings.nope import NoPE
    from situs.encodings.rotary import Rotary
    from situs.encodings.sandwich import Sandwich
    from situs.encodings.scalings import NTK, DynamicNTK, Linear, Llama3, LongRoPE, NTKByParts, Proportional, YaRN
    from situs.encodings.schedule import schedule
    from situs.encodings.shaw import Shaw
    from situs.encodings.sinusoidal import Sinusoidal
    from situs.encodings.splits import Axial, Sections
    from situs.encodings.swin import SwinBias
    from situs.encodings.t5 import T5Bias
    from situs.encodings.transformer_xl import TransformerXL
    from situs.encodings.tupe import Tupe
    from situs.encodings.xpos import XPos

# A program uses one or two of these, so each is loaded when it is first asked for.
_ON_DEMAND = {
    "situs.attention.cache": ("KVCache",),
    "situs.attention.dispatch": ("Explanation", "attend", "explain"),
    "situs.attention.layer": ("Attention",),
    "situs.checks": ("CheckReport", "EncodingCheckError", "check_encoding"),
    "situs.encodings.alibi": ("ALiBi",),
    "situs.encodings.cope": ("CoPE",),
    "situs.encodings.deberta": ("Deberta",),
    "situs.encodings.fire": ("Fire",),
    "situs.encodings.kerple": ("Kerple",),
    "situs.encodings.learned": ("Learned",),
    "situs.encodings.learned_grid": ("LearnedGrid",),
    "situs.encodings.nope": ("NoPE",),
    "situs.encodings.rotary": ("Rotary",),
    "situs.encodings.sandwich": ("Sandwich",),
    "situs.encodings.scalings": (
        "NTK", "DynamicNTK", "Linear", "Llama3", "LongRoPE", "NTKByParts", "Proportional", "YaRN",
    ),
    "situs.encodings.schedule": ("schedule",),
    "situs.encodings.shaw": ("Shaw",),
    "situs.encodings.sinusoidal": ("Sinusoidal",),
    "situs.encodings.splits": ("Axial", "Sections"),
    "situs.encodings.swin": ("SwinBias",),
    "situs.encodings.t5": ("T5Bias",),
    "situs.encodings.transformer_xl": ("TransformerXL",),
    "situs.encodings.tupe": ("Tupe",),
    "situs.encodings.xpos": ("XPos",),
}  # fmt: skip

__all__ = [
    "NTK",
    "ALiBi",
    "Attention",
    "Axial",
    "BiasEncoding",
    "CheckReport",
    "CoPE",
    "Deberta",
    "DynamicNTK",
    "Encoding",
    "EncodingCheckError",
    "Explanation",
    "Fire",
    "InputEncoding",
    "KVCache",
    "Kerple",
    "Learned",
    "LearnedGrid",
    "Linear",
    "Llama3",
    "LongRoPE",
    "NTKByParts",
    "NoPE",
    "OffsetBias",
    "OffsetScore",
    "OffsetVectors",
    "PairBias",
    "PlaceScore",
    "Positions",
    "Proportional",
    "QueryKeyEncoding",
    "Rotary",
    "RotationEncoding",
    "Sandwich",
    "ScaledFrequencies",
    "Scaling",
    "ScoreEncoding",
    "Sections",
    "Shaw",
    "Sinusoidal",
    "Split",
    "SwinBias",
    "T5Bias",
    "TransformerXL",
    "Tupe",
    "ValueEncoding",
    "Vision",
    "XPos",
    "YaRN",
    "attend",
    "attention",
    "check_encoding",
    "convert_pairing",
    "create",
    "entry",
    "explain",
    "functional",
    "names",
    "register",
    "schedule",
]


def __getattr__(name: str) -> object:
    if name == "plots":  # not in __all__: it alone needs matplotlib
        return importlib.import_module("situs.plots")
    for module, names_in_it in _ON_DEMAND.items():
        if name in names_in_it:
            found = globals()[name] = getattr(importlib.import_module(module), name)
            return found
    raise AttributeError(f"module 'situs' has no attribute {name!r}")


def __dir__() -> list[str]:
    """What is loaded, and every public name that is not yet."""
    return sorted({*globals(), *__all__})
