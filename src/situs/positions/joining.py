"""Joining rows: into a batch, padded, or into one row, packed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

if TYPE_CHECKING:
    from situs.positions.places import Positions


def padded(row: Positions, places: int, side: Literal["left", "right"]) -> Positions:
    """Add padded places, of position 0, at one side."""
    ids, amount = row.ids, (places, 0) if side == "left" else (0, places)
    valid = row.valid if row.valid is not None else torch.ones(1, row.length, dtype=torch.bool, device=row.device)
    whole = row.sequence_length
    return replace(
        row,
        structure="padded",
        length=row.length + places,
        given_ids=pad(ids, (0, 0, *amount) if ids.ndim == 3 else amount),
        valid=pad(valid, amount),
        documents=None if row.documents is None else pad(row.documents, amount),
        sequence_length=pad(whole, amount) if isinstance(whole, Tensor) and whole.shape[1] != 1 else whole,
    )


def joined(rows: Sequence[Positions], name: Literal["documents", "valid"], dim: int) -> Tensor | None:
    """A field of every row, if any row has it; the others are one document, all real tokens."""
    fields: list[Tensor | None] = [getattr(row, name) for row in rows]
    if all(field is None for field in fields):
        return None
    fill, dtype = (torch.zeros, torch.int64) if name == "documents" else (torch.ones, torch.bool)
    whole = [
        fill(1, row.length, dtype=dtype, device=row.device) if field is None else field
        for row, field in zip(rows, fields, strict=True)
    ]
    return torch.cat(whole, dim)


def joined_slots(rows: Sequence[Positions]) -> Tensor | None:
    """Slots of rows as long as each other, one row each; None where all have the same runs."""
    if all(row.given_slots is None and row.runs == rows[0].runs for row in rows):
        return None
    own = [torch.arange(row.length, device=row.device)[None] if row.slots is None else row.slots for row in rows]
    return torch.cat(own)


def joined_lengths(rows: Sequence[Positions], dim: int) -> Tensor | None:
    """Lengths of the whole sequences: one a row (dim 0), or one a place (dim 1, and where documents differ); None
    where any is unknown."""
    parts = []
    for row in rows:
        if row.sequence_length is None:
            return None
        parts.append(torch.as_tensor(row.sequence_length, device=row.device).reshape(1, -1))
    if dim == 1 or any(part.shape[1] > 1 for part in parts):
        parts = [part.expand(1, row.length) for part, row in zip(parts, rows, strict=True)]
    return torch.cat(parts, dim)


def joined_starts(rows: Sequence[Positions]) -> tuple[int, ...] | None:
    """The first position of each row, where all are ranges."""
    starts = tuple(row.start for row in rows if row.start is not None)
    return starts if len(starts) == len(rows) else None


def lowest_bound(rows: Sequence[Positions]) -> int | None:
    """A number that no position of the rows reaches, where each has one."""
    bounds = [row.below for row in rows if row.below is not None]
    return max(bounds) if len(bounds) == len(rows) else None


def counted_from_bounds(cu_seqlens: Tensor, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Ids, documents and document lengths of a packed row from where its documents begin, read by the device alone."""
    places = torch.arange(length, device=cu_seqlens.device)
    documents = torch.bucketize(places, cu_seqlens[1:], right=True)
    bounds = torch.cat((cu_seqlens, cu_seqlens.new_full((1,), length))).long()
    lengths = (bounds[1:] - bounds[:-1])[documents]
    return (places - bounds[documents])[None], documents[None], lengths[None]
