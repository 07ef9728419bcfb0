"""Hinges: FIRE's network of one hidden layer, as the function of one number that it is.

    out[h] = sum_u weight[h, u] relu(slope[u] x + start[u]),    x >= 0

Each hidden unit is a hinge: zero on one side of the point where it turns, -start / slope, and a line on the other.
Written out, every x needs as many numbers as there are units, and for all pairs of a query and a key, moving those
through memory costs more than attention does. Four steps avoid it:

1. Units that do not turn above 0 are straight there, so that together they are one line.
2. A unit that turns is slope max(x, turn) + start if it rises, and slope min(x, turn) + start if it falls. The starts
   join those of the line, which leaves a comparison and one product of matrices.
3. Both are done in tiles that stay in the cache, in memory that the next tile uses again.
4. Backward, the sums of the gradient, and of the gradient times x, over all x where a unit is on are enough to know
   those of its parameters. Nothing but x and the parameters is saved for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from situs.compiled.watching import is_batched, is_differentiated
from situs.functional import kernels as formulas

# As many numbers, for each thread, stay in the cache, and are enough for the calls to cost little.
TILE_ELEMENTS = 1 << 19
# Finding the turns costs as much as the plain formula with this many hidden activations.
SMALLEST = 1 << 18
# Beyond, a turn is too far for any x to tell the unit from one that never turns.
FARTHEST = 1e18


def sum_of_hinges(
    x: Float[Tensor, "batch *positions"],
    slope: Float[Tensor, "width"],
    start: Float[Tensor, "width"],
    weight: Float[Tensor, "heads width"],
) -> Float[Tensor, "batch heads *positions"]:
    """Sum ``weight[h, u] relu(slope[u] x + start[u])`` over the units, for ``x`` that are not negative."""
    if not _tiles_serve(x, slope):
        return formulas.sum_of_hinges(x, slope, start, weight)
    flat: Tensor = _SumOfHinges.apply(x.reshape(len(x), -1), slope, start, weight)  # type: ignore[no-untyped-call]
    return flat.view(len(x), len(weight), *x.shape[1:])


def _tiles_serve(x: Tensor, slope: Tensor) -> bool:
    """Whether ``x`` is large enough, and nothing but reverse mode watches, so that parameters may be looked at."""
    return (
        not torch.compiler.is_compiling()
        and x.numel() * slope.numel() >= SMALLEST
        and x.device.type == "cpu"
        and type(x) is Tensor
        and not is_differentiated(requires_grad=False)
    )


class _Turns(NamedTuple):
    """Write a sum of hinges, for x >= 0, as that of a line and of units that turn: first those that rise, then the
    others."""

    rises: Float[Tensor, "rising 1"]
    """Where units begin to rise; the line does before any x."""
    falls: Float[Tensor, "falling 1"]
    """Where units cease to fall."""
    slopes: Float[Tensor, "heads rising+falling"]
    start: Float[Tensor, "heads 1"]
    units: Int[Tensor, "rising+falling-1"]
    straight: Bool[Tensor, "width"]


def _turns(slope: Tensor, start: Tensor, weight: Tensor) -> _Turns:
    near = start.abs() < FARTHEST * slope.abs()
    rising, falling = near & (slope > 0) & (start <= 0), near & (slope < 0) & (start > 0)
    straight = (start > 0) & ~falling
    first, last = rising.nonzero().squeeze(1), falling.nonzero().squeeze(1)
    units = torch.cat((first, last))
    at = torch.cat((start.new_tensor([-torch.inf]), -start[units] / slope[units])).unsqueeze(1)
    slopes, starts = weight * slope, weight * start * (straight | rising | falling)
    line = (slopes * straight).sum(1, keepdim=True), starts.sum(1, keepdim=True)
    slopes = torch.cat((line[0], slopes[:, units]), 1)
    return _Turns(at[: 1 + len(first)], at[1 + len(first) :], slopes, line[1], units, straight)


class _SumOfHinges(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, slope: Tensor, start: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, slope, start, weight)
        turns = _turns(slope, start, weight)
        factors, rising = torch.cat((turns.slopes, turns.start), 1), len(turns.rises)
        out = x.new_empty(x.shape[0], len(weight), x.shape[1])
        scratch = x.new_ones(factors.shape[1], _tile_length(x, factors.shape[1]))
        for row, columns in _tiles(x, scratch.shape[1]):
            piece = x[row, columns]
            bent = scratch[:, : len(piece)]  # the last row stays 1
            torch.maximum(piece, turns.rises, out=bent[:rising])
            torch.minimum(piece, turns.falls, out=bent[rising:-1])
            torch.mm(factors, bent, out=out[row, :, columns])
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        tensors, wanted = ctx.saved_tensors, ctx.needs_input_grad
        if torch.is_grad_enabled() or is_batched(gradient):
            return _plain_gradients(tensors, wanted, gradient)
        x, slope, start, weight = tensors
        turns, heads = _turns(slope, start, weight), len(weight)
        rising, rows = len(turns.rises), turns.slopes.shape[1]
        length = _tile_length(x, rows + 2 * heads)
        scratch, products = x.new_empty(rows, length), x.new_empty(2 * heads, length)
        sums = x.new_zeros(rows, 2 * heads)
        dx = torch.empty_like(x) if wanted[0] else None
        for row, columns in _tiles(x, length):
            piece, change = x[row, columns], gradient[row, :, columns]
            on, both = scratch[:, : len(piece)], products[:, : len(piece)]
            torch.gt(piece, turns.rises, out=on[:rising])
            torch.lt(piece, turns.falls, out=on[rising:])
            if any(wanted[1:]):
                both[:heads] = change
                torch.mul(change, piece, out=both[heads:])
                sums.addmm_(on, both.T)
            if dx is not None:
                slopes = torch.mm(turns.slopes, on, out=both[:heads])
                torch.sum(slopes.mul_(change), 0, out=dx[row, columns])
        by_unit = sums[0].unsqueeze(1) * turns.straight
        by_unit[:, turns.units] = sums[1:].T
        total, total_x = by_unit[:heads], by_unit[heads:]
        return dx, (weight * total_x).sum(0), (weight * total).sum(0), slope * total_x + start * total


def _plain_gradients(
    tensors: tuple[Tensor, ...], wanted: tuple[bool, ...], gradient: Tensor
) -> tuple[Tensor | None, ...]:
    """Compute gradients that can be differentiated again, or that are many at once."""
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        out = formulas.sum_of_hinges(*tensors)
    of = [each for each, want in zip(tensors, wanted, strict=True) if want]
    found = iter(torch.autograd.grad(out, of, gradient, create_graph=again))
    return tuple(next(found) if want else None for want in wanted)


def _tile_length(x: Float[Tensor, "batch positions"], rows: int) -> int:
    return max(1, min(x.shape[1], TILE_ELEMENTS * torch.get_num_threads() // rows))


def _tiles(x: Float[Tensor, "batch positions"], length: int) -> Iterator[tuple[int, slice]]:
    batch, count = x.shape
    for row in range(batch):
        for first in range(0, count, length):
            yield row, slice(first, min(first + length, count))
