"""Positions of all kinds drawn at random, as the Python that makes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.fuzz.made_positions import make
from tests.fuzz.needs import Needs

# Around every size that kernels cut sequences by.
SHORT = (1, 2, 3, 5, 9, 16, 31, 32, 33, 40)
MIDDLE = (63, 64, 65, 72, 100, 127, 128, 129)
LONG = (255, 256, 257, 258, 300)
LONGEST = (511, 512, 513, 600)


@dataclass(frozen=True)
class Drawn:
    """Positions as they are handed over: expressions, or None where they are left out."""

    positions: str | None
    key_positions: str | None
    queries: int
    keys: int


@dataclass(frozen=True)
class Limits:
    """What positions are drawn within."""

    needs: Needs
    rows: int
    """Sequences in the batch."""

    low_precision: bool
    longest: int

    def length(self, rng: Random) -> int:
        """A length within the limits."""
        pool = rng.choices((SHORT, MIDDLE, LONG, LONGEST), (45, 30, 17, 8))[0]
        return min(rng.choice(pool), self.longest)

    def start(self, rng: Random, length: int) -> int:
        """Where a range may begin."""
        most = self.needs.far if self.needs.table is None else self.needs.table - length
        most = most if self.low_precision else min(most, 20_000)
        return rng.choice([each for each in (0, 1, 37, 500, 20_000, 10**6, 10**8) if each <= most])


def _nothing(rng: Random, limits: Limits) -> Drawn:
    keys = limits.length(rng)
    queries = keys if rng.random() < 0.5 else rng.choice((1, 2, max(1, keys // 2), max(1, keys - 1)))
    return Drawn(None, None, min(queries, keys), keys)


def _range(rng: Random, limits: Limits) -> Drawn:
    length = limits.length(rng)
    start = limits.start(rng, length)
    if rng.random() < 0.2 and not limits.needs.lengths:
        return Drawn(str(start), None, length, length)
    told = f", sequence_length={start + length}" if limits.needs.lengths else ""
    return Drawn(f"Positions.range({length}, start={start}{told})", None, length, length)


def _negative(rng: Random, limits: Limits) -> Drawn:
    length = limits.length(rng)
    return Drawn(f"Positions.range({length}, start={-rng.choice((1, 7, 40, 300))})", None, length, length)


def _last(rng: Random, limits: Limits) -> Drawn:
    keys = limits.length(rng)
    queries = rng.randint(1, keys)
    whole = f"Positions.range({keys})"
    if limits.needs.lengths or rng.random() < 0.5:
        return Drawn(f"{whole}[{keys - queries}:]", whole, queries, keys)
    query = f"Positions.range({queries}, start={keys - queries})"
    return Drawn(query, rng.choice((whole, None)), queries, keys)


def _part(rng: Random, limits: Limits) -> Drawn:
    whole, length = _whole(rng, limits)
    first = rng.randint(0, length - 1)
    last = rng.randint(first + 1, length)
    return Drawn(f"{whole}[{first}:{last}]", whole, last - first, length)


def _across(rng: Random, limits: Limits) -> Drawn:
    queries, keys = limits.length(rng), limits.length(rng)
    return Drawn(f"Positions.range({queries})", f"Positions.range({keys})", queries, keys)


def _padded(rng: Random, limits: Limits) -> Drawn:
    length = limits.length(rng)
    whole = _mask(rng, limits.rows, length)
    if rng.random() < 0.7:
        return Drawn(whole, None, length, length)
    queries = rng.randint(1, length)
    return Drawn(f"{whole}[{length - queries}:]", whole, queries, length)


def _mask(rng: Random, rows: int, length: int) -> str:
    side = rng.choice(("left", "right", "holes"))
    told = f", side={side!r}" if side != "holes" and rng.random() < 0.5 else ""
    return f"Positions.from_mask(padding({rows}, {length}, {side!r}, seed={rng.randrange(1000)}){told})"


def _padded_keys(rng: Random, limits: Limits) -> Drawn:
    keys, queries = limits.length(rng), rng.choice((1, 1, 3))
    starts = [rng.randint(0, keys) for _ in range(limits.rows)]
    key = f"Positions.from_mask(padding({limits.rows}, {keys}, 'right', seed={rng.randrange(1000)}))"
    return Drawn(f"Positions.range({queries}, start=torch.tensor({starts}))", key, queries, keys)


def _lengths(rng: Random, total: int) -> list[int]:
    """Documents that fill a row, some of them empty."""
    lengths: list[int] = []
    while sum(lengths) < total:
        longest = total - sum(lengths)
        lengths.append(min(longest, rng.choice((0, 1, 2, 5, 30, 64, 100, 260, longest))))
    return lengths + [0] * rng.choice((0, 0, 1))


def _packed(rng: Random, limits: Limits) -> Drawn:
    length = limits.length(rng)
    lengths = _lengths(rng, length)
    whole = f"Positions.packed({lengths})"
    if rng.random() < 0.3:
        ends = [sum(lengths[:number]) for number in range(len(lengths) + 1)]
        told = rng.choice(("", f", length={length}"))
        whole = f"Positions.packed(cu_seqlens=torch.tensor({ends}){told})"
    if rng.random() < 0.6:
        return Drawn(whole, None, length, length)
    first = rng.randint(0, length - 1)
    last = rng.randint(first + 1, length)
    return Drawn(f"{whole}[{first}:{last}]", whole, last - first, length)


def _rows_of_documents(rng: Random, limits: Limits) -> Drawn:
    lengths = [limits.length(rng) for _ in range(limits.rows)]
    rows = ", ".join(f"Positions.packed({_lengths(rng, each)})" for each in lengths)
    whole = f"Positions.batch([{rows}], side={rng.choice(('left', 'right'))!r})"
    return Drawn(whole, None, max(lengths), max(lengths))


def _batch(rng: Random, limits: Limits) -> Drawn:
    lengths = [limits.length(rng) for _ in range(limits.rows)]
    starts = [0 if limits.needs.lengths else rng.choice((0, 0, 3, 60)) for _ in lengths]
    rows = ", ".join(f"Positions.range({each}, start={start})" for each, start in zip(lengths, starts, strict=True))
    whole = f"Positions.batch([{rows}], side={rng.choice(('left', 'right'))!r})"
    return Drawn(whole, None, max(lengths), max(lengths))


def _ids(rng: Random, limits: Limits, length: int, shared: bool = False) -> str:
    kinds = ["shuffled", "repeated"]
    if limits.needs.table is None:
        kinds += ["negative", "runs"]
        kinds += ["gaps", "far gap"] if limits.needs.far > 20_000 else []
        kinds += [] if limits.needs.whole else ["real"]
    rows = 1 if shared or rng.random() < 0.5 else limits.rows
    return f"ids({rows}, {length}, {rng.choice(kinds)!r}, seed={rng.randrange(1000)})"


def _explicit(rng: Random, limits: Limits) -> Drawn:
    length = limits.length(rng)
    given = _ids(rng, limits, length)
    if limits.needs.lengths:
        return Drawn(f"Positions.explicit({given}, sequence_length={rng.choice((10, 100, 300))})", None, length, length)
    chance = rng.random()
    if chance < 0.2:
        return Drawn(given, None, length, length)
    if chance < 0.5:
        documents = f"documents=torch.arange({length}) * {rng.choice((2, 3, 7))} // {length}"
        valid = f"valid=padding(1, {length}, 'holes', seed={rng.randrange(1000)})"
        options = ", ".join(rng.choice(((documents,), (valid,), (documents, valid))))
        return Drawn(f"Positions.explicit({given}, {options})", None, length, length)
    return Drawn(f"Positions.explicit({given})", None, length, length)


def _explicit_apart(rng: Random, limits: Limits) -> Drawn:
    queries, keys = limits.length(rng), limits.length(rng)
    query, key = (f"Positions.explicit({_ids(rng, limits, each)})" for each in (queries, keys))
    return Drawn(query, key, queries, keys)


def _shifted(rng: Random, limits: Limits) -> Drawn:
    """Positions of queries that are not those of the keys in their slots, over more than one block of queries."""
    length = limits.length(rng) if rng.random() < 0.4 else min(limits.longest, rng.choice(LONG + LONGEST))
    shift = rng.choice((-300, -3, 3, 40, 130, 300, 600, 5000))
    shift = max(-limits.needs.far, min(limits.needs.far, shift))
    key = f"Positions.range({length})"
    if rng.random() < 0.6:
        return Drawn(f"Positions.explicit(torch.arange({length}) + {shift})", key, length, length)
    # the second half alone: two stretches of queries
    ids = f"torch.arange({length}) + {shift} * (torch.arange({length}) >= {length // 2})"
    return Drawn(f"Positions.explicit({ids})", key, length, length)


def _by_row(rng: Random, limits: Limits) -> Drawn:
    keys = limits.length(rng)
    queries = rng.choice((1, 1, 3, max(1, keys // 2)))
    starts = [rng.randint(0, max(0, keys - queries)) for _ in range(limits.rows)]
    return Drawn(f"Positions.range({queries}, start=torch.tensor({starts}))", f"Positions.range({keys})", queries, keys)


def _resampled(rng: Random, limits: Limits) -> Drawn:
    length, seed = limits.length(rng), rng.randrange(1000)
    high = 700 if limits.needs.table is not None else rng.choice((700, 3000))
    high = max(length, min(high, limits.needs.table or limits.needs.far))
    sample = rng.choice(
        (f"randomised({high}, seed={seed})", f"skipped({high}, seed={seed}, chunks={rng.choice((1, 2, 5))})")
    )
    whole = _mask(rng, limits.rows, length) if rng.random() < 0.3 else f"Positions.range({length})"
    return Drawn(f"{whole}.{sample}", None, length, length)


def _whole(rng: Random, limits: Limits, multiple: int = 1) -> tuple[str, int]:
    """A whole sequence, to be cut into parts."""
    length = max(1, limits.length(rng) // multiple) * multiple
    kind = rng.choice(("range", "range", "packed", "padded", "explicit"))
    if kind == "packed":
        return f"Positions.packed({_lengths(rng, length)})", length
    if kind == "padded":
        return _mask(rng, limits.rows, length), length
    if kind == "explicit" and not limits.needs.lengths:
        return f"Positions.explicit({_ids(rng, limits, length)})", length
    return f"Positions.range({length})", length


def draw_whole(rng: Random, limits: Limits, world_size: int, layout: str) -> tuple[str, int]:
    """Positions of a sequence that is cut into shards."""
    return _whole(rng, limits, world_size * (2 if layout == "zigzag" else 1))


def _other_shard(rng: Random, limits: Limits) -> Drawn:
    """Queries of one shard and keys of another, or of its own, as rings pass them on."""
    world_size, layout = rng.choice((2, 3, 4)), rng.choice(("contiguous", "zigzag", "zigzag"))
    whole, length = draw_whole(rng, limits, world_size, layout)
    query, key = (f"{whole}.shard({rng.randrange(world_size)}, {world_size}, layout={layout!r})" for _ in range(2))
    return Drawn(query, key, length // world_size, length // world_size)


def _empty(rng: Random, limits: Limits) -> Drawn:
    length = rng.choice((1, 3, 33))
    queries, keys = rng.choice(((0, length), (length, 0), (0, 0)))
    return Drawn(f"Positions.range({queries})", f"Positions.range({keys})", queries, keys)


def _grid(rng: Random, limits: Limits) -> Drawn:
    tall, wide = limits.needs.window or (24, 24)
    axes = rng.choice([each for each in limits.needs.axes if each > 1])
    if axes == 3 and rng.random() < 0.5:
        parts = ", ".join(rng.choice(("3", "20", "situs.Vision(1, 3, 4)", "situs.Vision(2, 4, 5)")) for _ in range(3))
        whole = f"Positions.mixed([{parts}])"
        length = len(make(whole))
        return Drawn(whole, None, length, length)

    def sizes() -> tuple[int, ...]:
        side = rng.choice((2, 5, 8, 11, 16))
        found = rng.randint(1, min(tall, side)), rng.randint(1, min(wide, side))
        return found if axes == 2 else (rng.randint(1, 3), *found)

    def cells(size: tuple[int, ...]) -> int:
        return size[0] * size[1] * (size[2] if len(size) > 2 else 1)

    own = sizes()
    whole, length = f"Positions.grid{own}", cells(own)
    chance = rng.random()
    if chance < 0.25:
        several = [sizes() for _ in range(limits.rows)]
        length = max(map(cells, several))
        side, rows = rng.choice(("left", "right")), ", ".join(f"Positions.grid{each}" for each in several)
        whole = f"Positions.batch([{rows}], side={side!r})"
    elif chance < 0.4:
        whole = f"Positions.explicit(cells({limits.rows}, {length}, {own}, seed={rng.randrange(1000)}))"
    elif chance < 0.7 and length > 1:
        first = rng.randint(0, length - 1)
        return Drawn(f"{whole}[{first}:]", whole, length - first, length)
    return Drawn(whole, None, length, length)


# The drawing, how often, and whether it tells the sequence's length and stays within a table.
KINDS: tuple[tuple[Callable[[Random, Limits], Drawn], int, bool, bool], ...] = (
    (_nothing, 10, True, True),
    (_range, 6, True, True),
    (_negative, 2, False, False),
    (_last, 6, True, True),
    (_part, 6, True, True),
    (_across, 3, False, True),
    (_padded, 14, True, True),
    (_padded_keys, 4, False, True),
    (_packed, 8, True, True),
    (_rows_of_documents, 4, True, True),
    (_batch, 4, True, True),
    (_explicit, 8, True, True),
    (_explicit_apart, 4, False, True),
    (_shifted, 8, False, False),
    (_by_row, 4, False, True),
    (_resampled, 3, False, True),
    (_other_shard, 8, True, True),
    (_empty, 1, False, True),
)


def draw_positions(rng: Random, limits: Limits) -> Drawn:
    """Positions that the encodings take."""
    needs = limits.needs
    if 1 not in needs.axes or (needs.axes != (1,) and rng.random() < 0.3):
        return _grid(rng, limits)
    fitting = [kind for kind in KINDS if (kind[2] or not needs.lengths) and (kind[3] or needs.table is None)]
    return rng.choices([kind[0] for kind in fitting], [kind[1] for kind in fitting])[0](rng, limits)
