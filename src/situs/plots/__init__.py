"""Plots: what encodings do, and what comparisons found, as matplotlib figures. Only this layer needs matplotlib.

>>> import situs, situs.plots
>>> figure = situs.plots.decay([situs.ALiBi(num_heads=8), situs.Rotary(head_dim=64)])

Each takes an encoding, several in a list, or several in a dict by name, and returns a ``Figure``. ``named`` makes
encodings by their names, with trained parameters where the method has some:

>>> figure = situs.plots.scores(situs.plots.named("shaw"))
"""

from situs.lab.probing.sitters import named, sitters
from situs.plots.portraits.distances import decay, distance
from situs.plots.portraits.factors import factors
from situs.plots.portraits.grids import grid
from situs.plots.portraits.kinds import KINDS, Kind, suiting
from situs.plots.portraits.matrices import attention, bias, likeness
from situs.plots.portraits.order import order
from situs.plots.portraits.rotation import rotation, speeds
from situs.plots.portraits.spectrum import scalings, wavelengths
from situs.plots.portraits.tables import dimensions, similarity, table
from situs.plots.portraits.terms import scores

__all__ = [
    "KINDS",
    "Kind",
    "attention",
    "bias",
    "decay",
    "dimensions",
    "distance",
    "factors",
    "grid",
    "likeness",
    "named",
    "order",
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
