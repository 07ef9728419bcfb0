"""Calls that once gave wrong numbers, or ran out of memory, without a word."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import situs
from situs import Attention, KVCache, Positions, attend
from situs.attention import reference
from tests.attention.attention_cases import HEADS, WIDTH, Largest, assert_same_as_reference, build, tensors
from tests.raising import raises_exactly


def test_queries_keys_and_values_have_one_dtype() -> None:
    q, k, v = tensors(4, 4, dtype=torch.float32)
    with raises_exactly(
        TypeError,
        "query, key and value must have one dtype, since the output takes it; got torch.float32, torch.float32 and "
        "torch.float64. Convert them with .to(query.dtype).",
    ):
        attend(q, k, v.double(), encoding=build("t5", torch.float32))


def test_under_autocast_several_dtypes_are_cast_as_torch_casts_them() -> None:
    q, k, v = tensors(4, 4, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        out = attend(q, k, v.bfloat16(), encoding=build("t5", torch.float32))
    assert out.dtype == torch.bfloat16


def test_a_mask_lives_where_the_queries_do() -> None:
    q, k, v = tensors(4, 4)
    with raises_exactly(
        ValueError,
        "mask must be on the query's device, cpu, since it is added to the scores there; got meta. Move it with "
        "mask.to(query.device).",
    ):
        attend(q, k, v, mask=torch.ones(4, 4, dtype=torch.bool, device="meta"))


@pytest.mark.parametrize(
    "name", ["nothing", "rotary", "t5", "shaw", "tupe", "tupe, relative", "deberta", "cope", "fire"]
)
def test_a_scale_of_0_leaves_what_positions_add_and_no_content(name: str) -> None:
    encoding, qkv = build(name), tensors(300, 300, batch=1)
    learned = [each for module in encoding for each in module.parameters()]
    assert_same_as_reference(qkv, "auto", learned, encoding=encoding, causal=True, scale=0.0)
    assert bool(attend(*qkv, encoding=encoding, causal=True, scale=0.0).isfinite().all())


def test_a_scale_of_the_callers_is_used_as_it_is() -> None:
    yarn = situs.YaRN(factor=4.0, original_length=8, mscale=0.7, mscale_all_dim=1.0)
    rotary = situs.Rotary(head_dim=WIDTH, scaling=yarn)
    assert rotary.softmax_factor != 1.0
    q, k, v = tensors(5, 5)
    rotated = rotary.both(q, k, 0)
    expected = (0.3 * rotated[0] @ rotated[1].transpose(-2, -1)).softmax(-1) @ v
    torch.testing.assert_close(attend(q, k, v, encoding=rotary, scale=0.3), expected)
    torch.testing.assert_close(reference(q, k, v, encoding=rotary, scale=0.3), expected)


@pytest.mark.parametrize("name", ["alibi", "t5", "kerple", "sandwich", "shaw", "transformer xl", "deberta", "fire"])
def test_memory_follows_the_tokens_and_not_the_span_of_their_positions(name: str) -> None:
    encoding, qkv = build(name), tensors(4, 4)
    call: dict[str, Any] = {"encoding": encoding, "positions": Positions.explicit(torch.tensor([0, 1, 2, 10**9]))}
    with Largest() as largest:
        out = attend(*qkv, **call)
        out.sum().backward()
    assert largest.bytes < 1 << 20
    torch.testing.assert_close(out, reference(*qkv, **call), atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("name", ["nothing", "rotary", "t5", "shaw", "fire", "cope", "tupe, relative"])
@pytest.mark.parametrize("shape", [(), (7,), (1, 7), (7, 1)], ids=str)
def test_masks_of_few_axes_broadcast(name: str, shape: tuple[int, ...]) -> None:
    encoding, qkv = build(name), tensors(7, 7)
    for mask in (torch.rand(shape) < 0.7, torch.randn(shape, dtype=torch.float64)):
        call: dict[str, Any] = {"encoding": encoding, "mask": mask}
        torch.testing.assert_close(attend(*qkv, **call), reference(*qkv, **call), atol=1e-10, rtol=1e-10)
        whole = {**call, "mask": mask.expand(2, HEADS, 7, 7)}
        torch.testing.assert_close(attend(*qkv, **call), reference(*qkv, **whole), atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("name", ["nothing", "rotary", "t5", "shaw", "fire", "cope", "tupe, relative", "deberta"])
@pytest.mark.parametrize(("queries", "keys"), [(0, 4), (3, 0)])
def test_what_is_empty_has_gradients_of_zero(name: str, queries: int, keys: int) -> None:
    encoding, qkv = build(name), tensors(queries, keys)
    attend(*qkv, encoding=encoding, positions=0, key_positions=0).sum().backward()
    assert all(each.grad is not None and not each.grad.any() for each in qkv)


@pytest.mark.parametrize("name", ["shaw", "deberta", "transformer xl"])
def test_queries_that_see_no_near_key_have_no_weight_there(name: str) -> None:
    """Ids of queries are shifted against those of keys, slots are not: under a causal mask some see only far keys."""
    sizes: dict[str, Any] = {"num_heads": 2, "head_dim": 8}
    encodings: dict[str, situs.Encoding] = {
        "shaw": situs.Shaw(**sizes, max_distance=4),
        "deberta": situs.Deberta(**sizes, dim=8, max_distance=8, init_std=1.0),
        "transformer xl": situs.TransformerXL(**sizes, dim=8, clamp_len=4, init_std=1.0),
    }
    encoding, qkv = encodings[name].double(), tensors(300, 300, heads=2, kv_heads=2, batch=1)
    shifted = Positions.explicit(torch.arange(300) + 200)
    call: dict[str, Any] = {"positions": shifted, "key_positions": Positions.range(300), "causal": True}
    assert_same_as_reference(qkv, "auto", list(encoding.parameters()), encoding=encoding, **call)


def test_cope_whose_table_has_one_row_counts_nothing() -> None:
    cope = situs.CoPE(num_heads=2, head_dim=8, max_position=1, init_std=1.0).double()
    qkv = tensors(600, 600, heads=2, kv_heads=2, batch=1)
    assert_same_as_reference(qkv, "auto", list(cope.parameters()), encoding=cope, causal=True)


class Blind(situs.OffsetBias):
    """A bias that hides all keys but those at some distances."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads = 2

    def rule(self, device: torch.device, dtype: torch.dtype) -> Any:
        return lambda offset, head: torch.where(offset.abs() % 7 < 2, 0.1 * head.to(dtype), -math.inf)


