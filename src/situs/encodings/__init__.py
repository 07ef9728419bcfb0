"""The encodings, one method a file; importing this package registers them all."""

from situs.encodings.base import BiasEncoding, Encoding, InputEncoding, QueryKeyEncoding, ScoreEncoding
from situs.encodings.learned import Learned
from situs.encodings.learned_grid import LearnedGrid
from situs.encodings.nope import NoPE
from situs.encodings.rotary import Rotary
from situs.encodings.rotation import RotationEncoding
from situs.encodings.scalings import (
    NTK,
    DynamicNTK,
    Linear,
    Llama3,
    LongRoPE,
    NTKByParts,
    Proportional,
    ScaledFrequencies,
    Scaling,
    YaRN,
)
from situs.encodings.sinusoidal import Sinusoidal
from situs.encodings.split import Axial, Sections
from situs.encodings.xpos import XPos

__all__ = [
    "NTK",
    "Axial",
    "BiasEncoding",
    "DynamicNTK",
    "Encoding",
    "InputEncoding",
    "Learned",
    "LearnedGrid",
    "Linear",
    "Llama3",
    "LongRoPE",
    "NTKByParts",
    "NoPE",
    "Proportional",
    "QueryKeyEncoding",
    "Rotary",
    "RotationEncoding",
    "ScaledFrequencies",
    "Scaling",
    "ScoreEncoding",
    "Sections",
    "Sinusoidal",
    "XPos",
    "YaRN",
]
