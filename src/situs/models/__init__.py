"""What released models do with positions, read from their configuration: needs neither weights nor torch.

reading.py      read(): which reader a model type has, parts that are models of their own, keys that nobody read
positions.py    ModelPositions, Layer: the result; calls.py encodings as data, made when they are asked for
fingerprints.py a hash of all of it
sources/        files, folders, dicts, text, config objects, GGUF; strict.py reads JSON within bounds
readers/        one for each kind of model; llama_cpp/ those of GGUF files
engines/        the same file as vLLM and llama.cpp read it
"""

from situs.models import engines as engines
from situs.models.fingerprints import fingerprint as fingerprint
from situs.models.positions import Heads as Heads
from situs.models.positions import Layer as Layer
from situs.models.positions import Lengths as Lengths
from situs.models.positions import ModelPositions as ModelPositions
from situs.models.positions import Note as Note
from situs.models.reading import read as read
from situs.models.sources.strict import ConfigError as ConfigError

__all__ = ["ConfigError", "Heads", "Layer", "Lengths", "ModelPositions", "Note", "engines", "fingerprint", "read"]
