"""Rotation: turning channel pairs, in the three forms that the literature writes.

    matrix    x' = R x,            R block-diagonal, blocks [[cos, -sin], [sin, cos]]     (RoFormer eq. 15)
    complex   z' = z exp(i t),     z = x_a + i x_b
    real      x_a' = x_a cos t - x_b sin t,    x_b' = x_a sin t + x_b cos t               (RoFormer eq. 34)

A pair ``(a, b)`` is ``(2i, 2i + 1)`` for pairing "interleaved" and ``(i, i + dim/2)`` for "halves"; the
two are the same map up to a permutation of channels, and mixing them up is the field's commonest bug.
Channels beyond the table's pairs are left alone. Arithmetic is done in the table's dtype, float32 or
wider, and rounded once to the input's.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Literal, cast

import torch
from jaxtyping import Complex, Float
from torch import Tensor
from torch.compiler import is_compiling

from situs.functional.fused import planning
from situs.functional.watching import has_derivative, is_batched, is_differentiated, is_traced

Pairing = Literal["interleaved", "halves"]
PAIRINGS: tuple[Pairing, ...] = ("interleaved", "halves")

# Temporaries of this size stay in the cache; larger ones travel through memory, smaller ones are more calls.
CHUNK_ELEMENTS = 1 << 19

# Fewer are turned at once, queries and keys together, with as few operations as may be.
SMALLEST_CUT = 1 << 14


class RotationTable:
    """Cosines and sines of every pair at every place, magnitude included: ready to turn vectors.

    ``cos`` and ``sin`` are (batch, heads, sequence, pairs), float32 or wider, with size 1 where rows or
    heads share. Compute once, use for queries and keys of every layer. ``made_by`` tells an encoding's own tables.
    """

    __slots__ = ("_derived", "_plans_of_places", "cos", "made_by", "plans", "sin")

    def __init__(
        self,
        cos: Float[Tensor, "*rows pairs"],
        sin: Float[Tensor, "*rows pairs"],
        made_by: Any = None,
    ) -> None:
        self.cos = cos
        self.sin = sin
        self.made_by = made_by
        self.plans: dict[Hashable, planning.Plan | None] = {}
        """How vectors that came before are turned."""

        self._plans_of_places: dict[Hashable, planning.Plan | None] = {}
        self._derived: dict[str, Tensor] = {}

    def require_fit(self, x: Float[Tensor, "*batch sequence dim"]) -> None:
        """Raise unless the table has an entry for every vector of ``x``, and none beyond. Their axes are counted from
        the last; those that only the table has must be of size 1."""
        shape, sizes = self.cos.shape, x.shape
        fits = shape[-2] == sizes[-2] and 2 * shape[-1] <= sizes[-1]
        for axis in range(-len(shape), -2):
            fits = fits and (shape[axis] == 1 or (-axis <= len(sizes) and shape[axis] == sizes[axis]))
        if not fits:
            own, given = (tuple(map(int, each)) for each in (shape, sizes))  # in a trace they are tensors
            raise ValueError(
                f"table must have an entry for every place of x, and for one or all of its rows and heads, since it "
                f"turns each vector; got a table of shape {own} for x of shape {given}."
            )

    @property
    def polar(self) -> Complex[Tensor, "batch heads sequence pairs"]:
        """``cos + i sin``."""
        return self._derive("polar", lambda: torch.complex(self.cos, self.sin))

    @property
    def wide_cos(self) -> Float[Tensor, "batch heads sequence dim"]:
        """``[cos, cos]``: what a vector of two halves is multiplied by."""
        return self._derive("wide_cos", lambda: torch.cat((self.cos, self.cos), -1))

    @property
    def wide_sin(self) -> Float[Tensor, "batch heads sequence dim"]:
        """``[-sin, sin]``: what its swapped halves are multiplied by."""
        return self._derive("wide_sin", lambda: torch.cat((-self.sin, self.sin), -1))

    def _derive(self, name: str, make: Callable[[], Tensor]) -> Tensor:
        """Made once, unless that was in inference mode and the table was not, which may serve training later."""
        if name in self._derived:
            return self._derived[name]
        made = make()
        if made.is_inference() == self.cos.is_inference():
            self._derived[name] = made
        return made

    def at(self, place: int) -> RotationTable:
        """The table of one place. Where the compiled loop is not there, it comes with the wide cosines and sines that
        halves are turned by, cut out of the whole table's, so that no place has to derive its own."""
        if not 0 <= place < self.cos.shape[2]:
            raise IndexError(f"place must be one of the table's {self.cos.shape[2]}; got {place}.")
        part = slice(place, place + 1)
        table = RotationTable(self.cos[:, :, part], self.sin[:, :, part], self.made_by)
        table.plans = self._plans_of_places
        if not planning.available():
            table._derived = {"wide_cos": self.wide_cos[:, :, part], "wide_sin": self.wide_sin[:, :, part]}
        return table

    @property
    def is_differentiated(self) -> bool:
        """Whether something watches the table itself, in whichever mode."""
        return has_derivative(self.cos) or has_derivative(self.sin)

    def __reduce__(self) -> tuple[type, tuple[Tensor, Tensor, Any]]:
        return RotationTable, (self.cos, self.sin, self.made_by)

    def transposed(self) -> RotationTable:
        """The table of the transposed maps: turns the other way, same magnitude."""
        return RotationTable(self.cos, -self.sin, self.made_by)

    def __repr__(self) -> str:
        return f"RotationTable({tuple(self.cos.shape)}, {self.cos.dtype}, {self.cos.device})"


