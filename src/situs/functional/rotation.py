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

from situs.arguments import (
    refuse,
    require_axes_of,
    require_choice,
    require_complex,
    require_floating,
    require_same_device,
    require_same_shape,
)

Pairing = Literal["interleaved", "halves"]
PAIRINGS: tuple[Pairing, ...] = ("interleaved", "halves")

Channels = Literal["leading", "trailing"]
CHANNELS: tuple[Channels, ...] = ("leading", "trailing")
"""Where the rotated channels of a vector stand that is not rotated whole: MLA has them last."""


WITH_COMPLEX = (torch.float32, torch.float64)


def rotate_real(
    x: Float[Tensor, "*batch sequence dim"],
    cos: Float[Tensor, "*rows sequence pairs"],
    sin: Float[Tensor, "*rows sequence pairs"],
    pairing: Pairing,
) -> Float[Tensor, "*batch sequence dim"]:
    """Rotate by the real form, in plain differentiable operations: compiles, exports and runs on any device."""
    require_floating("x", x, "its channels are rotated")
    _require_circle(cos, sin, pairing)
    require_axes_of("x", x, ("sequence", "dim"), "each position has channels", more=True)
    if 2 * cos.shape[-1] > x.shape[-1]:
        reason, shape = f"cos has {cos.shape[-1]} pairs", f"shape {tuple(x.shape)}"
        refuse(ValueError, "x", f"have {2 * cos.shape[-1]} or more channels", reason, shape)
    require_same_device("x", x, "cos", cos)
    return rotate_by_real_form(x, cos, sin, pairing)


def rotate_by_real_form(
    x: Tensor, cos: Tensor, sin: Tensor, pairing: Pairing, channels: Channels = "leading"
) -> Tensor:
    """Rotate what has been checked to fit."""
    pairs = cos.shape[-1]
    if channels == "trailing":
        still, moving = x[..., : x.shape[-1] - 2 * pairs], x[..., x.shape[-1] - 2 * pairs :].to(cos.dtype)
    else:
        moving, still = x[..., : 2 * pairs].to(cos.dtype), x[..., 2 * pairs :]
    if pairing == "interleaved":
        first, second = moving[..., 0::2], moving[..., 1::2]
    else:
        first, second = moving[..., :pairs], moving[..., pairs:]
    rotated = (first * cos - second * sin, first * sin + second * cos)
    joined = torch.stack(rotated, -1).flatten(-2) if pairing == "interleaved" else torch.cat(rotated, -1)
    joined = joined.to(x.dtype)
    if not still.shape[-1]:
        return joined
    return torch.cat((still, joined) if channels == "trailing" else (joined, still), -1)


def rotate_complex(
    z: Complex[Tensor, "*batch sequence pairs"], polar: Complex[Tensor, "*batch_or_1 sequence pairs"]
) -> Complex[Tensor, "*batch sequence pairs"]:
    """Rotate by the complex form: one multiplication a pair."""
    require_complex("z", z, "each pair is a complex number")
    require_complex("polar", polar, "each angle is a complex number")
    for name, given in (("z", z), ("polar", polar)):
        require_axes_of(name, given, ("sequence", "pairs"), "each position has pairs", more=True)
    if polar.shape[-1] != z.shape[-1]:
        shapes = f"z of shape {tuple(z.shape)} and polar of shape {tuple(polar.shape)}"
        refuse(ValueError, "z and polar", "have as many pairs", "each pair has an angle", shapes)
    require_same_device("polar", polar, "z", z)
    return z * polar


def rotate_matrix(
    x: Float[Tensor, "*batch sequence dim"], matrix: Float[Tensor, "*batch sequence dim dim"]
) -> Float[Tensor, "*batch sequence dim"]:
    """Rotate by the matrix form: one dense product a position. For understanding and tests; it costs dim times more."""
    for name, given in (("x", x), ("matrix", matrix)):
        require_floating(name, given, "each position has a matrix")
    require_axes_of("x", x, ("sequence", "dim"), "each position has channels", more=True)
    require_axes_of("matrix", matrix, ("sequence", "dim", "dim"), "each position has a matrix", more=True)
    if matrix.shape[-1] != x.shape[-1]:
        shapes = f"x of shape {tuple(x.shape)} and matrix of shape {tuple(matrix.shape)}"
        refuse(ValueError, "x and matrix", "have as many channels", "they are multiplied", shapes)
    require_same_device("matrix", matrix, "x", x)
    return (matrix @ x.unsqueeze(-1)).squeeze(-1)


def rotation_matrix(
    cos: Float[Tensor, "*batch pairs"], sin: Float[Tensor, "*batch pairs"], pairing: Pairing
) -> Float[Tensor, "*batch dim dim"]:
    """Make the block-diagonal matrix R of each position."""
    _require_circle(cos, sin, pairing)
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
    require_pairing(pairing)
    require_floating("x", x, "its pairs become complex numbers")
    if x.dtype not in WITH_COMPLEX:
        refuse(
            TypeError, "x", "be float32 or float64", "complex numbers are made of those", str(x.dtype), "Use x.float()."
        )
    if not x.ndim or x.shape[-1] % 2:
        reason = "two make a complex number"
        refuse(ValueError, "x", "have an even number of channels", reason, f"shape {tuple(x.shape)}")
    if pairing == "halves":
        return torch.complex(*x.chunk(2, -1))
    pairs = x.view(*x.shape[:-1], x.shape[-1] // 2, 2)
    even = all(stride % 2 == 0 for stride in pairs.stride()[:-1]) and pairs.storage_offset() % 2 == 0
    return torch.view_as_complex(
        pairs if even and pairs.stride(-1) == 1 else pairs.clone(memory_format=torch.contiguous_format)
    )


def from_complex(z: Complex[Tensor, "*batch pairs"], pairing: Pairing) -> Float[Tensor, "*batch dim"]:
    """Lay complex numbers out as channel pairs: the inverse of ``as_complex``."""
    require_pairing(pairing)
    require_complex("z", z, "its parts become channel pairs")
    require_axes_of("z", z, ("pairs",), "each pair is a complex number", more=True)
    if pairing == "halves":
        return torch.cat((z.real, z.imag), -1)
    return torch.view_as_real(z).flatten(-2)


def require_pairing(pairing: object) -> None:
    """Raise unless channels are paired one of the two ways."""
    if not isinstance(pairing, str) or pairing not in PAIRINGS:
        require_choice("pairing", pairing, PAIRINGS, "checkpoints pair neighbouring channels or the two halves")


def require_channels(channels: object) -> None:
    """Raise unless the rotated channels stand first or last."""
    if not isinstance(channels, str) or channels not in CHANNELS:
        require_choice("channels", channels, CHANNELS, "the rotated channels of a head stand first or last")


def _require_circle(cos: Tensor, sin: Tensor, pairing: Pairing) -> None:
    """Raise unless each pair has a cosine and a sine."""
    require_pairing(pairing)
    for name, given in (("cos", cos), ("sin", sin)):
        require_floating(name, given, "vectors are rotated by it")
    require_axes_of("cos", cos, ("pairs",), "each pair has an angle", more=True)
    require_same_shape("sin", sin, "cos", cos, "each angle has both")
