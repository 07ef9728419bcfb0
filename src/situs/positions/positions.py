"""Positions: where each token stands, as data that every encoding takes.

A `Positions` answers five questions, separately, because confusing them is where cached decoding,
padding and packing go wrong elsewhere:

    ids               which position each token has: what an encoding computes with
    slots             where the token lies in its document: what "earlier" and "later" mean under a causal mask
    documents, valid  which tokens may see each other at all
    placed            which tokens have a position, where some have none: [CLS] beside the patches of an image
    sequence_length   how long the whole sequence is, for methods that choose by it (dynamic NTK, LongRoPE)

Its structure (a range, padded, packed, ...) is known from how it was made, never by reading tensor
values, so that choosing a fast path costs no wait for a device. Padding, and what has no position, has position 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, SupportsIndex, TypeAlias

import torch
from jaxtyping import Bool, Int, Num
from torch import Tensor

from situs.arguments import require_count, require_device
from situs.functional import grids, sampling
from situs.functional.grids import Vision
from situs.positions import cells, joining, require
from situs.positions.cells import Normalised
from situs.positions.resampling import resampled, stretched
from situs.positions.runs import Runs, as_tensor, cut, shard_pieces, slice_bounds
from situs.positions.words import facts_about

Structure = Literal["range", "padded", "packed", "grid", "mixed", "explicit"]
Side = Literal["left", "right"]
Layout = Literal["contiguous", "zigzag"]


@dataclass(frozen=True, eq=False, repr=False)
class Positions:
    """Tell where the tokens of one or more sequences stand. Make one with a constructor below, not by hand."""

    structure: Structure
    length: int
    device: torch.device
    runs: Runs | None = None
    given_ids: Tensor | None = None
    given_slots: Tensor | None = None
    documents: Int[Tensor, "#batch sequence"] | None = None
    valid: Bool[Tensor, "#batch sequence"] | None = None
    placed: Bool[Tensor, "#batch sequence"] | None = None
    sequence_length: int | Int[Tensor, "#batch #sequence"] | None = None
    document_lengths: tuple[int, ...] | None = None
    document_starts: tuple[int, ...] | None = None
    side: Side | None = None
    below: int | None = None
    delta: int | None = 0
    in_order: bool = True
    """Whether tokens lie in memory as they follow one another; those of zigzag ranks, gathered, do not."""
    note: str = ""
    tables: dict[Any, Any] = field(default_factory=dict)
    in_graph: bool = field(default_factory=torch.compiler.is_compiling)

    @staticmethod
    def range(
        length: int,
        *,
        start: int | Int[Tensor, "batch"] = 0,
        sequence_length: int | None = None,
        device: torch.device | str | None = None,
    ) -> Positions:
        """Count ``start, start + 1, ...``; a tensor of starts gives each row its own, as after unequal prompts. They
        live where that does, or on the CPU, unless told otherwise."""
        if type(length) is not int or length < 0:
            length = require_count("length", length, "it counts tokens", least=0)
        if sequence_length is not None:
            require.sequence_length(sequence_length)
        if isinstance(start, Tensor):
            require.starts(start)
            start = start if device is None else start.to(require.device(device))
            ids = start.unsqueeze(-1) + torch.arange(length, device=start.device)
            return replace(
                Positions.explicit(ids),
                given_slots=ids,
                sequence_length=sequence_length,
                note="range by row",
            )
        if type(start) is not int:
            start = require_count("start", start, "it is a position")
        known = length if sequence_length is None and start == 0 else sequence_length
        runs = ((start, start + length),)
        below = start + length if start >= 0 else None
        where = device if isinstance(device, torch.device) else require.device(device)
        return Positions("range", length, where, runs, sequence_length=known, below=below)

    @staticmethod
    def from_mask(
        mask: Num[Tensor, "batch sequence"] | Bool[Tensor, "batch sequence"], *, side: Side | None = None
    ) -> Positions:
        """Count the real tokens of each row; ``mask`` is true (or 1) at them.

        Padding may stand left, right or in holes; say ``side`` if you know it, and fast paths can use it.
        """
        require.mask(mask, side)
        valid = mask.bool()
        ids = torch.where(valid, valid.long().cumsum(-1) - 1, 0)
        return Positions(
            "padded", mask.shape[1], mask.device, ((0, mask.shape[1]),), ids, valid=valid,
            sequence_length=valid.sum(-1, keepdim=True), side=side, below=mask.shape[1],
        )  # fmt: skip

    @staticmethod
    def packed(
        lengths: Iterable[SupportsIndex] | None = None,
        *,
        cu_seqlens: Int[Tensor, "documents_plus_one"] | None = None,
        length: int | None = None,
        device: torch.device | str | None = None,
    ) -> Positions:
        """Lay documents one after another in a single row: positions restart, and no document sees another.

        Give their ``lengths``, or ``cu_seqlens`` (0, end of the first, end of the second, ...). If the latter
        lives on an accelerator, give the row's ``length`` too, so that nothing has to be read back.
        """
        known = require.document_lengths(lengths, cu_seqlens, length)
        device = None if device is None else require.device(device)
        cu_seqlens = cu_seqlens if cu_seqlens is None or device is None else cu_seqlens.to(device)
        if known is None:
            assert cu_seqlens is not None
            assert length is not None
            ids, numbers, whole = joining.counted_from_bounds(cu_seqlens, length)
            row = Positions("packed", length, cu_seqlens.device, given_ids=ids, given_slots=ids)
            return replace(row, documents=numbers, sequence_length=whole, below=length)
        device = device if cu_seqlens is None else cu_seqlens.device
        return Positions.pack([Positions.range(count, device=device) for count in known or [0]])

    @staticmethod
    def explicit(
        ids: Num[Tensor, "*dims"],
        *,
        documents: Int[Tensor, "*rows"] | None = None,
        valid: Bool[Tensor, "*rows"] | None = None,
        placed: Bool[Tensor, "*rows"] | None = None,
        sequence_length: int | Tensor | None = None,
    ) -> Positions:
        """Take positions as they are: integers, or reals for computed methods; (sequence,), (batch, sequence) or
        (batch, sequence, axes). ``placed`` is true at tokens that have one."""
        require.ids(ids)
        ids = ids if ids.is_floating_point() else ids.long()
        ids = ids.unsqueeze(0) if ids.ndim == 1 else ids
        ids = ids.squeeze(-1) if ids.ndim == 3 and ids.shape[-1] == 1 else ids
        documents, valid, placed = require.facts(ids, documents, valid, placed)
        if placed is not None:
            ids = torch.where(placed if ids.ndim == 2 else placed.unsqueeze(-1), ids, 0)
        require.sequence_length(sequence_length)
        return Positions(
            "explicit", ids.shape[1], ids.device, given_ids=ids, documents=documents, valid=valid, placed=placed,
            sequence_length=sequence_length,
        )  # fmt: skip

    @staticmethod
    def grid(
        *sizes: int,
        first: float | int | Sequence[float | int] = 0,
        step: float | int | Sequence[float | int] = 1,
        centred: bool | Sequence[bool] = False,
        normalised: Normalised | None = None,
        prefix: int = 0,
        device: torch.device | str = "cpu",
    ) -> Positions:
        """Give the cells of an image (height, width), video (time, height, width) or other grid their coordinates, row
        by row: ``first, first + step, ...``, one number for all axes or one for each.
        Time goes by seconds with ``step=(24 / fps, 1, 1)`` (Cosmos). ``centred`` counts from ``first - ceil(n / 2)``
        on (Qwen-Image's scale_rope). ``normalised`` gives the centres of cells in -1 .. 1, divided by each side
        ("each", DINOv3's "separate"), the "longest" or the "shortest". The first ``prefix`` tokens, such as [CLS] and
        registers, have no position.

        >>> Positions.grid(1, 2, 3, centred=(False, True, True)).ids[0, :, 2].tolist()
        [-2, -1, 0, -2, -1, 0]
        """
        made = Positions(**cells.grid(sizes, first, step, centred, normalised, device))
        return cells.prefixed(made, prefix, "prefix")

    @staticmethod
    def mixed(segments: Sequence[int | Vision], *, device: torch.device | str = "cpu") -> Positions:
        """Lay text (token counts) among pictures and videos (`Vision`), with M-RoPE's three coordinates."""
        device = require_device(device)
        ids, delta = grids.multimodal_coordinates(segments)
        ids = ids.unsqueeze(0).to(device)
        return Positions(
            "mixed", ids.shape[1], ids.device, ((0, ids.shape[1]),), ids,
            sequence_length=ids.shape[1], delta=delta, note=f"{len(segments)} segments, delta {delta}",
        )  # fmt: skip

    @staticmethod
    def batch(rows: Sequence[Positions], *, side: Side = "right") -> Positions:
        """Join rows into a batch, padded to the longest on ``side``."""
        require.single_rows(rows, "batch", Positions)
        require.side(side)
        return Positions(**joining.batched(rows, side))

    @staticmethod
    def pack(rows: Sequence[Positions]) -> Positions:
        """Join rows one after another into a single one, each a document of its own with the slots that it has."""
        require.single_rows(rows, "pack", Positions)
        if any(row.documents is not None for row in rows):
            raise ValueError("pack joins rows of one document each, since it numbers them; got a row with documents.")
        return Positions(**joining.packed(rows))

    @staticmethod
    def of(
        value: PositionsLike, length: int, *, batch: int | None = None, device: torch.device | str = "cpu"
    ) -> Positions:
        """Make positions of what an encoding is given: nothing is a range from 0, an int its start."""
        if type(length) is not int or length < 0:
            length = require_count("length", length, "it counts tokens", least=0)
        if batch is not None and (type(batch) is not int or batch < 0):
            batch = require_count("batch", batch, "it counts rows", least=0)
        if value is None or type(value) is int:
            return Positions.range(length, start=value or 0, device=device)
        if not isinstance(value, Positions) or value.length != length:
            require.like("positions", value, length, Positions)
            if not isinstance(value, (Positions, Tensor)):
                return Positions.range(length, start=value, device=require_device(device))
        positions = (value if isinstance(value, Positions) else Positions.explicit(value)).to(device)
        if batch is not None and positions.rows not in (1, batch):
            raise ValueError(
                f"positions must have one row, or one for each of the {batch} sequences; got {positions.rows} rows."
            )
        return positions

    @property
    def ids(self) -> Num[Tensor, "..."]:
        """Positions, (batch, sequence) or (batch, sequence, axes); batch is 1 where rows share."""
        if self.given_ids is not None:
            return self.given_ids
        return as_tensor(self.runs or (), self.device).unsqueeze(0)

    @property
    def slots(self) -> Int[Tensor, "batch sequence"] | None:
        """Where tokens lie in their document; None for bare ids, which stand for the last keys."""
        if self.given_slots is not None:
            return self.given_slots
        return None if self.runs is None else as_tensor(self.runs, self.device).unsqueeze(0)

    @property
    def start(self) -> int | None:
        """The first position, where these are neighbours in one range; else None."""
        return self.runs[0][0] if self.structure == "range" and self.runs and len(self.runs) == 1 else None

    @property
    def version(self) -> int:
        """How often given ids were written to, as far as torch counts: what was made of them before is then stale."""
        ids = self.given_ids
        return 0 if ids is None or torch.compiler.is_compiling() or ids.is_inference() else ids._version

    @property
    def first_slot(self) -> int | None:
        """The first slot, where slots go up by one and all tokens are real ones of one document; else None."""
        if self.given_slots is not None or self.documents is not None or self.valid is not None:
            return None
        return self.runs[0][0] if self.runs is not None and len(self.runs) == 1 else None

    @property
    def rows(self) -> int:
        """Sequences in the batch; 1 where all share."""
        most = 1
        for source in (self.given_ids, self.documents, self.valid, self.placed, self.sequence_length):
            most = max(most, source.shape[0]) if isinstance(source, Tensor) else most
        return most

    @property
    def axes(self) -> int:
        """Coordinates that a position has."""
        return 1 if self.given_ids is None or self.given_ids.ndim == 2 else self.given_ids.shape[-1]

    def __len__(self) -> int:
        return self.length

    def __repr__(self) -> str:
        return f"Positions({', '.join(facts_about(self))})"

    def to(self, device: torch.device | str) -> Positions:
        """Move to another device; a range moves without a copy."""
        device = device if isinstance(device, torch.device) else require_device(device)
        if device == self.device:
            return self
        return self._map(lambda tensor: tensor.to(device), device=device)

    def __getitem__(self, key: slice) -> Positions:
        """Take ``positions[first:last]`` of every sequence, as for chunked prefill. Nothing is forgotten: slots,
        documents and the whole sequence's length stay what they were."""
        require.slice_of_tokens(key)
        return self._take([slice_bounds(key, self.length)])

    def row(self, number: int) -> Positions:
        """Take one sequence of the batch."""
        number = require_count("row", number, "it is one of the batch")
        if not -self.rows <= number < self.rows:
            raise IndexError(
                f"row must lie in {-self.rows} .. {self.rows - 1}, since there are {self.rows}; got {number}."
            )
        chosen = slice(number, None) if number == -1 else slice(number, number + 1)
        return self._map(lambda tensor: tensor[chosen] if tensor.shape[0] > 1 else tensor)

    def shard(self, rank: int, world_size: int, *, layout: Layout = "contiguous") -> Positions:
        """Take what context-parallel ``rank`` holds; zigzag gives it one early and one late piece."""
        pieces = shard_pieces(self.length, world_size, layout)
        rank = require_count("rank", rank, "it is one of the ranks")
        if not 0 <= rank < world_size:
            raise ValueError(f"rank must lie in 0 .. {world_size - 1}, since there are {world_size} ranks; got {rank}.")
        return self._take(pieces[rank])

    def gathered(self, world_size: int, *, layout: Layout = "contiguous") -> Positions:
        """Take what all ranks hold, one rank after another: how keys lie that were gathered from all."""
        pieces = shard_pieces(self.length, world_size, layout)
        return self if layout == "contiguous" else self._take([piece for rank in pieces for piece in rank])

    def randomised(self, high: int, *, seed: int, count: int | None = None) -> Positions:
        """Replace position n by the n-th of a sorted random sample below ``high`` (Ruoss et al. 2023)."""
        seed = require_count("seed", seed, "it starts the random numbers")
        return resampled(self, high, count, f"randomised below {high}", lambda n: sampling.randomised(n, high, seed))

    def skipped(self, high: int, *, seed: int, chunks: int = 2, count: int | None = None) -> Positions:
        """Spread positions into runs of neighbours with random gaps between, below ``high`` (PoSE, Zhu et al. 2023)."""
        seed = require_count("seed", seed, "it starts the random numbers")
        chunks = require_count("chunks", chunks, "the sequence is cut into them", least=1)
        return resampled(
            self, high, count, f"skipping below {high}", lambda n: sampling.skips(n, high, min(chunks, n), seed)
        )

    def augmented(
        self, *, seed: int, shift: float | int = 0.0, jitter: float | int = 1.0, rescale: float | int = 1.0
    ) -> Positions:
        """Move coordinates by up to ``shift``, and stretch or shrink each axis by up to ``jitter`` and all by up to
        ``rescale``, at random, as DINOv3 was trained on ``Positions.grid(14, 14, normalised="each")``."""
        moves, factors = sampling.stretches(self.axes, seed, shift=shift, jitter=jitter, rescale=rescale)
        return stretched(self, moves.tolist(), factors.tolist(), f"augmented by {seed}")

    def scaled(self, factor: float | int | Sequence[float | int]) -> Positions:
        """Multiply coordinates by a number, or by one for each axis; DINOv3's angles are those of 2 pi times its own.

        >>> Positions.grid(2, 2, normalised="each").scaled(4).prefixed(1).ids[0].tolist()
        [[0.0, 0.0], [-2.0, -2.0], [-2.0, 2.0], [2.0, -2.0], [2.0, 2.0]]
        """
        factors = cells.one_an_axis("factor", factor, self.axes, "coordinates are multiplied by it")
        return stretched(self, [0.0] * self.axes, factors, f"times {factor}")

    def prefixed(self, count: int) -> Positions:
        """Put ``count`` tokens without a position before all others, which rotary does not rotate: [CLS], registers, or
        the text of Flux."""
        return cells.prefixed(self, count)

    def continued(self, count: int) -> Positions:
        """Give the tokens decoded next their positions, after a single range or after text among images. Positions
        after images lag behind the slots, by ``delta``."""
        return joining.continuation(self, count)

    def with_sequence_length(self, sequence_length: int | Int[Tensor, "#batch #sequence"]) -> Positions:
        """Tell how long the whole sequence is, or will be; one number, or one for each row, (batch, 1), or token,
        (batch, sequence)."""
        require.sequence_length(sequence_length, needed=True)
        return replace(self, sequence_length=sequence_length, tables={})

    def _map(self, change: Callable[[Tensor], Tensor], **others: Any) -> Positions:
        names = ("given_ids", "given_slots", "documents", "valid", "placed", "sequence_length")
        held = {name: getattr(self, name) for name in names}
        changed: dict[str, Any] = {name: change(value) for name, value in held.items() if isinstance(value, Tensor)}
        return replace(self, **changed, **others, tables={})

    def _take(self, pieces: list[tuple[int, int]]) -> Positions:
        """Take some stretches of the sequence, joined."""
        runs = self.runs
        if runs is None and self.given_slots is None:  # bare ids are sliced as a whole sequence
            if self.documents is not None:
                return replace(self, given_slots=joining.own_slots(self))._take(pieces)
            runs = ((0, self.length),)
        taken = None if runs is None else tuple(part for piece in pieces for part in cut(runs, *piece))

        def change(tensor: Tensor) -> Tensor:
            if tensor.shape[1] == 1 and self.length != 1:
                return tensor  # one value for the whole row
            parts = [tensor[:, first:last] for first, last in pieces]
            return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

        return self._map(
            change,
            length=sum(last - first for first, last in pieces),
            runs=taken,
            document_lengths=None,
            document_starts=None,
            delta=self.delta if pieces[-1][1] == self.length else None,
            in_order=self.in_order and (len(pieces) == 1 or pieces == sorted(pieces)),
        )


PositionsLike: TypeAlias = Positions | Tensor | int | None
