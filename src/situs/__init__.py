"""Situs: every position encoding for Transformers.

>>> import situs, torch
>>> rotary = situs.Rotary(head_dim=64, pairing="halves")
>>> queries = rotary(torch.randn(2, 8, 16, 64))
"""

from typing import TYPE_CHECKING

from situs import attention, functional
from situs.encodings import (
    NTK,
    Axial,
    BiasEncoding,
    DynamicNTK,
    Encoding,
    InputEncoding,
    Learned,
    LearnedGrid,
    Linear,
    Llama3,
    LongRoPE,
    NoPE,
    NTKByParts,
    Proportional,
    QueryKeyEncoding,
    Rotary,
    RotationEncoding,
    ScaledFrequencies,
    Scaling,
    ScoreEncoding,
    Sections,
    Sinusoidal,
    XPos,
    YaRN,
)
from situs.functional.grids import Vision
from situs.functional.pairing import convert_pairing
from situs.positions import Positions
from situs.registry import create, entry, names, register

if TYPE_CHECKING:
    from situs.checks import CheckReport, EncodingCheckError, check_encoding

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
    """The contract is loaded when it is first asked for: most programs never do."""
    if name not in ("CheckReport", "EncodingCheckError", "check_encoding"):
        raise AttributeError(f"module 'situs' has no attribute {name!r}")
    from situs import checks

    return getattr(checks, name)
