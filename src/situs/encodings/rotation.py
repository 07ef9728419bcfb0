"""What Rotary and XPos share: queries and keys rotated, pair by pair, by a table of angles.

A position's map is ``m R(t)``: a rotation by t and a magnitude m. Held apart, they can be undone, composed
and carried from one set of frequencies to another exactly.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Float64, Num
from torch import Tensor

from situs.arguments import (
    WIDE,
    require_choice,
    require_dtype,
    require_everywhere,
    require_number,
    require_same_device,
    told,
)
from situs.encodings.base import QueryKeyEncoding, Role, computing_dtype, require_role
from situs.encodings.blocks import joined_halves, parted_halves
from situs.encodings.fitting import require_own_rotation, require_positions, require_width
from situs.encodings.learned_tables import cached_by_values
from situs.encodings.points import points
from situs.functional.angles import widest
from situs.functional.rotation import Channels, Pairing, rotation_matrix
from situs.positions import Positions, PositionsLike, align
from situs.positions.require import like as require_like
from situs.rotation import RotationTable
from situs.rotation.apply import rotate_both_checked, rotate_checked


class Maker(NamedTuple):
    """Who made a table, and for what: a table's ``made_by``."""

    identity: Hashable
    role: Role | None
    """None where queries and keys are rotated alike."""

    farthest: float | Tensor
    """How far from the centre it goes."""


