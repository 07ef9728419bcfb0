"""Positions: where each token stands, as data that every encoding takes.

A `Positions` answers four questions, separately, because confusing them is where cached decoding,
padding and packing go wrong elsewhere:

    ids               which position each place has: what an encoding computes with
    slots             where the place lies in the sequence: what "earlier" and "later" mean under a causal mask
    documents, valid  which places may see each other at all
    sequence_length   how long the whole sequence is, for methods that choose by it (dynamic NTK, LongRoPE)

Its structure (a range, padded, packed, ...) is known from how it was made, never by reading tensor
values, so that choosing a fast path costs no wait for a device. Padded places have position 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import torch
from jaxtyping import Bool, Int, Num
from torch import Tensor

from situs.functional import grids, sampling
from situs.functional.grids import Vision

Structure = Literal["range", "padded", "packed", "grid", "mixed", "explicit"]
Side = Literal["left", "right"]
Layout = Literal["contiguous", "zigzag"]
Runs: TypeAlias = tuple[tuple[int, int], ...]  # neighbouring slots as (first, past the last)

DIMENSION_NAMES = "(sequence,), (batch, sequence) or (batch, sequence, axes)"


@dataclass(frozen=True, eq=False, repr=False)
class Positions:
    """The places of one or more token sequences. Make one with a constructor below, not by hand."""

    structure: Structure
    length: int
    device: torch.device
    runs: Runs | None = None
    given_ids: Tensor | None = None
    given_slots: Tensor | None = None
    documents: Int[Tensor, "#batch sequence"] | None = None
    valid: Bool[Tensor, "#batch sequence"] | None = None
    sequence_length: int | Int[Tensor, "#batch #sequence"] | None = None
    document_lengths: tuple[int, ...] | None = None
    side: Side | None = None
    note: str = ""
    tables: dict[Any, Any] = field(default_factory=dict)

    # ------------------------------------------------------------------ constructors

    @staticmethod
    def range(
        length: int,
        *,
        start: int | Int[Tensor, "batch"] = 0,
        sequence_length: int | None = None,
        device: torch.device | str = "cpu",
    ) -> Positions:
        """``start, start + 1, ...``; a tensor of starts gives each row its own, as after unequal prompts."""
        if length < 0:
            raise ValueError(f"length must be 0 or more, since it counts places; got {length}.")
        if isinstance(start, Tensor):
            places = start.unsqueeze(-1) + torch.arange(length, device=start.device)
            return replace(
                Positions.explicit(places), given_slots=places, sequence_length=sequence_length, note="range by row"
            )
        known = length if sequence_length is None and start == 0 else sequence_length
        runs = ((start, start + length),)
        return Positions("range", length, torch.device(device), runs, sequence_length=known)

    @staticmethod
    def from_mask(mask: Num[Tensor, "batch sequence"] | Bool[Tensor, "batch sequence"], *, side: Side | None = None) -> Positions:
        """Count the real tokens of each row; ``mask`` is true (or 1) at them.

        Padding may stand left, right or in holes; say ``side`` if you know it, and fast paths can use it.
        """
        if mask.ndim != 2:
            raise ValueError(
                f"mask must have shape (batch, sequence), since it marks the tokens of each row; "
                f"got shape {tuple(mask.shape)}. A (batch, 1, query, key) attention mask goes to attend(mask=...)."
            )
        if mask.is_floating_point():
            raise TypeError(
                f"mask must be bool or int with true at real tokens, since an additive mask has 0 there; "
                f"got dtype {mask.dtype}. Pass mask == 0 if yours is additive."
            )
        if side not in (None, "left", "right"):
            raise ValueError(f'side must be "left", "right" or None, since padding stands at an end or anywhere; got {side!r}.')
        valid = mask.bool()
        if side is not None and not _is_deferred(valid):
            ahead, behind = (valid[:, :-1], valid[:, 1:]) if side == "left" else (valid[:, 1:], valid[:, :-1])
            if bool((ahead & ~behind).any()):
                raise ValueError(
                    f'side must be where the padding stands; got "{side}", but a real token stands on that side of '
                    f"padding. Leave side out for padding anywhere."
                )
        ids = torch.where(valid, valid.long().cumsum(-1) - 1, 0)
        return Positions(
            "padded", mask.shape[1], mask.device, ((0, mask.shape[1]),), ids, valid=valid,
            sequence_length=valid.sum(-1, keepdim=True), side=side,
        )  # fmt: skip

    @staticmethod
    def packed(
        lengths: Sequence[int] | None = None,
        *,
        cu_seqlens: Int[Tensor, "documents_plus_one"] | None = None,
        length: int | None = None,
        device: torch.device | str = "cpu",
    ) -> Positions:
        """Documents one after another in a single row: positions restart, and no document sees another.

        Give their ``lengths``, or ``cu_seqlens`` (0, end of the first, end of the second, ...). If the latter
        lives on an accelerator, give the row's ``length`` too, so that nothing has to be read back.
        """
        if (lengths is None) == (cu_seqlens is None):
            raise ValueError("packed needs either lengths or cu_seqlens, since one follows from the other; got both or none.")
        if cu_seqlens is not None:
            if not _is_deferred(cu_seqlens):
                bounds = cu_seqlens.tolist()
                if not bounds or bounds[0] != 0:
                    raise ValueError(f"cu_seqlens must begin with 0, since it holds where each document begins; got {bounds}.")
                lengths, device = [end - begin for begin, end in zip(bounds, bounds[1:], strict=False)], cu_seqlens.device
            elif length is None:
                raise ValueError(
                    f"length must be given with cu_seqlens on {cu_seqlens.device}, since reading it would make the host wait."
                )
            else:
                return _packed_on_device(cu_seqlens, length)
        assert lengths is not None
        lengths = tuple(int(count) for count in lengths)
        if any(count < 0 for count in lengths):
            raise ValueError(f"lengths must be 0 or more, since they count tokens; got {lengths}.")
        if length is not None and sum(lengths) != length:
            raise ValueError(
                f"lengths must add up to length, since documents fill the row; got {lengths}, which makes "
                f"{sum(lengths)}, and length={length}. Give the padding a document of its own."
            )
        return Positions.pack([Positions.range(count, device=device) for count in lengths], device=device)

    @staticmethod
    def explicit(
        ids: Num[Tensor, "*dims"],
        *,
        documents: Int[Tensor, "*rows"] | None = None,
        valid: Bool[Tensor, "*rows"] | None = None,
        sequence_length: int | Tensor | None = None,
    ) -> Positions:
        """Positions as they are: integers, or reals for computed methods; (sequence,), (batch, sequence) or
        (batch, sequence, axes)."""
        if ids.dtype in (torch.float16, torch.bfloat16):
            raise TypeError(
                f"ids must be integers, float32 or float64, since in {ids.dtype} neighbouring positions collide "
                f"(bfloat16 from 257 on, float16 from 2049 on); got dtype {ids.dtype}."
            )
        if ids.dtype == torch.bool or ids.is_complex():
            raise TypeError(f"ids must be numbers, since they are positions; got dtype {ids.dtype}. A mask goes to Positions.from_mask.")
        if not 1 <= ids.ndim <= 3:
            raise ValueError(f"ids must have shape {DIMENSION_NAMES}; got shape {tuple(ids.shape)}.")
        ids = ids if ids.is_floating_point() else ids.long()
        ids = ids.unsqueeze(0) if ids.ndim == 1 else ids
        documents, valid = (None if rows is None else rows.unsqueeze(0) if rows.ndim == 1 else rows for rows in (documents, valid))
        for name, rows in (("documents", documents), ("valid", valid)):
            if rows is not None and rows.shape[-1] != ids.shape[1]:
                raise ValueError(
                    f"{name} must have one value a place, since each belongs to a position; "
                    f"got shape {tuple(rows.shape)} for ids of shape {tuple(ids.shape)}."
                )
        return Positions(
            "explicit", ids.shape[1], ids.device, given_ids=ids, documents=documents, valid=valid,
            sequence_length=sequence_length,
        )  # fmt: skip

    @staticmethod
    def grid(*sizes: int, device: torch.device | str = "cpu") -> Positions:
        """Coordinates of an image (height, width) or video (time, height, width), row by row."""
        if not 1 <= len(sizes) <= 3 or any(size < 1 for size in sizes):
            raise ValueError(f"grid needs one to three sizes of 1 or more, since it has that many axes; got {sizes}.")
        ids = grids.grid_coordinates(*sizes).unsqueeze(0).to(device)
        return Positions(
            "grid", ids.shape[1], ids.device, ((0, ids.shape[1]),), ids,
            sequence_length=ids.shape[1], note=" x ".join(map(str, sizes)),
        )  # fmt: skip

    @staticmethod
    def mixed(segments: Sequence[int | Vision], *, device: torch.device | str = "cpu") -> Positions:
        """Text (token counts) among pictures and videos (`Vision`), with M-RoPE's three coordinates."""
        ids, delta = grids.multimodal_coordinates(segments)
        ids = ids.unsqueeze(0).to(device)
        return Positions(
            "mixed", ids.shape[1], ids.device, ((0, ids.shape[1]),), ids,
            sequence_length=ids.shape[1], note=f"{len(segments)} segments, delta {delta}",
        )  # fmt: skip

    @staticmethod
    def batch(rows: Sequence[Positions], *, side: Side = "right") -> Positions:
        """One row each, padded to the longest on ``side``."""
        _require_rows(rows, "batch")
        longest = max(row.length for row in rows)
        padded = [_pad(row, longest - row.length, side) for row in rows]
        same = all(row.length == longest and row.runs == rows[0].runs for row in rows)
        return Positions(
            "padded" if any(row.length < longest for row in rows) else "explicit",
            longest,
            rows[0].device,
            rows[0].runs if same else ((0, longest),),
            torch.cat([row.ids for row in padded]),
            documents=_joined(padded, lambda row: row.documents, torch.zeros, 0),
            valid=_joined(padded, lambda row: row.valid, torch.ones, 0),
            sequence_length=_joined_lengths(padded, 0),
            side=side if any(row.length < longest for row in rows) else None,
        )

    @staticmethod
    def pack(rows: Sequence[Positions], *, device: torch.device | str = "cpu") -> Positions:
        """One after another in a single row, each a document of its own."""
        if not rows:
            rows = [Positions.range(0, device=device)]
        _require_rows(rows, "pack")
        total = sum(row.length for row in rows)
        numbers = [torch.full((1, row.length), number, device=row.device) for number, row in enumerate(rows)]
        if any(row.documents is not None for row in rows):
            raise ValueError("pack takes rows of one document each, since it numbers them; got a row that has documents already.")
        return Positions(
            "packed",
            total,
            rows[0].device,
            ((0, total),),
            torch.cat([row.ids for row in rows], 1),
            documents=torch.cat(numbers, 1),
            valid=_joined(rows, lambda row: row.valid, torch.ones, 1),
            sequence_length=_joined_lengths(rows, 1),
            document_lengths=tuple(row.length for row in rows),
        )

    @staticmethod
    def of(
        value: PositionsLike, length: int, *, batch: int | None = None, device: torch.device | str = "cpu"
    ) -> Positions:
        """What an encoding makes of its argument: nothing is a range from 0, an int its start."""
        if value is None or isinstance(value, int):
            return Positions.range(length, start=value or 0, device=device)
        positions = (value if isinstance(value, Positions) else Positions.explicit(value)).to(device)
        if positions.length != length:
            raise ValueError(
                f"positions must have one place for each of the {length} tokens, since each token stands somewhere; "
                f"got {positions!r}. Slice them with positions[first:last], or pass those of this call only."
            )
        if batch is not None and positions.rows not in (1, batch):
            raise ValueError(
                f"positions must have one row, or one for each of the {batch} sequences; got {positions.rows} rows."
            )
        return positions

    # ------------------------------------------------------------------ what it knows

    @property
    def ids(self) -> Num[Tensor, "..."]:
        """Positions, (batch, sequence) or (batch, sequence, axes); batch is 1 where rows share."""
        if self.given_ids is not None:
            return self.given_ids
        return _runs_tensor(self.runs or (), self.device).unsqueeze(0)

    @property
    def slots(self) -> Int[Tensor, "batch sequence"] | None:
        """Places in the sequence; None for bare ids, which take the place of the last keys."""
        if self.given_slots is not None:
            return self.given_slots
        return None if self.runs is None else _runs_tensor(self.runs, self.device).unsqueeze(0)

    @property
    def start(self) -> int | None:
        """The first position, where these are neighbours in one range; else None."""
        return self.runs[0][0] if self.structure == "range" and self.runs and len(self.runs) == 1 else None

    @property
    def rows(self) -> int:
        """Sequences in the batch; 1 where all share."""
        most = 1
        for source in (self.given_ids, self.documents, self.valid):
            most = most if source is None else max(most, source.shape[0])
        return most

    @property
    def axes(self) -> int:
        """Coordinates a place has."""
        return 1 if self.given_ids is None or self.given_ids.ndim == 2 else self.given_ids.shape[-1]

    def __len__(self) -> int:
        return self.length

    def __repr__(self) -> str:
        facts: list[str] = [self.structure]
        if self.runs is not None and self.structure == "range":
            facts[0] += " " + ", ".join(f"{first}..{last - 1}" for first, last in self.runs)
        facts += [self.note] if self.note else []
        facts += [f"padded {self.side}"] if self.side else []
        facts += [f"documents of {', '.join(map(str, self.document_lengths))}"] if self.document_lengths else []
        facts.append(f"length {self.length}")
        facts += [f"rows {self.rows}"] if self.rows > 1 else []
        facts += [f"axes {self.axes}"] if self.axes > 1 else []
        if isinstance(self.sequence_length, int) and self.sequence_length != self.length:
            facts.append(f"of a sequence of {self.sequence_length}")
        facts += [f"on {self.device}"] if self.device.type != "cpu" else []
        return f"Positions({', '.join(facts)})"

    # ------------------------------------------------------------------ what can be made of it

    def to(self, device: torch.device | str) -> Positions:
        """The same places on another device; a range moves without a copy."""
        device = torch.device(device)
        if device == self.device:
            return self
        return self._map(lambda tensor: tensor.to(device), device=device, tables={})

    def __getitem__(self, key: slice) -> Positions:
        """``positions[first:last]``: part of every sequence, as for chunked prefill. Nothing is forgotten:
        slots, documents and the whole sequence's length stay what they were."""
        if not isinstance(key, slice) or key.step not in (None, 1):
            raise TypeError(f"positions are sliced along the sequence, as positions[first:last]; got {key!r}.")
        first, last, _ = key.indices(self.length)
        return self._take([(first, max(first, last))])

    def row(self, number: int) -> Positions:
        """One sequence of the batch."""
        if not -self.rows <= number < self.rows:
            raise IndexError(f"row must be below {self.rows}, the number of rows; got {number}.")
        chosen = slice(number, None) if number == -1 else slice(number, number + 1)
        return self._map(lambda tensor: tensor[chosen] if tensor.shape[0] > 1 else tensor, tables={})

    def shard(self, rank: int, world_size: int, *, layout: Layout = "contiguous") -> Positions:
        """The places that context-parallel ``rank`` holds; zigzag gives it one early and one late piece."""
        if not 0 <= rank < world_size:
            raise ValueError(f"rank must lie in 0 .. {world_size - 1}, since there are {world_size} ranks; got {rank}.")
        if layout not in ("contiguous", "zigzag"):
            raise ValueError(f'layout must be "contiguous" or "zigzag"; got {layout!r}.')
        pieces = world_size if layout == "contiguous" else 2 * world_size
        if self.length % pieces:
            raise ValueError(
                f"length must be a multiple of {pieces}, since {layout} sharding over {world_size} ranks cuts the "
                f"sequence into {pieces} equal pieces; got {self.length}. Pad it to {-(-self.length // pieces) * pieces}."
            )
        size = self.length // pieces
        mine = [rank] if layout == "contiguous" else [rank, pieces - 1 - rank]
        return self._take([(piece * size, (piece + 1) * size) for piece in mine])

    def randomised(self, high: int, *, seed: int, count: int | None = None) -> Positions:
        """Position n becomes the n-th of a sorted random sample below ``high`` (Ruoss et al. 2023)."""
        return self._resampled("high", high, count, f"randomised below {high}", lambda n: sampling.randomised(n, high, seed))

    def skipped(self, high: int, *, seed: int, chunks: int = 2, count: int | None = None) -> Positions:
        """Runs of neighbours with random gaps between, below ``high`` (PoSE, Zhu et al. 2023)."""
        if chunks < 1:
            raise ValueError(f"chunks must be 1 or more, since the sequence is cut into them; got {chunks}.")
        return self._resampled(
            "high", high, count, f"skipping below {high}", lambda n: sampling.skips(n, high, min(chunks, n), seed)
        )

    def with_sequence_length(self, sequence_length: int | Int[Tensor, "#batch #sequence"]) -> Positions:
        """The same places of a sequence that is, or will be, this long in all."""
        return replace(self, sequence_length=sequence_length, tables={})

    # ------------------------------------------------------------------ internal

    def _map(self, change: Callable[[Tensor], Tensor], **others: Any) -> Positions:
        names = ("given_ids", "given_slots", "documents", "valid", "sequence_length")
        tensors = {name: getattr(self, name) for name in names}
        return replace(self, **{n: change(t) for n, t in tensors.items() if isinstance(t, Tensor)}, **others)

    def _take(self, pieces: list[tuple[int, int]]) -> Positions:
        """Some stretches of the sequence, joined."""
        runs = self.runs
        if runs is None and self.given_slots is None:
            runs = ((0, self.length),)  # bare ids are sliced as a whole sequence
        taken = None if runs is None else tuple(part for piece in pieces for part in _cut(runs, *piece))

        def change(tensor: Tensor) -> Tensor:
            if tensor.shape[1] == 1 and self.length != 1:
                return tensor  # one value for the whole row
            parts = [tensor[:, first:last] for first, last in pieces]
            return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

        return self._map(
            change, length=sum(last - first for first, last in pieces), runs=taken, document_lengths=None, tables={}
        )

    def _resampled(
        self, name: str, high: int, count: int | None, note: str, draw: Callable[[int], Tensor]
    ) -> Positions:
        ids = self.ids
        if ids.is_floating_point():
            raise TypeError(f"randomised positions need whole ones to count by; got ids of dtype {ids.dtype}.")
        if count is None:
            if self.runs is None:
                raise ValueError("count must be given for bare ids, since it says how many positions to draw; got none.")
            count = max((last for _, last in self.runs), default=0)
        if high < count:
            raise ValueError(f"{name} must be at least {count}, since that many different positions are drawn; got {high}.")
        _require_within(ids, count, "ids", "count")
        return replace(
            self, structure="explicit", given_ids=draw(count).to(self.device)[ids], note=note, tables={}
        )