@pytest.mark.parametrize("impl", ["toeplitz", "blockwise", "dense"])
def test_biases_that_hide_keys_are_merged_over_shards(impl: str) -> None:
    whole = Positions.range(64)
    qkv = tensors(32, 32, heads=2, kv_heads=2)
    for mine, others in ((0, 1), (1, 0), (0, 0)):
        call: dict[str, Any] = {
            "positions": whole.shard(mine, 2, layout="zigzag"),
            "key_positions": whole.shard(others, 2, layout="zigzag"),
        }
        assert_same_as_reference(qkv, impl, encoding=Blind(), causal=True, **call)


def cache_of(layer: Attention, **options: Any) -> KVCache:
    return layer.make_cache(batch=2, max_length=16, **options)


def test_a_wrong_batch_is_refused_before_anything_is_cached() -> None:
    layer = Attention(dim=16, num_heads=2, encoding=situs.Rotary(head_dim=8))
    cache = cache_of(layer)
    with raises_exactly(
        ValueError,
        "key must have shape (2, 2, new, 8), since the cache was made for 2 rows of 2 heads of 8; got shape (3, 2, "
        "4, 8).",
    ):
        layer(torch.randn(3, 4, 16), cache=cache)
    assert cache.length == 0
    assert not cache.keys.any()


def test_a_cache_is_cropped_and_begun_anew() -> None:
    torch.manual_seed(3)
    layer = Attention(dim=16, num_heads=2, encoding=situs.ALiBi(num_heads=2)).eval()
    x, cache = torch.randn(2, 9, 16), cache_of(layer)
    with torch.no_grad():
        whole = layer(x)
        layer(torch.cat((x[:, :5], torch.randn(2, 4, 16)), 1), cache=cache)
        cache.crop(5)
        torch.testing.assert_close(layer(x[:, 5:], cache=cache), whole[:, 5:])
        cache.reset()
        assert cache.length == 0
        torch.testing.assert_close(layer(x, cache=cache), whole)
    with raises_exactly(ValueError, "length must be at most 9, since so many tokens are cached; got 10."):
        cache.crop(10)


def test_rows_that_came_with_a_mask_and_are_equal_can_be_evicted() -> None:
    layer = Attention(dim=16, num_heads=2, encoding=situs.Rotary(head_dim=8)).eval()
    masked, plain, x = cache_of(layer), cache_of(layer), torch.randn(2, 8, 16)
    with torch.no_grad():
        layer(x, Positions.from_mask(torch.ones(2, 8, dtype=torch.bool)), cache=masked)
        layer(x, cache=plain)
        for cache in (masked, plain):
            cache.evict(3, sinks=2)
        token = torch.randn(2, 1, 16)
        torch.testing.assert_close(layer(token, cache=masked), layer(token, cache=plain))


def test_parameters_that_change_between_steps_are_seen() -> None:
    t5 = situs.T5Bias(num_heads=2, init_std=1.0)
    layer = Attention(dim=16, num_heads=2, encoding=t5).eval()
    x, cache, fresh = torch.randn(2, 6, 16), cache_of(layer), cache_of(layer)
    with torch.no_grad():
        layer(x[:, :4], cache=cache)
        layer(x[:, 4:5], cache=cache)
        t5.table.mul_(3)
        layer(x[:, :5], cache=fresh)
        torch.testing.assert_close(layer(x[:, 5:], cache=cache), layer(x[:, 5:], cache=fresh))
