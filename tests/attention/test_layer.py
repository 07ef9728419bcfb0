"""The layer: decoding gives what the whole forward gives, in every way of going about it."""

import pytest
import torch

import situs
from situs import Attention, KVCache, Positions
from tests.attention.layer_cases import DIM, HEADS, LENGTH, NAMES, layer_with, tokens
from tests.raising import raises_exactly


@pytest.mark.parametrize("chunks", [[1] * LENGTH, [5, 1, 1, 4, 2], [LENGTH]], ids=str)
@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_decoding_with_a_cache_gives_the_rows_of_the_whole(name: str, chunks: list[int]) -> None:
    layer, x = layer_with(name, num_kv_heads=2), tokens()
    cache = layer.make_cache(batch=2, max_length=LENGTH)
    steps = [layer(part, cache=cache) for part in x.split(chunks, 1)]
    torch.testing.assert_close(torch.cat(steps, 1), layer(x), atol=1e-11, rtol=0)
    assert cache.length == LENGTH


@torch.no_grad()
def test_a_window_holds_in_decoding_too() -> None:
    layer, x = layer_with("t5", window=4), tokens()
    cache = layer.make_cache(batch=2, max_length=LENGTH)
    steps = torch.cat([layer(part, cache=cache) for part in x.split(1, 1)], 1)
    torch.testing.assert_close(steps, layer(x), atol=1e-11, rtol=0)


@torch.no_grad()
def test_context_is_attended_to_without_a_causal_mask() -> None:
    layer, x, context = layer_with("t5"), tokens(), tokens(length=5)
    out = layer(x, context=context)
    shuffled = layer(x, context=context.flip(1), context_positions=torch.arange(4, -1, -1))
    torch.testing.assert_close(shuffled, out, atol=1e-11, rtol=0)


def test_queries_and_keys_can_be_normalised() -> None:
    layer = layer_with("rotary", qk_norm=True)
    x = tokens()
    torch.testing.assert_close(layer(x), layer_with("rotary", qk_norm=True)(x))
    with torch.no_grad():
        layer.query.weight.mul_(10)
    torch.testing.assert_close(layer(x), layer_with("rotary", qk_norm=True)(x))


def test_dropout_acts_in_training_alone() -> None:
    layer = Attention(dim=DIM, num_heads=HEADS, encoding=situs.ALiBi(num_heads=HEADS), dropout=0.5)
    x = torch.randn(2, LENGTH, DIM)
    assert not torch.equal(layer(x), layer(x))
    assert torch.equal(layer.eval()(x), layer.eval()(x))


def test_gradients_reach_every_parameter() -> None:
    layer = layer_with("rotary and t5", num_kv_heads=2, bias=True, qk_norm=True)
    layer(tokens()).square().sum().backward()
    assert all(parameter.grad is not None and bool(parameter.grad.any()) for parameter in layer.parameters())


