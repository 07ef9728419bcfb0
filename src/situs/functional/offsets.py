"""Offsets: from a bias or products that belong to an offset, key minus query, to matrices over queries and keys.

Where queries and keys are neighbours in a range, row i of such a matrix is the row above moved by one. So the
``queries + keys - 1`` offsets hold all there is, and the matrix is a view of them, read along a slant.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from situs.functional.angles import widest


def range_offsets(
    query_start: int, queries: int, key_start: int, keys: int, device: torch.device | str = "cpu"
) -> Int[Tensor, "offsets"]:
    """List every offset between two ranges, ascending: from last query and first key to first query and last key."""
    lowest = key_start - (query_start + queries - 1)
    return torch.arange(lowest, lowest + queries + keys - 1, device=device)


def toeplitz(vector: Float[Tensor, "*rows offsets"], keys: int) -> Float[Tensor, "*rows queries keys"]:
    """Lay a bias by offset out as a matrix, ``out[i, j] = vector[j - i + queries - 1]``."""
    if torch.compiler.is_compiling():
        return vector[..., _slant(vector.shape[-1] - keys + 1, keys, vector.device)]
    return vector.unfold(-1, keys, 1).flip(-2)


def skew(products: Float[Tensor, "*rows queries offsets"], keys: int) -> Float[Tensor, "*rows queries keys"]:
    """Lay each query's products with the vectors of its offsets out by key, ``out[i, j] = products[i, j - i + queries -
    1]``.

    In memory, the element wanted next below lies one row minus one number further, so rows one shorter do it. This
    holds for any lengths and any mask, unlike the shift that assumes a causal one.
    """
    queries, offsets = products.shape[-2:]
    if torch.compiler.is_compiling():
        rows = _slant(queries, keys, products.device)
        return products.gather(-1, rows.expand(*products.shape[:-2], -1, -1))
    if queries == 1:
        return products
    flat = products.flatten(-2)[..., queries - 1 : queries - 1 + queries * (offsets - 1)]
    return flat.reshape(*flat.shape[:-1], queries, offsets - 1)[..., :keys]


def skew_keys(products: Float[Tensor, "*rows keys offsets"], queries: int) -> Float[Tensor, "*rows queries keys"]:
    """Lay each key's products with the vectors of its offsets out by query, ``out[i, j] = products[j, j - i + queries -
    1]``."""
    keys, offsets = products.shape[-2:]
    if torch.compiler.is_compiling():
        columns = _slant(queries, keys, products.device).T
        return products.gather(-1, columns.expand(*products.shape[:-2], -1, -1)).transpose(-2, -1)
    flat = torch.nn.functional.pad(products.flatten(-2), (0, keys))
    return flat.view(*flat.shape[:-1], keys, offsets + 1)[..., :queries].flip(-1).transpose(-2, -1)


def unskew(weights: Float[Tensor, "*rows queries keys"]) -> Float[Tensor, "*rows queries offsets"]:
    """Lay each query's weights out by offset, zero where it has no key: the inverse of ``skew``."""
    queries, keys = weights.shape[-2:]
    if queries == 1:
        return weights
    offsets = queries + keys - 1
    wide = torch.nn.functional.pad(weights, (0, offsets - 1 - keys))
    flat = torch.nn.functional.pad(wide.flatten(-2), (queries - 1, 1))
    return flat.view(*flat.shape[:-1], queries, offsets)


def _slant(queries: int, keys: int, device: torch.device) -> Int[Tensor, "queries keys"]:
    """Index each pair's offset among all, for graphs: a compiler would bind views along a slant to one length."""
    return torch.arange(keys, device=device) - torch.arange(queries, device=device)[:, None] + (queries - 1)


def by_row(
    products: Float[Tensor, "batch heads queries rows"], rows: Int[Tensor, "#batch 1 queries keys"]
) -> Float[Tensor, "batch heads queries keys"]:
    """Look up ``out[i, j] = products[i, rows[i, j]]``, for positions of any kind."""
    return products.gather(-1, rows.expand(*products.shape[:2], -1, -1))


def sum_by_row(
    values: Float[Tensor, "*axes keys"], rows: Int[Tensor, "#*axes keys"], count: int
) -> Float[Tensor, "*axes {count}"]:
    """Sum up ``out[i, r]`` over the keys j with ``rows[i, j] = r``: backward of ``by_row``. In float64 where there is:
    one number after another, a sum over many keys would lose a digit of float32 with every tenfold."""
    wide = values.to(widest(values.device))
    total = wide.new_zeros(*values.shape[:-1], count)
    return total.scatter_add(-1, rows.expand(values.shape), wide).to(values.dtype)
