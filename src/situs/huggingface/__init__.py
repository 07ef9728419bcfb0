"""Models of transformers: the same weights and outputs, faster and in less memory.

    situs.huggingface.accelerate(model)

Importing this makes attention by the name "situs" known to transformers, for ``attn_implementation="situs"``.
"""

from importlib.util import find_spec

if find_spec("transformers") is None:
    raise ImportError(
        "transformers must be installed for situs.huggingface, since it works on its models: pip install "
        "'situs[huggingface]', or '.[huggingface]' in the repository."
    )

from situs.huggingface.accelerating import accelerate, accelerated, describe, restore
from situs.huggingface.checking import AccelerationError
from situs.huggingface.classes import TransformersChangedError
from situs.huggingface.converting import Conversion, convert
from situs.huggingface.extending import extend, extended
from situs.huggingface.interface import register
from situs.huggingface.rotating import rotated_in_bands
from situs.huggingface.trained import TrainedEncodings, encodings_of

__all__ = [
    "AccelerationError",
    "Conversion",
    "TrainedEncodings",
    "TransformersChangedError",
    "accelerate",
    "accelerated",
    "convert",
    "describe",
    "encodings_of",
    "extend",
    "extended",
    "restore",
    "rotated_in_bands",
]

register()
