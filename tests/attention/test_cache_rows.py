"""The cache for drafts, beams and windows: what it refuses, what it costs, and the modes of torch."""

from typing import Any

import pytest
import torch
from torch import Tensor

import situs
from situs import Attention, KVCache, Positions
from tests.attention.layer_cases import DIM, HEADS, layer_with, tokens
from tests.raising import raises_exactly

WINDOW = 6
ROOM = WINDOW - 1 + 32 + 32  # the window, a draft that can be cropped, and as many again before tokens move


def cache_of(layer: Attention, rows: int = 2, length: int = 9, **options: Any) -> KVCache:
    cache = layer.make_cache(batch=rows, **options)
    with torch.no_grad():
        layer(tokens(rows, length), cache=cache)
    return cache


def held(cache: KVCache) -> list[Any]:
    """All that an operation might have changed."""
    state = [*cache.memory, cache.rotated_by, cache.sequence_length, cache.is_counted]
    return [each.clone() if isinstance(each, Tensor) else each for each in state]


def assert_unchanged(cache: KVCache, before: list[Any]) -> None:
    for one, other in zip(before, held(cache), strict=True):
        assert torch.equal(one, other) if isinstance(one, Tensor) else one == other


REFUSED: list[tuple[str, Any, type[Exception], str]] = [
    ("crop", 10, ValueError, "length must be at most 9, since so many tokens are cached; got 10."),
    ("crop", [3, 10], ValueError, "length must be at most 9, since so many tokens are cached; got [3, 10]."),
    (
        "crop", [3], ValueError,
        "length must have a number for each of the 2 rows, since it counts tokens; got 1 of them.",
    ),
    ("crop", [3, -1], ValueError, "length must be 0 or more, since it counts tokens; got -1."),
    ("crop", [3, 2.5], TypeError, "length must be a whole number, since it counts tokens; got 2.5."),
    (
        "crop", torch.ones(2), TypeError,
        "length must be whole numbers, since it counts tokens; got dtype torch.float32.",
    ),
    ("reorder", [0, 2], ValueError, "rows must lie in 0 .. 1, since each is one of the cache; got 2."),
    ("reorder", torch.tensor([-1]), ValueError, "rows must lie in 0 .. 1, since each is one of the cache; got -1."),
    ("reorder", [], ValueError, "rows must have a number at least, since each is one of the cache; got none."),
    ("reorder", 1, TypeError, "rows must be a sequence, since each is one of the cache; got 1."),
    ("reorder", "01", TypeError, "rows must be a sequence, since each is one of the cache; got '01'."),
    ("repeat", 0, ValueError, "n must be 1 or more, since each row becomes as many; got 0."),
]  # fmt: skip


@pytest.mark.parametrize(("name", "given", "error", "message"), REFUSED, ids=lambda each: str(each)[:20])
def test_wrong_calls_say_what_is_wrong_and_change_nothing(
    name: str, given: Any, error: type[Exception], message: str
) -> None:
    cache = cache_of(layer_with("rotary"), max_length=20)
    before = held(cache)
    with raises_exactly(error, message):
        getattr(cache, name)(given)
    assert_unchanged(cache, before)


def test_rows_are_cropped_to_their_own_lengths_at_most() -> None:
    cache = cache_of(layer_with("alibi"), max_length=20)
    cache.crop(torch.tensor([4, 7]))
    with raises_exactly(ValueError, "length must be at most [4, 7], since so many tokens are cached; got [5, 7]."):
        cache.crop([5, 7])
    cache.crop([4, 4])
    assert cache.lengths is None  # rows that are alike again are fast again
    cache.crop([0, 0])
    assert (cache.length, cache.rotated_by) == (0, None)


def test_tokens_that_left_the_window_are_not_cropped_back_to() -> None:
    layer = layer_with("rotary", window=WINDOW)
    cache = cache_of(layer, length=200)
    before = held(cache)
    reason = "since the next token sees back so far, and earlier ones are no longer held"
    with raises_exactly(ValueError, f"length must be at least 168, {reason}; got 167."):
        cache.crop(167)
    with raises_exactly(ValueError, f"length must be at least 168, {reason}; got [200, 99]."):
        cache.crop([200, 99])
    with raises_exactly(
        ValueError,
        "count must leave the 5 tokens that the next one sees, since 163 before them are no longer held; got 99 of "
        "200 tokens with sinks=100.",
    ):
        cache.evict(99, sinks=100)
    assert_unchanged(cache, before)
    cache.crop(168)  # the last 32 can always be taken back


@pytest.mark.parametrize("sinks", [0, 2, 170])
@torch.no_grad()
def test_tokens_are_evicted_behind_a_window(sinks: int) -> None:
    layer, x = layer_with("rotary", window=WINDOW), tokens(2, 201)
    cache = layer.make_cache(batch=2)
    layer(x[:, :200], cache=cache)
    cache.evict(20, sinks=sinks)
    rest = torch.cat((x[:, :sinks], x[:, sinks + 20 :]), 1)
    torch.testing.assert_close(layer(x[:, 200:], cache=cache), layer(rest)[:, -1:], atol=1e-11, rtol=0)
    assert cache.length == 181


