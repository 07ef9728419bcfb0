"""What is required of the arguments of an attention, and the words when it is missing."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from situs.arguments import (
    refuse,
    require_count,
    require_dropout,
    require_flag,
    require_floating,
    require_number,
    require_same_device,
    require_tensor,
    told,
)
from situs.encodings.base import Encoding, is_autocast
from situs.encodings.bias import BiasEncoding
from situs.encodings.fitting import require_axes, require_whole
from situs.encodings.score import ScoreEncoding, ValueEncoding
from situs.encodings.value_map import ValueMap
from situs.functional.heads import require_shared
from situs.positions import Positions

SMALLEST = 1e-30  # of a scale: numbers divided by a smaller one are past what float32 holds


def require_tensors(query: Any, key: Any, value: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values that belong together; under autocast those of several dtypes are cast, as torch casts
    them for its own attention. Raise for others."""
    if (
        isinstance(query, Tensor) and isinstance(key, Tensor) and isinstance(value, Tensor)
        and query.ndim == key.ndim == value.ndim == 4
        and query.dtype == key.dtype == value.dtype and query.is_floating_point() and query.dtype.itemsize > 1
        and query.device == key.device == value.device
        and query.shape[0] == key.shape[0] and key.shape[:3] == value.shape[:3]
        and query.shape[3] == key.shape[3] and query.shape[3] and key.shape[1]
        and query.shape[1] % key.shape[1] == 0
    ):  # fmt: skip
        return query, key, value
    return _cast(query, key, value)


