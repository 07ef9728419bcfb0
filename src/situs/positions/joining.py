"""Joining rows: into a batch, padded, or into one row, packed; and what follows a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from situs.arguments import require_count
from situs.positions.runs import Runs

if TYPE_CHECKING:
    from situs.positions.positions import Positions, Side


def batched(rows: Sequence[Positions], side: Side) -> dict[str, Any]:
    """Join positions of one row each into a batch, padded to the longest."""
    longest = max(row.length for row in rows)
    uneven = any(row.length < longest for row in rows)
    whole = [_padded(row, longest - row.length, side) for row in rows] if uneven else rows
    slots = _batched_slots(rows, longest, side)
    return {
        "structure": "padded" if uneven else "explicit",
        "length": longest,
        "device": rows[0].device,
        "runs": None if slots is not None else ((0, longest),) if uneven else rows[0].runs,
        "given_ids": _joined_ids(whole, 0),
        "given_slots": slots,
        "documents": _joined(whole, "documents", 0),
        "valid": _joined(whole, "valid", 0),
        "placed": _joined(whole, "placed", 0),
        "sequence_length": _joined_lengths(whole, 0),
        "side": side if uneven and all(row.valid is None for row in rows) else None,
        "below": _shared_bound(rows),
        "in_order": all(row.in_order for row in rows),
    }


def packed(rows: Sequence[Positions]) -> dict[str, Any]:
    """Join positions into one row for all, each a document."""
    numbers = [torch.full((1, row.length), number, device=row.device) for number, row in enumerate(rows)]
    runs = _packed_runs(rows)
    return {
        "structure": "packed",
        "length": sum(row.length for row in rows),
        "device": rows[0].device,
        "runs": runs,
        "given_ids": _joined_ids(rows, 1),
        "given_slots": torch.cat([own_slots(row) for row in rows], 1) if runs is None else None,
        "documents": torch.cat(numbers, 1),
        "valid": _joined(rows, "valid", 1),
        "placed": _joined(rows, "placed", 1),
        "sequence_length": _joined_lengths(rows, 1),
        "document_lengths": tuple(row.length for row in rows),
        "document_starts": _joined_starts(rows),
        "below": _shared_bound(rows),
        "in_order": all(row.in_order for row in rows),
    }


def continuation(positions: Positions, count: int) -> Positions:
    """Give the tokens that follow a range, or text among images, their positions."""
    count = require_count("count", count, "it counts tokens", least=0)
    if positions.runs is None or positions.rows > 1 or positions.structure not in ("range", "mixed"):
        raise ValueError(
            f"positions must be a range or mixed to be continued, since others do not end; got {positions!r}."
        )
    end = max((last for _, last in positions.runs), default=0)
    if positions.structure == "range":
        return type(positions).range(count, start=end, device=positions.device)
    if positions.delta is None:
        raise ValueError(
            f"positions must reach to the end of text among images to be continued, since the images tell how far "
            f"positions lag behind; got {positions!r}. Continue the whole, not a part of it."
        )
    ids = torch.arange(end, end + count, device=positions.device) + positions.delta
    following = type(positions).explicit(ids[None, :, None].expand(1, count, positions.axes))
    return replace(following, structure="mixed", runs=((end, end + count),), delta=positions.delta)


def _padded(row: Positions, count: int, side: Side) -> Positions:
    """Add padding, of position 0, at one side."""
    ids, amount = row.ids, (count, 0) if side == "left" else (0, count)
    valid = row.valid if row.valid is not None else torch.ones(1, row.length, dtype=torch.bool, device=row.device)
    whole = row.sequence_length
    return replace(
        row,
        structure="padded",
        length=row.length + count,
        given_ids=pad(ids, (0, 0, *amount) if ids.ndim == 3 else amount),
        valid=pad(valid, amount),
        placed=None if row.placed is None else pad(row.placed, amount, value=True),
        documents=None if row.documents is None else pad(row.documents, amount),
        sequence_length=pad(whole, amount) if isinstance(whole, Tensor) and whole.shape[1] != 1 else whole,
    )


def _joined_ids(rows: Sequence[Positions], dim: int) -> Tensor:
    """Join the ids of every row; where some are real and others whole, in a dtype wide enough for both."""
    ids = [row.ids for row in rows]
    mixed = len({each.dtype for each in ids}) > 1
    return torch.cat([each.double() if mixed else each for each in ids], dim)


def _joined(rows: Sequence[Positions], name: Literal["documents", "valid", "placed"], dim: int) -> Tensor | None:
    """Join a field of every row, if any row has it; the others are one document, all real tokens and placed."""
    fields: list[Tensor | None] = [getattr(row, name) for row in rows]
    if all(field is None for field in fields):
        return None
    fill, dtype = (torch.zeros, torch.int64) if name == "documents" else (torch.ones, torch.bool)
    whole = [
        fill(1, row.length, dtype=dtype, device=row.device) if field is None else field
        for row, field in zip(rows, fields, strict=True)
    ]
    return torch.cat(whole, dim)


def own_slots(positions: Positions) -> Tensor:
    """Give the slots of rows; bare ids have those of a whole sequence."""
    slots = positions.slots
    if slots is not None:
        return slots
    memory = torch.arange(positions.length, device=positions.device)[None]
    return memory if positions.documents is None else _counted_within(positions.documents, memory)


def query_slots(query_positions: Positions, key_positions: Positions) -> Tensor:
    """Tell where queries lie, (batch, query); bare ids do not say it: they take the slots of the last keys."""
    slots, queries, keys = query_positions.slots, query_positions.length, key_positions.length
    if slots is None and queries <= keys:
        return own_slots(key_positions)[:, keys - queries :]
    return own_slots(query_positions) if slots is None else slots


def _counted_within(documents: Tensor, memory: Tensor) -> Tensor:
    """Count the tokens of its document before each, wherever the document's tokens lie."""
    ordered, order = documents.sort(dim=-1, stable=True)
    begins = torch.ones_like(ordered, dtype=torch.bool)
    begins[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    counted = memory - torch.where(begins, memory, 0).cummax(-1).values
    return torch.empty_like(order).scatter_(-1, order, counted)


def _batched_slots(rows: Sequence[Positions], length: int, side: Side) -> Tensor | None:
    """Join the slots of rows padded to one length; None where all have the same runs, or begin at 0. Rows padded on the
    left end together, as the keys do that they belong to."""
    if all(row.given_slots is None for row in rows):
        alike = all(row.runs == rows[0].runs for row in rows)
        whole = all(row.runs in (None, ((0, row.length),)) for row in rows)
        if alike or (whole and any(row.length < length for row in rows)):
            return None
    own = [own_slots(row) for row in rows]
    if side == "right":
        return torch.cat([pad(slots, (0, length - slots.shape[1])) for slots in own])
    ends = torch.stack([slots[0, -1] if slots.shape[1] else slots.new_tensor(-1) for slots in own])
    moved = [slots + ends.max() - end for slots, end in zip(own, ends, strict=True)]
    return torch.cat([pad(slots, (length - slots.shape[1], 0)) for slots in moved])


def _packed_runs(rows: Sequence[Positions]) -> Runs | None:
    """Join the runs of rows one after another, where the host knows those of each."""
    if any(row.given_slots is not None for row in rows):
        return None
    return tuple(run for row in rows for run in (((0, row.length),) if row.runs is None else row.runs))


def _joined_lengths(rows: Sequence[Positions], dim: int) -> Tensor | None:
    """Join the lengths of the whole sequences: one a row (dim 0), or one a token (dim 1, and where documents differ);
    None where any is unknown."""
    parts = []
    for row in rows:
        if row.sequence_length is None:
            return None
        parts.append(torch.as_tensor(row.sequence_length, device=row.device).reshape(1, -1))
    if dim == 1 or any(part.shape[1] > 1 for part in parts):
        parts = [part.expand(1, row.length) for part, row in zip(parts, rows, strict=True)]
    return torch.cat(parts, dim)


def _joined_starts(rows: Sequence[Positions]) -> tuple[int, ...] | None:
    """List the first position of each row, where all are ranges."""
    starts = tuple(row.start for row in rows if row.start is not None)
    return starts if len(starts) == len(rows) else None


def _shared_bound(rows: Sequence[Positions]) -> int | None:
    """Find a number that no position of the rows reaches, where each has one."""
    bounds = [row.below for row in rows if row.below is not None]
    return max(bounds) if len(bounds) == len(rows) else None


def counted_from_bounds(cu_seqlens: Tensor, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Derive ids, documents and document lengths of a packed row from where its documents begin, on the device
    alone."""
    tokens = torch.arange(length, device=cu_seqlens.device)
    documents = torch.bucketize(tokens, cu_seqlens[1:], right=True)
    bounds = torch.cat((cu_seqlens, cu_seqlens.new_full((1,), length))).long()
    lengths = (bounds[1:] - bounds[:-1])[documents]
    return (tokens - bounds[documents])[None], documents[None], lengths[None]