@torch.no_grad()
def test_a_window_takes_memory_for_itself_alone() -> None:
    layer = layer_with("t5", window=WINDOW)
    cache = layer.make_cache(batch=2)
    for count in (300, 1, 1, 90, *[1] * 50):
        layer(tokens(2, count), cache=cache)
        assert cache.keys.shape == cache.values.shape == (2, HEADS, ROOM, 8)
        assert cache.keys.untyped_storage().nbytes() == cache.keys.numel() * 8
    assert cache.length == 442
    assert repr(cache) == "KVCache(batch=2, num_heads=4, head_dim=8, length=442, window=6, dtype=torch.float64)"
    assert layer.make_cache(batch=2, max_length=10).keys.shape[2] == 10  # less, where rows end before


def test_a_cache_needs_a_length_or_a_window() -> None:
    with raises_exactly(
        ValueError,
        "max_length must be given without a window, since memory for all tokens is allocated; got None.",
    ):
        KVCache(batch=1, num_heads=1, head_dim=4)
    with raises_exactly(
        ValueError,
        "window must be 1 or more, since it counts the keys that a query sees, itself included; got 0.",
    ):
        KVCache(batch=1, num_heads=1, head_dim=4, window=0)


@pytest.mark.parametrize(("own", "keys"), [(None, "keys"), (7, "7")])
def test_a_layer_that_sees_more_than_a_window_holds_is_refused(own: int | None, keys: str) -> None:
    layer = layer_with("rotary", **({} if own is None else {"window": own}))
    cache = layer_with("rotary", window=WINDOW).make_cache(batch=2)
    with raises_exactly(
        ValueError,
        f"cache must hold the {keys} that a query of this layer sees, since earlier ones are forgotten; got a cache "
        f"with window=6. Use layer.make_cache().",
    ):
        layer(tokens(), cache=cache)
    assert cache.length == 0


@pytest.mark.parametrize("uneven", [False, True])
@torch.no_grad()
def test_a_mask_has_a_column_for_every_token_so_far(uneven: bool) -> None:
    layer, x = layer_with("alibi", window=WINDOW), tokens(2, 152)
    cache = layer.make_cache(batch=2)
    lengths = [140, 150] if uneven else [150, 150]
    layer(x[:, :150], Positions.from_mask(torch.arange(150) < torch.tensor(lengths)[:, None]), cache=cache)
    mask = torch.rand(2, 1, 2, 152) < 0.7
    mask[..., [0, 1], [150, 151]] = True
    out = layer(x[:, 150:], cache=cache, mask=mask)
    for row, length in enumerate(lengths):
        alone = torch.cat((x[row, :length], x[row, 150:]))[None]
        seen = torch.ones(length + 2, length + 2, dtype=torch.bool)
        seen[-2:] = mask[row, 0, :, : length + 2]
        torch.testing.assert_close(out[row], layer(alone, mask=seen)[0, -2:], atol=1e-11, rtol=0)


def test_rows_are_repeated_and_reordered_as_transformers_does() -> None:
    transformers = pytest.importorskip("transformers")
    ours = KVCache(batch=3, num_heads=2, head_dim=4, max_length=5)
    ours.append(*torch.randn(2, 3, 2, 5, 4))
    theirs = transformers.DynamicCache()
    theirs.update(ours.keys.clone(), ours.values.clone(), 0)
    ours.repeat(2)
    theirs.batch_repeat_interleave(2)
    assert torch.equal(ours.keys, theirs.layers[0].keys)
    beams = torch.tensor([5, 5, 0, 1, 3, 3])
    ours.reorder(beams)
    theirs.reorder_cache(beams)
    assert torch.equal(ours.values, theirs.layers[0].values)


