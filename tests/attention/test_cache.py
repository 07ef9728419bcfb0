"""The cache: rows of unequal length, eviction, and which positions may follow."""

import copy
import pickle
import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from situs import Attention, Deberta, KVCache, Positions, QueryKeyEncoding
from situs.encodings.base import Role
from situs.positions import PositionsLike
from tests.attention.layer_cases import DIM, HEADS, LENGTH, NAMES, layer_with, tokens
from tests.raising import raises_exactly


class Doubled(QueryKeyEncoding):
    """Turns nothing, but acts on queries and keys."""

    def forward(self, x: Tensor, positions: PositionsLike = None, *, role: Role = "query") -> Tensor:
        return 2 * x


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_rows_of_unequal_length_decode_as_they_do_alone(name: str) -> None:
    layer, x = layer_with(name), tokens()
    lengths = [4, 7]
    mask = torch.arange(7) < torch.tensor(lengths)[:, None]
    cache = layer.make_cache(batch=2, max_length=LENGTH)
    prompt = torch.stack(
        [torch.cat((row[:count], row.new_full((7 - count, DIM), 9.0))) for row, count in zip(x, lengths, strict=True)]
    )
    outs = [layer(prompt, Positions.from_mask(mask, side="right"), cache=cache)]
    for step in range(3):
        following = torch.stack([row[count + step] for row, count in zip(x, lengths, strict=True)]).unsqueeze(1)
        outs.append(layer(following, cache=cache))
    for row, count in enumerate(lengths):
        alone = layer(x[row : row + 1, : count + 3])
        torch.testing.assert_close(outs[0][row, :count], alone[0, :count], atol=1e-11, rtol=0)
        for step in range(3):
            torch.testing.assert_close(outs[1 + step][row, 0], alone[0, count + step], atol=1e-11, rtol=0)


@pytest.mark.parametrize(
    "name", ["none", "rotary", "alibi", "t5", "rotary and t5", "rotary and shaw", "dynamic", "xpos middle"]
)
@torch.no_grad()
def test_evicted_tokens_are_as_if_they_had_never_been(name: str) -> None:
    layer, x = layer_with(name), tokens(batch=1)
    cache = layer.make_cache(batch=1, max_length=LENGTH)
    whole = Positions.range(LENGTH)  # methods that choose by length are told it
    for place in range(9):
        layer(x[:, place : place + 1], whole[place : place + 1], cache=cache)
    cache.evict(4, sinks=2)
    kept = torch.cat((x[:, :2], x[:, 6:9], x[:, 9:10]), 1)
    alone = layer(kept, whole[:6])[:, -1]
    torch.testing.assert_close(layer(x[:, 9:10], whole[5:6], cache=cache)[:, -1], alone, atol=1e-11, rtol=0)


@torch.no_grad()
def test_a_cache_can_be_emptied_but_for_its_sinks() -> None:
    layer, x = layer_with("rotary"), tokens(batch=1)
    cache = layer.make_cache(batch=1, max_length=LENGTH)
    layer(x[:, :5], cache=cache)
    cache.evict(5)
    torch.testing.assert_close(layer(x[:, 5:9], cache=cache), layer(x[:, 5:9]), atol=1e-11, rtol=0)


def test_keys_turned_in_a_way_of_ones_own_cannot_be_moved() -> None:
    layer, x = Attention(dim=DIM, num_heads=HEADS, encoding=Doubled()).double(), tokens(batch=1)
    cache = layer.make_cache(batch=1, max_length=LENGTH)
    with torch.no_grad():
        layer(x[:, :5], cache=cache)
    with raises_exactly(
        TypeError,
        "keys must be rotated by a RotationEncoding to be moved, since others cannot be rotated on; got Doubled.",
    ):
        cache.evict(2)
    assert cache.length == 5


@torch.no_grad()
def test_padding_of_earlier_tokens_takes_no_place() -> None:
    layer, x = layer_with("rotary"), tokens()
    cache = layer.make_cache(batch=2, max_length=LENGTH)
    mask = torch.arange(10) < torch.tensor([3, 4])[:, None]
    layer(x[:, :10], Positions.from_mask(mask), cache=cache)
    for step in range(9):
        layer(x[:, step : step + 1], cache=cache)
    assert cache.length == LENGTH
    assert cache.lengths is not None
    assert cache.lengths.tolist() == [12, 13]


