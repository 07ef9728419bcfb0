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
    Learned,
    LearnedGrid,
    NoPE,
    QueryKeyEncoding,
    Rotary,
    RotationEncoding,
    ScaledFrequencies,
    Scaling,
    ScoreEncoding,
    Sinusoidal,
    Split,
    XPos,
)
from situs.functional.grids import Vision
from situs.functional.pairing import convert_pairing
from situs.positions import Positions
from situs.registry import create, entry, names, register

if TYPE_CHECKING:
    from situs.checks import CheckReport, EncodingCheckError, check_encoding
    from situs.encodings.scalings import NTK, DynamicNTK, Linear, Llama3, LongRoPE, NTKByParts, Proportional, YaRN
    from situs.encodings.splits import Axial, Sections

# What most programs never use is loaded when it is first asked for.
_ON_DEMAND = {
    "situs.checks": ("CheckReport", "EncodingCheckError", "check_encoding"),
    "situs.encodings.scalings": (
        "NTK", "DynamicNTK", "Linear", "Llama3", "LongRoPE", "NTKByParts", "Proportional", "YaRN",
    ),
    "situs.encodings.splits": ("Axial", "Sections"),
}  # fmt: skip

__all__ = [
    "NTK",
    "Axial",
    "BiasEncoding",
    "CheckReport",
    "DynamicNTK",
    "Encoding",
    "EncodingCheckError",
    "InputEncoding",
    "Learned",
    "LearnedGrid",
    "Linear",
    "Llama3",
    "LongRoPE",
    "NTKByParts",
    "NoPE",
    "Positions",
    "Proportional",
    "QueryKeyEncoding",
    "Rotary",
    "RotationEncoding",
    "ScaledFrequencies",
    "Scaling",
    "ScoreEncoding",
    "Sections",
    "Sinusoidal",
    "Split",
    "Vision",
    "XPos",
    "YaRN",
    "attention",
    "check_encoding",
    "convert_pairing",
    "create",
    "entry",
    "functional",
    "names",
    "register",
]


def __getattr__(name: str) -> object:
    for module, names_in_it in _ON_DEMAND.items():
        if name in names_in_it:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module 'situs' has no attribute {name!r}")
