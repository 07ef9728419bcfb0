"""Applying a table: the fastest program that rotates, chosen from what tensors are, never from what they hold.

compiled loop        plain tensors on the processor, with ``situs[fast]``
complex product      interleaved pairs in the table's own dtype
cache-sized chunks   anything else that is eager
plain real form      graphs, traces, more or fewer axes, learned tables
"""

from __future__ import annotations

from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor
from torch.compiler import is_compiling

from situs.arguments import require_floating, require_instance, require_same_device
from situs.compiled.watching import is_batched, is_differentiated, is_traced
from situs.functional.rotation import (
    Pairing,
    as_complex,
    from_complex,
    require_pairing,
    rotate_by_real_form,
    rotate_complex,
)
from situs.rotation.fused import planning
from situs.rotation.table import RotationTable, refuse_fit

# Temporaries of this size stay in the cache; larger ones travel through memory, smaller ones are more calls.
CHUNK_ELEMENTS = 1 << 19

# Fewer are rotated at once, queries and keys together, with as few operations as may be.
SMALLEST_CUT = 1 << 14

TABLES = "Use encoding.table(positions), or RotationTable(cos, sin)."


def rotate(
    x: Float[Tensor, "*batch sequence dim"], table: RotationTable, pairing: Pairing
) -> Float[Tensor, "*batch sequence dim"]:
    """Rotate every pair of ``x`` by its table entry, in the fastest form that serves.

    The form is chosen from what the tensors are, never from what they hold.
    """
    _require(table, pairing, x=x)
    return rotate_checked(x, table, pairing)


def rotate_checked(x: Tensor, table: RotationTable, pairing: Pairing) -> Tensor:
    """Rotate floating-point vectors by a table on their device."""
    if is_compiling() or is_traced():
        return _rotate_plainly(x, table, pairing)
    watched = is_differentiated(x.requires_grad)
    plan = table.plan_for((x,), pairing)
    if plan is not None and not watched:  # a plan is made for a table that fits
        return plan.rotate((x,), table.cos, table.sin)[0]
    if table.is_differentiated or not x.ndim == table.cos.ndim == 4 or x.device.type == "meta":
        return _rotate_plainly(x, table, pairing)
    table.require_fit(x)
    whole = x.shape[-1] == 2 * table.cos.shape[-1] and x.dtype == table.cos.dtype
    if plan is None and pairing == "interleaved" and whole and not is_batched(x):
        return from_complex(rotate_complex(as_complex(x, pairing), table.polar), pairing)
    if watched:
        return cast(Tensor, _Rotate.apply(x, table, pairing, plan))  # type: ignore[no-untyped-call]
    return _rotate_by_operations(x, table, pairing)


def rotate_both(
    query: Float[Tensor, "*batch heads sequence dim"],
    key: Float[Tensor, "*batch kv_heads sequence dim"],
    table: RotationTable,
    pairing: Pairing,
) -> tuple[Float[Tensor, "*batch heads sequence dim"], Float[Tensor, "*batch kv_heads sequence dim"]]:
    """Rotate queries and keys by the table that they share, in one pass where that is faster."""
    _require(table, pairing, query=query, key=key)
    return rotate_both_checked(query, key, table, pairing)


def rotate_both_checked(query: Tensor, key: Tensor, table: RotationTable, pairing: Pairing) -> tuple[Tensor, Tensor]:
    """Rotate floating-point queries and keys by a table on their device."""
    if is_compiling() or is_traced() or is_differentiated(query.requires_grad or key.requires_grad):
        return rotate_checked(query, table, pairing), rotate_checked(key, table, pairing)
    plan = table.plan_for((query, key), pairing)
    if plan is not None:
        query, key = plan.rotate((query, key), table.cos, table.sin)
        return query, key
    if _are_few(query, key, table):  # decoding: its cost is the calls, not the work
        rotated = rotate_checked(torch.cat((query, key), 1), table, pairing)
        return rotated[:, : query.shape[1]], rotated[:, query.shape[1] :]
    return rotate_checked(query, table, pairing), rotate_checked(key, table, pairing)


def _require(table: RotationTable, pairing: object, **vectors: Tensor) -> None:
    """Raise unless these are a table, a pairing, and vectors that can be rotated."""
    require_instance("table", table, RotationTable, "vectors are rotated by it", "a RotationTable", TABLES)
    require_pairing(pairing)
    for name, each in vectors.items():
        require_floating(name, each, "its channels are rotated")
        if each.ndim < 2 or each.shape[-1] < 2 * table.cos.shape[-1]:
            refuse_fit(table, each, name)
        if each.device != table.cos.device:
            require_same_device(name, each, "table.cos", table.cos)


