"""The encodings, one method a file. Importing this package names them; each is loaded when it is first asked for."""

from situs.encodings.base import Encoding, InputEncoding, QueryKeyEncoding
from situs.encodings.bias import BiasEncoding, OffsetBias, PairBias
from situs.encodings.rotation import RotationEncoding
from situs.encodings.scaling import ScaledFrequencies, Scaling
from situs.encodings.score import OffsetScore, OffsetVectors, PlaceScore, ScoreEncoding, ValueEncoding
from situs.encodings.split import Split
from situs.registry import expect

__all__ = [
    "BiasEncoding",
    "Encoding",
    "InputEncoding",
    "OffsetBias",
    "OffsetScore",
    "OffsetVectors",
    "PairBias",
    "PlaceScore",
    "QueryKeyEncoding",
    "RotationEncoding",
    "ScaledFrequencies",
    "Scaling",
    "ScoreEncoding",
    "Split",
    "ValueEncoding",
]

expect(
    {
        "alibi": "situs.encodings.alibi",
        "cope": "situs.encodings.cope",
        "deberta": "situs.encodings.deberta",
        "fire": "situs.encodings.fire",
        "kerple": "situs.encodings.kerple",
        "learned": "situs.encodings.learned",
        "learned_grid": "situs.encodings.learned_grid",
        "none": "situs.encodings.nope",
        "rotary": "situs.encodings.rotary",
        "sandwich": "situs.encodings.sandwich",
        "shaw": "situs.encodings.shaw",
        "sinusoidal": "situs.encodings.sinusoidal",
        "swin": "situs.encodings.swin",
        "t5": "situs.encodings.t5",
        "transformer_xl": "situs.encodings.transformer_xl",
        "tupe": "situs.encodings.tupe",
        "xpos": "situs.encodings.xpos",
    }
)
