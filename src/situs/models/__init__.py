"""What released models do with positions, read from their configuration: needs neither weights nor torch.

reading.py      read(): which reader a model type has, parts that are models of their own, keys that nobody read
source.py       files, folders, dicts, text, config objects; strict.py reads JSON within bounds, params.py Meta's
view.py         an object of settings while it is read: asked by name, checked, noted as read
facts.py        what transformers' classes say where a file is silent; keys.py the names of settings
positions.py    ModelPositions, Layer: the result; calls.py encodings as data, made when they are asked for
families.py     rotary models, a row for each exception; rotary.py, ladders.py, rope.py, schedule.py read them
vision.py       rotary over rows and columns
biases.py       T5, ALiBi, DeBERTa and others that add to scores; bias_*.py images, documents, speech
tables.py       tables at the input, learned or of sines; table_rows.py the rows; fixed.py rotary of a fixed base
"""

from situs.models.fingerprints import fingerprint as fingerprint
from situs.models.positions import Heads as Heads
from situs.models.positions import Layer as Layer
from situs.models.positions import Lengths as Lengths
from situs.models.positions import ModelPositions as ModelPositions
from situs.models.positions import Note as Note
from situs.models.reading import read as read
from situs.models.strict import ConfigError as ConfigError

__all__ = ["ConfigError", "Heads", "Layer", "Lengths", "ModelPositions", "Note", "fingerprint", "read"]
