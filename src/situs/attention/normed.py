"""Norms behind the rotation: queries and keys that are rotated first and normalised after, as Hunyuan has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from torch import Tensor, nn

from situs.arguments import refuse
from situs.encodings.base import Encoding, QueryKeyEncoding, Role
from situs.positions import PositionsLike


@final
class QueryKeyNorm(QueryKeyEncoding):
    """Normalise queries and keys with the norms of a layer, whose parameters they stay.

    As an encoding it acts where it stands among the others, and a cache holds keys as it leaves them. A norm with
    learned weights does not commute with a rotation, so that keys behind it cannot be rotated on, and are not evicted.
    """

    def __init__(self, query_norm: nn.Module | None, key_norm: nn.Module | None) -> None:
        super().__init__()
        self._norms = query_norm, key_norm  # in a tuple, since they are the layer's

    @property
    def query_norm(self) -> nn.Module | None:
        """The norm of queries, if they have one."""
        return self._norms[0]

    @property
    def key_norm(self) -> nn.Module | None:
        """The norm of keys, if they have one."""
        return self._norms[1]

    def forward(self, x: Tensor, positions: PositionsLike = None, *, role: Role = "query") -> Tensor:
        """Normalise queries or keys, wherever they stand."""
        norm = self._norms[role == "key"]
        normed: Tensor = x if norm is None else norm(x)
        return normed.to(x.dtype)  # it may be wider under autocast


def with_norm_after(encodings: Sequence[Encoding], norm: QueryKeyNorm) -> list[Encoding]:
    """Put the norm behind all encodings that change keys, and before those of queries alone: it would undo a
    temperature."""
    rotations = [each for each in encodings if isinstance(each, QueryKeyEncoding) and each.changes_keys]
    return [*rotations, norm, *(each for each in encodings if each not in rotations)]


def require_one_width(encodings: Sequence[Encoding]) -> None:
    """Raise if an encoding makes queries and keys wider than the norms of a head are."""
    wider = [each for each in encodings if isinstance(each, QueryKeyEncoding) and each.widens]
    if wider:
        refuse(
            ValueError, "qk_norm", f"be True or False with {type(wider[0]).__name__}",
            "queries and keys come out of it wider than the norms of a head", "'after'",
        )  # fmt: skip