def rotate(
    x: Float[Tensor, "*batch sequence dim"], table: RotationTable, pairing: Pairing
) -> Float[Tensor, "*batch sequence dim"]:
    """Turn every pair of ``x`` by its table entry: the fastest form that serves.

    Chosen from what the tensors are, never from what they hold.
    """
    if is_compiling() or is_traced():
        return _rotate_plainly(x, table, pairing)
    watched = is_differentiated(x.requires_grad)
    plan = planning.plan((x,), table, pairing)
    if plan is not None and not watched:  # a plan is made for a table that fits
        return plan.turn((x,), table.cos, table.sin)[0]
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
    """Queries and keys by the table that they share, in one pass where that is faster."""
    if is_compiling() or is_traced() or is_differentiated(query.requires_grad or key.requires_grad):
        return rotate(query, table, pairing), rotate(key, table, pairing)
    plan = planning.plan((query, key), table, pairing)
    if plan is not None:
        query, key = plan.turn((query, key), table.cos, table.sin)
        return query, key
    if _are_few(query, key, table):  # decoding: its cost is the calls, not the work
        turned = rotate(torch.cat((query, key), 1), table, pairing)
        return turned[:, : query.shape[1]], turned[:, query.shape[1] :]
    return rotate(query, table, pairing), rotate(key, table, pairing)


def _are_few(query: Tensor, key: Tensor, table: RotationTable) -> bool:
    """Whether these are turned sooner as one tensor: where it takes several operations, and they are small."""
    alike = query.dtype == key.dtype and query.shape[:1] + query.shape[2:] == key.shape[:1] + key.shape[2:]
    several = not (query.is_cpu and planning.available())
    shared = query.ndim == table.cos.ndim == 4 and table.cos.shape[1:3] == (1, query.shape[2])
    return alike and several and shared and query.numel() + key.numel() < SMALLEST_CUT


def _rotate_plainly(x: Tensor, table: RotationTable, pairing: Pairing) -> Tensor:
    """By the real form, for any number of axes. Its products would grow to a table that is larger than ``x``."""
    table.require_fit(x)
    if table.cos.ndim > x.ndim:
        first = (0,) * (table.cos.ndim - x.ndim)
        return rotate_real(x, table.cos[first], table.sin[first], pairing)
    return rotate_real(x, table.cos, table.sin, pairing)


def rotate_real(
    x: Float[Tensor, "*batch sequence dim"],
    cos: Float[Tensor, "*rows sequence pairs"],
    sin: Float[Tensor, "*rows sequence pairs"],
    pairing: Pairing,
) -> Float[Tensor, "*batch sequence dim"]:
    """The real form, in plain differentiable operations: compiles, exports and runs on any device."""
    pairs = cos.shape[-1]
    turning, still = x[..., : 2 * pairs].to(cos.dtype), x[..., 2 * pairs :]
    if pairing == "interleaved":
        first, second = turning[..., 0::2], turning[..., 1::2]
    else:
        first, second = turning[..., :pairs], turning[..., pairs:]
    turned = (first * cos - second * sin, first * sin + second * cos)
    joined = torch.stack(turned, -1).flatten(-2) if pairing == "interleaved" else torch.cat(turned, -1)
    joined = joined.to(x.dtype)
    return torch.cat((joined, still), -1) if still.shape[-1] else joined


def rotate_complex(
    z: Complex[Tensor, "*batch sequence pairs"], polar: Complex[Tensor, "*batch_or_1 sequence pairs"]
) -> Complex[Tensor, "*batch sequence pairs"]:
    """The complex form: one multiplication a pair."""
    return z * polar


