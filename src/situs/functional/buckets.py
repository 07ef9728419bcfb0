"""Buckets: rows of a table for offsets, few for the far ones.

A method with buckets is told once, on the host, which row each offset takes, up to the distance from which on all
take the same; later it only looks the row up. The logarithms are formed in float32, operation by operation as the
released code forms them, since checkpoints were trained with the rows those give.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Int64
from torch import Tensor


def t5_rows(num_buckets: int, max_distance: int, bidirectional: bool) -> Int64[Tensor, "offsets"]:
    """List T5's row for each offset, key minus query, from ``-max_distance`` to ``max_distance``.

    Half of the rows are for single distances, the other half for distances that grow by a factor. Bidirectional
    tables keep their upper half for keys ahead; causal ones count those as distance 0.
    """
    offsets = torch.arange(-max_distance, max_distance + 1, device="cpu")
    rows = num_buckets // 2 if bidirectional else num_buckets
    ahead = rows * (offsets > 0) if bidirectional else torch.zeros_like(offsets)
    distance = offsets.abs() if bidirectional else (-offsets).clamp(min=0)
    exact = rows // 2
    growth = torch.log(distance.float().clamp(min=1) / exact) / math.log(max_distance / exact)
    far = (exact + (growth * (rows - exact)).long()).clamp(max=rows - 1)
    return ahead + torch.where(distance < exact, distance, far)


def clipped_rows(max_distance: int, bidirectional: bool) -> Int64[Tensor, "offsets"]:
    """List one row for each offset up to ``max_distance``, and the last for all beyond; causal tables have none
    ahead."""
    offsets = torch.arange(-max_distance, max_distance + 1, device="cpu")
    return offsets + max_distance if bidirectional else (-offsets).clamp(min=0)


def deberta_rows(span: int, buckets: int | None = None) -> Int64[Tensor, "offsets"]:
    """List DeBERTa's row for each offset from ``-span`` to ``span``: query minus key, cut to the table of ``2 span``
    rows, or of ``2 buckets`` where far distances share one (v2)."""
    distances = -torch.arange(-span, span + 1, device="cpu")
    half = span
    if buckets is not None:
        distances, half = _deberta_buckets(distances, buckets, span), buckets
    return (distances + half).clamp(0, 2 * half - 1)


def _deberta_buckets(distances: Tensor, buckets: int, max_distance: int) -> Tensor:
    """Assign signed buckets: single distances up to half of them, then growing ones, rounded up."""
    middle = buckets // 2
    size = distances.abs().clamp(min=middle).float()
    whole = torch.tensor((max_distance - 1) / middle, dtype=torch.float32, device="cpu")
    growth = torch.log(size / middle) / torch.log(whole)
    far = torch.ceil(growth * (middle - 1)).long() + middle
    return torch.where(distances.abs() <= middle, distances, far * distances.sign())
