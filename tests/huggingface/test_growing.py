"""Caches that grow in place, beside transformers' own."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import DynamicCache, EncoderDecoderCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from situs.huggingface import accelerate, accelerated, restore
from situs.huggingface import growing as module
from situs.huggingface.growing import GrowingLayer, grow
from tests.huggingface.small_models import made, padding, prompt, texts

pytestmark = pytest.mark.once


def states(tokens: int, *, rows: int = 2, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(rows, 3, tokens, 4, dtype=dtype), torch.randn(rows, 3, tokens, 6, dtype=dtype)


def growing(cache: Any) -> Any:
    with torch.no_grad():
        grow(torch.nn.Identity(), (), {"past_key_values": cache})
    return cache


def both(tokens: int = 5) -> tuple[Any, Any]:
    """Two caches with the same tokens, the first of which grows."""
    caches = DynamicCache(), DynamicCache()
    found = states(tokens)
    for cache in caches:
        cache.update(*found, 0)
    return growing(caches[0]), caches[1]


def same(grown: Any, plain: Any) -> bool:
    pairs = zip(grown.layers, plain.layers, strict=True)
    return all(torch.equal(one.keys, other.keys) and torch.equal(one.values, other.values) for one, other in pairs)


@torch.no_grad()
def test_steps_are_written_behind_what_is_there_and_nothing_else_is() -> None:
    grown, plain = both()
    places = set()
    for _ in range(600):  # more than the first room takes
        new = states(1)
        found, expected = (cache.update(*new, 0) for cache in (grown, plain))
        assert all(map(torch.equal, found, expected))
        places.add(grown.layers[0].keys.data_ptr())
    assert type(grown.layers[0]) is GrowingLayer
    assert len(places) < 20


@torch.no_grad()
def test_a_room_holds_a_quarter_more_than_is_cached_or_a_few_tokens() -> None:
    cache: Any = both()[0]
    for _ in range(300):
        keys, values = cache.update(*states(1), 0)
        for each in (keys, values):
            held = each.untyped_storage().nbytes() / each[:, :, :1].nbytes
            assert held <= each.shape[2] + max(module.LEAST, each.shape[2] / module.SHARE)


@torch.no_grad()
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_a_reordered_cache_has_no_room_beside_its_keys(steps: int) -> None:
    layer: Any = both()[0].layers[0]
    for _ in range(steps):
        layer.update(*states(1))
    layer.reorder_cache(torch.tensor([1, 0]))
    assert layer.room is None
    layer.update(*states(1))
    assert layer.keys.untyped_storage().nbytes() == layer.keys.nbytes


def first_row(layer: Any) -> None:
    layer.keys, layer.values = layer.keys[:1], layer.values[:1]


REPLACED: dict[str, Callable[[Any], None]] = {
    "values": lambda layer: setattr(layer, "values", 2 * layer.values),
    "keys": lambda layer: setattr(layer, "keys", 2 * layer.keys),
    "the first row": first_row,
    "the first row, by a slice": lambda layer: layer.batch_select_indices(slice(0, 1)),
}


@torch.no_grad()
@pytest.mark.parametrize("what", REPLACED)
def test_keys_and_values_that_were_replaced_are_those_that_go_on(what: str) -> None:
    grown, plain = both()
    for _ in range(3):
        new = states(1)
        for cache in (grown, plain):
            cache.update(*new, 0)
    for cache in (grown, plain):
        REPLACED[what](cache.layers[0])
    for _ in range(3):
        new = states(1, rows=len(plain.layers[0].keys))
        for cache in (grown, plain):
            cache.update(*new, 0)
        assert same(grown, plain)


@torch.no_grad()
@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))])
def test_copies_of_a_layer_are_of_transformers_class_and_hold_no_room(way: Callable[[Any], Any]) -> None:
    grown, plain = both()
    for _ in range(3):
        new = states(1)
        for cache in (grown, plain):
            cache.update(*new, 0)
    assert type(way(grown.layers[0])) is DynamicLayer
    assert vars(way(grown.layers[0])).keys() == vars(plain.layers[0]).keys()
    assert len(pickle.dumps(grown)) == len(pickle.dumps(plain))


OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "crop": lambda cache: cache.crop(-2),
    "reorder": lambda cache: cache.reorder_cache(torch.tensor([1, 1])),
    "repeat": lambda cache: cache.batch_repeat_interleave(1),
    "select": lambda cache: cache.batch_select_indices(torch.tensor([1, 0])),
    "deepcopy": copy.deepcopy,
    "pickle": lambda cache: pickle.loads(pickle.dumps(cache)),
    "reset": lambda cache: cache.reset(),
}


@torch.no_grad()
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("steps", [0, 1, 4])
def test_operations_of_a_cache_do_what_they_did(operation: str, steps: int) -> None:
    grown, plain = both()
    for _ in range(3):
        for _ in range(steps):
            new = states(1)
            for cache in (grown, plain):
                cache.update(*new, 0)
        grown, plain = (OPERATIONS[operation](cache) or cache for cache in (grown, plain))
        new = states(2)
        for cache in (grown, plain):
            cache.update(*new, 0)
        assert same(grown, plain)


@torch.no_grad()
@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))])
def test_copies_of_a_layer_go_their_own_ways(way: Callable[[Any], Any]) -> None:
    layer: Any = both()[0].layers[0]
    layer.update(*states(1))
    before = layer.keys.clone()
    other = way(layer)
    one, two = states(1), states(1)
    for _ in range(2):
        layer.update(*one)
        other.update(*two)
    assert torch.equal(layer.keys, torch.cat((before, one[0], one[0]), 2))
    assert torch.equal(other.keys, torch.cat((before, two[0], two[0]), 2))


@torch.no_grad()
def test_what_was_given_away_is_never_written_again() -> None:
    cache: Any = both()[0]
    given, _ = cache.update(*states(1), 0)
    before = given.clone()
    cache.crop(-3)
    cache.update(*states(3), 0)
    layer = cache.layers[0]
    layer.keys, layer.values = layer.keys[:, :, :4], layer.values[:, :, :4]
    cache.update(*states(2), 0)
    assert torch.equal(given, before)


def test_gradients_flow_through_keys_that_follow_others() -> None:
    cache = both()[0]
    with torch.no_grad():
        cache.update(*states(1), 0)
    for _ in range(2):
        new: list[Any] = [each.requires_grad_() for each in states(1)]
        keys, values = cache.update(*new, 0)
        (keys.sum() + values.sum()).backward()
        assert all(torch.equal(each.grad, torch.ones_like(each)) for each in new)
        cache.layers[0].keys, cache.layers[0].values = keys.detach(), values.detach()


def test_steps_after_inference_mode_may_be_outside_of_it() -> None:
    grown, plain = both()
    for _ in range(2):
        for mode in (torch.inference_mode, torch.no_grad):
            with mode():
                new = states(1)
                for cache in (grown, plain):
                    cache.update(*new, 0)
    assert same(grown, plain)


@torch.no_grad()
def test_keys_of_another_dtype_are_joined_as_before() -> None:
    grown, plain = both()
    for dtype in (torch.float32, torch.float64, torch.float64):
        new = states(1, dtype=dtype)
        for cache in (grown, plain):
            cache.update(*new, 0)
        assert grown.layers[0].keys.dtype == plain.layers[0].keys.dtype
    assert same(grown, plain)


@torch.no_grad()
def test_only_plain_layers_grow() -> None:
    cache = DynamicCache()
    cache.layers = [DynamicLayer(), DynamicSlidingWindowLayer(sliding_window=4)]
    growing(cache)
    assert [type(layer) for layer in cache.layers] == [GrowingLayer, DynamicSlidingWindowLayer]
    pair = EncoderDecoderCache(both()[1], both()[1])
    growing(pair)
    assert type(pair.self_attention_cache.layers[0]) is GrowingLayer
    assert type(pair.cross_attention_cache.layers[0]) is DynamicLayer


@pytest.mark.parametrize("name", ["llama", "bloom", "t5"])
@pytest.mark.parametrize("way", [{}, {"num_beams": 3}, {"do_sample": True}, {"prompt_lookup_num_tokens": 3}], ids=str)
def test_generated_texts_are_the_same_over_several_rooms(
    name: str, way: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEAST", 3)
    monkeypatch.setattr(module, "SHARE", 100)
    model, ids = made(name), texts(1 if "prompt_lookup_num_tokens" in way else 2, 9)
    given = prompt(model, ids, padding(ids, "left") if len(ids) > 1 else torch.ones_like(ids))
    rooms: list[module.Room] = []

    class Counted(module.Room):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            rooms.append(self)

    monkeypatch.setattr(module, "Room", Counted)

    def generated() -> torch.Tensor:
        torch.manual_seed(0)
        found: torch.Tensor = model.generate(**given, **way, max_new_tokens=14, min_new_tokens=14)
        return found

    expected = generated()
    with accelerated(model):
        assert torch.equal(generated(), expected)
    assert not rooms if "num_beams" in way else len(rooms) > 4


def test_only_caches_of_accelerated_models_grow() -> None:
    model, ids = made("llama"), texts(1, 5)
    with torch.no_grad():
        cache = model(ids).past_key_values
        model(ids[:, :1], past_key_values=cache)
        assert type(cache.layers[0]) is DynamicLayer
        copied = copy.deepcopy(accelerate(model))
        for each in (model, copied):
            again = copy.deepcopy(cache)
            each(ids[:, :1], past_key_values=again)
            assert type(again.layers[0]) is GrowingLayer
            restore(each)
            again = copy.deepcopy(cache)
            each(ids[:, :1], past_key_values=again)
            assert type(again.layers[0]) is DynamicLayer
            assert not each._forward_pre_hooks


@pytest.mark.compiled
@torch.no_grad()
@pytest.mark.parametrize("order", ["plain, compiled, plain, compiled", "compiled, compiled, plain"])
def test_a_cache_that_grows_goes_through_compiled_models(order: str) -> None:
    model, ids, steps = made("llama"), texts(2, 12), order.split(", ")
    expected = model(ids[:, : 8 + len(steps)]).logits[:, -1]
    ways = {"plain": accelerate(model), "compiled": torch.compile(model, backend="aot_eager", dynamic=True)}
    cache = DynamicCache()
    model(ids[:, :8], past_key_values=cache)
    for number, way in enumerate(steps):
        found = ways[way](ids[:, 8 + number : 9 + number], past_key_values=cache).logits[:, -1]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