@pytest.mark.parametrize("window", [None, WINDOW])
@pytest.mark.parametrize("operation", ["crop", "reorder", "repeat", "evict", "append"])
def test_an_operation_that_fails_in_the_middle_changes_nothing(
    operation: str, window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = layer_with("rotary", **({} if window is None else {"window": window}))
    cache = cache_of(layer, max_length=None if window else 80, length=ROOM if window else 70)
    calls: dict[str, Any] = {
        "crop": lambda: cache.crop([60, 61]), "reorder": lambda: cache.reorder([1, 0]),
        "repeat": lambda: cache.repeat(2), "evict": lambda: cache.evict(1),
        "append": lambda: layer(tokens(2, 3), cache=cache),
    }  # fmt: skip
    before, count = held(cache), 0

    def interrupt(*args: Any, **kwargs: Any) -> Any:
        nonlocal count
        count += 1
        raise KeyboardInterrupt

    broken = {"crop": "shortened", "append": "positions"}.get(operation)
    if broken is None:
        monkeypatch.setattr("situs.attention.memory.in_new_memory", interrupt)
    else:
        monkeypatch.setattr(situs.attention.memory.Memory, broken, interrupt)
    with torch.no_grad(), pytest.raises(KeyboardInterrupt):
        calls[operation]()
    monkeypatch.undo()
    assert count
    after = held(cache)
    used = before[5]
    assert torch.equal(before[0][:, :, :used], after[0][:, :, :used])
    assert before[2:] == after[2:]


@pytest.mark.parametrize("name", ["rotary", "t5", "shaw", "cope"])
@pytest.mark.parametrize("window", [None, WINDOW])
def test_gradients_flow_through_all_chunks_of_a_cache(name: str, window: int | None) -> None:
    layer = layer_with(name, **({} if window is None else {"window": window}))
    x = tokens(2, 9).requires_grad_()
    expected = torch.autograd.grad(layer(x).square().sum(), [x, layer.key.weight])
    cache = layer.make_cache(batch=2, max_length=20)
    with torch.no_grad():
        layer(tokens(2, 4), cache=cache)
    cache.reset()
    out = [layer(part, cache=cache) for part in x.split([4, 1, 2, 2], 1)]
    with torch.no_grad():  # goes on without gradients, in memory of its own
        layer(tokens(2, 2), cache=cache)
        cache.crop(3)
        layer(tokens(2, 2), cache=cache)
    cache.reset()
    layer(tokens(2, 2), cache=cache)
    found = torch.autograd.grad(torch.cat(out, 1).square().sum(), [x, layer.key.weight])
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=0)
    assert cache.keys.shape[2] == 20


@pytest.mark.parametrize("window", [None, WINDOW])
def test_what_is_done_in_inference_mode_is_used_outside(window: int | None) -> None:
    layer = layer_with("rotary", **({} if window is None else {"window": window}))
    x = tokens(2, 103)
    cache = layer.make_cache(batch=2, max_length=None if window else 110)
    with torch.inference_mode():
        layer(x[:, :100], cache=cache)
        cache.crop([99, 98])
        cache.reorder([1, 1, 0])
    y = torch.stack((x[1, 98:101], x[1, 98:101], x[0, 99:102]))
    with torch.no_grad():
        steps = [layer(y[:, :1], cache=cache)]
    with torch.inference_mode():
        steps.append(layer(y[:, 1:2], cache=cache).clone())
    steps.append(layer(y[:, 2:], cache=cache))
    expected = [layer(x[1:, :101])[0, -3:], layer(x[1:, :101])[0, -3:], layer(x[:1, :102])[0, -3:]]
    torch.testing.assert_close(torch.cat(steps, 1), torch.stack(expected), atol=1e-11, rtol=0)


@torch.no_grad()
def test_operations_under_autocast_and_after_a_cast() -> None:
    layer = Attention(dim=DIM, num_heads=HEADS, encoding=situs.Rotary(head_dim=8), window=WINDOW).eval()
    x = torch.randn(2, 120, DIM)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cache = layer.make_cache(batch=2)
        layer(x[:, :100], cache=cache)
        cache.reorder([1, 0])
        cache.crop([90, 95])
        step = layer(x[:, 100:101], cache=cache)
        alone = layer(torch.cat((x[1:, :90], x[:1, 100:101]), 1))[:, -1]
    torch.testing.assert_close(step[0], alone, atol=2e-2, rtol=2e-2)
    half = layer.to(torch.bfloat16)
    cache = half.make_cache(batch=2)
    half(x.bfloat16(), cache=cache)
    cache.repeat(2)
    assert cache.keys.dtype == torch.bfloat16
    assert half(x[:, :1].bfloat16().repeat_interleave(2, 0), cache=cache).dtype == torch.bfloat16


@pytest.mark.compiled
@torch.no_grad()
def test_a_compiled_layer_goes_on_through_a_window_and_its_operations() -> None:
    layer, x = layer_with("rotary", window=WINDOW), tokens(2, 90)
    run = torch.compile(layer, fullgraph=True, backend="eager")
    cache = layer.make_cache(batch=2)
    with torch.inference_mode():
        outs = [run(x[:, :80], cache=cache).clone()]  # longer than the window's memory
    outs.append(layer(x[:, 80:81], cache=cache))  # leaves what inference mode allocated
    outs += [run(x[:, step : step + 1], cache=cache) for step in range(81, 90)]
    torch.testing.assert_close(torch.cat(outs, 1), layer(x), atol=1e-11, rtol=0)
    cache.reorder([1, 0])
    cache.crop([85, 86])
    out = run(x[:, :1], cache=cache)
    alone = layer(torch.cat((x[1:, :85], x[:1, :1]), 1))[:, -1]
    torch.testing.assert_close(out[0], alone, atol=1e-11, rtol=0)
