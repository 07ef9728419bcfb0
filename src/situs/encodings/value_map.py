"""Value maps: encodings that change values by the keys' positions, and what attention gathers by the queries'.

    o_i = M(i) sum_j a_ij N(j) v_j

Both maps act outside of the kernels, once before and once after, so that every kernel serves them. A cache holds values
as N has changed them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from typing import Literal, final

from jaxtyping import Float
from torch import Tensor

from situs.arguments import require_choice
from situs.encodings.base import Encoding
from situs.positions import Positions, PositionsLike

ValueRole = Literal["value", "output"]


class ValueMap(Encoding):
    """Change values by their positions, and the output by those of the queries."""

    place = "value"

    value_dim: int | None = None
    """Channels of a value that it is made for; None where any will do."""

    maps_output: bool = True
    """Whether the output is changed at all."""

    by_length: bool = False
    """Whether the sequence's length tells how values are changed."""

    identity: Hashable = None
    """The whole configuration, for caches: two maps that differ in anything differ in it. None where none is told."""

    def __init__(self) -> None:
        super().__init__()
        self._output_alone = (OutputMap(self),)  # in a tuple, since it is no part of this module

    @property
    def output_alone(self) -> OutputMap:
        """The second half of this map, for values that a cache holds changed already."""
        return self._output_alone[0]

    @abstractmethod
    def forward(
        self,
        x: Float[Tensor, "batch heads sequence value_dim"],
        positions: PositionsLike = None,
        *,
        role: ValueRole = "value",
    ) -> Float[Tensor, "batch heads sequence value_dim"]:
        """Change values by their keys' positions, or, with role "output", what was gathered by the queries'."""

    def require_agreement(self, query: Positions, key: Positions) -> None:
        """Raise if values and outputs would be changed in ways that do not belong together. Never, unless an encoding
        says more."""
        return

    def moved(
        self, values: Float[Tensor, "batch heads sequence value_dim"], before: Positions, after: Positions
    ) -> Float[Tensor, "batch heads sequence value_dim"]:
        """Change values that were changed for one set of positions to those of another, as after evicting a cache."""
        raise TypeError(
            f"values must be changed by a map that tells how they are moved, since their positions change; got "
            f"{type(self).__name__}. Define moved(values, before, after)."
        )


@final
class OutputMap(ValueMap):
    """Change the output as a map does, and leave values alone, which it has changed before they were cached."""

    def __init__(self, inner: ValueMap) -> None:
        Encoding.__init__(self)
        self._inner = (inner,)  # in a tuple, since that module has this one
        self._output_alone = (self,)

    @property
    def inner(self) -> ValueMap:
        """The whole map."""
        return self._inner[0]

    def forward(self, x: Tensor, positions: PositionsLike = None, *, role: ValueRole = "value") -> Tensor:
        """Change the output alone."""
        changed: Tensor = self.inner(x, positions, role=role) if role == "output" else x
        return changed

    def require_agreement(self, query: Positions, key: Positions) -> None:
        """Nothing: values of a cache were judged when they were admitted."""
        return


def require_value_role(role: object) -> None:
    """Raise unless vectors are values or what was gathered of them."""
    if not isinstance(role, str) or role not in ("value", "output"):
        require_choice("role", role, ("value", "output"), "a vector is one or the other")
