"""RotationTable: the cosines and sines that vectors are rotated by, with all that is derived from them once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NoReturn

import torch
from jaxtyping import Complex, Float
from torch import Tensor
from torch.nn import Parameter

from situs.arguments import require_axes_of, require_count, require_floating, require_same_shape
from situs.compiled.watching import count_of_modes, dispatch_keys, has_derivative
from situs.functional.rotation import Channels, Pairing, require_channels
from situs.rotation.fused import planning


class RotationTable:
    """Cosines and sines of every pair at every position, magnitude included: ready to rotate vectors.

    ``cos`` and ``sin`` are (batch, heads, sequence, pairs), float32 or wider, with size 1 where rows or
    heads share. Compute once, use for queries and keys of every layer. ``made_by`` tells an encoding's own tables, and
    ``channels`` whether the first or the last channels of wider vectors are rotated.

    >>> angles = torch.arange(16)[:, None] * torch.tensor([1.0, 0.1])
    >>> table = RotationTable(angles.cos()[None, None], angles.sin()[None, None])
    """

    __slots__ = ("_derived", "_plans_of_rows", "channels", "cos", "made_by", "plans", "sin")

    def __init__(
        self,
        cos: Float[Tensor, "*rows pairs"],
        sin: Float[Tensor, "*rows pairs"],
        made_by: Any = None,
        channels: Channels = "leading",
    ) -> None:
        require_channels(channels)
        if not _belong_together(cos, sin):
            require_floating("cos", cos, "vectors are rotated by it")
            require_floating("sin", sin, "vectors are rotated by it")
            require_axes_of("cos", cos, ("sequence", "pairs"), "each position has pairs", more=True)
            require_same_shape("sin", sin, "cos", cos, "each angle has both")
        self.cos = cos
        self.sin = sin
        self.made_by = made_by
        self.channels: Channels = channels
        self.plans: dict[Hashable, planning.Plan | None] = {}
        """How vectors that came before are rotated."""

        self._plans_of_rows: dict[Hashable, planning.Plan | None] = {}
        self._derived: dict[str, Tensor] = {}

    def require_fit(self, x: Float[Tensor, "*batch sequence dim"]) -> None:
        """Raise unless the table has an entry for every vector of ``x``, and none beyond. Their axes are counted from
        the last; those that only the table has must be of size 1."""
        require_floating("x", x, "its channels are rotated")
        if x.ndim < 2:
            refuse_fit(self, x, "x")
        shape, sizes = self.cos.shape, x.shape
        fits = shape[-2] == sizes[-2] and 2 * shape[-1] <= sizes[-1]
        for axis in range(-len(shape), -2):
            fits = fits and (shape[axis] == 1 or (-axis <= len(sizes) and shape[axis] == sizes[axis]))
        if not fits:
            refuse_fit(self, x, "x")

    def plan_for(self, tensors: Sequence[Tensor], pairing: Pairing) -> planning.Plan | None:
        """Plan how the compiled loop rotates tensors by this table, once for tensors that lie alike; None where it
        cannot, judged from metadata alone."""
        cos, sin = self.cos, self.sin
        if cos.requires_grad or sin.requires_grad or not planning.available():
            return None
        if count_of_modes():
            return None  # someone watches the operations, and would see none
        threads = torch.get_num_threads()
        known: list[Hashable] = [pairing, threads]
        for x in tensors:
            if type(x) not in (Tensor, Parameter):
                return None
            # the dispatch keys tell all that x is besides: its device, and whether it stands for other tensors
            known += dispatch_keys(x).raw_repr(), x.dtype, x.shape, x.stride()
        key = tuple(known)
        try:
            return self.plans[key]
        except KeyError:
            plan = self.plans[key] = planning.plan(
                tensors, cos, sin, pairing, threads, trailing=self.channels == "trailing"
            )
            return plan

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
        """Cached, unless made in inference mode from a table that was not, which may serve training later."""
        if name in self._derived:
            return self._derived[name]
        made = make()
        if made.is_inference() == self.cos.is_inference():
            self._derived[name] = made
        return made

    def at(self, index: int) -> RotationTable:
        """Cut out the table of one position. Without the compiled loop it brings the wide cosines and sines that halves
        are rotated by, cut out of the whole table's, so that no position has to derive its own."""
        if type(index) is not int:
            index = require_count("index", index, "it is one of the table's positions")
        if not 0 <= index < self.cos.shape[2]:
            raise IndexError(f"index must be one of the table's {self.cos.shape[2]} positions; got {index}.")
        part = slice(index, index + 1)
        table = RotationTable(self.cos[:, :, part], self.sin[:, :, part], self.made_by, self.channels)
        table.plans = self._plans_of_rows
        if not planning.available():
            table._derived = {"wide_cos": self.wide_cos[:, :, part], "wide_sin": self.wide_sin[:, :, part]}
        return table

    @property
    def is_differentiated(self) -> bool:
        """Whether something watches the table itself, in whichever mode."""
        return has_derivative(self.cos) or has_derivative(self.sin)

    def __reduce__(self) -> tuple[type, tuple[Tensor, Tensor, Any, Channels]]:
        return RotationTable, (self.cos, self.sin, self.made_by, self.channels)

    def transposed(self) -> RotationTable:
        """Make the table of the transposed maps, which rotate the other way with the same magnitude."""
        return RotationTable(self.cos, -self.sin, self.made_by, self.channels)

    def __repr__(self) -> str:
        return f"RotationTable({tuple(self.cos.shape)}, {self.cos.dtype}, {self.cos.device})"


def _belong_together(cos: Any, sin: Any) -> bool:
    """Whether cosines and sines are of one shape and device, as they are but for mistakes."""
    tensors = isinstance(cos, Tensor) and isinstance(sin, Tensor) and cos.ndim > 1 and cos.shape == sin.shape
    return tensors and cos.is_floating_point() and sin.is_floating_point() and bool(cos.device == sin.device)


def refuse_fit(table: RotationTable, x: Tensor, name: str) -> NoReturn:
    """Raise since a table has not an entry for every vector of ``x``."""
    own, given = (tuple(map(int, each.shape)) for each in (table.cos, x))  # in a trace they are tensors
    raise ValueError(
        f"table must have an entry for every position of {name}, and for one or all of its rows and heads, since it "
        f"rotates each vector; got a table of shape {own} for {name} of shape {given}."
    )
