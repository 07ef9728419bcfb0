"""What is required of the tensors and positions of an attention, and the words when it is missing."""

from __future__ import annotations

import torch
from torch import Tensor

from situs.functional.heads import require_shared
from situs.positions import Positions


def require_shapes(query: Tensor, key: Tensor, value: Tensor) -> None:
    """Raise unless queries, keys and values belong together."""
    shapes = tuple(tuple(each.shape) for each in (query, key, value))
    if not all(len(shape) == 4 for shape in shapes):
        raise ValueError(f"query, key and value must be (batch, heads, sequence, head_dim); got shapes {shapes}.")
    (batch, heads, _, width), (key_batch, key_heads, keys, key_width), of_values = shapes
    if key_batch != batch or of_values[:3] != (batch, key_heads, keys) or key_width != width:
        raise ValueError(
            f"key must have the query's batch and head_dim, and value the key's batch, heads and sequence; got shapes "
            f"{shapes}."
        )
    require_shared(heads, key_heads)


def require_rows(query: Positions, key: Positions, batch: int) -> None:
    """Raise unless positions are those of all sequences, or of each."""
    for name, places in (("positions", query), ("key_positions", key)):
        if places.rows not in (1, batch):
            raise ValueError(
                f"{name} must have one row, or one for each of the {batch} sequences; got {places.rows} rows."
            )


def require_mask(mask: Tensor, scores: tuple[int, ...]) -> None:
    """Raise unless a mask can be read, for scores of that shape."""
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise TypeError(
            f"mask must be bool, true where a query may see a key, or a float to add to the scores; got dtype "
            f"{mask.dtype}. Use mask.bool()."
        )
    given = tuple(mask.shape)
    from_the_last = zip(reversed(given), reversed(scores), strict=False)
    if len(given) > len(scores) or any(own not in (1, size) for own, size in from_the_last):
        raise ValueError(
            f"mask must broadcast to (batch, heads, query, key) = {scores}, since it tells which query may see which "
            f"key; got shape {given}. For padding, use positions=Positions.from_mask(...)."
        )


def require_window(window: int | None) -> None:
    """Raise unless a query sees at least itself."""
    if window is not None and window < 1:
        raise ValueError(f"window must be 1 or more, since a query sees at least its own place; got {window}.")


def require_documents(query: Positions, key: Positions) -> None:
    """Raise if one side alone is told of documents."""
    if (query.documents is None) != (key.documents is None):
        raise ValueError(
            f"queries and keys must both have documents or neither, since a token sees only its own; "
            f"got {query!r} and {key!r}."
        )