def _cast(query: Any, key: Any, value: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Say what is wrong with queries, keys and values, unless autocast mends it."""
    for name, given in (("query", query), ("key", key), ("value", value)):
        require_floating(name, given, "attention computes with fractions")
    shapes = tuple(tuple(each.shape) for each in (query, key, value))
    if not all(len(shape) == 4 for shape in shapes):
        raise ValueError(f"query, key and value must be (batch, heads, sequence, head_dim); got shapes {shapes}.")
    (batch, heads, _, width), (key_batch, key_heads, keys, key_width), of_values = shapes
    if key_batch != batch or of_values[:3] != (batch, key_heads, keys) or key_width != width:
        raise ValueError(
            f"key must have the query's batch and head_dim, and value the key's batch, heads and sequence; got shapes "
            f"{shapes}."
        )
    if not width:
        raise ValueError(
            f"head_dim must be 1 or more, since queries meet keys channel by channel; got shapes {shapes}."
        )
    require_shared(heads, key_heads)
    if not query.dtype == key.dtype == value.dtype:
        device = query.device.type
        if is_autocast(device):
            dtype = torch.get_autocast_dtype(device)
            return query.to(dtype), key.to(dtype), value.to(dtype)
        raise TypeError(
            f"query, key and value must have one dtype, since the output takes it; got {query.dtype}, {key.dtype} and "
            f"{value.dtype}. Convert them with .to(query.dtype)."
        )
    if not query.device == key.device == value.device:
        raise ValueError(
            f"query, key and value must be on one device, since they meet there; got {query.device}, {key.device} and "
            f"{value.device}."
        )
    return query, key, value


def require_fit(
    encoding: Encoding, query: Tensor, key: Tensor, value: Tensor, both: tuple[Positions, Positions]
) -> None:
    """Raise unless queries have the heads and channels, and positions the coordinates, that an encoding is made for."""
    name, heads, width = type(encoding).__name__, encoding.num_heads, encoding.head_dim
    for parameter in encoding.parameters():
        if type(parameter) not in (nn.Parameter, Tensor) and hasattr(parameter, "placements"):
            raise TypeError(
                f"encoding must have whole parameters here, since attention reads them without calling it; got {name} "
                f"sharded by itself. Shard the layer that it belongs to: fully_shard(attention)."
            )
        if parameter.device != query.device:
            raise ValueError(
                f"encoding must be on the query's device, {query.device}, since its parameters meet queries there; got "
                f"{name} on {parameter.device}. Move it with encoding.to(query.device)."
            )
    if heads is not None and query.shape[1] != heads:
        raise ValueError(
            f"query must have {heads} heads, since {name} was made for as many; got shape {tuple(query.shape)}."
        )
    if width is not None and query.shape[-1] != width:
        raise ValueError(
            f"query must have {width} channels per head, since {name} was made for as many; got shape "
            f"{tuple(query.shape)}."
        )
    adds_to_values = isinstance(encoding, ValueEncoding) and encoding.acts_on_values
    if adds_to_values and width is not None and value.shape[-1] != width:
        raise ValueError(
            f"value must have {width} channels per head, since {name} adds as many to values; got shape "
            f"{tuple(value.shape)}."
        )
    wanted = encoding.value_dim if isinstance(encoding, ValueMap) else None
    if wanted is not None and value.shape[-1] != wanted:  # in graphs, a symbol is found in no tuple
        raise ValueError(
            f"value must have {wanted} channels per head, since {name} was made for as many; got shape "
            f"{tuple(value.shape)}."
        )
    by_position = isinstance(encoding, (BiasEncoding, ScoreEncoding, ValueEncoding))
    if by_position and not (isinstance(encoding, ScoreEncoding) and encoding.by_order):
        for positions in both:
            if positions.given_ids is not None or encoding.axes > 1:
                require_axes(encoding, positions)
                require_whole(encoding, positions)


def require_causal(encoding: Encoding) -> None:
    """Raise that an encoding is defined for causal attention alone."""
    name = type(encoding).__name__
    raise ValueError(
        f"causal must be True with {name}, since it sums up over the tokens from a key to a later query; got False."
    )


def require_positions(query_positions: Positions, key_positions: Positions, batch: int) -> None:
    """Raise unless positions are those of all sequences, or of each, and documents are told of both or of neither."""
    for name, positions in (("positions", query_positions), ("key_positions", key_positions)):
        if positions.start is None and positions.rows not in (1, batch):
            raise ValueError(
                f"{name} must have one row, or one for each of the {batch} sequences; got {positions.rows} rows."
            )
    if (query_positions.documents is None) != (key_positions.documents is None):
        require_documents(query_positions, key_positions)


def require_chunks(query_positions: Positions, key_positions: Positions) -> None:
    """Raise unless positions are whole numbers on one axis, which chunks are counted by."""
    for name, positions in (("positions", query_positions), ("key_positions", key_positions)):
        if positions.given_ids is not None and (positions.axes > 1 or positions.given_ids.is_floating_point()):
            raise ValueError(
                f"{name} must be whole numbers on one axis with chunk=, since chunks are counted by them; got "
                f"{positions!r}."
            )


def require_mask(mask: Any, scores: tuple[int, ...], device: torch.device) -> None:
    """Raise unless a mask can be read, for scores of that shape."""
    require_tensor("mask", mask, "it has an entry for each query and key")
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise TypeError(
            f"mask must be bool, true where a query may see a key, or a float to add to the scores; got dtype "
            f"{mask.dtype}. Use mask.bool()."
        )
    if mask.dtype != torch.bool:
        require_floating("mask", mask, "it is added to the scores")
    given = tuple(mask.shape)
    from_the_last = zip(reversed(given), reversed(scores), strict=False)
    if len(given) > len(scores) or any(own not in (1, size) for own, size in from_the_last):
        raise ValueError(
            f"mask must broadcast to (batch, heads, query, key) = {scores}, since it tells which query may see which "
            f"key; got shape {given}. For padding, use positions=Positions.from_mask(...)."
        )
    if mask.device != device:
        raise ValueError(
            f"mask must be on the query's device, {device}, since it is added to the scores there; got {mask.device}. "
            f"Move it with mask.to(query.device)."
        )


def require_numbers(causal: object, window: object, scale: Any, dropout: object) -> float | None:
    """Raise unless the plain numbers of a call are such as can be used; give the scale as Python's own number."""
    if not isinstance(causal, bool):
        require_flag("causal", causal, "later keys are hidden or not")
    if window is not None:
        require_window(window)
    if type(dropout) is not float or dropout:
        require_dropout(dropout)
    # finite, in the only words that a graph has for it, and large enough or 0
    if scale is None or (type(scale) is float and scale - scale == 0 and (abs(scale) >= SMALLEST or not scale)):
        return scale
    return require_scale(scale)


def require_scale(scale: Any) -> float:
    """Give a scale as Python's own number; raise for one that learns, or is none."""
    if isinstance(scale, Tensor) and scale.requires_grad:
        refuse(
            TypeError, "scale", "be a number that does not learn", "kernels take a plain one", told(scale),
            "Multiply the queries by it.",
        )  # fmt: skip
    return require_divisor("scale", require_number("scale", scale, "it multiplies q . k"))


def require_divisor(name: str, scale: float) -> float:
    """Raise if a scale is too small to divide by; 0 is never divided by."""
    if 0 < abs(scale) < SMALLEST:
        rule = f"be 0 or at least {SMALLEST} in size"
        refuse(ValueError, name, rule, "what is not scaled is divided by it", told(scale))
    return scale


def require_softmax(query: Tensor, chunk: object, softcap: object, sinks: Any) -> float | None:
    """Raise unless chunks, a cap and sinks are such as can be used; give the cap as Python's own number."""
    if chunk is not None:
        require_chunk(chunk)
    if sinks is not None:
        require_floating("sinks", sinks, "they take part in the softmax")
        if sinks.shape != query.shape[1:2]:
            raise ValueError(
                f"sinks must have shape ({query.shape[1]},), since each head has one; got shape {tuple(sinks.shape)}."
            )
        require_same_device("sinks", sinks, "query", query)
    return None if softcap is None else require_cap(softcap)


def require_chunk(chunk: object) -> None:
    """Raise unless a chunk has a position at least."""
    require_count("chunk", chunk, "it counts the positions of a chunk", least=1)


def require_cap(softcap: object) -> float:
    """Give a bound of the scores as Python's own number."""
    cap = require_number("softcap", softcap, "it bounds the scores")
    if cap <= 0:
        refuse(ValueError, "softcap", "be above 0", "it bounds the scores", told(softcap), "Leave it out for no bound.")
    return cap


def require_window(window: object) -> None:
    """Raise unless a query sees at least itself."""
    require_count("window", window, "it counts the keys that a query sees, itself included", least=1)


def require_documents(query_positions: Positions, key_positions: Positions) -> None:
    """Raise if one side alone is told of documents."""
    if (query_positions.documents is None) != (key_positions.documents is None):
        raise ValueError(
            f"queries and keys must both have documents or neither, since a token sees only its own; "
            f"got {query_positions!r} and {key_positions!r}."
        )
