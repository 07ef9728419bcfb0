"""Rotary whose rotations differ by band of distance, in O(length) memory: each band by its own queries and keys.

parts   which queries and keys of a band see each other, as tiles
op      the operator that torch differentiates, maps and traces
"""

from __future__ import annotations

import torch
from torch import Tensor

from situs.attention.kernels.banded.op import Given, Settings, attend_in_bands
from situs.attention.kernels.banded.parts import ENDLESS
from situs.attention.kernels.inputs import rotated_by
from situs.attention.request import Request
from situs.attention.visibility import tokens_of
from situs.encodings.bands import Band, Bands
from situs.encodings.rotary import Rotary

__all__ = ["cannot", "run"]


def cannot(request: Request) -> str | None:
    """Why queries and keys of several rotations do not serve; None if they do."""
    if request.banded is None:
        return "no encoding has bands of distance"
    if request.is_empty:
        return "there are no queries, no keys or no channels"
    if request.acts_on_scores or request.products:
        acting = (*request.biases, *request.contents, *request.cumulated, *request.values)
        return f"{type(acting[0]).__name__} acts on scores or values, and bands are rotations alone"
    if request.mask is not None or request.softcap is not None:
        return "tiles of a band take neither masks nor caps"
    if request.dropout:
        return "dropout needs every weight"
    for positions in (request.query_positions, request.key_positions):
        if positions.axes > 1 or positions.ids.is_floating_point():
            return "these positions are no whole numbers on one axis"
    return None


def run(request: Request) -> Tensor:
    """Rotate queries and keys for each band, and attend to the pairs of all bands."""
    assert request.banded is not None
    bands = request.banded.bands
    assert bands is not None
    found = _bands_with_pairs(request, bands)
    rotated = [_rotated(request, band) for band in found]
    query, key = (torch.stack(each) for each in zip(*rotated, strict=True))
    starts = request.query_positions.start, request.key_positions.start
    tokens = tokens_of(request.query_positions, request.key_positions) if None in starts else (None, None)
    ends = [end for band in found for end in (_end(band.lowest, -ENDLESS), _end(band.highest, ENDLESS))]
    settings = Settings(
        starts[0] or 0, starts[1] or 0, bands.size, ends, request.scale, request.causal, request.window
    )  # fmt: skip
    return attend_in_bands(Given(query, key, request.value, request.sinks, *tokens), settings)


def _bands_with_pairs(request: Request, bands: Bands) -> tuple[Band, ...]:
    """The bands that some pair is in; more in a graph, and where only tensors tell positions: the causal rule goes by
    slots, and then a key that is seen may have a later position."""
    query, key = request.query_positions, request.key_positions
    if query.start is None or key.start is None:
        return bands.bands(causal=False)
    listed = bands.bands(causal=request.causal)
    if torch.compiler.is_compiling():
        return listed
    lowest = query.start // bands.size - (key.start + key.length - 1) // bands.size
    highest = (query.start + query.length - 1) // bands.size - key.start // bands.size
    found = [
        band for band in listed if _end(band.lowest, -ENDLESS) <= highest and lowest <= _end(band.highest, ENDLESS)
    ]
    return tuple(found) or listed[:1]  # where no query sees any key


def _end(bound: int | None, otherwise: int) -> int:
    return otherwise if bound is None else bound


def _rotated(request: Request, band: Band) -> tuple[Tensor, Tensor]:
    """Queries and keys with all rotations applied, as those of one band."""
    query, key = request.query, request.key
    for each in request.rotations:
        of_queries, of_keys, rotation = request.query_positions, request.key_positions, each
        if isinstance(each, Rotary) and each.bands is not None:
            rotation, of_queries, of_keys = each.without_bands, band.of_queries(of_queries), band.of_keys(of_keys)
        query, key = rotated_by(rotation, query, key, of_queries, of_keys)
    return query, key
