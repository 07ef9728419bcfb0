"""Extents: windows whose cells a table knows, wherever they begin, and whether positions fit into them.

Tokens of one document share a window, and so do those of a row without documents. Where it begins is a matter of its
lowest coordinates, among real tokens that have one.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int, Num
from torch import Tensor

from situs.arguments import require_everywhere
from situs.encodings.base import Encoding
from situs.functional.angles import widest
from situs.positions import Positions

_FAR = torch.iinfo(torch.int32).max


def require_extent(encoding: Encoding, query: Positions, key: Positions) -> None:
    """Raise if positions of a document span more than the encoding's window; where values may not be read, the device
    asserts."""
    if encoding.extent is None or not query.length or not key.length:
        return
    for axis, size in enumerate(encoding.extent):
        lowest, highest = _ends(query, key, axis)
        _require_span(type(encoding).__name__, axis, size, highest - lowest)


def _require_span(name: str, axis: int, size: int, spread: Tensor) -> None:
    require_everywhere(
        spread < size,
        f"positions must span at most {size} cells along axis {axis}, since {name} ends there",
        lambda: int(spread.max()) + 1,
        "Use resize() for a larger window.",
    )


def cells_of_windows(
    query: Positions, key: Positions, axis: int
) -> tuple[Num[Tensor, "#batch query"], Num[Tensor, "#batch key"]]:
    """Count coordinates from the lowest in their document; those of padding may lie outside."""
    lowest, _ = _ends(query, key, axis)
    begins = lowest.expand(-1, query.length + key.length)
    return by_axis(query)[axis] - begins[:, : query.length], by_axis(key)[axis] - begins[:, query.length :]


def by_axis(positions: Positions) -> tuple[Num[Tensor, "#batch sequence"], ...]:
    """List ids, one tensor a coordinate; real ones as wide as can be, since offsets of far ones are small
    differences."""
    ids = positions.ids
    ids = ids.to(widest(ids.device)) if ids.is_floating_point() else ids
    return (ids,) if positions.axes == 1 else ids.unbind(-1)


def _ends(
    query: Positions, key: Positions, axis: int
) -> tuple[Num[Tensor, "#batch tokens_or_1"], Num[Tensor, "#batch tokens_or_1"]]:
    """Find the lowest and the highest coordinate in each token's document, queries first, or in the row where it has
    no documents."""
    sides, rows = (query, key), max(query.rows, key.rows)

    def joined(of_query: Tensor, of_key: Tensor) -> Tensor:
        return torch.cat([each.expand(rows, -1) for each in (of_query, of_key)], -1)

    ids = joined(*(by_axis(each)[axis] for each in sides))
    counted = joined(*map(_counted, sides))
    low, high = torch.where(counted, ids, _FAR), torch.where(counted, ids, -_FAR)
    if query.documents is None or key.documents is None:
        return low.amin(-1, keepdim=True), high.amax(-1, keepdim=True)
    number = _numbered(joined(query.documents, key.documents))
    lowest = torch.full_like(low, _FAR).scatter_reduce(-1, number, low, "amin").gather(-1, number)
    highest = torch.full_like(high, -_FAR).scatter_reduce(-1, number, high, "amax").gather(-1, number)
    return lowest, highest


def _counted(positions: Positions) -> Bool[Tensor, "#batch sequence"]:
    """Tell which tokens are real and have coordinates."""
    counted = torch.ones(1, positions.length, dtype=torch.bool, device=positions.device)
    for told in (positions.valid, positions.placed):
        counted = counted if told is None else counted & told
    return counted


def _numbered(documents: Int[Tensor, "batch tokens"]) -> Int[Tensor, "batch tokens"]:
    """Number the documents of each row from 0, in a shape that does not depend on how many there are."""
    ordered, order = documents.sort(-1)
    begins = torch.nn.functional.pad((ordered[:, 1:] != ordered[:, :-1]).long(), (1, 0))
    return torch.zeros_like(order).scatter(-1, order, begins.cumsum(-1))
