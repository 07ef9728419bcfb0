"""Positions: where each token stands, as data that every encoding takes."""

from situs.arguments import is_deferred
from situs.positions.align import align
from situs.positions.joining import own_slots, query_slots
from situs.positions.positions import Positions, PositionsLike

__all__ = ["Positions", "PositionsLike", "align", "is_deferred", "own_slots", "query_slots"]