def _are_few(query: Tensor, key: Tensor, table: RotationTable) -> bool:
    """Whether these are rotated sooner as one tensor: where it takes several operations, and they are small."""
    alike = query.dtype == key.dtype and query.shape[:1] + query.shape[2:] == key.shape[:1] + key.shape[2:]
    several = not (query.is_cpu and planning.available())
    shared = query.ndim == table.cos.ndim == 4 and table.cos.shape[1:3] == (1, query.shape[2])
    return alike and several and shared and query.numel() + key.numel() < SMALLEST_CUT


def _rotate_plainly(x: Tensor, table: RotationTable, pairing: Pairing) -> Tensor:
    """Rotate by the real form, for any number of axes. Its products would grow to a table larger than ``x``."""
    table.require_fit(x)
    if table.cos.ndim > x.ndim:
        first = (0,) * (table.cos.ndim - x.ndim)
        return rotate_by_real_form(x, table.cos[first], table.sin[first], pairing, table.channels)
    return rotate_by_real_form(x, table.cos, table.sin, pairing, table.channels)


class _Rotate(torch.autograd.Function):
    """The eager fast path with its derivative, which is the same rotation, transposed."""

    @staticmethod
    def forward(x: Tensor, table: RotationTable, pairing: Pairing, plan: planning.Plan | None) -> Tensor:
        if plan is None:  # torch.func hands over the tensor that the caller's stood for, which may have one
            plan = table.plan_for((x,), pairing)
        return _rotate_by_operations(x, table, pairing) if plan is None else plan.rotate((x,), table.cos, table.sin)[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, RotationTable, Pairing, object], output: Tensor) -> None:
        _, ctx.table, ctx.pairing, _ = inputs

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        return rotate_checked(grad, ctx.table.transposed(), ctx.pairing), None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        return rotate_by_real_form(tangent, ctx.table.cos, ctx.table.sin, ctx.pairing, ctx.table.channels)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], x: Tensor, table: RotationTable, pairing: Pairing, plan: None
    ) -> tuple[Tensor, int]:
        assert in_dims[0] is not None
        return rotate_by_real_form(x.movedim(in_dims[0], 0), table.cos, table.sin, pairing, table.channels), 0


def _rotate_by_operations(x: Tensor, table: RotationTable, pairing: Pairing) -> Tensor:
    """Rotate in pieces whose temporaries stay in the cache."""
    width = 2 * table.cos.shape[-1]
    elements = x.numel()
    if elements < SMALLEST_CUT and width == x.shape[-1]:
        return _rotate_piece(x, table, pairing, None).to(x.dtype)
    out = torch.empty_like(x)
    length = x.shape[-2]
    rows = max(1, CHUNK_ELEMENTS * length // max(elements, 1))
    source, target = x, out
    if width < x.shape[-1]:
        first = x.shape[-1] - width if table.channels == "trailing" else 0
        still = slice(0, first) if first else slice(width, None)
        out[..., still] = x[..., still]
        source, target = x[..., first : first + width], out[..., first : first + width]
    # gradients batched by autograd itself cannot be written into a given output
    given = pairing == "halves" and not is_batched(x)
    exact = x.dtype == table.cos.dtype
    rotated: Tensor | None = None
    for start in range(0, length, rows):
        size = min(rows, length - start)
        piece, here, there = slice(start, start + size), source.narrow(2, start, size), target.narrow(2, start, size)
        if not given:
            there.copy_(_rotate_piece(here, table, pairing, piece))
            continue
        factors = table.wide_cos[:, :, piece], table.sin[:, :, piece]
        if exact:
            _rotate_halves_into(there, here, *factors)
        else:  # half precision would be rounded between operations
            wide = here.to(table.cos.dtype)
            rotated = torch.empty_like(wide) if rotated is None else rotated.narrow(2, 0, size)
            _rotate_halves_into(rotated, wide, *factors)
            there.copy_(rotated)
    return out


def _rotate_halves_into(out: Tensor, x: Tensor, wide_cos: Tensor, sin: Tensor) -> None:
    """Write the real form into ``out`` in three operations that need no temporary."""
    torch.mul(x, wide_cos, out=out)
    (first, second), (new_first, new_second) = x.chunk(2, -1), out.chunk(2, -1)
    new_first.addcmul_(second, sin, value=-1)
    new_second.addcmul_(first, sin)


def _rotate_piece(x: Tensor, table: RotationTable, pairing: Pairing, piece: slice | None) -> Tensor:
    """Rotate a piece of a sequence, or a short one whole: small enough for its temporaries to stay in the cache."""
    if pairing == "interleaved":
        rotated = (x if x.stride(-1) == 1 else x.contiguous()).to(table.cos.dtype, copy=True)
        as_complex(rotated, pairing).mul_(table.polar if piece is None else table.polar[:, :, piece])
        return rotated
    x = x.to(table.cos.dtype)
    cos, sin = table.wide_cos, table.wide_sin
    if piece is not None:
        cos, sin = cos[:, :, piece], sin[:, :, piece]
    return x.roll(x.shape[-1] // 2, -1).mul_(sin).addcmul_(x, cos)
