"""What Rotary and XPos share: queries and keys turned, pair by pair, by a table of angles.

A place's map is ``m R(t)``: a rotation by t and a magnitude m. Kept apart, they can be undone, composed
and carried from one set of frequencies to another exactly.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable

import torch
from jaxtyping import Float, Float64, Num
from torch import Tensor

from situs.encodings.base import QueryKeyEncoding, Role, computing_dtype, require_choice, require_width
from situs.encodings.points import points
from situs.functional.angles import widest
from situs.functional.rotation import PAIRINGS, Pairing, RotationTable, rotate, rotate_both, rotation_matrix
from situs.positions import Positions, PositionsLike, align, is_deferred


class RotationEncoding(QueryKeyEncoding):
    """An encoding that turns channel pairs."""

    rotary_dim: int
    pairing: Pairing
    num_heads: int | None = None
    """Heads it is made for, where they differ."""

    treats_roles_apart: bool = False
    """Whether queries and keys are turned differently."""

    by_length: bool = False
    """Whether the frequencies depend on the sequence's length."""

    identity: Hashable
    """The whole configuration: two encodings that differ in anything differ in it."""

    @abstractmethod
    def coordinates_at(self, positions: Positions) -> Num[Tensor, "batch 1 sequence pairs_or_1"]:
        """What each pair's frequency is multiplied by."""

    @abstractmethod
    def frequencies_at(self, positions: Positions) -> Float64[Tensor, "#batch #heads #sequence pairs"]:
        """Radians a position for each pair."""

    @abstractmethod
    def magnitude_of(self, positions: Positions, role: Role) -> float | Float64[Tensor, "#batch #heads sequence pairs"]:
        """What a place's vectors are multiplied by."""

    def forward(
        self,
        x: Float[Tensor, "batch heads sequence head_dim"],
        positions: PositionsLike | RotationTable = None,
        *,
        role: Role = "query",
    ) -> Float[Tensor, "batch heads sequence head_dim"]:
        """Turn queries or keys. ``positions`` may be a ``table`` made before."""
        return rotate(x, self._table_for(x, positions, role), self.pairing)

    def both(
        self,
        query: Float[Tensor, "batch heads query head_dim"],
        key: Float[Tensor, "batch kv_heads key head_dim"],
        positions: PositionsLike | RotationTable = None,
        key_positions: PositionsLike = None,
    ) -> tuple[Float[Tensor, "batch heads query head_dim"], Float[Tensor, "batch kv_heads key head_dim"]]:
        """Queries and keys of one attention; queries are the last rows of the keys unless told otherwise. A ``table``
        made before serves both."""
        of_queries: Positions | RotationTable
        of_keys: Positions | RotationTable
        if isinstance(positions, RotationTable):
            if self.treats_roles_apart or key_positions is not None:
                raise ValueError(
                    f"positions must not be a table where queries and keys are turned apart, since it serves one of "
                    f"them; got {positions!r}. Turn each with its own: encoding(key, table, role='key')."
                )
            of_queries = of_keys = positions
        else:
            of_queries, of_keys = align(positions, key_positions, query.shape[-2], key.shape[-2], query.device)
            self.require_agreement(of_queries, of_keys)
        if self._forward_hooks or self._forward_pre_hooks:
            return self(query, of_queries), self(key, of_keys, role="key")
        of_query, of_key = self._table_for(query, of_queries, "query"), self._table_for(key, of_keys, "key")
        if of_query is of_key:
            return rotate_both(query, key, of_query, self.pairing)
        return rotate(query, of_query, self.pairing), rotate(key, of_key, self.pairing)

    def _table_for(self, x: Tensor, positions: PositionsLike | RotationTable, role: Role) -> RotationTable:
        """What turns ``x``, which must be of this encoding's size."""
        require_width(self, "head_dim", x, self.head_dim)
        if self.num_heads is not None and x.shape[1] != self.num_heads:
            raise ValueError(
                f"x must have {self.num_heads} heads, since this {type(self).__name__} has a base for each; "
                f"got shape {tuple(x.shape)}."
            )
        if isinstance(positions, RotationTable):
            return positions
        places = Positions.of(positions, x.shape[-2], batch=x.shape[0], device=x.device)
        return self.table(places, dtype=computing_dtype(x.dtype), role=role)

    @abstractmethod
    def require_agreement(self, query: Positions, key: Positions) -> None:
        """Raise if these queries and keys would be turned in ways that do not belong together."""

    def table(self, positions: Positions, *, dtype: torch.dtype = torch.float32, role: Role = "query") -> RotationTable:
        """Cosines and sines of these positions, magnitude included. Made once for each `Positions` object:
        layers that are handed the same one share it."""
        require_choice("role", role, ("query", "key"), "a vector is one or the other")
        if torch.compiler.is_compiling() and not positions.in_graph:
            return self._make_table(positions, dtype, role)  # a graph leaves nothing in an object from outside
        # a table made in inference mode cannot serve training later
        inference = not torch.compiler.is_compiling() and torch.is_inference_mode_enabled()
        key = (self.identity, dtype, role if self.treats_roles_apart else None, inference)
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
        """Undo ``forward``: turn back, and divide by the magnitude."""
        require_width(self, "head_dim", x, self.head_dim)
        places = Positions.of(positions, x.shape[-2], batch=x.shape[0], device=x.device)
        cos, sin = self._points(places, computing_dtype(x.dtype))
        magnitude = self.magnitude_of(places, role)
        return rotate(x, _scaled(cos, -sin, 1 / magnitude), self.pairing)

    def rerotate(
        self,
        keys: Float[Tensor, "batch heads sequence head_dim"],
        old_positions: PositionsLike,
        new_positions: PositionsLike,
        *,
        source: RotationEncoding | None = None,
    ) -> Float[Tensor, "batch heads sequence head_dim"]:
        """Keys already turned for ``old_positions``, moved to ``new_positions``, as after evicting a cache.

        ``source`` is the encoding that turned them, if it had other frequencies. The two maps are joined before
        they touch the keys, so no magnitude is applied twice and a shift costs one rounding.
        """
        require_width(self, "head_dim", keys, self.head_dim)
        source = self if source is None else source
        if (source.rotary_dim, source.pairing) != (self.rotary_dim, self.pairing):
            raise ValueError(
                f"source must turn the same channels, since keys are moved pair by pair; got rotary_dim="
                f"{source.rotary_dim}, pairing={source.pairing!r} for {self.rotary_dim}, {self.pairing!r}."
            )
        places = [
            Positions.of(given, keys.shape[-2], batch=keys.shape[0], device=keys.device)
            for given in (old_positions, new_positions)
        ]
        wide = widest(keys.device)
        old_cos, old_sin = source._points(places[0], wide)
        new_cos, new_sin = self._points(places[1], wide)
        ratio = self.magnitude_of(places[1], "key") / source.magnitude_of(places[0], "key")
        turn = _scaled(new_cos * old_cos + new_sin * old_sin, new_sin * old_cos - new_cos * old_sin, ratio)
        dtype = computing_dtype(keys.dtype)
        return rotate(keys, RotationTable(turn.cos.to(dtype), turn.sin.to(dtype)), self.pairing)

    def rotation_matrix(
        self, position: float, *, role: Role = "query", sequence_length: int | None = None
    ) -> Float64[Tensor, "*heads head_dim head_dim"]:
        """The map of one position as a dense float64 matrix; channels that do not turn have ones.
        ``sequence_length`` is for methods that choose by it."""
        ids = torch.full((1, 1, self.axes), float(position), dtype=torch.float64, device="cpu")
        at = Positions.explicit(ids, sequence_length=sequence_length)
        table = self._make_table(at, torch.float64, role)
        turned = rotation_matrix(table.cos[0, :, 0], table.sin[0, :, 0], self.pairing)
        matrix = torch.eye(self.head_dim, dtype=torch.float64, device="cpu").repeat(turned.shape[0], 1, 1)
        matrix[:, : self.rotary_dim, : self.rotary_dim] = turned
        return matrix[0] if matrix.shape[0] == 1 else matrix

    def _points(self, positions: Positions, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosines and sines, (batch, heads, sequence, pairs)."""
        return points(positions, self.coordinates_at, self.frequencies_at(positions), dtype)

    def _make_table(self, positions: Positions, dtype: torch.dtype, role: Role) -> RotationTable:
        cos, sin = self._points(positions, dtype)
        return _scaled(cos, sin, self.magnitude_of(positions, role))


def _scaled(cos: Tensor, sin: Tensor, magnitude: float | Tensor) -> RotationTable:
    if isinstance(magnitude, Tensor):
        return RotationTable((cos * magnitude).to(cos.dtype), (sin * magnitude).to(sin.dtype))
    return RotationTable(cos, sin) if magnitude == 1.0 else RotationTable(cos * magnitude, sin * magnitude)


def check_head(head_dim: int, rotary_dim: int, pairing: Pairing) -> None:
    """Raise unless these sizes can be turned in pairs."""
    require_choice("pairing", pairing, PAIRINGS, "checkpoints pair neighbouring channels or the two halves")
    if head_dim < 2 or head_dim % 2:
        raise ValueError(f"head_dim must be even, since rotary turns channel pairs; got {head_dim}.")
    if rotary_dim % 2 or not 0 < rotary_dim <= head_dim:
        raise ValueError(
            f"rotary_dim must be even and at most head_dim={head_dim}, since it counts the channels that turn in "
            f"pairs; got {rotary_dim}."
        )


def require_length(positions: Positions, method: str) -> int | Tensor:
    """The length of the whole sequence; raise where it is unknown and ``method`` chooses by it."""
    if positions.sequence_length is None:
        raise ValueError(
            f"positions must tell how long the whole sequence is, since {method} chooses by it and keys cached "
            f"earlier must agree; got {positions!r}. Slice the positions of the whole sequence, or use "
            f"positions.with_sequence_length(n)."
        )
    return positions.sequence_length


def can_compare(ours: int | Tensor | None, theirs: int | Tensor | None) -> bool:
    """Whether two lengths are both on the host, and so can be compared without a wait."""
    if isinstance(ours, Tensor) and isinstance(theirs, Tensor):
        return not is_deferred(ours) and not is_deferred(theirs) and ours.shape == theirs.shape
    return isinstance(ours, int) and isinstance(theirs, int)


def require_same_length(query: Positions, key: Positions, method: str, differs: bool) -> None:
    """Raise if queries and keys were made for sequences that ``method`` treats differently."""
    if differs:
        raise ValueError(
            f"queries and keys must be made for one sequence length, since {method} chooses by it and a mixed cache "
            f"gives wrong scores; got lengths {query.sequence_length} and {key.sequence_length}. Plan both with "
            f"positions.with_sequence_length(n), or move cached keys with rerotate()."
        )
