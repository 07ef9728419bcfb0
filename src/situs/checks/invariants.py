"""The invariants of every encoding: cached = full, padded = alone, packed = separate, and no memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Sized

import torch
from torch import Tensor

from situs.attention.reference import reference
from situs.checks.subject import Subject, require_close, require_equal
from situs.encodings.base import Encoding, InputEncoding, QueryKeyEncoding
from situs.encodings.bias import BiasEncoding, OffsetBias
from situs.positions import Positions


def cached_equals_full(subject: Subject) -> None:
    """Token by token, and in chunks of any size, decoding gives the rows of the full forward."""
    count = subject.length(17)
    x, positions = subject.tokens(count), subject.places(count)
    full = subject.attend(x, positions)
    for chunks in (
        [1] * count,
        [count - count // 3, *[1] * (count // 3)],
        [3] * (count // 3) + [count % 3] * (count % 3 > 0),
    ):
        cached = subject.attend_cached(x, positions, chunks)
        require_close(cached, full, f"decoding in chunks of {chunks[0]} then {chunks[-1]}")


def padded_equals_alone(subject: Subject) -> None:
    """Every row of a padded batch gives what it gives by itself, wherever the padding stands."""
    long = subject.length(13)
    short = (long + 1) // 2
    x = subject.tokens(long, rows=2)
    # rows that differ by more than a shift, which an encoding of distances would not notice
    spaced = Positions.explicit(subject.places(long).ids[:, ::2], sequence_length=long)
    rows = spaced, subject.places(long)
    alone = [subject.attend(x[number : number + 1, : row.length], row) for number, row in enumerate(rows)]
    for side in ("left", "right"):
        where = slice(long - short, long) if side == "left" else slice(0, short)
        padded = torch.zeros_like(x)
        padded[0, where], padded[1] = x[0, :short], x[1]
        together = subject.attend(padded, Positions.batch(rows, side=side))
        require_close(together[:1, :, where], alone[0], f"a row with padding on the {side}")
        require_close(together[1:], alone[1], f"a whole row beside one with padding on the {side}")
    if subject.encoding.axes == 1:
        mask = torch.ones(1, short + 2, dtype=torch.bool)
        mask[0, [0, 1 + short // 2]] = False
        holes = torch.zeros(1, short + 2, subject.dim)
        holes[:, mask[0]] = x[:1, :short]
        expected = subject.attend(x[:1, :short], subject.places(short))
        require_close(subject.attend(holes, Positions.from_mask(mask))[:, :, mask[0]], expected, "padding in holes")


def packed_equals_separate(subject: Subject) -> None:
    """Documents packed in one row give what each gives by itself."""
    lengths = [subject.length(count) for count in (5, 9, 3)]
    x = subject.tokens(sum(lengths))
    packed = subject.attend(x, Positions.pack([subject.places(count) for count in lengths]))
    first = 0
    for number, count in enumerate(lengths):
        here = slice(first, first + count)
        separate = subject.attend(x[:, here], subject.places(count))
        require_close(packed[:, :, here], separate, f"document {number} of {len(lengths)}")
        first += count


def remembers_nothing(subject: Subject) -> None:
    """A long call leaves no trace: a short one after it gives what it gave before, and the module is unchanged."""
    short, long = subject.length(8), subject.length(300)
    x = subject.tokens(long)
    for mode in ("evaluation", "training"):
        subject.encoding.train(mode == "training")
        before = _state(subject.encoding)
        first = _seeded(subject, x[:, :short])
        _seeded(subject, x)
        require_equal(_seeded(subject, x[:, :short]), first, f"in {mode}, a short call after a long one")
        after = _state(subject.encoding)
        changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        if changed:
            raise AssertionError(f"in {mode}, forward wrote to {', '.join(changed)}; state kept on a module goes stale")


def _seeded(subject: Subject, x: Tensor) -> Tensor:
    """The layer's output, with the same channels dropped in every call that drops any."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return subject.attend(x, subject.places(x.shape[1]))


