"""Features: side inputs of tokens that encodings declare, in every kernel, in the layer and in the cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import situs
from situs import Attention, Encoding, Feature, Forgetting, GatedBias, KVCache, Positions, ProjectedBias
from situs.attention import attend, explain, reference
from situs.attention.features import features_of
from tests.attention.attention_cases import PLACES, Largest, use_small_blocks
from tests.raising import raises_exactly

HEADS, WIDTH, BATCH, DIM = 4, 8, 2, 12


def projected(**options: Any) -> ProjectedBias:
    return ProjectedBias(num_heads=HEADS, rank=3, distances=5, init_std=1.0, **options)


class Counting(situs.ScoreEncoding):
    """A term of one's own, of a feature of queries and one of keys, which only tiles can be asked for."""

    num_heads = HEADS
    features = MappingProxyType({"asked": Feature(width=2), "told": Feature(width=2, role="key")})

    def forward(self, query, key, query_positions=None, key_positions=None, *, scale=None, visible=None, features=None):  # type: ignore[no-untyped-def]
        """Multiply both."""
        return torch.tanh(features["asked"] @ features["told"].transpose(-2, -1))


ENCODINGS: dict[str, Callable[[], list[Encoding]]] = {
    "projected": lambda: [projected()],
    "forgetting": lambda: [Forgetting(num_heads=HEADS)],
    "gated and rotary": lambda: [
        GatedBias(num_heads=HEADS, options={"num_buckets": 8, "max_distance": 6, "init_std": 1.0}),
        situs.Rotary(head_dim=WIDTH),
    ],
    "projected, forgetting, shaw and rotary": lambda: [
        projected(),
        Forgetting(num_heads=HEADS),
        situs.Shaw(num_heads=HEADS, head_dim=WIDTH, max_distance=3, per_head=True),
        situs.Rotary(head_dim=WIDTH),
    ],
    "forgetting and alibi": lambda: [Forgetting(num_heads=HEADS), situs.ALiBi(num_heads=HEADS)],
    "projected and deberta": lambda: [
        projected(),
        situs.Deberta(dim=6, num_heads=HEADS, head_dim=WIDTH, max_distance=4, init_std=0.5),
    ],
    "counting, cope and forgetting": lambda: [
        Counting(),
        situs.CoPE(num_heads=HEADS, head_dim=WIDTH, max_position=5, init_std=1.0),
        Forgetting(num_heads=HEADS),
    ],
}
# window, key heads, and other rules
RULES: list[tuple[int | None, int, dict[str, Any]]] = [
    (None, 2, {"sinks": True}),
    (3, 1, {}),
    (None, 4, {"softcap": 2.0}),
]


def drawn(
    encodings: Sequence[Encoding], query_positions: Positions, key_positions: Positions, kv_heads: int = HEADS,
    dtype: torch.dtype = torch.float64,
) -> tuple[list[Tensor], dict[str, Tensor]]:  # fmt: skip
    """Queries, keys and values, and features for the encodings."""
    lengths = {"query": query_positions.length, "key": key_positions.length}

    def normal(heads: int, length: int, width: int) -> Tensor:
        return torch.randn(BATCH, heads, length, width, dtype=dtype, requires_grad=True)

    tensors = [normal(HEADS, lengths["query"], WIDTH), *(normal(kv_heads, lengths["key"], WIDTH) for _ in range(2))]
    declared = features_of(encodings)
    return tensors, {name: normal(HEADS, lengths[each.role], each.width) for name, each in declared.items()}


