"""Bands of distance in attention: the kernel is the reference, gradients included, and cached is full."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor

import situs
from situs import Attention, DualChunk, KVCache, Positions, ReRoPE, Rotary, SelfExtend, attend, explain
from situs.attention import reference
from situs.attention.kernels.banded import parts
from situs.encodings.bands import Bands
from situs.positions import PositionsLike
from tests.raising import raises_exactly

WIDTH, HEADS = 8, 4
SCALINGS: list[Bands] = [
    SelfExtend(window=6, group=3), ReRoPE(window=11), ReRoPE(window=6, leak=0.25),
    DualChunk(chunk_size=13, local_size=3),
]  # fmt: skip
each_scaling = pytest.mark.parametrize("scaling", SCALINGS, ids=str)


def _rotary(scaling: Bands, **options: Any) -> Rotary:
    return Rotary(head_dim=WIDTH, scaling=scaling, **options)


def _inputs(
    queries: int, keys: int, *, kv_heads: int = HEADS, batch: int = 2, value_dim: int = WIDTH, seed: int = 0
) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = (batch, HEADS, queries, WIDTH), (batch, kv_heads, keys, WIDTH), (batch, kv_heads, keys, value_dim)
    return [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]


def _assert_same(inputs: list[Tensor], impl: Any = "banded", tolerance: float = 2e-6, **called: Any) -> None:
    """Outputs and gradients, those of sinks too, are the reference's."""
    learning = [*inputs, *(each for each in called.values() if isinstance(each, Tensor) and each.requires_grad)]
    actual, expected = attend(*inputs, impl=impl, **called), reference(*inputs, **called)
    weights = torch.randn(actual.shape, generator=torch.Generator().manual_seed(1))
    found, wanted = (torch.autograd.grad((out * weights).sum(), learning) for out in (actual, expected))
    for one, other in zip((actual, *found), (expected, *wanted), strict=True):
        assert torch.allclose(one, other, atol=tolerance, rtol=1e-4), float((one - other).abs().max())


def _drawn(length: int, draw: random.Random) -> PositionsLike:
    """Positions of one of the kinds, the same for queries and keys."""
    kind = draw.choice(("range", "range", "padded", "packed", "by row", "explicit", "skipped"))
    generator = torch.Generator().manual_seed(draw.randrange(1000))
    if kind == "padded":
        return Positions.from_mask(torch.rand(2, length, generator=generator) > 0.2)
    if kind == "packed":
        first = draw.randrange(length + 1)
        return Positions.packed([first, length - first])
    if kind == "by row":
        return Positions.range(length, start=torch.tensor([draw.randrange(40), draw.randrange(40)]))
    if kind == "explicit":  # in any order, and far more runs than tiles are made for
        return Positions.explicit(torch.randint(0, 60, (2, length), generator=generator))
    if kind == "skipped":
        return Positions.range(length).skipped(100, seed=draw.randrange(9), chunks=3)
    return Positions.range(length, start=draw.choice((0, 5, 1000)))