@pytest.mark.parametrize("name", ["rotary", "alibi", "rotary and shaw"])
@torch.no_grad()
def test_bare_ids_stand_behind_the_cached_tokens_of_their_rows(name: str) -> None:
    layer, x = layer_with(name), tokens()
    lengths = torch.tensor([4, 7])
    prompt = Positions.from_mask(torch.arange(7) < lengths[:, None])
    told, ours = (layer.make_cache(batch=2, max_length=LENGTH) for _ in range(2))
    layer(x[:, :7], prompt, cache=told)
    layer(x[:, :7], prompt, cache=ours)
    ids = lengths[:, None] + torch.arange(3)
    torch.testing.assert_close(layer(x[:, 7:10], ids, cache=told), layer(x[:, 7:10], cache=ours))


@pytest.mark.parametrize("name", ["none", "rotary", "alibi", "rotary and shaw"])
@pytest.mark.parametrize(
    "places",
    [
        Positions.from_mask(torch.ones(1, 3, dtype=torch.bool)),
        Positions.range(3, start=2),
        Positions.range(3, start=torch.tensor([5, 4])),
    ],
    ids=["mask", "range", "range by row"],
)
@torch.no_grad()
def test_positions_that_do_not_follow_the_cache_are_refused(name: str, places: Positions) -> None:
    layer, x = layer_with(name), tokens()
    cache = layer.make_cache(batch=2, max_length=LENGTH)
    layer(x[:, :5], cache=cache)
    with raises_exactly(
        ValueError,
        f"positions must follow those in the cache, 5 so far, since a token sees what stands before it; got "
        f"{places!r}. Leave them out, or slice those of the whole sequence: positions[first:last].",
    ):
        layer(x[:, 5:8], places, cache=cache)
    assert cache.length == 5


@pytest.mark.parametrize(
    ("name", "method"),
    [("dynamic", "DynamicNTKScaling"), ("xpos middle", 'XPos(centre="middle")')],
    ids=["dynamic", "xpos"],
)
@torch.no_grad()
def test_keys_turned_for_another_length_are_not_mixed_with_new_ones(name: str, method: str) -> None:
    layer, x = layer_with(name), tokens()
    cache = layer.make_cache(batch=2, max_length=LENGTH)
    layer(x[:, :9], cache=cache)
    with raises_exactly(
        ValueError,
        f"queries and keys must be made for one sequence length, since {method} chooses by it and a mixed cache gives "
        f"wrong scores; got lengths 13 and 9. Plan both with positions.with_sequence_length(n), or move cached keys "
        f"with rerotate().",
    ):
        layer(x[:, 9:], Positions.range(LENGTH)[9:], cache=cache)
    planned = layer.make_cache(batch=2, max_length=LENGTH)
    steps = [layer(x[:, part], Positions.range(LENGTH)[part], cache=planned) for part in (slice(9), slice(9, LENGTH))]
    torch.testing.assert_close(torch.cat(steps, 1), layer(x), atol=1e-11, rtol=0)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda cache: pickle.loads(pickle.dumps(cache))])
@torch.no_grad()
def test_copies_of_a_cache_go_on_alike_and_copy_no_encoding(copied: Callable[[KVCache], KVCache]) -> None:
    encoding = Deberta(dim=8, num_heads=2, head_dim=4, max_distance=9, init_std=1.0)
    encoding.uncopied = threading.Lock()
    layer, x = Attention(dim=8, num_heads=2, encoding=encoding), torch.randn(1, 6, 8)
    cache = layer.make_cache(batch=1, max_length=8)
    empty = copied(cache)
    for count in (4, 1):
        out = layer(x[:, cache.length : cache.length + count], cache=cache)
        assert torch.equal(layer(x[:, empty.length : empty.length + count], cache=empty), out)
    other = copied(cache)
    assert torch.equal(layer(x[:, 5:], cache=other), layer(x[:, 5:], cache=cache))
    cache.reset()
    assert copied(cache).length == 0
