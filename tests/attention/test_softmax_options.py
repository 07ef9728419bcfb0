"""Sinks, a cap of the scores, and chunks: formulas, limits, gradients, surroundings and errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import situs
from situs import Positions
from situs.attention import attend, explain, reference
from tests.raising import raises_exactly
from tests.references.attention import attention as formula

HEADS, WIDTH = 4, 8
ENCODINGS: dict[str, Callable[[], situs.Encoding | None]] = {
    "nothing": lambda: None,
    "rotary": lambda: situs.Rotary(head_dim=WIDTH),
    "alibi": lambda: situs.ALiBi(num_heads=HEADS),
    "fire": lambda: situs.Fire(num_heads=HEADS, threshold=4.0),
    "shaw": lambda: situs.Shaw(num_heads=HEADS, head_dim=WIDTH, max_distance=3),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "sinks": {"sinks": torch.tensor([-1.0, 0.0, 0.5, 3.0])},
    "softcap": {"softcap": 1.5},
    "chunk": {"chunk": 7},
    "all": {"sinks": torch.tensor([-1.0, 0.0, 0.5, 3.0]), "softcap": 1.5, "chunk": 7},
}
each_encoding = pytest.mark.parametrize("name", ENCODINGS)
each_option = pytest.mark.parametrize("option", OPTIONS)


def qkv(length: int = 20, *, kv_heads: int = 2, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    drawn = (torch.randn(2, heads, length, WIDTH, dtype=dtype) for heads in (HEADS, kv_heads, kv_heads))
    return [each.requires_grad_() for each in drawn]


def told(option: str, dtype: torch.dtype = torch.float64) -> dict[str, Any]:
    """The options, with sinks that learn."""
    given = {**OPTIONS[option]}
    if "sinks" in given:
        given["sinks"] = given["sinks"].to(dtype).requires_grad_()
    return given


@each_option
@pytest.mark.parametrize("encoding", [None, situs.ALiBi(num_heads=HEADS)], ids=["nothing", "alibi"])
def test_attention_is_as_the_formula_says(option: str, encoding: situs.ALiBi | None) -> None:
    query, key, value = qkv()
    given = told(option)
    out = attend(query, key, value, encoding=encoding, causal=True, **given)
    index = np.arange(20)
    allowed = index[None] <= index[:, None]
    if "chunk" in given:
        allowed = allowed & (index[None] // 7 == index[:, None] // 7)
    bias = None if encoding is None else encoding(Positions.range(20), dtype=torch.float64)[0].numpy()
    sinks = given["sinks"].detach().numpy() if "sinks" in given else None
    for row in range(2):
        q, k, v = (each[row].detach().numpy() for each in (query, key, value))
        expected = formula(q, k, v, allowed, 1 / math.sqrt(WIDTH), bias, given.get("softcap"), sinks)
        np.testing.assert_allclose(out[row].detach().numpy(), expected, rtol=0, atol=1e-12)


@pytest.mark.thin(3)
@each_encoding
@each_option
@pytest.mark.parametrize("impl", ["toeplitz", "blockwise", "auto"])
def test_kernels_agree_with_the_reference(name: str, option: str, impl: Any) -> None:
    encoding, tensors, given = ENCODINGS[name](), qkv(300), told(option)
    encoding = encoding if encoding is None else encoding.double()
    if impl == "toeplitz" and name == "fire":
        impl = "auto"
    learned = [*tensors, *([given["sinks"]] if "sinks" in given else ())]
    learned += [] if encoding is None else list(encoding.parameters())
    ours = attend(*tensors, encoding=encoding, causal=True, impl=impl, **given)
    theirs = reference(*tensors, encoding=encoding, causal=True, **given)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    upstream = torch.randn_like(ours)
    for one, other in zip(*(torch.autograd.grad(each, learned, upstream) for each in (ours, theirs)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


@each_encoding
def test_in_the_limit_nothing_is_changed(name: str) -> None:
    encoding, tensors = ENCODINGS[name](), qkv(dtype=torch.float32)
    plain = attend(*tensors, encoding=encoding, causal=True)
    for given in ({"sinks": torch.full((HEADS,), -math.inf)}, {"softcap": 1e6}, {"chunk": 20}):
        torch.testing.assert_close(attend(*tensors, encoding=encoding, causal=True, **given), plain, rtol=0, atol=2e-6)


def test_a_chunk_of_one_sees_itself() -> None:
    query, key, value = qkv(kv_heads=HEADS)
    assert torch.equal(attend(query, key, value, chunk=1), value)


def test_a_large_sink_takes_all_weight() -> None:
    query, key, value = qkv(kv_heads=HEADS)
    out = attend(query, key, value, sinks=torch.tensor([0.0, 0.0, 0.0, 1e4]))
    assert bool((out[:, 3] == 0).all())
    assert bool((out[:, :3] != 0).all())


def test_chunks_are_counted_by_positions_whatever_the_padding() -> None:
    query, key, value = qkv(9)
    valid = torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1, 1], [1] * 9]).bool()
    padded = attend(query, key, value, causal=True, chunk=4, positions=Positions.from_mask(valid, side="left"))
    alone = attend(*(each[:1, :, 2:] for each in (query, key, value)), causal=True, chunk=4)
    torch.testing.assert_close(padded[:1, :, 2:], alone, rtol=0, atol=1e-12)


def test_chunks_of_documents_do_not_meet() -> None:
    tensors = qkv(11)
    packed = attend(*tensors, causal=True, chunk=4, positions=Positions.packed([5, 6]))
    for part in (slice(0, 5), slice(5, 11)):
        alone = attend(*(each[:, :, part] for each in tensors), causal=True, chunk=4)
        torch.testing.assert_close(packed[:, :, part], alone, rtol=0, atol=1e-12)


def test_a_query_alone_in_a_new_chunk_reads_no_key_of_the_last_one() -> None:
    query, key, value = (each.detach() for each in qkv(9, kv_heads=HEADS))
    key[:, :, :8], value[:, :, :8] = math.nan, math.nan
    out = attend(query[:, :, -1:], key, value, causal=True, chunk=4, sinks=torch.zeros(HEADS))
    score = (query[:, :, -1:] * key[:, :, -1:]).sum(-1, keepdim=True) / math.sqrt(WIDTH)
    torch.testing.assert_close(out, value[:, :, -1:] * torch.sigmoid(score), rtol=0, atol=1e-12)


def test_a_float_mask_is_added_behind_the_cap() -> None:
    query, key, value = qkv(6, kv_heads=HEADS)
    mask = torch.randn(6, 6, dtype=torch.float64)
    scores = 2 * torch.tanh(query @ key.transpose(-2, -1) / math.sqrt(WIDTH) / 2) + mask
    expected = torch.softmax(scores, -1) @ value
    torch.testing.assert_close(attend(query, key, value, mask=mask, softcap=2.0), expected, rtol=0, atol=1e-12)


def test_which_kernel_serves() -> None:
    tensors = qkv(dtype=torch.float32)
    others = explain(*tensors, causal=True, sinks=torch.zeros(HEADS)).others
    assert explain(*tensors, causal=True, sinks=torch.zeros(HEADS)).impl == "toeplitz"
    assert others["flash"] == others["dense"] == "cannot: torch's own attention knows neither sinks nor caps"
    assert others["flex"] == "cannot: its log-sum-exp, which sinks need, has no gradient that was tested"
    masked = explain(*tensors, mask=torch.zeros(20, 20), softcap=1.0)
    assert masked.impl == "reference"
    assert masked.others["toeplitz"] == "cannot: a float mask is added behind the cap, and tiles add it before"
    assert masked.others["blockwise"] == masked.others["toeplitz"]


@pytest.mark.compiled
@pytest.mark.parametrize("name", ["rotary", "shaw"])
def test_a_graph_gives_the_same(name: str) -> None:
    encoding, given = ENCODINGS[name](), told("all", torch.float32)

    def call(*tensors: Tensor) -> Tensor:
        return attend(*tensors, encoding=encoding, causal=True, **given)

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    for length in (20, 33):
        tensors = qkv(length, dtype=torch.float32)
        found = []
        for function in (call, compiled):
            out = function(*tensors)
            found.append((out, *torch.autograd.grad(out.sum(), [*tensors, given["sinks"]])))
        for one, other in zip(*found, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-5)


@each_option
def test_checkpoints_vmap_and_gradients_of_functions_work(option: str) -> None:
    tensors, given = qkv(), told(option)

    def call(*tensors: Tensor) -> Tensor:
        return attend(*tensors, causal=True, **given).square().sum()

    plain = torch.autograd.grad(call(*tensors), tensors)
    again = torch.autograd.grad(checkpoint(call, *tensors, use_reentrant=False), tensors)
    by_function = torch.func.grad(call, argnums=(0, 1, 2))(*tensors)
    for one, *others in zip(plain, again, by_function, strict=True):
        for other in others:
            torch.testing.assert_close(one, other)
    mapped = torch.func.vmap(lambda q, k, v: attend(q[None], k[None], v[None], causal=True, **given)[0])(*tensors)
    torch.testing.assert_close(mapped, attend(*tensors, causal=True, **given))


def test_sinks_in_bfloat16_are_read_as_they_are() -> None:
    tensors = [each.detach().bfloat16() for each in qkv()]
    sinks = torch.tensor([-1.0, 0.0, 0.5, 3.0], dtype=torch.bfloat16)
    ours = attend(*tensors, causal=True, sinks=sinks)
    theirs = reference(*(each.double() for each in tensors), causal=True, sinks=sinks.double())
    assert ours.dtype == torch.bfloat16
    torch.testing.assert_close(ours.double(), theirs, rtol=2**-7, atol=2**-8)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (
            {"sinks": torch.zeros(3)},
            ValueError,
            "sinks must have shape (4,), since each head has one; got shape (3,).",
        ),
        (
            {"sinks": torch.zeros(4, dtype=torch.int64)},
            TypeError,
            "sinks must be of a real floating-point dtype, since they take part in the softmax; got torch.int64. "
            "Convert it with sinks.float().",
        ),
        (
            {"softcap": 0.0},
            ValueError,
            "softcap must be above 0, since it bounds the scores; got 0.0. Leave it out for no bound.",
        ),
        ({"chunk": 0}, ValueError, "chunk must be 1 or more, since it counts the positions of a chunk; got 0."),
        (
            {"chunk": 4, "positions": Positions.explicit(torch.rand(1, 20))},
            ValueError,
            "positions must be whole numbers on one axis with chunk=, since chunks are counted by them; got "
            "Positions(explicit, length 20).",
        ),
    ],
    ids=["as many as heads", "no fractions", "no cap", "no chunk", "no whole positions"],
)
@pytest.mark.parametrize("call", [attend, explain, reference], ids=lambda call: call.__name__)
def test_what_cannot_be_used_is_refused(call: Any, given: Any, error: type[Exception], message: str) -> None:
    with raises_exactly(error, message):
        call(*qkv(dtype=torch.float32), **given)


@pytest.mark.parametrize("options", [{"sinks": True}, {"softcap": 1.5}, {"chunk": 7}, {"scale": 0.7}], ids=str)
def test_a_layer_decodes_as_it_trains(options: dict[str, Any]) -> None:
    layer = situs.Attention(
        dim=HEADS * WIDTH, num_heads=HEADS, encoding=situs.Rotary(head_dim=WIDTH), **options
    ).double()
    if layer.sinks is not None:
        torch.nn.init.normal_(layer.sinks)
    x = torch.randn(2, 24, HEADS * WIDTH, dtype=torch.float64)
    whole = layer(x)
    cache = layer.make_cache(batch=2, max_length=24)
    with torch.no_grad():
        steps = [layer(part, cache=cache) for part in (x[:, :10], *x[:, 10:].split(1, 1))]
    torch.testing.assert_close(torch.cat(steps, 1), whole, rtol=0, atol=1e-12)
    plain = situs.Attention(dim=HEADS * WIDTH, num_heads=HEADS, encoding=situs.Rotary(head_dim=WIDTH)).double()
    plain.load_state_dict(layer.state_dict(), strict=False)
    assert (plain(x) - whole).abs().max() > 1e-3


def test_a_layer_in_chunks_refuses_a_cache_whose_positions_do_not_count_its_tokens() -> None:
    layer = situs.Attention(dim=HEADS * WIDTH, num_heads=HEADS, encoding=situs.Rotary(head_dim=WIDTH), chunk=4).eval()
    cache = layer.make_cache(batch=1, max_length=8)
    message = (
        "positions must count the tokens in the cache of a layer with chunk=4, since a key's chunk is read off its "
        "slot; got Positions(explicit, length 2)."
    )
    with torch.no_grad(), raises_exactly(ValueError, message):
        layer(torch.randn(1, 2, HEADS * WIDTH), torch.tensor([[5, 6]]), cache=cache)
    assert cache.length == 0


@pytest.mark.parametrize("impl", ["toeplitz", "blockwise", "reference"])
@pytest.mark.parametrize("low", [-2e3, torch.finfo(torch.float32).min], ids=["low", "lowest"])
def test_a_row_that_a_mask_lowers_at_every_key_goes_to_the_sink(impl: str, low: float) -> None:
    query, key, value = qkv(dtype=torch.float32)
    sinks = torch.zeros(HEADS, requires_grad=True)
    mask = torch.zeros(20, 20)
    mask[3] = low
    given: dict[str, Any] = {"encoding": situs.ALiBi(num_heads=HEADS), "causal": True, "sinks": sinks, "impl": impl}
    out, without = attend(query, key, value, mask=mask, **given), attend(query, key, value, **given)
    assert not out[:, :, 3].any()
    assert torch.allclose(out[:, :, 4:], without[:, :, 4:], atol=1e-6)
    found = torch.autograd.grad(out[:, :, 3].sum(), (query, key, value, sinks))
    assert not any(bool(each.any()) for each in found)


@torch.no_grad()
@pytest.mark.parametrize("shape", [(1,), (3,), (2, 1)])
def test_sinks_that_were_exchanged_must_fit_with_a_cache_too(shape: tuple[int, ...]) -> None:
    layer = situs.Attention(dim=16, num_heads=2, sinks=True)
    layer.sinks = torch.nn.Parameter(torch.zeros(shape))
    cache = layer.make_cache(batch=1, max_length=4)
    with raises_exactly(ValueError, f"sinks must have shape (2,), since each head has one; got shape {shape}."):
        layer(torch.randn(1, 3, 16), cache=cache)
    assert cache.length == 0