def test_bad_layers_and_calls_say_what_is_wrong() -> None:
    with raises_exactly(
        ValueError,
        "dim must be a multiple of num_heads where head_dim is left out, since heads share the channels; got 32 and 5.",
    ):
        Attention(dim=32, num_heads=5)
    with raises_exactly(
        ValueError, "num_heads must be a multiple of num_kv_heads, since each key head serves as many; got 4 and 3."
    ):
        Attention(dim=32, num_heads=4, num_kv_heads=3)
    with raises_exactly(ValueError, "encoding must have head_dim=8, as the layer has; got 16 in Rotary."):
        Attention(dim=32, num_heads=4, encoding=situs.Rotary(head_dim=16))
    with raises_exactly(
        ValueError,
        "encoding must act in attention, since those of the input act once, before the first layer; got Sinusoidal.",
    ):
        Attention(dim=32, num_heads=4, encoding=situs.Sinusoidal(dim=32))
    layer, x = layer_with("alibi"), tokens()
    cache = layer.make_cache(batch=2, max_length=LENGTH)
    with raises_exactly(
        ValueError, "cache and context must not both be given, since keys come from one of them; got both."
    ):
        layer(x, cache=cache, context=x)
    left, mask = Positions.from_mask(torch.arange(LENGTH)[None] >= torch.tensor([[3], [0]])), torch.ones(LENGTH) > 0
    with raises_exactly(
        ValueError,
        f"mask must have one column for all keys where a cache is given and padding stands on the left, since padding "
        f"takes no slot in the cache; got shape ({LENGTH},) and {left!r}. Pad on the right.",
    ):
        layer(x, left, cache=cache, mask=mask)
    assert cache.length == 0
    packed = Positions.packed([5, LENGTH - 5])
    with raises_exactly(
        ValueError,
        f"positions must be of one document per row with a cache, since a row goes on where it ended; got {packed!r}. "
        f"Give each document a row: Positions.batch([...]).",
    ):
        layer(x, packed, cache=cache)
    with raises_exactly(
        TypeError,
        "x must hold embeddings in a floating-point dtype, since its tokens are projected; got dtype torch.int64. "
        "Embed token ids first.",
    ):
        layer(torch.zeros(2, 5, dtype=torch.int64))
    elsewhere = Positions.range(LENGTH, start=3)
    with raises_exactly(
        ValueError,
        f"positions must follow those in the cache, 0 so far, since a token sees what stands before it; got "
        f"{elsewhere!r}. Leave them out, or slice those of the whole sequence: positions[first:last].",
    ):
        layer(x, elsewhere, cache=cache)
    skipping = Positions.range(LENGTH).skipped(99, seed=0)
    with raises_exactly(
        ValueError,
        f"positions must count the tokens in the cache, since ALiBi reads a key's position off its slot; got "
        f"{skipping!r}.",
    ):
        layer(x, skipping, cache=cache)
    layer(x, cache=cache)
    with raises_exactly(
        ValueError,
        "max_length must be at least 14 for 1 more tokens, since the cache holds 13; got max_length=13. Make a larger "
        "cache, or evict().",
    ):
        layer(x[:, :1], cache=cache)
    with raises_exactly(ValueError, "count must lie in 0 .. 11, since 13 tokens are cached and 2 stay; got 12."):
        cache.evict(12, sinks=2)
    with raises_exactly(ValueError, "sinks must be at most 13, since so many tokens are cached; got 14."):
        cache.evict(0, sinks=14)
    with raises_exactly(
        ValueError,
        "max_length must be 1 or more, since it sizes the cache; got 0.",
    ):
        KVCache(batch=1, num_heads=1, head_dim=1, max_length=0)