PositionsLike: TypeAlias = Positions | Tensor | int | None


def align(
    query: PositionsLike, key: PositionsLike, query_length: int, key_length: int, device: torch.device | str = "cpu"
) -> tuple[Positions, Positions]:
    """Positions of queries and keys, where the caller may have given neither, one or both.

    Queries are the last rows of the keys unless told otherwise, as in decoding with a cache.
    """
    if key is None and query is not None:
        if query_length == key_length:
            shared = Positions.of(query, query_length, device=device)
            return shared, shared
        given = Positions.of(query, query_length, device=device)
        if given.start is None or given.start + query_length != key_length:
            raise ValueError(
                f"key_positions must be given, since {key_length} keys cannot be placed from the positions of "
                f"{query_length} queries; got {given!r} for the queries."
            )
        return given, Positions.range(key_length, sequence_length=_host(given.sequence_length), device=device)
    keys = Positions.of(key, key_length, device=device)
    if query is None and query_length <= key_length:
        return (keys if query_length == key_length else keys[key_length - query_length :]), keys
    return Positions.of(query, query_length, device=device), keys


def _host(value: int | Tensor | None) -> int | None:
    return value if isinstance(value, int) else None


def _is_deferred(tensor: Tensor) -> bool:
    """Whether reading the tensor's values would make the host wait, or break a graph."""
    return tensor.device.type != "cpu" or torch.compiler.is_compiling()


