"""What released models do with positions, read from their configuration: needs neither weights nor torch.

reading.py      read(): which reader a model type has, parts that are models of their own, keys that nobody read
positions.py    ModelPositions, Layer: the result; calls.py encodings as data, made when they are asked for
fingerprints.py a hash of all of it; numbers.py what a rotation comes to
sources/        files, folders, dicts, text, config objects; strict.py reads JSON within bounds
readers/        one for each kind of model
oracle/         golden(): exact numbers, for programs in any language
verifying/      verify(): a port compared with them, and the mistake that explains it
"""

import importlib
from typing import TYPE_CHECKING, Any

from situs.models.fingerprints import fingerprint as fingerprint
from situs.models.positions import Heads as Heads
from situs.models.positions import Layer as Layer
from situs.models.positions import Lengths as Lengths
from situs.models.positions import ModelPositions as ModelPositions
from situs.models.positions import Note as Note
from situs.models.reading import read as read
from situs.models.sources.strict import ConfigError as ConfigError

if TYPE_CHECKING:
    from situs.models.oracle.making import golden as golden
    from situs.models.oracle.record import Golden as Golden
    from situs.models.verifying.verdict import Verdict as Verdict
    from situs.models.verifying.verify import verify as verify

__all__ = [
    "ConfigError", "Golden", "Heads", "Layer", "Lengths", "ModelPositions", "Note", "Verdict", "fingerprint", "golden",
    "read", "verify",
]  # fmt: skip

# Loaded when first asked for: they compute, and torch comes with them.
_ON_DEMAND = {
    "Golden": "situs.models.oracle.record",
    "Verdict": "situs.models.verifying.verdict",
    "golden": "situs.models.oracle.making",
    "verify": "situs.models.verifying.verify",
}


def __getattr__(name: str) -> Any:
    if name not in _ON_DEMAND:
        raise AttributeError(f"module 'situs.models' has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(_ON_DEMAND[name]), name)
    return found


def __dir__() -> list[str]:
    """List what is loaded, and every public name that is not yet."""
    return sorted({*globals(), *__all__})
