"""How near to the truth ``attend`` comes: narrow numbers, autocast, and the same bits each time."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import situs
from situs import attend
from situs.attention import reference
from tests.attention.attention_cases import (
    ENCODINGS,
    KERNELS,
    PLACES,
    attend_or_none,
    build,
    real,
    tensors,
    threads,
    use_small_blocks,
)

pytestmark = pytest.mark.compiled  # with shapes checked these would take minutes; smaller tests of each kernel do

PRECISIONS = {torch.float32: 2e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2}


@pytest.mark.thin(2)
@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize("name", ENCODINGS)
@torch.no_grad()
def test_narrow_numbers_are_as_near_to_the_truth_as_they_can_be(
    name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_small_blocks(monkeypatch)
    wide, narrow = build(name), build(name, torch.float32)
    for one, other in zip(wide, narrow, strict=True):
        one.load_state_dict(other.state_dict())
    for places, kv_heads in (("a range", 2), ("packed", 4), ("padded left", 4), ("a zigzag shard", 1)):
        query, key = PLACES[places]()
        qkv = tensors(query.length, key.length, kv_heads=kv_heads, dtype=dtype)
        q, k, v = (each.double() for each in qkv)
        call: dict[str, Any] = {"causal": True, "positions": query, "key_positions": key}
        truth = reference(q, k, v, encoding=wide, **call) * real(query)
        for impl in KERNELS:
            out = attend_or_none(*qkv, encoding=narrow, impl=impl, **call)
            if out is not None:
                assert out.dtype == dtype
                torch.testing.assert_close(out.double() * real(query), truth, atol=PRECISIONS[dtype], rtol=0.0)


@pytest.mark.parametrize("value_dim", [64, 32])
@pytest.mark.parametrize("impl", ["toeplitz", "blockwise", "auto"])
def test_products_too_large_for_half_precision_do_not_overflow(impl: Any, value_dim: int) -> None:
    q, k, v = tensors(32, 32, heads=1, kv_heads=1, width=64, value_dim=value_dim, dtype=torch.float32)
    q, k, v = (60 * q).half(), (60 * k).half(), v.half()
    bias = situs.T5Bias(num_heads=1)
    out = attend(q, k, v, encoding=bias, causal=True, impl=impl)
    expected = reference(q, k, v, encoding=bias, causal=True)
    torch.testing.assert_close(out, expected, atol=4e-3, rtol=0.0)


@pytest.mark.parametrize(
    "name", ["nothing", "rotary", "t5", "fire", "shaw", "transformer xl", "tupe, relative", "cope"]
)
def test_autocast_changes_no_result_by_more_than_it_changes_plain_attention(name: str) -> None:
    qkv, encoding = tensors(9, 9, dtype=torch.float32), build(name, torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = attend(*qkv, encoding=encoding, causal=True)
    expected = reference(*qkv, encoding=encoding, causal=True)
    torch.testing.assert_close(out.float(), expected, atol=3e-2, rtol=0.0)


@pytest.mark.parametrize("name", ENCODINGS)
@torch.no_grad()
def test_the_same_call_gives_the_same_bits(name: str) -> None:
    qkv, encoding = tensors(40, 40, dtype=torch.float32), build(name, torch.float32)
    for impl in KERNELS:
        once = attend_or_none(*qkv, impl=impl, encoding=encoding, causal=True)
        again = attend_or_none(*qkv, impl=impl, encoding=encoding, causal=True)
        assert (once is None) == (again is None)
        assert once is None or again is None or torch.equal(once, again)


@pytest.mark.parametrize("name", ["rotary", "t5", "shaw", "transformer xl", "tupe, relative", "fire", "cope"])
@torch.no_grad()
def test_one_thread_and_two_agree_to_rounding(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_blocks(monkeypatch)
    qkv, encoding = tensors(40, 40, dtype=torch.float32), build(name, torch.float32)
    found = []
    for count in (1, 2):
        with threads(count):
            found.append(attend(*qkv, encoding=encoding, causal=True))
    torch.testing.assert_close(found[0], found[1], atol=2e-6, rtol=0.0)