def _runs_tensor(runs: Runs, device: torch.device) -> Int[Tensor, "sequence"]:
    pieces = [torch.arange(first, last, device=device) for first, last in runs]
    return pieces[0] if len(pieces) == 1 else torch.cat([torch.zeros(0, dtype=torch.int64, device=device), *pieces])


def _cut(runs: Runs, first: int, last: int) -> Runs:
    """Places ``first .. last`` of some runs."""
    taken = []
    for begin, end in runs:
        size = end - begin
        low, high = min(max(first, 0), size), min(max(last, 0), size)
        if high > low or len(runs) == 1:
            taken.append((begin + low, begin + max(high, low)))
        first, last = first - size, last - size
    return tuple(taken)


def _packed_on_device(cu_seqlens: Tensor, length: int) -> Positions:
    places = torch.arange(length, device=cu_seqlens.device)
    documents = torch.bucketize(places, cu_seqlens[1:], right=True)
    bounds = torch.cat((cu_seqlens, cu_seqlens.new_full((1,), length))).long()
    ids = places - bounds[documents]
    return Positions(
        "packed", length, cu_seqlens.device, ((0, length),), ids.unsqueeze(0), documents=documents.unsqueeze(0),
        sequence_length=(bounds[1:] - bounds[:-1])[documents].unsqueeze(0),
    )  # fmt: skip