class RotationEncoding(QueryKeyEncoding):
    """Rotate channel pairs of queries and keys."""

    head_dim: int
    rotary_dim: int
    pairing: Pairing

    channels: Channels = "leading"
    """Whether the rotated channels stand first or last in a head, where not all are rotated."""

    treats_roles_apart: bool = False
    """Whether queries and keys are rotated differently."""

    by_length: bool = False
    """Whether the sequence's length tells how vectors are rotated."""

    text_has_one: bool = False
    """Whether a single position may stand for all coordinates, as text's does among images."""

    blocks: Sequence[int] = ()
    """Channels of each block whose halves make pairs; one or none where they are halves of all that is rotated."""

    of_a_head: str = "a base"
    """What each head has of its own, where ``num_heads`` tells their number."""

    learns_frequencies: bool = False
    """Whether frequencies follow from parameters, so that a table is as old as their values."""

    identity: Hashable
    """The whole configuration: two encodings that differ in anything differ in it."""

    reaches: Mapping[torch.dtype, float] = MappingProxyType({})
    """How far from the centre positions may lie for vectors of dtypes that hold less than float32 does."""

    reaches_in_words: Mapping[torch.dtype, str] = MappingProxyType({})
    """The same as text, with float32's, for errors in graphs: one that is dynamic from the start writes no numbers."""

    def reach_in(self, dtype: torch.dtype) -> float:
        """How far from the centre positions may lie for vectors of this dtype."""
        require_dtype(dtype, "vectors hold fractions")
        return self.reaches.get(dtype, self.reach)

    def farthest_of(self, positions: Positions) -> float | int | Tensor:
        """How far from the centre positions go, where magnitudes grow with that: the farthest of them, or each where
        only the device knows."""
        return 0.0

    @abstractmethod
    def coordinates_at(self, positions: Positions) -> Num[Tensor, "batch 1 sequence pairs_or_1"]:
        """Give what each pair's frequency is multiplied by."""

    @abstractmethod
    def frequencies_at(self, positions: Positions) -> Float[Tensor, "#batch #heads #sequence pairs"]:
        """Give the radians per position of each pair."""

    @abstractmethod
    def magnitude_of(self, positions: Positions, role: Role) -> float | Float64[Tensor, "#batch #heads sequence pairs"]:
        """Compute what the vectors of each position are multiplied by."""

    def forward(
        self,
        x: Float[Tensor, "batch heads sequence head_dim"],
        positions: PositionsLike | RotationTable = None,
        *,
        role: Role = "query",
    ) -> Float[Tensor, "batch heads sequence head_dim"]:
        """Rotate queries or keys. ``positions`` may be a ``table`` made before."""
        require_own_rotation(self)
        require_width(self, "head_dim", x, self.head_dim)
        require_role(role)
        return self._rotate(x, self._table_for(x, positions, role))

    def both(
        self,
        query: Float[Tensor, "batch heads query head_dim"],
        key: Float[Tensor, "batch kv_heads key head_dim"],
        positions: PositionsLike | RotationTable = None,
        key_positions: PositionsLike = None,
    ) -> tuple[Float[Tensor, "batch heads query head_dim"], Float[Tensor, "batch kv_heads key head_dim"]]:
        """Rotate queries and keys of one attention; queries are the last rows of the keys unless told otherwise. A
        ``table`` made before serves both."""
        if self.by_pair:
            require_own_rotation(self)
        both: tuple[Any, Any] = query, key
        alike = isinstance(both[0], Tensor) and isinstance(both[1], Tensor) and query.dtype == key.dtype
        if not (alike and query.ndim == key.ndim == 4 and query.shape[-1] == key.shape[-1] == self.head_dim):
            require_width(self, "head_dim", key, self.head_dim, "key")
            alike = False
        if not alike or not query.is_floating_point():
            require_width(self, "head_dim", query, self.head_dim, "query")
        of_queries: Positions | RotationTable
        of_keys: Positions | RotationTable
        if isinstance(positions, RotationTable):
            if self.treats_roles_apart or key_positions is not None:
                raise ValueError(
                    f"positions must not be a table where queries and keys are rotated apart, since it serves one of "
                    f"them; got {positions!r}. Rotate each with its own: encoding(key, table, role='key')."
                )
            of_queries = of_keys = positions
        else:
            of_queries, of_keys = align(positions, key_positions, query.shape[-2], key.shape[-2], query.device)
            self.require_agreement(of_queries, of_keys)
        if self._forward_hooks or self._forward_pre_hooks:
            return self(query, of_queries), self(key, of_keys, role="key")
        of_query = self._table_for(query, of_queries, "query", "query")
        shared = not self.treats_roles_apart and self.num_heads is None and len(self.reaches) == 0  # one look is enough
        if of_keys is of_queries and alike and shared and query.device == key.device:
            return self._rotate_both(query, key, of_query)
        of_key = self._table_for(key, of_keys, "key", "key")
        if of_query is of_key:
            return self._rotate_both(query, key, of_query)
        return self._rotate(query, of_query), self._rotate(key, of_key)

    def _rotate(self, x: Tensor, table: RotationTable) -> Tensor:
        """Rotate vectors whose pairs may lie in blocks."""
        if len(self.blocks) < 2:
            return rotate_checked(x, table, self.pairing)
        return parted_halves(rotate_checked(joined_halves(x, self.blocks), table, self.pairing), self.blocks)

    def _rotate_both(self, query: Tensor, key: Tensor, table: RotationTable) -> tuple[Tensor, Tensor]:
        """Rotate queries and keys, whose pairs may lie in blocks, by the table that they share."""
        if len(self.blocks) < 2:
            return rotate_both_checked(query, key, table, self.pairing)
        return self._rotate(query, table), self._rotate(key, table)

    def _table_for(
        self, x: Tensor, positions: PositionsLike | RotationTable, role: Role, called: str = "x"
    ) -> RotationTable:
        """Find the table that rotates ``x``, which must be of this encoding's heads."""
        if self.num_heads is not None and x.shape[1] != self.num_heads:
            raise ValueError(
                f"{called} must have {self.num_heads} heads, since this {type(self).__name__} has {self.of_a_head} for "
                f"each; got shape {tuple(x.shape)}."
            )
        if isinstance(positions, RotationTable):
            table = positions
            if x.device != table.cos.device:
                require_same_device(called, x, "table.cos", table.cos)
            made_by = table.made_by
            if made_by is not None and (made_by.identity is not self.identity or self.treats_roles_apart):
                self._require_own(made_by, role)
        else:
            positions = Positions.of(positions, x.shape[-2], batch=x.shape[0], device=x.device)
            table = self.table(positions, dtype=computing_dtype(x.dtype), role=role)
        if self.reaches and x.dtype in self.reaches and table.made_by is not None:
            self._require_reach(table.made_by.farthest, x.dtype)
        return table

    @abstractmethod
    def require_agreement(self, query: Positions, key: Positions) -> None:
        """Raise if these queries and keys would be rotated in ways that do not belong together."""

    def table(self, positions: Positions, *, dtype: torch.dtype = torch.float32, role: Role = "query") -> RotationTable:
        """Compute cosines and sines of these positions, magnitude included. Made once for each `Positions` object:
        layers that are handed the same one share it."""
        require_own_rotation(self)
        require_role(role)
        if dtype is not torch.float32 and dtype is not torch.float64:
            require_choice("dtype", dtype, WIDE, "angles need float32 or wider")
        require_positions(positions, "a table is cached with it")
        if torch.compiler.is_compiling() and not positions.in_graph:
            return self._make_table(positions, dtype, role)  # a graph leaves nothing in an object from outside
        # a table made in inference mode cannot serve training later
        inference = not torch.compiler.is_compiling() and torch.is_inference_mode_enabled()
        key = (self.identity, dtype, role if self.treats_roles_apart else None, inference, positions.version)
        if self.learns_frequencies:
            make = partial(self._make_table, positions, dtype, role)
            return cached_by_values(positions.tables, key, tuple(self.parameters()), make)
        if key not in positions.tables:
            positions.tables[key] = self._make_table(positions, dtype, role)
        table: RotationTable = positions.tables[key]
        return table

    def inverse(
        self,
        x: Float[Tensor, "batch heads sequence head_dim"],
        positions: PositionsLike = None,
        *,
        role: Role = "query",
    ) -> Float[Tensor, "batch heads sequence head_dim"]:
        """Undo ``forward``: rotate back, and divide by the magnitude."""
        require_own_rotation(self)
        require_width(self, "head_dim", x, self.head_dim)
        require_role(role)
        positions = Positions.of(positions, x.shape[-2], batch=x.shape[0], device=x.device)
        self._require_reach(self.farthest_of(positions), x.dtype)
        cos, sin = self._points(positions, computing_dtype(x.dtype))
        magnitude = self.magnitude_of(positions, role)
        return self._rotate(x, self._scaled_table(cos, -sin, 1 / magnitude))

    def rerotate(
        self,
        keys: Float[Tensor, "batch heads sequence head_dim"],
        old_positions: PositionsLike,
        new_positions: PositionsLike,
        *,
        source: RotationEncoding | None = None,
    ) -> Float[Tensor, "batch heads sequence head_dim"]:
        """Move keys that were rotated for ``old_positions`` to ``new_positions``, as after evicting a cache.

        ``source`` is the encoding that rotated them, if it had other frequencies. The two maps are joined before
        they touch the keys, so no magnitude is applied twice and a shift costs one rounding.
        """
        require_own_rotation(self)
        require_width(self, "head_dim", keys, self.head_dim, "keys")
        require_like("old_positions", old_positions, keys.shape[-2], Positions)
        require_like("new_positions", new_positions, keys.shape[-2], Positions)
        source = self if source is None else source
        if not isinstance(source, RotationEncoding):
            raise TypeError(
                f"source must be a RotationEncoding, since it tells how keys were rotated; got "
                f"{told(source)}. Keys that were not rotated are rotated with encoding(keys, role='key')."
            )
        layouts = [(each.rotary_dim, each.pairing, _blocks_of(each)) for each in (source, self)]
        if layouts[0] != layouts[1]:
            raise ValueError(
                f"source must rotate the same channels, since keys are moved pair by pair; got rotary_dim="
                f"{source.rotary_dim}, pairing={source.pairing!r} for {self.rotary_dim}, {self.pairing!r}."
            )
        if source.channels != self.channels and self.rotary_dim < self.head_dim:
            raise ValueError(
                f"source must rotate the same channels, since keys are moved pair by pair; got channels="
                f"{source.channels!r} for {self.channels!r}."
            )
        old_and_new = [
            Positions.of(given, keys.shape[-2], batch=keys.shape[0], device=keys.device)
            for given in (old_positions, new_positions)
        ]
        for each, where in zip((source, self), old_and_new, strict=True):
            each._require_reach(each.farthest_of(where), keys.dtype)
        wide = widest(keys.device)
        old_cos, old_sin = source._points(old_and_new[0], wide)
        new_cos, new_sin = self._points(old_and_new[1], wide)
        ratio = self.magnitude_of(old_and_new[1], "key") / source.magnitude_of(old_and_new[0], "key")
        moved = _scaled(new_cos * old_cos + new_sin * old_sin, new_sin * old_cos - new_cos * old_sin, ratio)
        dtype = computing_dtype(keys.dtype)
        table = RotationTable(moved[0].to(dtype), moved[1].to(dtype), channels=self.channels)
        return self._rotate(keys, table)

    def rotation_matrix(
        self,
        position: float | int | Sequence[float | int] | Tensor,
        *,
        role: Role = "query",
        sequence_length: int | None = None,
    ) -> Float64[Tensor, "*heads head_dim head_dim"]:
        """Write the map of one position as a dense float64 matrix; channels that are not rotated have ones. On several
        axes ``position`` has a number for each, or one for text. ``sequence_length`` is for methods that choose by
        it."""
        require_own_rotation(self)
        reason = f"this {type(self).__name__} encodes that many"
        require_role(role)
        if isinstance(position, Tensor) and (position.ndim > 1 or position.device.type == "meta"):
            require_number("position", position, "it is multiplied by frequencies")
        given: Any = position.tolist() if isinstance(position, Tensor) else position
        coordinates = tuple(given) if isinstance(given, Sequence) and not isinstance(given, (str, bytes)) else (given,)
        if len(coordinates) == 1 or not isinstance(given, Sequence):
            require_number("position", coordinates[0], "it is multiplied by frequencies")
        if len(coordinates) != self.axes and not (self.text_has_one and len(coordinates) == 1):
            raise ValueError(
                f"position must have {self.axes} coordinate{'s' * (self.axes > 1)}, since {reason}; got {position}."
                + f" Give ({', '.join([str(given)] * self.axes)}) for the same on every axis." * (len(coordinates) == 1)
            )
        numbers = [require_number("position", each, "it is multiplied by frequencies") for each in coordinates]
        ids = torch.tensor(numbers, dtype=torch.float64, device="cpu")[None, None]
        at = Positions.explicit(ids, sequence_length=sequence_length)
        table = self._make_table(at, torch.float64, role)
        rotated = rotation_matrix(table.cos[0, :, 0], table.sin[0, :, 0], self.pairing)
        matrix = torch.eye(self.head_dim, dtype=torch.float64, device="cpu").repeat(rotated.shape[0], 1, 1)
        first = self.head_dim - self.rotary_dim if self.channels == "trailing" else 0
        order = first + joined_halves(torch.arange(self.rotary_dim, device="cpu"), self.blocks)
        matrix[:, order.unsqueeze(-1), order] = rotated
        return matrix[0] if matrix.shape[0] == 1 else matrix

    def _points(self, positions: Positions, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Compute cosines and sines, (batch, heads, sequence, pairs)."""
        return points(positions, self.coordinates_at, self.frequencies_at(positions), dtype)

    def _make_table(self, positions: Positions, dtype: torch.dtype, role: Role) -> RotationTable:
        farthest: float | Tensor = 0.0
        if self.reach < math.inf:
            farthest = self.farthest_of(positions)
            self._require_reach(farthest, dtype)
        cos, sin = self._points(positions, dtype)
        table = self._scaled_table(cos, sin, self.magnitude_of(positions, role))
        table.made_by = Maker(self.identity, role if self.treats_roles_apart else None, farthest)
        return table

    def _scaled_table(self, cos: Tensor, sin: Tensor, magnitude: float | Tensor) -> RotationTable:
        """Make the table of these channels, magnitude included."""
        return RotationTable(*_scaled(cos, sin, magnitude), channels=self.channels)

    def _require_own(self, made_by: Maker, role: Role) -> None:
        """Raise if another encoding made a table, or this one for the other role."""
        name, (identity, made_for, _) = type(self).__name__, made_by
        if identity != self.identity:
            raise ValueError(
                f"table must be made by this {name} or an equal one, since others rotate otherwise; got one made by "
                f"{self._told_apart(identity)}. Use encoding.table(positions)."
            )
        if self.treats_roles_apart and made_for != role:
            raise ValueError(
                f"table must be made for role={role!r}, since {name} rotates queries and keys apart; got one made for "
                f"role={made_for!r}. Use encoding.table(positions, role={role!r})."
            )

    def _told_apart(self, identity: Any) -> str:
        """Describe another encoding by the options that it has otherwise."""
        kind, *values = identity
        own = self.config
        if kind is not type(self) or len(values) != len(own):
            return str(kind.__name__)
        options = [
            f"{name}={value!r}" for (name, mine), value in zip(own.items(), values, strict=True) if mine != value
        ]
        return f"{kind.__name__}({', '.join(options)})"

    def _require_reach(self, farthest: float | int | Tensor, dtype: torch.dtype) -> None:
        """Raise if the magnitude of some position leaves what vectors of this dtype hold."""
        reach, narrow = self.reach_in(dtype), dtype in self.reaches
        if not isinstance(farthest, Tensor) and farthest <= reach:
            return
        holder = str(dtype if narrow else torch.float32).removeprefix("torch.")
        limit = self.reaches_in_words.get(dtype if narrow else torch.float32) or f"{reach:.0f}"
        rule = (
            f"positions must lie within {limit} of the centre, since beyond it {type(self).__name__}'s factor leaves "
            f"{holder}"
        )
        cure = "Set centre to a position in the middle of those in use" + ", or use bfloat16 or float32" * narrow + "."
        if isinstance(farthest, Tensor):
            require_everywhere(farthest <= reach, rule, lambda: f"{float(farthest.max()):.0f}", cure)
        else:
            raise ValueError(f"{rule}; got {farthest:.0f}. {cure}")


def _scaled(cos: Tensor, sin: Tensor, magnitude: float | Tensor) -> tuple[Tensor, Tensor]:
    if isinstance(magnitude, Tensor):
        return (cos * magnitude).to(cos.dtype), (sin * magnitude).to(sin.dtype)
    return (cos, sin) if magnitude == 1.0 else (cos * magnitude, sin * magnitude)


def _blocks_of(encoding: RotationEncoding) -> tuple[int, ...]:
    """Give the sizes of the blocks, where there are several."""
    return tuple(encoding.blocks) if len(encoding.blocks) > 1 else ()