@pytest.mark.thin(4)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ENCODINGS)
def test_every_kernel_gives_what_the_reference_gives(name: str, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_blocks(monkeypatch)
    encodings = ENCODINGS[name]()
    query_positions, key_positions = PLACES[place]()
    for window, kv_heads, more in RULES:
        more = {**more, "sinks": torch.randn(HEADS).double().requires_grad_()} if "sinks" in more else more
        tensors, features = drawn(encodings, query_positions, key_positions, kv_heads)
        parameters = [each.double() for encoding in encodings for each in encoding.double().parameters()]
        leaves = [*tensors, *features.values(), *parameters, *([more["sinks"]] if "sinks" in more else [])]
        rules: dict[str, Any] = {
            "encoding": encodings, "causal": True, "positions": query_positions, "key_positions": key_positions,
            "window": window, "features": features, **more,
        }  # fmt: skip
        expected = reference(*tensors, **rules)
        upstream = torch.randn_like(expected)
        wanted = torch.autograd.grad(expected, leaves, upstream, allow_unused=True, materialize_grads=True)
        served = explain(*tensors, **rules)
        for impl in ("toeplitz", "blockwise", "dense"):
            if impl != served.impl and served.others[impl].startswith("cannot"):
                continue
            out = attend(*tensors, impl=impl, **rules)
            torch.testing.assert_close(out, expected, atol=1e-10, rtol=0)
            found = torch.autograd.grad(out, leaves, upstream, allow_unused=True, materialize_grads=True)
            for one, other in zip(found, wanted, strict=True):
                torch.testing.assert_close(one, other, atol=1e-9, rtol=0)


def test_who_serves() -> None:
    text = Positions.range(9)
    (q, k, v), features = drawn([projected(), Forgetting(num_heads=HEADS)], text, text)
    both: dict[str, Any] = {
        "causal": True,
        "encoding": [projected().double(), Forgetting(num_heads=HEADS)],
        "features": features,
    }
    assert explain(q, k, v, **both).impl == "toeplitz"
    gate: dict[str, Any] = {
        "causal": True,
        "encoding": Forgetting(num_heads=HEADS),
        "features": {"gate": features["gate"]},
    }
    assert explain(q, k, v, **gate).impl == "toeplitz"
    assert explain(q[:, :, :1], k, v, **gate).impl == "dense"  # a decode step
    assert explain(q, k, v, **gate).others["flash"] == "cannot: Forgetting acts on scores or values"
    nothing: dict[str, Any] = {
        "causal": True,
        "encoding": projected().double(),
        "features": {"relative": features["relative"]},
        "scale": 0.0,
    }
    assert explain(q, k, v, **nothing).others["toeplitz"] == "cannot: a scale of 0 hides products of features"
    out = attend(q, k, v, **nothing)
    torch.testing.assert_close(out, reference(q, k, v, **nothing))


def test_padding_may_hold_anything() -> None:
    mask = torch.tensor([[1, 1, 1, 1, 0, 0], [0, 1, 1, 1, 1, 1]], dtype=torch.bool)
    places = Positions.from_mask(mask)
    encodings = [projected().double(), Forgetting(num_heads=HEADS)]
    tensors, features = drawn(encodings, places, places)
    rules: dict[str, Any] = {"encoding": encodings, "causal": True, "positions": places}
    expected = attend(*tensors, **rules, features=features)
    spoiled = {name: each.detach().masked_fill(~mask[:, None, :, None], torch.nan) for name, each in features.items()}
    torch.testing.assert_close(attend(*tensors, **rules, features=spoiled), expected)


def test_chunks_cut_features_too() -> None:
    text = Positions.range(20)
    encodings = [projected().double(), Forgetting(num_heads=HEADS)]
    tensors, features = drawn(encodings, text, text)
    whole = attend(*tensors, encoding=encodings, causal=True, chunk=8, features=features)
    q, k, v = (each[:, :, 16:] for each in tensors)
    own = {name: each[:, :, 16:] for name, each in features.items()}
    torch.testing.assert_close(whole[:, :, 16:], attend(q, k, v, encoding=encodings, causal=True, features=own))
    step = attend(
        tensors[0][:, :, -1:], *tensors[1:], encoding=encodings, causal=True, chunk=8,
        features={"relative": features["relative"][:, :, -1:], "gate": features["gate"]},
    )  # fmt: skip
    torch.testing.assert_close(step, whole[:, :, -1:])


LAYERS: dict[str, Callable[[], list[Encoding]]] = {
    "projected": lambda: [projected(dim=DIM)],
    "forgetting and rotary": lambda: [Forgetting(num_heads=HEADS, dim=DIM, init_std=1.0), situs.Rotary(head_dim=WIDTH)],
}


def layer_of(name: str, **options: Any) -> Attention:
    return Attention(
        dim=DIM, num_heads=HEADS, head_dim=WIDTH, num_kv_heads=2, encoding=LAYERS[name](), **options
    ).eval()


@pytest.mark.parametrize("name", LAYERS)
@torch.no_grad()
def test_the_cache_gives_what_a_whole_call_gives(name: str) -> None:
    layer, x = layer_of(name), torch.randn(BATCH, 11, DIM)
    whole = layer(x)
    cache = layer.make_cache(batch=BATCH, max_length=16)
    parts = [layer(x[:, first:last], cache=cache) for first, last in ((0, 5), (5, 6), (6, 9))]
    torch.testing.assert_close(torch.cat(parts, 1), whole[:, :9], atol=1e-5, rtol=0)
    cache.crop(7)
    torch.testing.assert_close(layer(x[:, 7:], cache=cache), whole[:, 7:], atol=1e-5, rtol=0)
    cache.evict(4)  # the rest is what a text without them is
    short = layer(x[:, [*range(4, 11), 0]])[:, -1:]
    torch.testing.assert_close(layer(x[:, :1], cache=cache), short, atol=1e-5, rtol=0)
    cache.reset()
    assert cache.features == {}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("side", ["left", "right"])
@torch.no_grad()
def test_rows_of_unequal_length_are_cached_without_their_padding(name: str, side: Any) -> None:
    layer, x = layer_of(name), torch.randn(BATCH, 7, DIM)
    mask = torch.tensor([[1] * 4 + [0] * 3, [1] * 7], dtype=torch.bool)
    mask = mask.flip(-1) if side == "left" else mask
    padded = torch.zeros_like(x)
    padded[mask] = torch.cat((x[0, :4], x[1]))
    cache = layer.make_cache(batch=BATCH, max_length=12)
    layer(padded, Positions.from_mask(mask, side=side), cache=cache)
    token = torch.randn(BATCH, 1, DIM)
    out = layer(token, cache=cache)
    for row, count in enumerate((4, 7)):
        alone = layer(torch.cat((x[row : row + 1, :count], token[row : row + 1]), 1))[:, -1:]
        torch.testing.assert_close(out[row : row + 1], alone, atol=1e-5, rtol=0)


def test_rotated_keys_are_cached_where_only_features_are_met() -> None:
    layer = layer_of("forgetting and rotary")
    cache = layer.make_cache(batch=1, max_length=4)
    layer(torch.randn(1, 3, DIM), cache=cache)
    assert cache.rotated_by == (layer.encodings[1],)


def _called(name: str) -> tuple[Callable[..., Tensor], list[Tensor]]:
    """attend() as a function of tensors alone, and such."""
    encodings = [projected(), Forgetting(num_heads=HEADS)] if name == "both" else ENCODINGS[name]()
    text = Positions.range(40)
    tensors, features = drawn(encodings, text, text, dtype=torch.float32)

    def call(*given: Tensor) -> Tensor:
        own = dict(zip(features, given[3:], strict=True))
        return attend(*given[:3], encoding=encodings, causal=True, features=own)

    return call, [*tensors, *features.values()]


def test_torch_func_maps_and_differentiates() -> None:
    call, given = _called("both")
    found = torch.func.grad(lambda *each: call(*each).square().sum(), argnums=(3, 4))(*given)
    expected = torch.autograd.grad(call(*given).square().sum(), given[3:])
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    many = [torch.stack((each, 2 * each)).detach() for each in given]
    mapped = torch.func.vmap(call)(*many)
    torch.testing.assert_close(mapped[1], call(*(2 * each for each in given)), atol=1e-5, rtol=0)


def test_checkpoints_and_autocast() -> None:
    call, given = _called("both")
    found = torch.autograd.grad(checkpoint(call, *given, use_reentrant=False).square().sum(), given)
    torch.testing.assert_close(found, torch.autograd.grad(call(*given).square().sum(), given), atol=1e-5, rtol=1e-4)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(call(*given), call(*given).detach(), atol=0, rtol=0)
        layer = layer_of("projected")
        assert layer(torch.randn(1, 5, DIM)).dtype == torch.bfloat16


@pytest.mark.compiled
def test_graphs_give_what_calls_give() -> None:
    call, given = _called("both")
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*given), call(*given), atol=1e-6, rtol=0)
    found = torch.autograd.grad(compiled(*given).square().sum(), given)
    torch.testing.assert_close(found, torch.autograd.grad(call(*given).square().sum(), given), atol=1e-5, rtol=1e-4)
    layer, x = layer_of("forgetting and rotary"), torch.randn(1, 9, DIM)
    with torch.no_grad():
        program = torch.export.export(layer, (x,), strict=False)
        torch.testing.assert_close(program.module()(x), layer(x), atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", ["projected", "forgetting"])
def test_no_matrix_of_scores_is_formed(name: str) -> None:
    encodings, text = ENCODINGS[name](), Positions.range(3000)
    q = torch.randn(1, HEADS, 3000, WIDTH)
    features = {each: torch.randn(1, HEADS, 3000, own.width) for each, own in features_of(encodings).items()}
    with torch.no_grad(), Largest() as largest:
        attend(q, q, q, encoding=encodings, causal=True, positions=text, features=features)
    assert largest.bytes < HEADS * 3000 * 3000


def test_features_that_do_not_fit_are_refused() -> None:
    encoding = ProjectedBias(num_heads=2, rank=3)
    q, k = torch.randn(1, 2, 4, 8), torch.randn(1, 2, 6, 8)

    def call(features: Any, encodings: Any = encoding) -> None:
        attend(q, k, k, encoding=encodings, causal=True, features=features)

    with raises_exactly(
        ValueError,
        "features must hold 'relative', since ProjectedBias computes with it; got none. Use features="
        "encoding.project(x).",
    ):
        call(None)
    with raises_exactly(
        ValueError,
        "features must be among 'relative', since these encodings declare no other; got 'relativ'. Did you mean "
        "'relative'?",
    ):
        call({"relativ": torch.randn(1, 2, 4, 3)})
    with raises_exactly(ValueError, "features must be left out, since these encodings declare none; got 'gate'."):
        call({"gate": torch.randn(1, 2, 4, 3)}, situs.ALiBi(num_heads=2))
    with raises_exactly(
        TypeError, "features must be a mapping of names to tensors, since encodings take them by name; got 3."
    ):
        call(3)
    with raises_exactly(
        ValueError,
        "features['relative'] must have shape (batch, heads, query, width) = (1, 2, 4, 3), since each query of each "
        "query head has its own; got shape (1, 2, 6, 3).",
    ):
        call({"relative": torch.randn(1, 2, 6, 3)})
    with raises_exactly(
        TypeError,
        "features['relative'] must be of a real floating-point dtype, since ProjectedBias computes with it; got "
        "torch.int64. Convert it with features['relative'].float().",
    ):
        call({"relative": torch.ones(1, 2, 4, 3, dtype=torch.int64)})
    with raises_exactly(
        ValueError,
        "features['relative'] must be on the device of query, cpu, since they meet there; got meta. Move it with "
        "features['relative'].to(\"cpu\").",
    ):
        call({"relative": torch.randn(1, 2, 4, 3, device="meta")})
    with raises_exactly(
        ValueError,
        "encodings must declare features of different names, since features are handed over by name; got 'relative' "
        "twice.",
    ):
        call({"relative": torch.randn(1, 2, 4, 3)}, [encoding, encoding])


def test_layers_and_caches_refuse_what_does_not_fit() -> None:
    with raises_exactly(
        ValueError,
        "encoding must have dim=8, as the layer has, since its features are projected from tokens; got ProjectedBias "
        "without dim.",
    ):
        Attention(dim=8, num_heads=2, encoding=ProjectedBias(num_heads=2))
    with raises_exactly(ValueError, "encoding must have dim=8, as the layer has; got 6 in Forgetting."):
        Attention(dim=8, num_heads=2, encoding=Forgetting(num_heads=2, dim=6))
    cache = KVCache(batch=1, num_heads=2, head_dim=4, max_length=8)
    keys = torch.randn(1, 2, 3, 4)
    cache.append(keys, keys, features={"gate": torch.randn(1, 4, 3, 1)})
    with raises_exactly(
        ValueError,
        "features of new keys must be those of the keys in the cache, 'gate', since attention needs them of all; got "
        "none. Use a cache for each layer, or reset().",
    ):
        cache.append(keys, keys)
    with raises_exactly(
        ValueError, "features['gate'] must have shape (1, 4, 3, 1), since each key has its own; got shape (1, 2, 3, 1)."
    ):
        cache.append(keys, keys, features={"gate": torch.randn(1, 2, 3, 1)})
    assert cache.length == 3


def test_a_feature_says_what_it_is() -> None:
    with raises_exactly(ValueError, "width must be 1 or more, since it counts the numbers of a token and head; got 0."):
        Feature(width=0)
    with raises_exactly(
        ValueError, "role must be one of 'query', 'key', since a vector is one or the other; got 'value'."
    ):
        Feature(width=1, role="value")  # type: ignore[arg-type]


@pytest.mark.parametrize("closed", [-1e16, float("-inf")])
@pytest.mark.parametrize("impl", ["toeplitz", "blockwise", "dense", "reference"])
def test_a_gate_that_is_closed_forgets_all_before_it_and_nothing_behind(closed: float, impl: Any) -> None:
    query, key, value = (torch.randn(1, HEADS, 9, WIDTH, dtype=torch.float64) for _ in range(3))
    gate = torch.randn(1, HEADS, 9, 1, dtype=torch.float64)
    gate[:, :, 4] = closed
    gate.requires_grad_()
    given: dict[str, Any] = {"encoding": Forgetting(num_heads=HEADS), "causal": True, "impl": impl}
    whole = attend(query, key, value, features={"gate": gate}, **given)
    behind = [each[:, :, 4:] for each in (query, key, value)]
    open_gate = torch.nn.functional.pad(gate[:, :, 5:], (0, 0, 1, 0))  # that of the first token plays no part
    alone = attend(*behind, features={"gate": open_gate}, **given)
    torch.testing.assert_close(whole[:, :, 4:], alone, atol=1e-9, rtol=0)
    found, expected = (torch.autograd.grad(each.sum(), gate, retain_graph=True)[0] for each in (whole[:, :, 4:], alone))
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=0)
