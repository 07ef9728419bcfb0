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


def spread_(products: Tensor, near: slice) -> Tensor:
    """Give the columns before and behind ``near`` what its first and its last have."""
    if near.start > 0:
        products[..., : near.start] = products[..., near.start, None]
    if near.stop < products.shape[-1]:
        products[..., near.stop :] = products[..., near.stop - 1, None]
    return products


def multiply(queries: Tensor, vectors: Tensor, scale: float, out: Tensor, seen: slice, near: slice) -> None:
    """``scale queries . vectors`` for offsets that are seen, -inf for the others; outside ``near`` all are alike."""
    rows, first, past = out.flatten(0, 2), max(seen.start, near.start), min(seen.stop, near.stop)
    inner = slice(first, past) if first < past else seen
    torch.mm(queries.flatten(0, 2), vectors[inner].T * scale, out=rows[:, inner])
    spread_(rows[:, seen], slice(inner.start - seen.start, inner.stop - seen.start))
    rows[:, : seen.start] = -math.inf
    rows[:, seen.stop :] = -math.inf


def multiply_and_add(bias: Tensor, queries: Tensor, vectors: Tensor, scale: float, out: Tensor, near: slice) -> None:
    """``bias + scale queries . vectors``, with each offset's vector; outside ``near`` vectors are alike."""
    _multiply_and_add(bias[:, near], queries, vectors[:, near], scale, out[..., near])
    for far, end in ((slice(0, near.start), near.start), (slice(near.stop, out.shape[-1]), near.stop - 1)):
        if far.start < far.stop:
            alike = times(queries, vectors[:, end, :, None]).mul_(scale)
            torch.add(bias[:, None, far], alike, out=out[..., far])


def _multiply_and_add(bias: Tensor, queries: Tensor, vectors: Tensor, scale: float, out: Tensor) -> None:
    if bias.shape[0] == vectors.shape[0] == 1:
        torch.addmm(bias, queries.flatten(0, 2), vectors[0].T, alpha=scale, out=out.flatten(0, 2))
        return
    for row, of_row in zip(out, queries, strict=True):
        start, own = (each.expand(len(row), -1, -1) for each in (bias.unsqueeze(-2), vectors))
        torch.baddbmm(start, of_row, own.transpose(-2, -1), alpha=scale, out=row)


def multiply_into(out: Tensor, x: Tensor, vectors: Tensor) -> None:
    """Write products with each head's own matrix, transposed, into a part of the columns of a larger tensor."""
    if vectors.shape[0] == 1:
        torch.mm(x.flatten(0, 2), vectors[0].T, out=out.flatten(0, 2))
        return
    for row, of_row in zip(out, x, strict=True):
        torch.bmm(of_row, vectors.transpose(-2, -1), out=row)


def together_(changes: Tensor, near: slice) -> Tensor:
    """Add to the first and the last column of ``near`` those before and behind, and give these columns alone."""
    if near.start > 0:
        changes[..., near.start] += changes[..., : near.start].sum(-1)
    if near.stop < changes.shape[-1]:
        changes[..., near.stop - 1] += changes[..., near.stop :].sum(-1)
    return changes[..., near]


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
