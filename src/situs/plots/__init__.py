"""Plots: what encodings do, and what comparisons found, as matplotlib figures. Only this layer needs matplotlib.

>>> import situs, situs.plots
>>> figure = situs.plots.decay([situs.ALiBi(num_heads=8), situs.Rotary(head_dim=64)])

Each takes an encoding, several in a list, or several by the names they shall have, and returns a ``Figure``.
"""

from situs.lab.probing.sitters import sitters
from situs.plots.portraits.distances import decay, distance
from situs.plots.portraits.grids import grid
from situs.plots.portraits.kinds import KINDS, Kind, suiting
from situs.plots.portraits.matrices import attention, bias, likeness, scores
from situs.plots.portraits.rotation import rotation, speeds
from situs.plots.portraits.spectrum import scalings, wavelengths
from situs.plots.portraits.tables import dimensions, similarity, table

__all__ = [
    "KINDS",
    "Kind",
    "attention",
    "bias",
    "decay",
    "dimensions",
    "distance",
    "grid",
    "likeness",
    "rotation",
    "scalings",
    "scores",
    "similarity",
    "sitters",
    "speeds",
    "suiting",
    "table",
    "wavelengths",
]
