"""Masks of the caller's own: of any shape, besides other rules, and rows that may see nothing."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from situs import Positions
from situs.attention import attend, reference
from tests.attention.attention_cases import (
    ENCODINGS,
    KERNELS,
    LEFT,
    PLACES,
    assert_kernels_give,
    attend_or_none,
    build,
    one_of_each_kind,
    tensors,
    use_small_blocks,
)

pytestmark = pytest.mark.compiled  # with shapes checked these would take minutes; smaller tests of each kernel do

SHAPES = [(7, 7), (1, 1, 7, 7), (2, 1, 1, 7), (2, 1, 7, 7), (1, 4, 7, 7), (2, 4, 7, 7), (4, 7, 7), (1, 7)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", ["boolean", "float", "float with -inf"])
@one_of_each_kind
def test_masks_of_any_shape_that_broadcasts_are_served(
    name: str, kind: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    use_small_blocks(monkeypatch)
    shown, numbers = torch.rand(shape) > 0.3, torch.randn(shape, dtype=torch.float64)
    mask = {"boolean": shown, "float": numbers, "float with -inf": numbers.masked_fill(~shown, -math.inf)}[kind]
    qkv, encoding = tensors(7, 7, kv_heads=2), build(name)
    for causal in (False, True):
        call: dict[str, Any] = {"encoding": encoding, "causal": causal, "mask": mask}
        assert_kernels_give(reference(*qkv, **call), *qkv, **call)


@one_of_each_kind
@pytest.mark.parametrize("places", ["padded left", "packed", "a zigzag shard", "decoding by row"])
def test_masks_act_besides_padding_documents_and_windows(
    name: str, places: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_small_blocks(monkeypatch)
    query, key = PLACES[places]()
    qkv, encoding = tensors(query.length, key.length), build(name)
    mask = torch.rand(2, 1, query.length, key.length) > 0.3
    for causal, window in ((True, None), (False, 3), (True, 2)):
        call: dict[str, Any] = {"encoding": encoding, "mask": mask, "causal": causal, "window": window}
        call |= {"positions": query, "key_positions": key}
        assert_kernels_give(reference(*qkv, **call), *qkv, **call)


@pytest.mark.parametrize("name", ENCODINGS)
def test_rows_that_may_see_nothing_give_zeros_exactly(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_blocks(monkeypatch)
    encoding = build(name, torch.float32)
    padded = Positions.from_mask(LEFT, side="left")
    later = Positions.range(9, start=3)
    blind = torch.rand(9, 9) > 0.4
    blind[[0, 4, 8]] = False
    cases: list[tuple[dict[str, Any], Tensor]] = [
        ({"causal": True, "positions": padded}, LEFT == 0),
        ({"causal": True, "positions": Positions.range(9), "key_positions": later}, torch.arange(9)[None] < 3),
        ({"mask": blind}, ~blind.any(-1)[None]),
        ({"mask": torch.zeros(9, 9).masked_fill(~blind, -math.inf)}, ~blind.any(-1)[None]),
        ({"mask": torch.zeros(2, 1, 1, 9, dtype=torch.bool)}, torch.ones(1, 9, dtype=torch.bool)),
        ({"window": 2, "positions": 0, "key_positions": later}, torch.arange(9)[None] < 2),
    ]
    qkv = tensors(9, 9, kv_heads=2, dtype=torch.float32)
    for (call, rows), impl in itertools.product(cases, KERNELS):
        out = attend_or_none(*qkv, impl=impl, encoding=encoding, **call)
        if out is not None:
            assert bool(out.isfinite().all())
            assert bool((out.transpose(1, 2)[rows.expand(2, 9)] == 0).all())
            assert bool((out.transpose(1, 2)[~rows.expand(2, 9)] != 0).any() or rows.all())


@pytest.mark.parametrize("impl", ["auto", "toeplitz", "blockwise", "dense", "reference"])
@pytest.mark.parametrize("rows", [1, 6], ids=["one row for all", "a row for each"])
def test_rows_that_see_only_low_keys_have_exact_gradients(impl: Any, rows: int) -> None:
    query, key, value = (torch.randn(1, 2, 6, 8, requires_grad=True) for _ in range(3))
    mask = torch.zeros(1, 1, rows, 6)
    mask[..., :3] = torch.finfo(torch.float32).min  # the first three queries see no other key
    found = torch.autograd.grad(attend(query, key, value, mask=mask, causal=True, impl=impl).sum(), (query, key, value))
    q, k, v = (each.detach().double().requires_grad_() for each in (query, key, value))
    later = torch.ones(6, 6, dtype=torch.bool).triu(1)
    later[3:, :3] = True  # others give these keys no weight
    scores = (q @ k.transpose(-2, -1) / 8**0.5).masked_fill(later, -math.inf)
    expected = torch.autograd.grad((torch.softmax(scores, -1) @ v).sum(), (q, k, v))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_mask_wider_than_queries_is_added_behind_a_cap(dtype: torch.dtype) -> None:
    q, k, v = tensors(7, 7, dtype=dtype)
    mask = torch.randn(7, 7, dtype=torch.float64)
    out = attend(q, k, v, mask=mask, softcap=2.0)
    torch.testing.assert_close(out, attend(q, k, v, mask=mask.float(), softcap=2.0))


@pytest.mark.parametrize("dtype", [torch.bool, torch.float64])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (2, 1), (1, 4), (2, 4)])
def test_a_row_that_all_queries_share_is_added_or_hides(
    shape: tuple[int, int], causal: bool, dtype: torch.dtype
) -> None:
    q = torch.randn(2, 4, 30, 8, dtype=torch.float64, requires_grad=True)
    k, v = (torch.randn(2, 2, 30, 8, dtype=torch.float64, requires_grad=True) for _ in range(2))
    row = torch.randn(*shape, 1, 30, dtype=torch.float64)
    row[..., :3] = -torch.inf  # a causal query among the first sees nothing
    row = row > 0 if dtype == torch.bool else row
    out, exact = (run(q, k, v, causal=causal, mask=row) for run in (attend, reference))
    torch.testing.assert_close(out, exact)
    gradient = torch.randn_like(out)
    found, expected = (torch.autograd.grad(each, (q, k, v), gradient) for each in (out, exact))
    for each, one in zip(found, expected, strict=True):
        torch.testing.assert_close(each, one)
    if dtype != torch.bool:
        learned = row.nan_to_num(neginf=-5.0).requires_grad_()
        both = [torch.autograd.grad(run(q, k, v, causal=causal, mask=learned).sum(), learned)[0]
                for run in (attend, reference)]  # fmt: skip
        torch.testing.assert_close(*both)
