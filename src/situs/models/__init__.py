"""What released models do with positions, read from their configuration: needs neither weights nor torch.

reading.py      read(): which reader a model type has, parts that are models of their own, keys that nobody read
positions.py    ModelPositions, Layer: the result; calls.py encodings as data, made when they are asked for
writing.py      write(): the same as a configuration, in several forms; writers/ one for each
engines/        the same file as other engines read it
inspecting/     inspect(): what positions do at a length, and what to set
extending.py    extend(): a configuration for longer texts; extendable.py which models have one
diffing.py      diff(): what two models do differently; scores.py by how much
fingerprints.py fingerprint(): a hash of all of it
numbers.py      what a rotation comes to; training.py what a model was trained on
sources/        files, folders, dicts, text, config objects; strict.py reads JSON within bounds
readers/        one for each kind of model; llama_cpp/ GGUF files
"""

from situs.models.diffing import Diff as Diff
from situs.models.diffing import diff as diff
from situs.models.extending import Extension as Extension
from situs.models.extending import extend as extend
from situs.models.fingerprints import fingerprint as fingerprint
from situs.models.inspecting.report import Report as Report
from situs.models.inspecting.report import inspect as inspect
from situs.models.positions import Heads as Heads
from situs.models.positions import Layer as Layer
from situs.models.positions import Lengths as Lengths
from situs.models.positions import ModelPositions as ModelPositions
from situs.models.positions import Note as Note
from situs.models.reading import read as read
from situs.models.sources.strict import ConfigError as ConfigError
from situs.models.writing import write as write

__all__ = [
    "ConfigError",
    "Diff",
    "Extension",
    "Heads",
    "Layer",
    "Lengths",
    "ModelPositions",
    "Note",
    "Report",
    "diff",
    "extend",
    "fingerprint",
    "inspect",
    "read",
    "write",
]
