"""``attend`` gives what the reference gives, whatever kernel serves it."""

from __future__ import annotations

import itertools
import math
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
    KERNELS,
    LEFT,
    PLACES,
    RULES,
    WIDTH,
    attend_or_none,
    build,
    real,
    tensors,
    threads,
    use_small_blocks,
)

pytestmark = pytest.mark.compiled  # with shapes checked these would take minutes; smaller tests of each kernel do


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
        expected = reference(*qkv, **call) * real(query)
        for impl in KERNELS:
            out = attend_or_none(*qkv, impl=impl, **call)
            assert out is not None or impl not in ("auto", "blockwise")
            if out is not None:
                torch.testing.assert_close(out * real(query), expected, atol=1e-10, rtol=1e-10)


def test_every_encoding_that_acts_in_attention_is_among_the_cases() -> None:
    tested = {type(each) for name in ENCODINGS for each in build(name)} | {situs.SwinBias}
    acting = {situs.entry(name).cls for name in situs.names() if situs.entry(name).place != "input"}
    assert acting <= tested


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_bias_of_two_axes_equals_the_reference(version: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_blocks(monkeypatch)
    swin = situs.SwinBias(num_heads=HEADS, window=(3, 4), version=version, width=16, init_std=1.0).double()
    qkv = tensors(12, 12, kv_heads=2)
    expected = reference(*qkv, encoding=swin, positions=Positions.grid(3, 4))
    for impl in ("auto", "blockwise"):
        out = attend(*qkv, encoding=swin, positions=Positions.grid(3, 4), impl=impl)
        torch.testing.assert_close(out, expected, atol=1e-10, rtol=1e-10)


def test_rotations_of_several_axes_equal_the_reference() -> None:
    axial = situs.Rotary(head_dim=WIDTH, split=situs.Axial()).double()
    qkv = tensors(12, 12)
    for impl in ("auto", "flash", "blockwise"):
        out = attend(*qkv, encoding=axial, positions=Positions.grid(3, 4), impl=impl)
        torch.testing.assert_close(out, reference(*qkv, encoding=axial, positions=Positions.grid(3, 4)))


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
    call: dict[str, Any] = {"encoding": encoding, "causal": True, "positions": torch.tensor([ids])}
    expected = reference(*qkv, **call, key_positions=Positions.range(7))
    for impl in ("auto", "blockwise"):
        out = attend(*qkv, **call, key_positions=Positions.range(7), impl=impl)
        torch.testing.assert_close(out, expected, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("value_dim", [5, 12])
@pytest.mark.parametrize("name", ["nothing", "rotary", "t5", "fire", "transformer xl", "tupe, relative", "cope"])
def test_values_may_be_wider_or_narrower_than_keys(
    name: str, value_dim: int, kv_heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_small_blocks(monkeypatch)
    qkv, encoding = tensors(9, 9, value_dim=value_dim, kv_heads=kv_heads), build(name)
    for impl, places in itertools.product(KERNELS, ("a range", "packed", "padded left")):
        query, key = PLACES[places]()
        call: dict[str, Any] = {"encoding": encoding, "causal": True, "positions": query, "key_positions": key}
        out = attend_or_none(*qkv, impl=impl, **call)
        if out is not None:
            assert out.shape[-1] == value_dim
            expected = reference(*qkv, **call)
            torch.testing.assert_close(out * real(query), expected * real(query), atol=1e-10, rtol=1e-10)


SHAPES = [(7, 7), (1, 1, 7, 7), (2, 1, 1, 7), (2, 1, 7, 7), (1, 4, 7, 7), (2, 4, 7, 7), (4, 7, 7), (1, 7)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", ["boolean", "float", "float with -inf"])
@pytest.mark.parametrize("name", ["nothing", "rotary", "t5", "fire", "shaw", "tupe, relative", "cope"])
def test_masks_of_any_shape_that_broadcasts_are_served(
    name: str, kind: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    use_small_blocks(monkeypatch)
    shown, numbers = torch.rand(shape) > 0.3, torch.randn(shape, dtype=torch.float64)
    mask = {"boolean": shown, "float": numbers, "float with -inf": numbers.masked_fill(~shown, -math.inf)}[kind]
    qkv, encoding = tensors(7, 7, kv_heads=2), build(name)
    for causal, impl in itertools.product((False, True), ("auto", "blockwise")):
        out = attend(*qkv, encoding=encoding, causal=causal, mask=mask, impl=impl)  # type: ignore[arg-type]
        expected = reference(*qkv, encoding=encoding, causal=causal, mask=mask)
        torch.testing.assert_close(out, expected, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("name", ["nothing", "rotary", "t5", "fire", "shaw", "tupe, relative", "cope"])
@pytest.mark.parametrize("places", ["padded left", "packed", "a zigzag shard", "decoding by row"])
def test_masks_act_besides_padding_documents_and_windows(
    name: str, places: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_small_blocks(monkeypatch)
    query, key = PLACES[places]()
    qkv, encoding = tensors(query.length, key.length), build(name)
    mask = torch.rand(2, 1, query.length, key.length) > 0.3
    call: dict[str, Any] = {"encoding": encoding, "mask": mask, "positions": query, "key_positions": key}
    for causal, window in ((True, None), (False, 3), (True, 2)):
        expected = reference(*qkv, **call, causal=causal, window=window) * real(query)
        for impl in ("auto", "blockwise"):
            out = attend(*qkv, **call, causal=causal, window=window, impl=impl)
            torch.testing.assert_close(out * real(query), expected, atol=1e-10, rtol=1e-10)


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


PRECISIONS = {torch.float32: 2e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2}


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


@pytest.mark.parametrize("name", ["nothing", "rotary", "t5", "shaw", "tupe, relative", "fire", "cope"])
def test_tensors_may_lie_in_memory_in_any_way(name: str) -> None:
    query, key, value = tensors(9, 9, kv_heads=2)
    encoding = build(name)
    expected = reference(query, key, value, encoding=encoding, causal=True)
    ways = {
        "heads last": lambda each: each.transpose(1, 2).contiguous().transpose(1, 2),
        "channels first": lambda each: each.transpose(-2, -1).contiguous().transpose(-2, -1),
        "every other": lambda each: each.repeat_interleave(2, -1)[..., ::2],
        "expanded": lambda each: each,
    }
    for way in ways.values():
        for impl in KERNELS:
            out = attend_or_none(way(query), way(key), way(value), impl=impl, encoding=encoding, causal=True)
            if out is not None:
                torch.testing.assert_close(out, expected, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("name", ["nothing", "rotary", "t5", "shaw", "tupe, relative", "fire", "cope"])
@pytest.mark.parametrize(
    ("queries", "keys", "batch"), [(0, 4, 2), (3, 0, 2), (3, 3, 0)], ids=["no queries", "no keys", "no rows"]
)
def test_empty_calls_give_what_the_reference_gives(name: str, queries: int, keys: int, batch: int) -> None:
    qkv, encoding = tensors(queries, keys, batch=batch, kv_heads=2), build(name)
    for impl, causal in itertools.product(KERNELS, (False, True)):
        call: dict[str, Any] = {"encoding": encoding, "causal": causal, "key_positions": 0, "positions": 0}
        out = attend_or_none(*qkv, impl=impl, **call)
        if out is not None:
            torch.testing.assert_close(out, reference(*qkv, **call))


def test_a_scale_of_the_callers_own_replaces_the_encodings() -> None:
    qkv = tensors(7, 7)
    for name in ("rotary", "t5", "shaw", "tupe, relative", "cope"):
        encoding = build(name)
        expected = reference(*qkv, encoding=encoding, scale=0.3)
        for impl in KERNELS:
            out = attend_or_none(*qkv, impl=impl, encoding=encoding, scale=0.3)
            if out is not None:
                torch.testing.assert_close(out, expected, atol=1e-10, rtol=1e-10)


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


@pytest.mark.parametrize(
    ("name", "places", "kernel"),
    [
        ("nothing", "a range", "flash"),
        ("none", "packed", "flash"),
        ("rotary", "padded left", "flash"),
        ("xpos", "a zigzag shard", "flash"),
        ("alibi", "a range", "toeplitz"),
        ("t5", "packed", "toeplitz"),
        ("kerple", "padded left", "toeplitz"),
        ("sandwich", "a zigzag shard", "toeplitz"),
        ("fire", "a range", "blockwise"),
        ("shaw", "packed", "blockwise"),
        ("shaw of values", "a range", "blockwise"),
        ("transformer xl", "a range", "blockwise"),
        ("tupe", "a zigzag shard", "flash"),
        ("tupe, relative", "a range", "toeplitz"),
        ("deberta", "decoding by row", "blockwise"),
        ("cope", "a range", "blockwise"),
        ("rotary, shaw and t5", "a range", "blockwise"),
    ],
)
def test_auto_takes_the_fastest_kernel_that_serves(name: str, places: str, kernel: str) -> None:
    query, key = PLACES[places]()
    qkv = tensors(query.length, key.length)
    found = explain(*qkv, encoding=build(name), causal=True, positions=query, key_positions=key)
    assert found.impl == kernel


def test_an_explanation_says_who_serves_and_why_not_the_others() -> None:
    qkv = tensors(5, 5)
    assert str(explain(*qkv, encoding=build("rotary"), causal=True)) == (
        "flash serves this call.\n"
        "  toeplitz   could: slower here\n"
        "  flex       cannot: its CPU compilation has no backward\n"
        "  blockwise  could: slower here\n"
        "  reference  could: slower here"
    )
    assert str(explain(*qkv, encoding=build("t5"))) == (
        "toeplitz serves this call.\n"
        "  flash      cannot: T5Bias acts on scores or values\n"
        "  flex       cannot: its CPU compilation has no backward\n"
        "  blockwise  could: slower here\n"
        "  reference  could: slower here"
    )
    with torch.no_grad():
        assert str(explain(*(each.float() for each in qkv), encoding=build("fire"), impl="reference")) == (
            "reference serves this call.\n"
            "  flash      cannot: Fire acts on scores or values\n"
            "  toeplitz   cannot: Fire is no function of one offset\n"
            "  flex       could: not the fastest on this device\n"
            "  blockwise  could: slower here"
        )
    assert str(explain(*qkv, encoding=build("shaw"), mask=torch.ones(5, 5, dtype=torch.bool))) == (
        "blockwise serves this call.\n"
        "  flash      cannot: Shaw acts on scores or values\n"
        "  toeplitz   cannot: Shaw depends on the content\n"
        "  flex       cannot: Shaw depends on the content\n"
        "  reference  could: slower here"
    )


def test_an_explanation_tells_what_dropout_masks_and_positions_prevent() -> None:
    qkv = tensors(5, 5)
    dropped = explain(*qkv, encoding=build("t5"), dropout=0.1)
    assert dropped.impl == "reference"
    assert dropped.others == {
        "flash": "cannot: T5Bias acts on scores or values",
        "toeplitz": "cannot: dropout needs every weight",
        "flex": "cannot: it takes neither a mask of the caller's own nor dropout",
        "blockwise": "cannot: dropout needs every weight",
    }
    assert explain(*qkv, encoding=build("rotary"), dropout=0.1).impl == "flash"
    masked = explain(*qkv, encoding=build("t5"), mask=torch.ones(5, 5, dtype=torch.bool))
    assert masked.impl == "blockwise"
    assert masked.others["toeplitz"] == "cannot: a mask of the caller's own has no offsets"
    real_ids = Positions.explicit(torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0]))
    spread = explain(*qkv, encoding=build("alibi"), positions=real_ids)
    assert spread.impl == "blockwise"
    assert spread.others["toeplitz"] == (
        "cannot: Positions(explicit, length 5) are no stretches of neighbours that the host knows of"
    )
    swin = situs.SwinBias(num_heads=HEADS, window=(1, 5))
    grid = explain(*qkv, encoding=swin, positions=Positions.grid(1, 5))
    assert grid.others["toeplitz"] == "cannot: SwinBias is no function of one offset"


@pytest.mark.compiled
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


@pytest.mark.compiled
@pytest.mark.parametrize("name", ["nothing", "rotary"])
def test_plain_and_rotary_attention_are_one_graph(name: str) -> None:
    torch._dynamo.reset()
    encoding, qkv = build(name, torch.float32), tensors(9, 9, dtype=torch.float32)

    def run(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attend(query, key, value, encoding=encoding, causal=True, positions=Positions.range(9))

    torch.testing.assert_close(torch.compile(run, fullgraph=True, backend="aot_eager")(*qkv), run(*qkv))
