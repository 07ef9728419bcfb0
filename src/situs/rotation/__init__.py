"""Rotating queries and keys at memory speed: a table of cosines and sines, and the fastest program that applies it.

>>> import torch
>>> from situs.functional import rotary_frequencies, unit_circle
>>> from situs.rotation import RotationTable, rotate
>>> cos, sin = unit_circle(torch.arange(16)[None, None, :, None], rotary_frequencies(64), torch.float32)
>>> rotated = rotate(torch.randn(2, 8, 16, 64), RotationTable(cos, sin), "halves")

    table.py      RotationTable: what one set of positions rotates by, and how tensors that came before were planned
    apply.py      rotate, rotate_both: the choice of a program, with derivatives
    fused/        the program that LLVM compiles, one pass over memory
"""

from situs.rotation.apply import rotate, rotate_both
from situs.rotation.table import RotationTable

__all__ = ["RotationTable", "rotate", "rotate_both"]