def _require_rows(rows: Sequence[Positions], name: str) -> None:
    if not rows or any(row.rows != 1 for row in rows):
        raise ValueError(f"{name} joins one or more single rows; got {[row.rows for row in rows]} rows.")
    if len({row.axes for row in rows}) > 1:
        raise ValueError(f"{name} joins rows of as many axes each; got {[row.axes for row in rows]} axes.")


def _pad(row: Positions, places: int, side: Side) -> Positions:
    """Add padded places of position 0 at one side."""
    ids, before = row.ids, (places, 0) if side == "left" else (0, places)
    per_axis = (0, 0) if ids.ndim == 3 else ()
    valid = row.valid if row.valid is not None else torch.ones(1, row.length, dtype=torch.bool, device=row.device)
    pad = torch.nn.functional.pad
    return replace(
        row,
        structure="padded",
        length=row.length + places,
        given_ids=pad(ids, (*per_axis, *before)),
        valid=pad(valid, before),
        documents=None if row.documents is None else pad(row.documents, before),
        sequence_length=row.sequence_length if not isinstance(row.sequence_length, Tensor)
        else row.sequence_length.expand(1, row.length).amax(-1, keepdim=True),
    )  # fmt: skip


def _joined(
    rows: Sequence[Positions], get: Callable[[Positions], Tensor | None], default: Callable[..., Tensor], dim: int
) -> Tensor | None:
    """A field of every row, where any row has it."""
    fields = [get(row) for row in rows]
    dtype = next((field.dtype for field in fields if field is not None), None)
    if dtype is None or (dtype == torch.bool and all(field is None or _is_full(row) for row, field in zip(rows, fields, strict=True))):
        return None
    filled = [
        default(1, row.length, dtype=dtype, device=row.device) if field is None else field
        for row, field in zip(rows, fields, strict=True)
    ]
    return torch.cat(filled, dim)


def _is_full(row: Positions) -> bool:
    """Whether a row is known to hold no padding."""
    return row.valid is None


def _joined_lengths(rows: Sequence[Positions], dim: int) -> Tensor | None:
    """Whole-sequence lengths: one a row (dim 0) or one a place (dim 1); None where any is unknown."""
    parts = []
    for row in rows:
        if row.sequence_length is None:
            return None
        whole = torch.as_tensor(row.sequence_length, device=row.device).reshape(1, -1)
        parts.append(whole[:, :1] if dim == 0 else whole.expand(1, row.length))
    return torch.cat(parts, dim)


def _require_within(ids: Tensor, limit: int, name: str, limit_name: str) -> None:
    if not _is_deferred(ids) and ids.numel() and (int(ids.min()) < 0 or int(ids.max()) >= limit):
        raise ValueError(
            f"{name} must lie in 0 .. {limit - 1}, since {limit_name} is {limit}; got {int(ids.min())} .. {int(ids.max())}."
        )
