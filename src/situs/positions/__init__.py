"""Positions: where each token stands, as data that every encoding takes."""

from situs.positions.align import align
from situs.positions.joining import own_slots
from situs.positions.places import Positions, PositionsLike
from situs.positions.require import is_deferred

__all__ = ["Positions", "PositionsLike", "align", "is_deferred", "own_slots"]