@each_scaling
@pytest.mark.parametrize("seed", range(4))
def test_the_kernel_is_the_reference(scaling: Bands, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(f"{scaling} {seed}")
    for name, size in {"FEWEST_QUERIES": 4, "QUERIES": 16, "FEW_QUERIES": 8}.items():  # many tiles of short texts
        monkeypatch.setattr(parts, name, size)
    for _ in range(3):
        length = draw.choice((1, 2, 5, 6, 7, 10, 11, 12, 13, 17, 40, 65, draw.randrange(1, 90)))
        positions = _drawn(length, draw)
        called: dict[str, Any] = {
            "encoding": _rotary(scaling), "causal": draw.random() < 0.7, "positions": positions,
            "key_positions": positions, "window": draw.choice((None, None, 1, 9, 40)),
        }  # fmt: skip
        if draw.random() < 0.3:
            called["sinks"] = torch.randn(HEADS, generator=torch.Generator().manual_seed(2)).requires_grad_()
        _assert_same(
            _inputs(length, length, kv_heads=draw.choice((4, 2, 1)), value_dim=draw.choice((8, 8, 6))), **called
        )


@each_scaling
def test_blocks_of_the_true_size_are_the_reference(scaling: Bands) -> None:
    _assert_same(_inputs(300, 300, batch=1), encoding=_rotary(scaling), causal=True)


@each_scaling
def test_queries_may_be_the_last_of_the_keys_or_stand_anywhere(scaling: Bands) -> None:
    for positions, key_positions in ((None, None), (Positions.range(9, start=31), None), (3, 50), (50, 3)):
        called: dict[str, Any] = {"positions": positions, "key_positions": key_positions}
        for causal in (True, False):
            _assert_same(_inputs(9, 40, kv_heads=2), encoding=_rotary(scaling), causal=causal, **called)


@each_scaling
def test_a_single_querys_keys_are_rotated_by_their_distance(scaling: Bands) -> None:
    for queries_at in (49, 70, 3):
        called: dict[str, Any] = {"encoding": _rotary(scaling), "positions": queries_at, "key_positions": 0}
        called["causal"] = queries_at == 49
        _assert_same(_inputs(1, 50, kv_heads=2), impl="auto", **called)
        inputs = _inputs(1, 50)
        assert explain(*inputs, **called).impl == "flash"
        assert explain(*inputs, **called, impl="banded").impl == "banded"
    mask = torch.rand(2, 1, 1, 50, generator=torch.Generator().manual_seed(3)) > 0.3
    for more in ({"mask": mask}, {"softcap": 3.0}, {"window": 20}):
        _assert_same(_inputs(1, 50), impl="auto", encoding=_rotary(scaling), **more)
    beside = [situs.XPos(head_dim=WIDTH, pairing="halves"), _rotary(scaling), situs.ALiBi(num_heads=HEADS)]
    _assert_same(_inputs(1, 50), impl="auto", encoding=beside)
    rows = Positions.range(1, start=torch.tensor([30, 49]))
    called = {"positions": rows, "key_positions": Positions.range(50)}
    _assert_same(_inputs(1, 50), impl="auto", encoding=_rotary(scaling), causal=True, **called)


def test_what_the_kernel_does_not_serve_goes_to_the_reference() -> None:
    rotary = _rotary(SCALINGS[0])
    inputs = [each.detach() for each in _inputs(20, 20)]
    shaw = situs.Shaw(num_heads=HEADS, head_dim=WIDTH, max_distance=3)
    mask = torch.ones(20, 20).tril().bool()
    for why, called in {
        "ALiBi acts on scores or values, and bands are rotations alone": {
            "encoding": [rotary, situs.ALiBi(num_heads=4)]
        },
        "Shaw acts on scores or values, and bands are rotations alone": {"encoding": [shaw, rotary]},
        "tiles of a band take neither masks nor caps": {"encoding": rotary, "mask": mask},
        "dropout needs every weight": {"encoding": rotary, "dropout": 0.5},
    }.items():
        found = explain(*inputs, **called)  # type: ignore[arg-type]
        assert found.impl == "reference"
        assert found.others.pop("banded") == f"cannot: {why}"
        assert set(found.others.values()) == {"cannot: rotations differ by band of distance"}
    assert explain(*inputs, encoding=rotary).impl == "banded"
    plain: dict[str, Any] = {"encoding": Rotary(head_dim=WIDTH)}
    assert "banded" not in explain(*inputs, **plain).others
    with raises_exactly(
        ValueError,
        'impl="banded" cannot serve this call, since no encoding has bands of distance. Use impl="auto".',
    ):
        attend(*inputs, **plain, impl="banded")


@each_scaling
def test_other_rotations_act_beside_in_their_order(scaling: Bands) -> None:
    others = situs.XPos(head_dim=WIDTH, pairing="interleaved")
    for encoding in ([others, _rotary(scaling)], [_rotary(scaling), others]):
        _assert_same(_inputs(30, 30), encoding=encoding, causal=True)
        _assert_same(_inputs(1, 30), impl="auto", encoding=encoding, causal=True)


@each_scaling
def test_options_of_rotary_hold_in_every_band(scaling: Bands) -> None:
    for options in ({"base": (1e4, 1e3, 1e2, 1e5)}, {"rotary_dim": 4}, {"pairing": "interleaved"}):
        _assert_same(_inputs(33, 33), encoding=_rotary(scaling, **options), causal=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_dtypes_are_as_exact_as_they_can_be(dtype: torch.dtype) -> None:
    inputs = [each.detach().to(dtype) for each in _inputs(70, 70)]
    exact = reference(*(each.double() for each in inputs), encoding=_rotary(SCALINGS[0]), causal=True)
    found = attend(*inputs, encoding=_rotary(SCALINGS[0]), causal=True, impl="banded")
    assert found.dtype == dtype
    assert torch.allclose(found.double(), exact, atol=2e-2 if dtype == torch.bfloat16 else 1e-12)


def test_padding_may_hold_anything() -> None:
    mask = torch.tensor([[False] * 5 + [True] * 25, [True] * 28 + [False] * 2])
    scattered = torch.rand(2, 30, generator=torch.Generator().manual_seed(0)) > 0.5
    for valid in (mask, scattered):
        positions = Positions.from_mask(valid)
        clean = [each.detach().masked_fill(~valid[:, None, :, None], 0.0) for each in _inputs(30, 30)]
        spoilt = [each.masked_fill(~valid[:, None, :, None], torch.nan).requires_grad_() for each in clean]
        called: dict[str, Any] = {"positions": positions, "key_positions": positions, "causal": True}
        found = attend(*spoilt, encoding=_rotary(SCALINGS[0]), impl="banded", **called)
        assert torch.equal(found, attend(*clean, encoding=_rotary(SCALINGS[0]), impl="banded", **called))
        for gradient in torch.autograd.grad(found.sum(), spoilt):
            assert not gradient.isnan().any()
            assert not gradient[~valid[:, None].expand(2, HEADS, 30)].any()
        learned = situs.LeRoPE(head_dim=WIDTH)  # beside bands, it does not learn from padding
        both = [_rotary(SCALINGS[0]), learned]
        wanted, grown = (
            torch.autograd.grad(attend(*each, encoding=both, **called).sum(), learned.alpha)[0]
            for each in (clean, spoilt)
        )
        assert torch.equal(grown, wanted)


@each_scaling
def test_cached_is_full(scaling: Bands) -> None:
    layer = Attention(dim=32, num_heads=4, num_kv_heads=2, encoding=_rotary(scaling), causal=True).eval()
    x = torch.randn(2, 40, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        full = layer(x)
        for chunks in ([1] * 40, [20, *[1] * 20], [13, 14, 13]):
            cache = layer.make_cache(batch=2, max_length=40)
            found = torch.cat([layer(part, cache=cache) for part in x.split(chunks, 1)], 1)
            assert torch.allclose(found, full, atol=1e-6)
        cache.evict(10)  # keys are cached as they come, so that none is rotated on
        assert torch.allclose(
            layer(x[:, :1], cache=cache), layer(torch.cat((x[:, 10:], x[:, :1]), 1))[:, -1:], atol=1e-6
        )


def test_padded_prompts_go_on_in_the_cache() -> None:
    layer = Attention(dim=32, num_heads=4, encoding=_rotary(SCALINGS[0]), causal=True).eval()
    x = torch.randn(2, 30, 32, generator=torch.Generator().manual_seed(0))
    valid = torch.ones(2, 20, dtype=torch.bool)
    valid[0, :9] = False
    cache = layer.make_cache(batch=2, max_length=40)
    with torch.no_grad():
        layer(x[:, :20], Positions.from_mask(valid), cache=cache)
        found = torch.cat([layer(x[:, at : at + 1], cache=cache) for at in range(20, 30)], 1)
        assert torch.allclose(found[:1], layer(x[:1, 9:])[:, -10:], atol=1e-6)
        assert torch.allclose(found[1:], layer(x[1:])[:, -10:], atol=1e-6)


def test_a_cache_takes_no_keys_of_another_rotation() -> None:
    cache = KVCache(batch=2, num_heads=HEADS, head_dim=WIDTH, max_length=20)
    query, key, value = (each.detach() for each in _inputs(5, 5))
    cache.extend(query, key, value, None, _rotary(SCALINGS[0]))
    assert torch.equal(cache.keys[:, :, :5], key)
    with pytest.raises(ValueError, match=r"^encodings must rotate new keys as those in the cache were"):
        cache.extend(query, key, value, None, Rotary(head_dim=WIDTH))


def test_tables_of_a_band_are_made_once_for_one_object() -> None:
    positions, rotary = Positions.range(40), _rotary(SCALINGS[0])
    inputs = [each.detach() for each in _inputs(40, 40)]
    attend(*inputs, encoding=rotary, causal=True, positions=positions)
    made = dict(positions.tables)
    attend(*inputs, encoding=_rotary(SCALINGS[0]), causal=True, positions=positions)
    assert positions.tables == made
    attend(*inputs, encoding=_rotary(SelfExtend(window=6, group=2)), causal=True, positions=positions)
    assert len(positions.tables) > len(made)


@pytest.mark.compiled
@pytest.mark.once
@pytest.mark.parametrize("scaling", [SCALINGS[0], SCALINGS[3]], ids=str)
def test_one_graph_serves_growing_lengths(scaling: Bands) -> None:
    torch._dynamo.reset()
    rotary, graphs = _rotary(scaling), []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    @torch.compile(fullgraph=True, backend=backend)
    def run(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attend(query, key, value, encoding=rotary, causal=True)

    for length in (20, 33, 50):
        inputs = _inputs(length, length, kv_heads=2)
        found, expected = run(*inputs), attend(*inputs, encoding=rotary, causal=True, impl="reference")
        assert torch.allclose(found, expected, atol=1e-6)
        for one, other in zip(*(torch.autograd.grad(out.sum(), inputs) for out in (found, expected)), strict=True):
            assert torch.allclose(one, other, atol=1e-5)
    assert len(graphs) <= 2
    torch._dynamo.reset()


def test_torch_func_differentiates_and_maps() -> None:
    inputs: Any = tuple(each.detach() for each in _inputs(20, 20))

    def loss(query: Tensor, key: Tensor, value: Tensor, impl: Any) -> Tensor:
        return attend(query, key, value, encoding=_rotary(SCALINGS[0]), causal=True, impl=impl).square().sum()

    differentiate: Any = torch.func.grad(loss, argnums=(0, 1, 2))
    found, expected = (differentiate(*inputs, impl) for impl in ("banded", "reference"))
    assert all(torch.allclose(one, other, atol=1e-5) for one, other in zip(found, expected, strict=True))
    stacked = tuple(torch.stack((each, 2 * each)) for each in inputs)
    mapped = torch.func.vmap(differentiate, in_dims=(0, 0, 0, None))(*stacked, "banded")
    assert all(torch.allclose(one[0], other, atol=1e-5) for one, other in zip(mapped, expected, strict=True))


def test_gradients_are_differentiated_once() -> None:
    inputs = _inputs(20, 20)
    out = attend(*inputs, encoding=_rotary(SCALINGS[0]), causal=True, impl="banded")
    (first,) = torch.autograd.grad(out.sum(), inputs[:1], create_graph=True)
    with pytest.raises(RuntimeError, match="must be differentiated once with this kernel"):
        torch.autograd.grad(first.sum(), inputs[:1])