def rotate_matrix(
    x: Float[Tensor, "*batch sequence dim"], matrix: Float[Tensor, "*batch sequence dim dim"]
) -> Float[Tensor, "*batch sequence dim"]:
    """The matrix form: one dense product a place. For understanding and tests; it costs dim times more."""
    return (matrix @ x.unsqueeze(-1)).squeeze(-1)


def rotation_matrix(
    cos: Float[Tensor, "*batch pairs"], sin: Float[Tensor, "*batch pairs"], pairing: Pairing
) -> Float[Tensor, "*batch dim dim"]:
    """The block-diagonal matrix R of each place."""
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
    """Channel pairs as complex numbers; float32 or float64 only. A view where the pairing allows one."""
    if pairing == "halves":
        return torch.complex(*x.chunk(2, -1))
    pairs = x.view(*x.shape[:-1], x.shape[-1] // 2, 2)
    even = all(stride % 2 == 0 for stride in pairs.stride()[:-1]) and pairs.storage_offset() % 2 == 0
    return torch.view_as_complex(
        pairs if even and pairs.stride(-1) == 1 else pairs.clone(memory_format=torch.contiguous_format)
    )


def from_complex(z: Complex[Tensor, "*batch pairs"], pairing: Pairing) -> Float[Tensor, "*batch dim"]:
    """The inverse of ``as_complex``."""
    if pairing == "halves":
        return torch.cat((z.real, z.imag), -1)
    return torch.view_as_real(z).flatten(-2)


class _Rotate(torch.autograd.Function):
    """The eager fast path with its derivative, which is itself, transposed."""

    @staticmethod
    def forward(x: Tensor, table: RotationTable, pairing: Pairing, plan: planning.Plan | None) -> Tensor:
        if plan is None:  # torch.func hands over the tensor that the caller's stood for, which may have one
            plan = planning.plan((x,), table, pairing)
        return _rotate_by_operations(x, table, pairing) if plan is None else plan.turn((x,), table.cos, table.sin)[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, RotationTable, Pairing, object], output: Tensor) -> None:
        _, ctx.table, ctx.pairing, _ = inputs

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        return rotate(grad, ctx.table.transposed(), ctx.pairing), None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        return rotate_real(tangent, ctx.table.cos, ctx.table.sin, ctx.pairing)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], x: Tensor, table: RotationTable, pairing: Pairing, plan: None
    ) -> tuple[Tensor, int]:
        assert in_dims[0] is not None
        return rotate_real(x.movedim(in_dims[0], 0), table.cos, table.sin, pairing), 0


def _rotate_by_operations(x: Tensor, table: RotationTable, pairing: Pairing) -> Tensor:
    """In pieces whose temporaries stay in the cache."""
    turning = 2 * table.cos.shape[-1]
    elements = x.numel()
    if elements < SMALLEST_CUT and turning == x.shape[-1]:
        return _rotate_piece(x, table, pairing, None).to(x.dtype)
    out = torch.empty_like(x)
    length = x.shape[-2]
    rows = max(1, CHUNK_ELEMENTS * length // max(elements, 1))
    source, target = x, out
    if turning < x.shape[-1]:
        out[..., turning:] = x[..., turning:]
        source, target = x[..., :turning], out[..., :turning]
    # gradients batched by autograd itself cannot be written into a given output
    given = pairing == "halves" and not is_batched(x)
    exact = x.dtype == table.cos.dtype
    turned: Tensor | None = None
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
            turned = torch.empty_like(wide) if turned is None else turned.narrow(2, 0, size)
            _rotate_halves_into(turned, wide, *factors)
            there.copy_(turned)
    return out


def _rotate_halves_into(out: Tensor, x: Tensor, wide_cos: Tensor, sin: Tensor) -> None:
    """The real form in three operations that need no temporary."""
    torch.mul(x, wide_cos, out=out)
    (first, second), (new_first, new_second) = x.chunk(2, -1), out.chunk(2, -1)
    new_first.addcmul_(second, sin, value=-1)
    new_second.addcmul_(first, sin)


def _rotate_piece(x: Tensor, table: RotationTable, pairing: Pairing, piece: slice | None) -> Tensor:
    """Turn a piece of a sequence, or a short one whole: small enough for its temporaries to stay in the cache."""
    if pairing == "interleaved":
        turned = (x if x.stride(-1) == 1 else x.contiguous()).to(table.cos.dtype, copy=True)
        as_complex(turned, pairing).mul_(table.polar if piece is None else table.polar[:, :, piece])
        return turned
    x = x.to(table.cos.dtype)
    cos, sin = table.wide_cos, table.wide_sin
    if piece is not None:
        cos, sin = cos[:, :, piece], sin[:, :, piece]
    return x.roll(x.shape[-1] // 2, -1).mul_(sin).addcmul_(x, cos)
