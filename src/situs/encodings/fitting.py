"""Fitting: whether positions and tensors are such as an encoding takes, and the words when they are not.

What one argument must be, whoever takes it, is in ``situs.arguments``. Here are the rules that know an encoding (its
coordinates, width and table) and those that know the length of the whole sequence, for methods that choose by it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from situs.arguments import (
    is_deferred,
    refuse,
    require_choice,
    require_count,
    require_everywhere,
    require_floating,
    require_tensor,
    told,
)
from situs.encodings.base import Encoding, QueryKeyEncoding
from situs.functional.rotation import PAIRINGS, Pairing
from situs.positions import Positions


def require_positions(positions: object, reason: str, name: str = "positions") -> None:
    """Raise unless these are a `Positions`."""
    if not isinstance(positions, Positions):
        cure = "Use Positions.explicit(ids) for a tensor of positions, or Positions.range(length)."
        refuse(TypeError, name, "be a situs.Positions", reason, told(positions), cure)


def require_axes(encoding: Encoding, positions: Positions) -> None:
    """Raise if positions have more or fewer coordinates than the encoding takes, or tokens without any mean nothing to
    it."""
    if positions.axes != encoding.axes:
        several = encoding.axes > 1
        shape = f"(batch, tokens, {encoding.axes})"
        cure = f" Use Positions.grid(...) for images, or Positions.explicit(ids), with ids of shape {shape}." * several
        if hasattr(encoding, "positions"):  # it makes its own, as of boxes on a page
            cure = " Use encoding.positions(...)."
        raise ValueError(
            f"positions must have {encoding.axes} coordinate{'s' * several} each, since this "
            f"{type(encoding).__name__} encodes that many; got {positions.axes} in {positions!r}.{cure}"
        )
    if positions.placed is not None and not encoding.takes_unplaced:
        cure = " Build it with cls=True, which has rows for them." if hasattr(encoding, "cls") else ""
        raise ValueError(
            f"positions must be those of tokens that all have one, since this {type(encoding).__name__} has nothing "
            f"for others; got {positions!r}.{cure}"
        )


def require_whole(encoding: Encoding, positions: Positions) -> None:
    """Raise if the encoding looks positions up and these are fractions."""
    if encoding.whole and positions.given_ids is not None and positions.given_ids.is_floating_point():
        raise TypeError(
            f"positions must be whole numbers, since {type(encoding).__name__} looks them up in a table; got dtype "
            f"{positions.given_ids.dtype}."
        )


def require_width(encoding: Encoding, name: str, x: Any, width: int, called: str = "x") -> None:
    """Raise unless the last axis of ``x`` has the encoding's width, and its dtype can hold fractions."""
    if not isinstance(x, Tensor):
        require_tensor(called, x, "it is encoded")
    if x.ndim < 2 or x.shape[-1] != width:
        raise ValueError(
            f"{called} must have {width} channels, since {type(encoding).__name__} was made with {name}={width}; "
            f"got shape {tuple(x.shape)}."
        )
    if not x.is_floating_point():
        cure = (
            f"Hand over torch.view_as_real({called}).flatten(-2)"
            if x.is_complex()
            else f"Convert it with {called}.float()"
        )
        raise TypeError(
            f"{called} must be of a real floating-point dtype, since {type(encoding).__name__} computes with real "
            f"fractions; got {x.dtype}. {cure}."
        )
    if x.dtype.itemsize < 2:
        require_floating(called, x, f"{type(encoding).__name__} computes with real fractions")


def require_device_of(table: Tensor, x: Tensor) -> None:
    """Raise unless tokens are where the table is."""
    if x.device != table.device:
        raise ValueError(
            f"x must be on the table's device, {table.device}, since its rows are added there; got {x.device}. Move "
            f"one of them with .to(device)."
        )


def require_embeddings(encoding: Encoding, x: Tensor, dim: int) -> None:
    """Raise unless ``x`` is (batch, sequence, dim), in a dtype that can hold fractions."""
    require_tensor("x", x, "it is encoded")
    if x.ndim != 3:
        raise ValueError(
            f"x must have shape (batch, sequence, {dim}), since {type(encoding).__name__} is added to embeddings; "
            f"got shape {tuple(x.shape)}."
        )
    require_width(encoding, "dim", x, dim)


def require_rows(positions: Positions, usable_length: int, cure: str) -> None:
    """Raise if a position has no row. A range is judged by its ends and tensors on the host by their values;
    on an accelerator, or in a graph, a device-side assertion stands in, which makes nobody wait."""
    message = f"positions must lie in 0 .. {usable_length - 1}, since the table has a row for {usable_length} positions"
    from_zero = "Count from 0, as Positions.from_mask() does for padded rows."  # no longer table has a row below
    if positions.start is not None:
        last = positions.start + positions.length - 1
        if positions.length and positions.start < 0:
            raise ValueError(f"{message}; got {positions.start}. {from_zero}")
        if positions.length and last >= usable_length:
            raise ValueError(f"{message}; got {last}. {cure}")
        return
    ids = positions.ids
    if ids.is_floating_point():
        raise TypeError(f"positions must be whole numbers, since each picks a row of the table; got dtype {ids.dtype}.")
    require_everywhere(ids >= 0, message, lambda: int(ids.min()), from_zero)
    require_everywhere(ids < usable_length, message, lambda: int(ids.max()), cure)


