"""The encodings, one method a file, and the classes that they and a user's own derive from.

base.py          what an encoding is: Encoding, InputEncoding, QueryKeyEncoding
bias.py          content-free biases: BiasEncoding, OffsetBias, PairBias, PositionProduct
score.py         content-based terms: ScoreEncoding, OffsetScore, ValueEncoding
value_map.py     values and outputs changed by positions: ValueMap
rotation.py      rotated queries and keys: RotationEncoding; scaling.py and split.py are Rotary's strategies
fitting.py       whether positions and tensors are such as an encoding takes
schedule.py      encodings by name: one for each layer, or of one's own as MODULE:CLASS
hinges.py        FIRE's network at memory speed
"""

from situs.encodings.base import Encoding, InputEncoding, QueryKeyEncoding
from situs.encodings.bias import BiasEncoding, OffsetBias, PairBias, PositionProduct
from situs.encodings.rotation import RotationEncoding
from situs.encodings.score import OffsetScore, OffsetVectors, ScoreEncoding, ValueEncoding
from situs.encodings.value_map import ValueMap

__all__ = [
    "BiasEncoding",
    "Encoding",
    "InputEncoding",
    "OffsetBias",
    "OffsetScore",
    "OffsetVectors",
    "PairBias",
    "PositionProduct",
    "QueryKeyEncoding",
    "RotationEncoding",
    "ScoreEncoding",
    "ValueEncoding",
    "ValueMap",
]
