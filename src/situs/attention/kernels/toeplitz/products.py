"""Products with the vectors of offsets, and sums of their gradients. Heads may share one matrix of vectors."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from situs.attention.kernels.tiling import Tile
from situs.functional.offsets import sum_by_row


def times(x: Tensor, vectors: Tensor, out: Tensor | None = None) -> Tensor:
    """A product with each head's own matrix; one that all share makes it one large product."""
    return torch.matmul(x, vectors[0] if vectors.shape[0] == 1 else vectors, out=out)


def multiply(queries: Tensor, vectors: Tensor, scale: float, out: Tensor, seen: slice) -> None:
    """``scale queries . vectors`` for offsets that are seen, -inf for the others."""
    rows = out.flatten(0, 2)
    rows[:, : seen.start] = -math.inf
    rows[:, seen.stop :] = -math.inf
    torch.mm(queries.flatten(0, 2), vectors.T * scale, out=rows[:, seen])


def multiply_and_add(bias: Tensor, queries: Tensor, vectors: Tensor, scale: float, out: Tensor) -> None:
    """``bias + scale queries . vectors``, with each offset's vector."""
    if bias.shape[0] == vectors.shape[0] == 1:
        torch.addmm(bias, queries.flatten(0, 2), vectors[0].T, alpha=scale, out=out.flatten(0, 2))
        return
    for row, of_row in zip(out, queries, strict=True):
        start, own = (each.expand(len(row), -1, -1) for each in (bias.unsqueeze(-2), vectors))
        torch.baddbmm(start, of_row, own.transpose(-2, -1), alpha=scale, out=row)


def add_products(total: Tensor | None, tile: Tile, change: Tensor, met: Tensor, scale: float, window: slice) -> None:
    """Add to the gradient of vectors of offsets, which met these and whose products changed so."""
    if total is None:
        return
    if total.shape[0] == 1:
        total[0, window].addmm_(change.flatten(0, 2).T, met.flatten(0, 2), alpha=scale)
    else:
        add_to(total, tile, (change.transpose(-2, -1) @ met).mul_(scale), window)


def add_to(total: Tensor | None, tile: Tile, found: Tensor, window: slice) -> None:
    """Add to a gradient what a tile's rows found for its offsets; heads may share one."""
    if total is not None:
        own = tile.of_heads(total)[:, window]
        own += found.sum(0).sum_to_size(own.shape)


def add_rows(total: Tensor | None, tile: Tile, change: Tensor, rows: Tensor) -> None:
    """Add to a gradient of one number per offset what pairs found, looked up as they were."""
    if total is None:
        return
    own = tile.of_heads(total)
    of_pairs, of_rows = (each.transpose(0, 1).flatten(1) for each in (change, rows))
    own += sum_by_row(of_pairs, of_rows, own.shape[-1]).sum_to_size(own.shape)
