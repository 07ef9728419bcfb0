"""The invariants of every encoding: cached = full, padded = alone, packed = separate, and no memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Sized

import torch
from torch import Tensor

from situs.checks.bench import Bench
from situs.checks.require import require_close, require_equal
from situs.encodings.base import Encoding, InputEncoding, QueryKeyEncoding
from situs.encodings.bias import BiasEncoding, OffsetBias, PairBias
from situs.encodings.value_map import ValueMap
from situs.positions import Positions

BY_POSITIONS = (
    "Use positions.ids, which say where each token stands, and no length or index of the tensor: situs.Positions.of("
    "positions, x.shape[-2], batch=x.shape[0], device=x.device).ids"
)
NO_MEMORY = "Compute it in __init__ where it follows from options, and hold it in a local variable otherwise"
BY_ROWS = "Use positions.ids of shape (batch, sequence): each row has its own"


def cached_equals_full(bench: Bench) -> None:
    """Token by token, and in chunks of any size, decoding gives the rows of the full forward."""
    count = bench.length(17)
    x, positions = bench.tokens(count), bench.positions(count)
    full = bench.attend(x, positions)
    for chunks in (
        [1] * count,
        [count - count // 3, *[1] * (count // 3)],
        [3] * (count // 3) + [count % 3] * (count % 3 > 0),
    ):
        cached = bench.attend_cached(x, positions, chunks)
        situation = f"decoding in chunks of {chunks[0]} then {chunks[-1]}"
        require_close(cached, full, situation, cure=BY_POSITIONS)


def padded_equals_alone(bench: Bench) -> None:
    """Every row of a padded batch gives what it gives by itself, wherever the padding stands."""
    long = bench.length(13)
    short = (long + 1) // 2
    x = bench.tokens(long, rows=2)
    # rows that differ by more than a shift, which an encoding of distances would not notice
    spaced = Positions.explicit(bench.positions(long).ids[:, ::2], sequence_length=long)
    rows = spaced, bench.positions(long)
    alone = [bench.attend(x[number : number + 1, : row.length], row) for number, row in enumerate(rows)]
    for side in ("left", "right"):
        where = slice(long - short, long) if side == "left" else slice(0, short)
        padded = torch.zeros_like(x)
        padded[0, where], padded[1] = x[0, :short], x[1]
        together = bench.attend(padded, Positions.batch(rows, side=side))
        require_close(together[:1, :, where], alone[0], f"a row with padding on the {side}", cure=BY_ROWS)
        require_close(together[1:], alone[1], f"a whole row beside one with padding on the {side}", cure=BY_ROWS)
    if bench.encoding.axes == 1:
        mask = torch.ones(1, short + 2, dtype=torch.bool)
        mask[0, [0, 1 + short // 2]] = False
        holes = torch.zeros(1, short + 2, bench.dim)
        holes[:, mask[0]] = x[:1, :short]
        expected = bench.attend(x[:1, :short], bench.positions(short))
        with_holes = bench.attend(holes, Positions.from_mask(mask))[:, :, mask[0]]
        require_close(with_holes, expected, "padding in holes", cure=BY_ROWS)


def packed_equals_separate(bench: Bench) -> None:
    """Documents packed in one row give what each gives by itself."""
    lengths = [bench.length(count) for count in (5, 9, 3)]
    x = bench.tokens(sum(lengths))
    packed = bench.attend(x, Positions.pack([bench.positions(count) for count in lengths]))
    first = 0
    for number, count in enumerate(lengths):
        here = slice(first, first + count)
        separate = bench.attend(x[:, here], bench.positions(count))
        require_close(packed[:, :, here], separate, f"document {number} of {len(lengths)}", cure=BY_POSITIONS)
        first += count


def remembers_nothing(bench: Bench) -> None:
    """A long call leaves no trace: a short one after it gives what it gave before, and the module is unchanged."""
    short, long = bench.length(8), bench.length(300)
    x = bench.tokens(long)
    for mode in ("evaluation", "training"):
        bench.encoding.train(mode == "training")
        before = _state(bench.encoding)
        first = _seeded(bench, x[:, :short])
        _seeded(bench, x)
        situation = f"in {mode}, a short call after a long one"
        require_equal(_seeded(bench, x[:, :short]), first, situation, cure=NO_MEMORY)
        after = _state(bench.encoding)
        changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        if changed:
            raise AssertionError(
                f"in {mode}, a call wrote to {', '.join(changed)}, and what one call leaves is wrong in the next. "
                f"{NO_MEMORY}"
            )


def _seeded(bench: Bench, x: Tensor) -> Tensor:
    """Attend with the same channels dropped in every call that drops any."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return bench.attend(x, bench.positions(x.shape[1]))


def serves_any_heads(bench: Bench) -> None:
    """Without a ``num_heads`` of its own it serves any number of heads, and fewer of keys, and treats all alike."""
    encoding = bench.encoding
    if isinstance(encoding, InputEncoding) or encoding.num_heads is not None:
        return
    count = bench.length(9)
    x, positions = bench.tokens(count), bench.positions(count)
    query, key, value = (bench.project(x, which) for which in range(3))

    def run(heads: list[int], key_heads: list[int]) -> Tensor:
        return bench.attend_heads(query[:, heads], key[:, key_heads], value[:, key_heads], positions, causal=False)

    cure = "Treat all heads alike, or take num_heads in __init__ and keep it"
    require_close(run([0, 1, 0], [0, 1, 0]), run([0, 1], [0, 1])[:, [0, 1, 0]], "3 heads instead of 2", cure=cure)
    shared = run([0, 1, 0, 1], [0, 1]), run([0, 1, 0, 1], [0, 0, 1, 1])
    require_close(*shared, "2 heads of keys for 4 of queries", cure=cure)


