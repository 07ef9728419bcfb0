"""The encodings, one method a file; importing this package registers them all. Scalings and splits, which few programs
need, are in modules of their own."""

from situs.encodings.base import BiasEncoding, Encoding, InputEncoding, QueryKeyEncoding, ScoreEncoding
from situs.encodings.learned import Learned
from situs.encodings.learned_grid import LearnedGrid
from situs.encodings.nope import NoPE
from situs.encodings.rotary import Rotary
from situs.encodings.rotation import RotationEncoding
from situs.encodings.scaling import ScaledFrequencies, Scaling
from situs.encodings.sinusoidal import Sinusoidal
from situs.encodings.split import Split
from situs.encodings.xpos import XPos

__all__ = [
    "BiasEncoding",
    "Encoding",
    "InputEncoding",
    "Learned",
    "LearnedGrid",
    "NoPE",
    "QueryKeyEncoding",
    "Rotary",
    "RotationEncoding",
    "ScaledFrequencies",
    "Scaling",
    "ScoreEncoding",
    "Sinusoidal",
    "Split",
    "XPos",
]
