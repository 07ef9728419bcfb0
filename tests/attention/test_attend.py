"""``attend`` gives what the reference gives, whatever kernel serves it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import situs
from situs import Positions, attend, explain
from situs.attention import reference
from tests.attention.attention_cases import (
    ENCODINGS,
    HEADS,
    PLACES,
    RULES,
    WIDTH,
    assert_kernels_give,
    build,
    one_of_each_kind,
    tensors,
    use_small_blocks,
)
from tests.attention.test_features import ENCODINGS as WITH_FEATURES

pytestmark = pytest.mark.compiled  # with shapes checked these would take minutes; smaller tests of each kernel do


@pytest.mark.thin(12)
@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("name", ENCODINGS)
@torch.no_grad()
def test_every_kernel_equals_the_reference(name: str, places: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_blocks(monkeypatch)
    encoding, (query, key) = build(name), PLACES[places]()
    for causal, window, kv_heads in RULES:
        qkv = tensors(query.length, key.length, kv_heads=kv_heads)
        call: dict[str, Any] = {"encoding": encoding, "causal": causal, "window": window}
        call |= {"positions": query, "key_positions": key}
        assert_kernels_give(reference(*qkv, **call), *qkv, **call)


def test_every_encoding_that_acts_in_attention_is_among_the_cases() -> None:
    images = {situs.SwinBias, situs.RoPEMixed, situs.Boxes, situs.ViTDet}
    with_features = {type(each) for make in WITH_FEATURES.values() for each in make()}  # in tests of their own
    tested = {type(each) for name in ENCODINGS for each in build(name)} | images | with_features
    acting = {situs.entry(name).cls for name in situs.names() if situs.entry(name).place != "input"}
    assert acting <= tested


def test_encodings_of_pages_and_images_equal_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_blocks(monkeypatch)
    qkv = tensors(12, 12, kv_heads=2)
    cells, page = Positions.grid(3, 4), Positions.explicit(torch.randint(-300, 300, (1, 12, 3)))
    vectors = situs.ViTDet(num_heads=HEADS, head_dim=qkv[0].shape[-1], window=(3, 4), init_std=1.0).double()
    for encoding, positions in ((vectors, cells), (situs.Boxes(num_heads=HEADS, init_std=1.0).double(), page)):
        call: dict[str, Any] = {"encoding": encoding, "positions": positions}
        assert_kernels_give(reference(*qkv, **call), *qkv, **call)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_bias_of_two_axes_equals_the_reference(version: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_blocks(monkeypatch)
    swin = situs.SwinBias(num_heads=HEADS, window=(3, 4), version=version, width=16, init_std=1.0).double()
    qkv = tensors(12, 12, kv_heads=2)
    call: dict[str, Any] = {"encoding": swin, "positions": Positions.grid(3, 4)}
    assert_kernels_give(reference(*qkv, **call), *qkv, **call)


def test_rotations_of_several_axes_equal_the_reference() -> None:
    blocks = situs.Axial(dims=(2, 6), halves="axis")
    for encoding in (
        situs.Rotary(head_dim=WIDTH, split=situs.Axial()),
        situs.Rotary(head_dim=WIDTH, split=blocks),
        situs.RoPEMixed(head_dim=WIDTH, num_heads=HEADS),
    ):
        qkv = tensors(12, 12)
        call: dict[str, Any] = {"encoding": encoding.double(), "positions": Positions.grid(3, 4)}
        assert_kernels_give(reference(*qkv, **call), *qkv, **call)
        assert explain(*qkv, **call).impl == "flash"


def test_input_encodings_have_acted_before() -> None:
    qkv = tensors(5, 5)
    assert torch.equal(attend(*qkv, encoding=situs.Sinusoidal(dim=16)), attend(*qkv))


def test_queries_are_the_last_of_the_keys_unless_told() -> None:
    qkv, encoding = tensors(3, 8), build("t5")
    told = attend(*qkv, encoding=encoding, causal=True, positions=5, key_positions=0)
    assert torch.equal(attend(*qkv, encoding=encoding, causal=True), told)
    torch.testing.assert_close(told, reference(*qkv, encoding=encoding, causal=True))


@pytest.mark.parametrize("name", ["nothing", "rotary", "shaw", "fire", "cope"])
@pytest.mark.parametrize("ids", [[9, 2, 5], [9.0, 2.5, 5.0]], ids=["whole", "real"])
def test_bare_ids_of_queries_take_the_place_of_the_last_keys(name: str, ids: list[float]) -> None:
    if name == "shaw" and isinstance(ids[0], float):
        pytest.skip("Shaw takes whole positions")
    qkv, encoding = tensors(3, 7), build(name)
    call: dict[str, Any] = {"encoding": encoding, "causal": True, "positions": torch.tensor([ids]), "key_positions": 0}
    assert_kernels_give(reference(*qkv, **call), *qkv, **call)


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("value_dim", [5, 12])
@pytest.mark.parametrize("name", ["nothing", "rotary", "t5", "fire", "transformer xl", "tupe, relative", "cope"])
def test_values_may_be_wider_or_narrower_than_keys(
    name: str, value_dim: int, kv_heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_small_blocks(monkeypatch)
    qkv, encoding = tensors(9, 9, value_dim=value_dim, kv_heads=kv_heads), build(name)
    for places in ("a range", "packed", "padded left"):
        query, key = PLACES[places]()
        call: dict[str, Any] = {"encoding": encoding, "causal": True, "positions": query, "key_positions": key}
        expected = reference(*qkv, **call)
        assert expected.shape[-1] == value_dim
        assert_kernels_give(expected, *qkv, **call)


@one_of_each_kind
def test_tensors_may_lie_in_memory_in_any_way(name: str) -> None:
    qkv, encoding = tensors(9, 9, kv_heads=2), build(name)
    ways: dict[str, Callable[[Tensor], Tensor]] = {
        "heads last": lambda each: each.transpose(1, 2).contiguous().transpose(1, 2),
        "channels first": lambda each: each.transpose(-2, -1).contiguous().transpose(-2, -1),
        "every other": lambda each: each.repeat_interleave(2, -1)[..., ::2],
        "one row for all": lambda each: each[:1].expand_as(each),
    }
    for way in ways.values():
        laid = [way(each) for each in qkv]
        assert not any(each.is_contiguous() for each in laid)
        q, k, v = (each.contiguous() for each in laid)
        assert_kernels_give(reference(q, k, v, encoding=encoding, causal=True), *laid, encoding=encoding, causal=True)


@one_of_each_kind
@pytest.mark.parametrize(
    ("queries", "keys", "batch"),
    [(0, 4, 2), (3, 0, 2), (1, 0, 2), (3, 3, 0)],
    ids=["no queries", "no keys", "one query and no keys", "no rows"],
)
def test_empty_calls_give_what_the_reference_gives(name: str, queries: int, keys: int, batch: int) -> None:
    qkv, encoding = tensors(queries, keys, batch=batch, kv_heads=2), build(name)
    for causal in (False, True):
        call: dict[str, Any] = {"encoding": encoding, "causal": causal, "key_positions": 0, "positions": 0}
        assert_kernels_give(reference(*qkv, **call), *qkv, **call)


def test_flex_does_not_serve_what_is_empty() -> None:
    with torch.no_grad():
        found = explain(*tensors(0, 0), encoding=situs.ALiBi(num_heads=HEADS), causal=True)
    assert found.others["flex"] == "cannot: there are no queries, no keys or no channels"


@one_of_each_kind
def test_a_scale_of_the_callers_own_replaces_the_encodings(name: str) -> None:
    qkv, encoding = tensors(7, 7), build(name)
    assert_kernels_give(reference(*qkv, encoding=encoding, scale=0.3), *qkv, encoding=encoding, scale=0.3)


@pytest.mark.parametrize("name", ["nothing", "rotary", "t5", "shaw"])
def test_dropout_leaves_the_expectation_as_it_is(name: str) -> None:
    qkv, encoding = tensors(5, 5, kv_heads=2), build(name)
    expected = attend(*qkv, encoding=encoding, causal=True)
    drawn = torch.stack([attend(*qkv, encoding=encoding, causal=True, dropout=0.3) for _ in range(1000)])
    assert not torch.equal(drawn[0], drawn[1])
    error = drawn.std(0) / math.sqrt(len(drawn))
    assert bool(((drawn.mean(0) - expected).abs() <= 5.5 * error + 1e-12).all())


def test_dropout_of_nothing_draws_no_random_numbers() -> None:
    qkv = tensors(5, 5)
    before = torch.get_rng_state()
    assert torch.equal(attend(*qkv, dropout=0.0), attend(*qkv))
    assert torch.equal(torch.get_rng_state(), before)


def test_impl_reference_is_the_reference() -> None:
    qkv, encoding = tensors(7, 7), build("rotary, shaw and t5")
    out = attend(*qkv, encoding=encoding, causal=True, window=3, impl="reference")
    assert torch.equal(out, reference(*qkv, encoding=encoding, causal=True, window=3))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("name", ["rotary", "t5", "shaw"])
def test_a_compiled_function_that_attends_gives_the_same(name: str) -> None:
    torch._dynamo.reset()
    encoding, qkv = build(name, torch.float32), tensors(9, 9, dtype=torch.float32)

    def run(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return 2 * attend(1.5 * query, key, value, encoding=encoding, causal=True)

    compiled, plain = torch.compile(run, backend="aot_eager")(*qkv), run(*qkv)
    torch.testing.assert_close(compiled, plain, atol=5e-6, rtol=0.0)
    weights = torch.randn_like(plain)
    for actual, expected in zip(
        torch.autograd.grad(compiled, qkv, weights), torch.autograd.grad(plain, qkv, weights), strict=True
    ):
        torch.testing.assert_close(actual, expected, atol=2e-5, rtol=0.0)


@pytest.mark.parametrize("name", ["nothing", "rotary"])
def test_plain_and_rotary_attention_are_one_graph(name: str) -> None:
    torch._dynamo.reset()
    encoding, qkv = build(name, torch.float32), tensors(9, 9, dtype=torch.float32)

    def run(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attend(query, key, value, encoding=encoding, causal=True, positions=Positions.range(9))

    torch.testing.assert_close(torch.compile(run, fullgraph=True, backend="aot_eager")(*qkv), run(*qkv))
