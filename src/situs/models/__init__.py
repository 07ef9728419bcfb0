"""What released models do with positions, read from their configuration: needs neither weights nor torch.

reading.py      read(): which reader a model type has, parts that are models of their own, keys that nobody read
positions.py    ModelPositions, Layer: the result; calls.py encodings as data, made when they are asked for
writing.py      write(): the same as a configuration, in several forms; writers/ how each is written
engines/        the same file as vLLM and llama.cpp read it
inspecting/     inspect(): what positions do at a length, and what to set
extending.py    extend(): a configuration for longer texts; extendable.py which models have one
diffing.py      diff(): what two models do differently; scores.py by how much
oracle/         golden(): exact numbers, for programs in any language
verifying/      verify(): a port compared with them, and the mistake that explains it
fingerprints.py fingerprint(): a hash of all of it
numbers.py      what a rotation comes to; training.py what a model was trained on; wrapping.py lines for a terminal
sources/        files, folders, dicts, text, config objects, GGUF; strict.py reads JSON within bounds
readers/        one for each kind of model; llama_cpp/ those of GGUF files
"""

import importlib
from typing import TYPE_CHECKING, Any

from situs.models.positions import Cached as Cached
from situs.models.positions import Heads as Heads
from situs.models.positions import Layer as Layer
from situs.models.positions import Lengths as Lengths
from situs.models.positions import ModelPositions as ModelPositions
from situs.models.positions import Note as Note
from situs.models.reading import read as read
from situs.models.sources.strict import ConfigError as ConfigError

if TYPE_CHECKING:
    from situs.models import engines as engines
    from situs.models.diffing import Diff as Diff
    from situs.models.diffing import diff as diff
    from situs.models.extending import Extension as Extension
    from situs.models.extending import extend as extend
    from situs.models.fingerprints import fingerprint as fingerprint
    from situs.models.inspecting.report import Report as Report
    from situs.models.inspecting.report import inspect as inspect
    from situs.models.oracle.making import golden as golden
    from situs.models.oracle.record import Golden as Golden
    from situs.models.verifying.verdict import Verdict as Verdict
    from situs.models.verifying.verify import verify as verify
    from situs.models.writing import write as write

__all__ = [
    "Cached", "ConfigError", "Diff", "Extension", "Golden", "Heads", "Layer", "Lengths", "ModelPositions", "Note",
    "Report", "Verdict", "diff", "engines", "extend", "fingerprint", "golden", "inspect", "read", "verify", "write",
]  # fmt: skip

# Loaded when first asked for, since a reader seldom needs them all.
_ON_DEMAND = {
    "Diff": "diffing",
    "Extension": "extending",
    "Golden": "oracle.record",
    "Report": "inspecting.report",
    "Verdict": "verifying.verdict",
    "diff": "diffing",
    "extend": "extending",
    "fingerprint": "fingerprints",
    "golden": "oracle.making",
    "inspect": "inspecting.report",
    "verify": "verifying.verify",
    "write": "writing",
}


def __getattr__(name: str) -> Any:
    if name == "engines":
        return importlib.import_module("situs.models.engines")
    if name not in _ON_DEMAND:
        raise AttributeError(f"module 'situs.models' has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(f"situs.models.{_ON_DEMAND[name]}"), name)
    return found


def __dir__() -> list[str]:
    """List what is loaded, and every public name that is not yet."""
    return sorted({*globals(), *__all__})
