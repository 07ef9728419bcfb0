"""Requests with bands of distance that need one rotation after all, and are served as any other then.

A single query, as in decoding, has one distance to each key, so that keys alone are rotated, each by its distance:

    R(f) q . R(g) k = q . R(g - f) k

And where no pair is farther apart than the first band reaches, rotary is what it was trained as.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from situs.attention.kernels.inputs import rotated
from situs.attention.offsets import OffsetCache
from situs.attention.request import Request
from situs.compiled.watching import is_plain
from situs.encodings.bands import Bands
from situs.encodings.base import Encoding, computing_dtype
from situs.encodings.rotary import Rotary
from situs.positions import Positions
from situs.rotation import RotationTable


def with_one_rotation(request: Request) -> Request:
    """Give the same request without bands, where it needs none; else the request itself."""
    banded = request.banded
    if banded is None or banded.bands is None or request.is_empty:
        return request
    if _stays_near(request, banded.bands):
        encodings = tuple(banded.without_bands if each is banded else each for each in request.encodings)
        rotations = tuple(banded.without_bands if each is banded else each for each in request.rotations)
        return replace(request, encodings=encodings, rotations=rotations, banded=None)
    # a rotation that comes later need not commute with it, and content terms meet keys that are not rotated
    if request.query.shape[2] != 1 or request.rotations[-1] is not banded or request.contents:
        return request
    before = request.rotations[:-1]
    query, key = rotated(replace(request, rotations=before, banded=None))
    key = banded.without_bands(key, _by_distance(request, banded, banded.bands), role="key")
    left: tuple[Encoding, ...] = tuple(each for each in request.encodings if each not in request.rotations)
    return replace(request, query=query, key=key, encodings=left, rotations=(), banded=None)


def _stays_near(request: Request, bands: Bands) -> bool:
    """Whether all pairs that see each other are in a band where positions stay; only ranges tell, and no graph asks,
    lest it be bound to some lengths."""
    start, key_start = request.query_positions.start, request.key_positions.start
    if start is None or key_start is None or bands.size > 1 or torch.compiler.is_compiling():
        return False
    highest = start + request.query_positions.length - 1 - key_start
    lowest = 0 if request.causal else start - (key_start + request.key_positions.length - 1)
    return -bands.exact < lowest and highest < bands.exact


def _by_distance(request: Request, banded: Rotary, bands: Bands) -> Positions | RotationTable:
    """What rotates each key by its distance from the one query."""
    of_query, of_keys = request.query_positions, request.key_positions
    apart = bands.distances(of_query.ids, of_keys.ids)  # (rows, keys)
    known = of_query.start is not None and of_keys.start is not None and apart.device.type == "cpu" and is_plain(apart)
    if not known or apart.is_floating_point() or int(apart.min()) < 0:
        return Positions.explicit(-apart)
    dtype, cache = computing_dtype(request.key.dtype), request.offsets or OffsetCache()

    def make(first: int, last: int) -> RotationTable:
        return banded.without_bands.table(
            Positions.range(last - first + 1, start=first, device=request.key.device), dtype=dtype
        )

    def whole(made: RotationTable, _: slice) -> RotationTable:
        return made

    farthest = int(apart.max())
    wider = 0, farthest + farthest // 2 + 64
    table = cache.find(("distances", banded, dtype, request.key.device), (), 0, farthest, wider, make, whole)
    return RotationTable(_rows(table.cos, apart), -_rows(table.sin, apart), channels=table.channels)


def _rows(table: Tensor, apart: Tensor) -> Tensor:
    return table.index_select(-2, apart[0])