def serves_any_heads(subject: Subject) -> None:
    """Without a ``num_heads`` of its own it serves any number of heads, and fewer of keys, and treats all alike."""
    encoding = subject.encoding
    if isinstance(encoding, InputEncoding) or getattr(encoding, "num_heads", None) is not None:
        return
    count = subject.length(9)
    x, positions = subject.tokens(count), subject.places(count)
    query, key, value = (subject.heads_of(x, which) for which in range(3))

    def run(heads: list[int], key_heads: list[int]) -> Tensor:
        heads_of_each = zip((query, key, value), (heads, key_heads, key_heads), strict=True)
        return reference(*(each[:, chosen] for each, chosen in heads_of_each), encoding=encoding, positions=positions)

    require_close(run([0, 1, 0], [0, 1, 0]), run([0, 1], [0, 1])[:, [0, 1, 0]], "3 heads instead of 2")
    require_close(run([0, 1, 0, 1], [0, 1]), run([0, 1, 0, 1], [0, 0, 1, 1]), "2 heads of keys for 4 of queries")


def forms_agree(subject: Subject) -> None:
    """A bias adds the same as a ``score_mod`` and, if it knows only offsets, as a vector over them."""
    encoding = subject.encoding
    if not isinstance(encoding, BiasEncoding):
        return
    count = subject.length(9)
    for start in (0, 3):
        query, key = subject.places(count, start)[count // 2 :], subject.places(count, start)
        dense = encoding(query, key)
        for places in ((query, key), (Positions.explicit(query.ids), Positions.explicit(key.ids))):
            require_close(_by_score_mod(encoding, *places), dense, f"score_mod for {places[0]!r}", 1e-6)
        if isinstance(encoding, OffsetBias):
            offsets = key.ids[:, None] - query.ids[:, :, None]
            vector = encoding.by_offset(offsets.flatten(0, 2))
            require_close(vector.view(dense.shape), dense, "by_offset", 1e-6)


def _by_score_mod(encoding: BiasEncoding, query: Positions, key: Positions) -> Tensor:
    """What a score_mod adds to scores of 0, called for each alone as FlexAttention does."""
    score_mod = encoding.score_mod(query, key)
    for axis in range(4):
        score_mod = torch.vmap(score_mod, in_dims=(0, *(0 if index == 3 - axis else None for index in range(4))))
    sizes = 1, encoding.num_heads, query.length, key.length
    return score_mod(torch.zeros(sizes), *(torch.arange(size) for size in sizes))


def keeps_shape_and_dtype(subject: Subject) -> None:
    """The result has the shape and dtype of what went in."""
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        count = subject.length(6, dtype)
        x, places = subject.tokens(count, dtype=dtype), subject.places(count)
        result = subject.attend(x, places)
        if result.dtype != dtype:
            raise AssertionError(f"{dtype} tokens give a result of {result.dtype}")
        if isinstance(subject.encoding, (InputEncoding, QueryKeyEncoding)):
            shape, given = (tuple(each.shape[-3:]) for each in (subject.encode(x, places), subject.given(x)[0]))
            if shape != given:
                raise AssertionError(f"vectors of shape {given} come back as {shape}")
        if not bool(torch.isfinite(result).all()):
            raise AssertionError(f"{dtype} tokens give a result that is not finite")


def _state(encoding: Encoding) -> dict[str, object]:
    """What a module holds, in a form that can be compared."""
    seen: dict[str, object] = {}
    for path, module in encoding.named_modules():
        for name, value in vars(module).items():
            if name in ("_parameters", "_buffers"):
                for key, tensor in value.items():
                    seen[f"{path}{'.' * bool(path)}{key}"] = (
                        None if tensor is None else (tensor._version, tuple(tensor.shape), tensor.data_ptr())
                    )
            elif name != "_modules":
                seen[f"{path}{'.' * bool(path)}{name}"] = _mark(value)
    return seen


def _mark(value: object) -> tuple[object, ...]:
    """What changes when a value is written to."""
    if isinstance(value, Tensor):
        return id(value), value._version
    if isinstance(value, (dict, list, set, deque)):
        return id(value), *map(id, value.values() if isinstance(value, dict) else value)
    return id(value), len(value) if isinstance(value, Sized) else repr(value)