def require_length(positions: Positions, method: str) -> int | Tensor:
    """Give the length of the whole sequence; raise where it is unknown and ``method`` chooses by it."""
    if positions.sequence_length is None:
        raise ValueError(
            f"positions must tell how long the whole sequence is, since {method} chooses by it and keys cached "
            f"earlier must agree; got {positions!r}. Slice the positions of the whole sequence, or use "
            f"positions.with_sequence_length(n)."
        )
    return positions.sequence_length


def have_lengths_apart(
    query: Positions, key: Positions, apart: Callable[[int | Tensor, int | Tensor], bool | Tensor]
) -> bool:
    """Whether queries and keys of one sequence were made for lengths that are ``apart``, which tells it of numbers, or
    of each token. Lengths that are not on the host are taken to agree, since reading them would make it wait."""
    ours, theirs = query.sequence_length, key.sequence_length
    if ours is None or theirs is None or torch.compiler.is_compiling():
        return False
    if isinstance(ours, int) and isinstance(theirs, int):
        return ours != theirs and bool(apart(ours, theirs))
    if any(isinstance(each, Tensor) and is_deferred(each) for each in (ours, theirs)):
        return False
    asked = _are_compared(query, key)
    return asked is not None and bool((torch.as_tensor(apart(ours, theirs)) & asked).any())


def _are_compared(query: Positions, key: Positions) -> Tensor | None:
    """Find which tokens are real and of one document, as far as one side's can be laid over the other's; None where
    they cannot."""
    sides = [(positions, torch.as_tensor(positions.sequence_length)) for positions in (query, key)]
    widths = {length.shape[-1] if length.ndim else 1 for _, length in sides} - {1}
    if len(widths) > 1 or (query.documents is None) != (key.documents is None):
        return None
    asked = torch.ones((), dtype=torch.bool)
    for positions, length in sides:
        if positions.valid is not None:
            by_token = length.ndim and length.shape[-1] > 1
            asked = asked & (positions.valid if by_token else positions.valid.any(-1, keepdim=True))
    if query.documents is not None and key.documents is not None:
        if 1 not in (query.length, key.length) and query.length != key.length:
            return None
        asked = asked & (query.documents == key.documents)
    return asked


def require_same_length(query: Positions, key: Positions, method: str, differs: bool) -> None:
    """Raise if queries and keys were made for sequences that ``method`` treats differently."""
    if differs:
        raise ValueError(
            f"queries and keys must be made for one sequence length, since {method} chooses by it and a mixed cache "
            f"gives wrong scores; got lengths {_told(query)} and {_told(key)}. Plan both with "
            f"positions.with_sequence_length(n), or move cached keys with rerotate()."
        )


def _told(positions: Positions) -> str:
    length = positions.sequence_length
    return " or ".join(map(str, sorted(set(length.flatten().tolist())))) if isinstance(length, Tensor) else str(length)


def check_head(head_dim: int, rotary_dim: int | None, pairing: Pairing) -> tuple[int, int]:
    """Give the channels of a head, and those of them that are rotated; raise unless they can be rotated in pairs."""
    head_dim = require_count("head_dim", head_dim, "it counts channels")
    rotary_dim = head_dim if rotary_dim is None else require_count("rotary_dim", rotary_dim, "it counts channels")
    require_choice("pairing", pairing, PAIRINGS, "checkpoints pair neighbouring channels or the two halves")
    if head_dim < 2 or head_dim % 2:
        raise ValueError(f"head_dim must be even, since rotary rotates pairs of channels; got {head_dim}.")
    if rotary_dim % 2 or not 0 < rotary_dim <= head_dim:
        raise ValueError(
            f"rotary_dim must be even and at most head_dim={head_dim}, since it counts the channels rotated in "
            f"pairs; got {rotary_dim}."
        )
    return head_dim, rotary_dim


def require_own_rotation(encoding: QueryKeyEncoding) -> None:
    """Raise where a vector has no rotation by itself."""
    if encoding.by_pair:
        raise ValueError(
            f"scaling must change frequencies for queries or keys to be rotated by themselves, since in bands of "
            f"distance a rotation depends on the positions of both; got {type(encoding).__name__}"
            f"({encoding.extra_repr()}). Use situs.attend(query, key, value, encoding=encoding), or situs.Attention."
        )
