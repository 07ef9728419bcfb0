"""Gradients of ``attend`` are the reference's: of queries, keys, values and everything learned."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import situs
from situs import Positions, attend
from situs.attention import reference
from tests.attention.attention_cases import (
    ENCODINGS,
    HEADS,
    KERNELS,
    LEFT,
    PLACES,
    RULES,
    WIDTH,
    assert_same_as_reference,
    attend_or_none,
    build,
    gradients,
    parameters_of,
    real,
    tensors,
    threads,
    use_small_blocks,
)

pytestmark = pytest.mark.compiled  # with shapes checked these would take minutes; smaller tests of each kernel do


@pytest.mark.thin(24)
@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("name", ENCODINGS)
def test_gradients_of_every_kernel_equal_the_references(
    name: str, places: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_small_blocks(monkeypatch)
    encoding, (query, key) = build(name), PLACES[places]()
    for causal, window, kv_heads in RULES:
        qkv = tensors(query.length, key.length, kv_heads=kv_heads)
        call: dict[str, Any] = {"encoding": encoding, "causal": causal, "window": window}
        call |= {"positions": query, "key_positions": key}
        expected = reference(*qkv, **call)
        weights, sources = torch.randn_like(expected) * real(query), (*qkv, *parameters_of(encoding))
        wanted = gradients(expected, weights, sources)
        for impl in KERNELS:
            out = attend_or_none(*qkv, impl=impl, **call)
            if out is not None:
                for actual, right in zip(gradients(out, weights, sources), wanted, strict=True):
                    torch.testing.assert_close(actual, right, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_bias_of_two_axes_learns_as_in_the_reference(version: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_blocks(monkeypatch)
    swin = situs.SwinBias(num_heads=HEADS, window=(3, 4), version=version, width=16, init_std=1.0).double()
    grid = Positions.grid(3, 4)
    assert_same_as_reference(tensors(12, 12), "blockwise", parameters_of([swin]), encoding=swin, positions=grid)


@pytest.mark.parametrize("name", ENCODINGS)
def test_gradients_under_masks_equal_the_references(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_blocks(monkeypatch)
    encoding = build(name)
    for shape in ((9, 9), (1, 1, 9, 9), (2, 1, 1, 9)):
        shown = torch.rand(shape) > 0.3
        for mask in (shown, torch.randn(shape, dtype=torch.float64).masked_fill(~shown, -math.inf)):
            for impl in ("auto", "blockwise"):
                qkv = tensors(9, 9, kv_heads=2)
                assert_same_as_reference(qkv, impl, parameters_of(encoding), encoding=encoding, mask=mask, causal=True)


@pytest.mark.parametrize("name", ["nothing", "rotary", "t5", "shaw", "tupe, relative", "fire", "cope"])
def test_a_learned_mask_learns_as_in_the_reference(name: str) -> None:
    encoding = build(name)
    mask = torch.randn(1, HEADS, 7, 7, dtype=torch.float64, requires_grad=True)
    assert_same_as_reference(tensors(7, 7), "auto", [mask], encoding=encoding, mask=mask, causal=True)


@pytest.mark.parametrize("name", ["t5", "fire", "shaw", "shaw of keys", "transformer xl"])
def test_an_encoding_that_acts_twice_learns_from_both(name: str) -> None:
    encoding = build(name)
    learned = parameters_of(encoding)
    assert_same_as_reference(tensors(7, 7), "auto", learned, encoding=[*encoding, *encoding], causal=True)


@pytest.mark.parametrize("name", ["rotary", "t5", "fire", "transformer xl", "tupe, relative", "cope"])
@pytest.mark.parametrize("value_dim", [5, 12])
def test_gradients_of_values_of_another_width_equal_the_references(
    name: str, value_dim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_small_blocks(monkeypatch)
    encoding = build(name)
    qkv = tensors(9, 9, value_dim=value_dim, kv_heads=2)
    for window in (None, 3):
        learned = parameters_of(encoding)
        assert_same_as_reference(qkv, "auto", learned, encoding=encoding, causal=True, window=window)


@pytest.mark.parametrize("name", ENCODINGS)
def test_rows_that_may_see_nothing_leave_gradients_finite(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_blocks(monkeypatch)
    encoding = build(name)
    blind = torch.rand(9, 9) > 0.4
    blind[[0, 4, 8]] = False
    cases: list[dict[str, Any]] = [
        {"causal": True, "positions": Positions.from_mask(LEFT, side="left")},
        {"causal": True, "positions": Positions.range(9), "key_positions": Positions.range(9, start=3)},
        {"mask": blind},
        {"mask": torch.zeros(9, 9).masked_fill(~blind, -math.inf)},
        {"mask": torch.zeros(2, 1, 1, 9, dtype=torch.bool)},
    ]
    for call in cases:
        for impl in KERNELS:
            qkv = tensors(9, 9, kv_heads=2)
            out = attend_or_none(*qkv, impl=impl, encoding=encoding, **call)
            if out is not None:
                sources = (*qkv, *parameters_of(encoding))
                for each in gradients(out, torch.ones_like(out), sources):
                    assert bool(each.isfinite().all())


def test_gradients_of_queries_that_see_nothing_are_zero() -> None:
    for name in ("nothing", "t5", "shaw", "tupe, relative", "fire"):
        qkv = tensors(5, 5)
        out = attend(*qkv, encoding=build(name), causal=True, positions=0, key_positions=2)
        query = torch.autograd.grad(out.sum(), qkv)[0]
        assert bool((query[:, :, :2] == 0).all())


# against the largest of each gradient
PRECISIONS = {torch.float32: 5e-6, torch.float16: 1e-2, torch.bfloat16: 6e-2}


@pytest.mark.thin(4)
@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize("name", ENCODINGS)
def test_gradients_of_narrow_numbers_are_near_the_truth(
    name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_small_blocks(monkeypatch)
    wide, narrow = build(name), build(name, torch.float32)
    for one, other in zip(wide, narrow, strict=True):
        one.load_state_dict(other.state_dict())
    for places, kv_heads in (("a range", 2), ("packed", 4), ("a zigzag shard", 1)):
        query, key = PLACES[places]()
        qkv = tensors(query.length, key.length, kv_heads=kv_heads, dtype=dtype)
        exact = tuple(each.detach().double().requires_grad_() for each in qkv)
        call: dict[str, Any] = {"causal": True, "positions": query, "key_positions": key}
        truth = reference(exact[0], exact[1], exact[2], encoding=wide, **call)
        weights = torch.randn_like(truth).to(dtype).double()
        wanted = gradients(truth, weights, (*exact, *parameters_of(wide)))
        largest = max(float(each.abs().max()) for each in wanted[:3])
        for impl in KERNELS:
            out = attend_or_none(*qkv, impl=impl, encoding=narrow, **call)
            if out is None:
                continue
            sources = (*qkv, *parameters_of(narrow))
            for actual, right, source in zip(gradients(out, weights, sources), wanted, sources, strict=True):
                assert actual.dtype == source.dtype
                allowed = PRECISIONS[dtype] * max(largest, float(right.abs().max()))
                torch.testing.assert_close(actual.double(), right, atol=allowed, rtol=0.0)


def test_the_same_call_gives_the_same_bits_of_gradients() -> None:
    for name in ENCODINGS:
        encoding, qkv = build(name, torch.float32), tensors(20, 20, dtype=torch.float32)
        weights = torch.randn_like(qkv[0])
        sources = (*qkv, *parameters_of(encoding))
        once, again = (gradients(attend(*qkv, encoding=encoding, causal=True), weights, sources) for _ in range(2))
        for one, other in zip(once, again, strict=True):
            assert torch.equal(one, other), name


@pytest.mark.parametrize("name", ["rotary", "t5", "shaw", "transformer xl", "tupe, relative", "fire", "cope"])
def test_gradients_by_one_thread_and_by_two_agree_to_rounding(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_blocks(monkeypatch)
    encoding, qkv = build(name), tensors(20, 20)
    weights, found = torch.randn_like(qkv[0]), []
    for count in (1, 2):
        with threads(count):
            out = attend(*qkv, encoding=encoding, causal=True)
            found.append(gradients(out, weights, (*qkv, *parameters_of(encoding))))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("name", ["rotary", "t5", "shaw", "tupe, relative", "fire", "cope"])
def test_only_what_asks_for_a_gradient_gets_one(name: str) -> None:
    encoding, (query, key, value) = build(name), tensors(7, 7)
    for each in encoding:
        each.requires_grad_(False)
    expected = torch.autograd.grad(reference(query, key, value, encoding=encoding, causal=True).sum(), key)[0]
    out = attend(query.detach(), key, value.detach(), encoding=encoding, causal=True)
    torch.testing.assert_close(torch.autograd.grad(out.sum(), key)[0], expected, atol=1e-10, rtol=1e-10)
    assert not attend(query.detach(), key.detach(), value.detach(), encoding=encoding).requires_grad


def test_learned_encodings_learn_from_queries_and_keys_that_do_not() -> None:
    for name in ("t5", "shaw", "transformer xl", "tupe, relative", "deberta", "fire", "cope"):
        encoding = build(name)
        query, key, value = (each.detach() for each in tensors(7, 7, width=WIDTH))
        learned = parameters_of(encoding)
        weights = torch.randn_like(query)
        wanted = gradients(reference(query, key, value, encoding=encoding, causal=True), weights, learned)
        found = gradients(attend(query, key, value, encoding=encoding, causal=True), weights, learned)
        for actual, right in zip(found, wanted, strict=True):
            torch.testing.assert_close(actual, right, atol=1e-10, rtol=1e-10)