def forms_agree(bench: Bench) -> None:
    """A bias adds the same as a ``score_mod`` and, if it knows only offsets, as a vector over them."""
    encoding = bench.encoding
    if not isinstance(encoding, BiasEncoding):
        return
    count = bench.length(9)
    for start in (0, 3):
        query, key = bench.positions(count, start)[count // 2 :], bench.positions(count, start)
        dense = encoding(query, key)
        for each in ((query, key), (Positions.explicit(query.ids), Positions.explicit(key.ids))):
            require_close(_by_score_mod(encoding, *each), dense, f"score_mod for {each[0]!r}", 1e-6)
        if isinstance(encoding, OffsetBias):
            offsets = key.ids[:, None] - query.ids[:, :, None]
            vector = encoding.by_offset(offsets.flatten(0, 2))
            require_close(vector.view(dense.shape), dense, "by_offset", 1e-6)


def _by_score_mod(encoding: BiasEncoding, query: Positions, key: Positions) -> Tensor:
    """Form what a score_mod adds to scores of 0, called for each alone as FlexAttention does."""
    score_mod = encoding.score_mod(query, key)
    for axis in range(4):
        score_mod = torch.vmap(score_mod, in_dims=(0, *(0 if index == 3 - axis else None for index in range(4))))
    sizes = 1, encoding.num_heads, query.length, key.length
    return score_mod(torch.zeros(sizes), *(torch.arange(size) for size in sizes))


def keeps_shape_and_dtype(bench: Bench) -> None:
    """The result has the shape and dtype of what went in."""
    if isinstance(bench.encoding, BiasEncoding):
        _require_bias(bench, bench.encoding)
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        count = bench.length(6, dtype)
        x, positions = bench.tokens(count, dtype=dtype), bench.positions(count)
        if isinstance(bench.encoding, (InputEncoding, QueryKeyEncoding, ValueMap)) and not bench.goes_by_pair:
            made, given = bench.encode(x, positions), bench.given(x)[0]
            compared = slice(-3, -1 if isinstance(bench.encoding, QueryKeyEncoding) and bench.encoding.widens else None)
            if made.shape[compared] != given.shape[compared]:
                raise AssertionError(
                    f"vectors of shape {tuple(given.shape[-3:])} come back with shape {tuple(made.shape[-3:])}. Return "
                    f"all channels, also those that positions do not change"
                )
            if made.dtype != dtype:
                raise AssertionError(
                    f"{dtype} vectors come back as {made.dtype}. Compute in float32 or wider, and end with .to(x.dtype)"
                )
        result = bench.attend(x, positions)
        if result.dtype != dtype:
            raise AssertionError(f"{dtype} tokens give a result of {result.dtype}. End with .to(x.dtype)")
        if not bool(torch.isfinite(result).all()):
            raise AssertionError(
                f"{dtype} tokens give a result that is not finite. Compute in float32 or wider, and end with "
                f".to(x.dtype)"
            )


def _require_bias(bench: Bench, encoding: BiasEncoding) -> None:
    """Raise unless a bias has a number for every head, query and key, which its rule computes in float32 or wider."""
    count = bench.length(6)
    positions = bench.positions(count)
    shape, wanted = tuple(encoding(positions, positions).shape), (1, encoding.num_heads, count, count)
    if shape != wanted:
        cure = "Return one matrix per head"
        if isinstance(encoding, (OffsetBias, PairBias)):
            cure = "Use head in the rule; where all heads get the same, add 0 * head"
        raise AssertionError(f"the bias has shape {shape} instead of {wanted} (batch, heads, queries, keys). {cure}")
    if isinstance(encoding, OffsetBias) and encoding.axes == 1:
        rule = encoding.rule(torch.device("cpu"), torch.float32)
        dtype = rule(positions.ids[0], torch.zeros((), dtype=torch.long)).dtype
        if dtype in (torch.bfloat16, torch.float16):
            raise AssertionError(
                f"the rule gives {dtype} where it is asked for torch.float32, so that neighbours merge from some "
                f"distance on. Compute with offset.to(dtype), the dtype that rule() is given"
            )


def leaves_input_alone(bench: Bench) -> None:
    """The tensors that it is given stay as they are."""
    count = bench.length(6)
    given = bench.given(bench.tokens(count)) if bench.encoding.place != "nowhere" else ()
    before = tuple(each.clone() for each in given)
    with torch.no_grad():
        if given:
            bench.apply(given, bench.positions(count))
    if not all(torch.equal(*pair) for pair in zip(given, before, strict=True)):
        raise AssertionError(
            "forward changes x itself, which others still read: the residual stream, or the next encoding. Write "
            "x = x * ... instead of x *= ..., and use no function whose name ends in _"
        )


def _state(encoding: Encoding) -> dict[str, object]:
    """Describe all that a module holds, in a form that can be compared."""
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
    """Give a mark that changes when a value is written to."""
    if isinstance(value, Tensor):
        return id(value), value._version
    if isinstance(value, (dict, list, set, deque)):
        return id(value), *map(id, value.values() if isinstance(value, dict) else value)
    return id(value), len(value) if isinstance(value, Sized) else repr(value)
