"""Rotation: channel pairs rotated, in the three forms that the literature writes.

    matrix    x' = R x,            R block-diagonal, blocks [[cos, -sin], [sin, cos]]     (RoFormer eq. 15)
    complex   z' = z exp(i t),     z = x_a + i x_b
    real      x_a' = x_a cos t - x_b sin t,    x_b' = x_a sin t + x_b cos t               (RoFormer eq. 34)

A pair ``(a, b)`` is ``(2i, 2i + 1)`` for pairing "interleaved" and ``(i, i + dim/2)`` for "halves"; the
two are the same map up to a permutation of channels, and mixing them up is the field's commonest bug.
Channels beyond the table's pairs are left alone. Arithmetic is done in the dtype of cosines and sines,
float32 or wider, and rounded once to the input's. ``situs.rotation`` does the same at memory speed.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Complex, Float
from torch import Tensor

Pairing = Literal["interleaved", "halves"]
PAIRINGS: tuple[Pairing, ...] = ("interleaved", "halves")


def rotate_real(
    x: Float[Tensor, "*batch sequence dim"],
    cos: Float[Tensor, "*rows sequence pairs"],
    sin: Float[Tensor, "*rows sequence pairs"],
    pairing: Pairing,
) -> Float[Tensor, "*batch sequence dim"]:
    """Rotate by the real form, in plain differentiable operations: compiles, exports and runs on any device."""
    pairs = cos.shape[-1]
    moving, still = x[..., : 2 * pairs].to(cos.dtype), x[..., 2 * pairs :]
    if pairing == "interleaved":
        first, second = moving[..., 0::2], moving[..., 1::2]
    else:
        first, second = moving[..., :pairs], moving[..., pairs:]
    rotated = (first * cos - second * sin, first * sin + second * cos)
    joined = torch.stack(rotated, -1).flatten(-2) if pairing == "interleaved" else torch.cat(rotated, -1)
    joined = joined.to(x.dtype)
    return torch.cat((joined, still), -1) if still.shape[-1] else joined


def rotate_complex(
    z: Complex[Tensor, "*batch sequence pairs"], polar: Complex[Tensor, "*batch_or_1 sequence pairs"]
) -> Complex[Tensor, "*batch sequence pairs"]:
    """Rotate by the complex form: one multiplication a pair."""
    return z * polar


def rotate_matrix(
    x: Float[Tensor, "*batch sequence dim"], matrix: Float[Tensor, "*batch sequence dim dim"]
) -> Float[Tensor, "*batch sequence dim"]:
    """Rotate by the matrix form: one dense product a position. For understanding and tests; it costs dim times more."""
    return (matrix @ x.unsqueeze(-1)).squeeze(-1)


def rotation_matrix(
    cos: Float[Tensor, "*batch pairs"], sin: Float[Tensor, "*batch pairs"], pairing: Pairing
) -> Float[Tensor, "*batch dim dim"]:
    """Make the block-diagonal matrix R of each position."""
    pairs = cos.shape[-1]
    index = torch.arange(pairs, device=cos.device)
    first, second = (2 * index, 2 * index + 1) if pairing == "interleaved" else (index, index + pairs)
    matrix = cos.new_zeros(*cos.shape[:-1], 2 * pairs, 2 * pairs)
    matrix[..., first, first] = cos
    matrix[..., second, second] = cos
    matrix[..., first, second] = -sin
    matrix[..., second, first] = sin
    return matrix


def as_complex(x: Float[Tensor, "*batch dim"], pairing: Pairing) -> Complex[Tensor, "*batch pairs"]:
    """View channel pairs as complex numbers; float32 or float64 only. A view where the pairing allows one."""
    if pairing == "halves":
        return torch.complex(*x.chunk(2, -1))
    pairs = x.view(*x.shape[:-1], x.shape[-1] // 2, 2)
    even = all(stride % 2 == 0 for stride in pairs.stride()[:-1]) and pairs.storage_offset() % 2 == 0
    return torch.view_as_complex(
        pairs if even and pairs.stride(-1) == 1 else pairs.clone(memory_format=torch.contiguous_format)
    )


def from_complex(z: Complex[Tensor, "*batch pairs"], pairing: Pairing) -> Float[Tensor, "*batch dim"]:
    """Lay complex numbers out as channel pairs: the inverse of ``as_complex``."""
    if pairing == "halves":
        return torch.cat((z.real, z.imag), -1)
    return torch.view_as_real(z).flatten(-2)