def test_tokens_of_another_dtype_than_the_weights_are_refused_but_under_autocast() -> None:
    layer, x = layer_with("rotary").to(torch.bfloat16), tokens().float()
    message = (
        "must have the dtype of the layer's weights, torch.bfloat16, since it meets them; got torch.float32. Use "
        "{}.to(torch.bfloat16), or torch.autocast."
    )
    cache = layer.make_cache(batch=2, max_length=LENGTH)
    with raises_exactly(TypeError, f"x {message.format('x')}"):
        layer(x, cache=cache)
    assert cache.length == 0
    with raises_exactly(TypeError, f"context {message.format('context')}"):
        layer(x.bfloat16(), context=x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
    for projection in ("query", "key", "value"):
        setattr(layer, projection, torch.nn.Identity())  # of one's own, with its own rules
    assert layer(x.bfloat16()).shape == x.shape


def test_options_of_a_layer_that_were_spoilt_later_are_refused() -> None:
    layer, x = layer_with("t5"), tokens()
    cache = layer.make_cache(batch=2, max_length=LENGTH)
    with raises_exactly(
        TypeError,
        "window must be a whole number, since it counts the keys that a query sees, itself included; got 2.5.",
    ):
        layer.window = 2.5  # type: ignore[assignment]
    with raises_exactly(TypeError, "causal must be True or False, since later keys are hidden or not; got 'yes'."):
        layer.causal = "yes"  # type: ignore[assignment]
    with raises_exactly(
        ValueError, "dropout must be at least 0 and below 1, since it is a probability and 1 leaves nothing; got 1.5."
    ):
        layer.dropout = 1.5
    assert (layer.window, layer.causal, layer.dropout) == (None, True, 0.0)
    layer.window = 4
    torch.testing.assert_close(layer(x, cache=cache), layer_with("t5", window=4)(x))


PADDED = {
    "left": torch.arange(LENGTH)[None] >= torch.tensor([[5], [0]]),
    "holes": torch.tensor([[0, 1, 1, 0, 0, 1, 0, 1, 1, 1, 0, 0, 1], [1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0]]).bool(),
}


@pytest.mark.parametrize("chunks", [[LENGTH], [4, 2, 7]], ids=str)
@pytest.mark.parametrize("padding", PADDED)
@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_prompts_padded_anywhere_are_cached_and_decoded_as_if_alone(name: str, padding: str, chunks: list[int]) -> None:
    layer, x, valid, more = layer_with(name, num_kv_heads=2), tokens(), PADDED[padding], 3
    positions, later = Positions.from_mask(valid), tokens(length=more)
    cache = layer.make_cache(batch=2, max_length=LENGTH + more)
    given, first = x.masked_fill(~valid[..., None], torch.nan), 0
    parts = []
    for count in chunks:
        parts.append(layer(given[:, first : first + count], positions[first : first + count], cache=cache))
        first += count
    out = torch.cat(parts, 1)
    assert (out[~valid] == 0).all()
    steps = torch.cat([layer(later[:, step : step + 1], cache=cache) for step in range(more)], 1)
    for row in range(2):
        alone = torch.cat((x[row][valid[row]], later[row]))[None]
        expected = layer(alone)[0]
        torch.testing.assert_close(out[row][valid[row]], expected[:-more], atol=1e-11, rtol=0)
        torch.testing.assert_close(steps[row], expected[-more:], atol=1e-11, rtol=0)


@pytest.mark.parametrize("given", [torch.arange(100, 106), torch.arange(0, 12, 2), torch.tensor([[0, 1, 2, 1, 1, 1]])])
@torch.no_grad()
def test_where_positions_do_not_count_the_tokens_the_next_must_be_told(given: torch.Tensor) -> None:
    layer, x = layer_with("rotary"), tokens(length=8)
    cache = layer.make_cache(batch=2, max_length=8)
    with raises_exactly(
        ValueError,
        "positions must be given, since those of the 6 tokens in the cache do not count them, and nothing tells which "
        "come next; got None.",
    ):
        (layer(x[:, :6], given, cache=cache), layer(x[:, 6:7], cache=cache))
    with raises_exactly(
        ValueError,
        "positions must count the tokens in the cache to be evicted, since the rest moves up by as many; got tokens "
        "that were given others.",
    ):
        cache.evict(2)
    assert cache.length == 6
    later = torch.tensor([[int(given.max()) + 1, int(given.max()) + 2]])
    steps = [layer(x[:, 6 + step : 7 + step], later[:, step : step + 1], cache=cache) for step in range(2)]
    whole = Positions.explicit(torch.cat((given.expand(1, -1), later), 1))
    torch.testing.assert_close(torch.cat(steps, 1), layer(x, whole)[:, 6:], atol=1e-11, rtol=0)
    cache.reset()
    layer(x, cache=cache)
    assert cache.is_counted


@torch.no_grad()
def test_a_step_that_is_withdrawn_leaves_it_open_which_position_is_next() -> None:
    layer, x = layer_with("rotary"), tokens(length=4)
    cache = layer.make_cache(batch=2, max_length=8)
    layer(x[:, :2], cache=cache)
    with pytest.raises(ValueError, match="mask must"):
        layer(x[:, 2:], torch.tensor([7, 9]), cache=cache, mask=torch.ones(9, 9) > 0)
    layer(x[:, 2:], torch.tensor([2, 3]), cache=cache)
    assert cache.is_counted


def test_norms_behind_the_rotation_are_told_by_a_word() -> None:
    words = (
        'qk_norm must be True, False or "after", since queries and keys are normalised before they are rotated, not at '
        "all, or after; got 'behind'."
    )
    with raises_exactly(TypeError, words):
        Attention(dim=16, num_heads=2, qk_norm="behind")  # type: ignore[arg-type]
    layer = Attention(dim=16, num_heads=2, encoding=situs.Rotary(head_dim=8), qk_norm="after")
    cache = layer.make_cache(batch=1, max_length=8)
    with torch.no_grad():
        layer(torch.randn(1, 4, 16), cache=cache)
    words = (
        "keys must be rotated by a RotationEncoding to be moved, since others cannot be rotated on; got QueryKeyNorm."
    )
    with raises_exactly(TypeError, words):
        cache.evict(1)
    words = (
        "qk_norm must be True or False with PoPE, since queries and keys come out of it wider than the norms of a "
        "head; got 'after'."
    )
    with raises_exactly(ValueError, words):
        Attention(dim=16, num_heads=2, encoding=situs.PoPE(head_dim=8, num_heads=2), qk_norm="after")


@torch.no_grad()
@pytest.mark.parametrize("name", ["query_norm", "key_norm"])
def test_norms_behind_the_rotation_may_be_replaced(name: str) -> None:
    layer, x = Attention(dim=16, num_heads=2, encoding=situs.Rotary(head_dim=8), qk_norm="after"), torch.randn(1, 5, 16)
    before = layer(x)
    norm = torch.nn.RMSNorm(8)
    norm.weight.fill_(3.0)
    setattr(layer, name, norm)
    after = layer(x)
    layer.scale = 3 / 8**0.5
    setattr(layer, name, torch.nn.RMSNorm(8))
    assert not torch.allclose(after, before, atol=1e-3)
    torch.testing.assert_close(layer(x), after)
    setattr(layer, name, None)
    assert not torch.allclose(layer(x), after, atol=1e-3)
