"""Rotary values: rotated by the key's position, and back by the query's, in every kernel and in a cache."""

from typing import Any

import numpy as np
import pytest
import torch

import situs
from situs import Positions, Rotary, RotaryValue
from tests.raising import raises_exactly
from tests.references import rotary as reference

PARTIAL: dict[str, Any] = {"rotary_dim": 4, "channels": "trailing", "pairing": "interleaved"}


@pytest.mark.parametrize("back", [True, False])
@pytest.mark.parametrize("start", [0, 1_000_003])
def test_outputs_are_those_of_the_formula(back: bool, start: int) -> None:
    encoding = RotaryValue(head_dim=6, value_dim=8, rotate_back=back, **PARTIAL)
    q, k = torch.randn(2, 1, 1, 7, 6, dtype=torch.float64)
    v = torch.randn(1, 1, 7, 8, dtype=torch.float64)
    found = situs.attend(q, k, v, encoding=encoding, causal=True, positions=start, key_positions=start)[0, 0].numpy()
    weights = (q[0, 0] @ k[0, 0].T / 6**0.5).masked_fill(torch.ones(7, 7).triu(1).bool(), -torch.inf).softmax(-1)
    ladder = reference.frequencies(4)
    for i in range(7):
        total = np.zeros(8)
        for j in range(i + 1):
            value = v[0, 0, j].numpy().copy()
            value[4:] = reference.matrix(start + j, ladder, "interleaved") @ value[4:]
            total += float(weights[i, j]) * value
        if back:
            total[4:] = reference.matrix(-(start + i), ladder, "interleaved") @ total[4:]
        np.testing.assert_allclose(found[i], total, rtol=0, atol=1e-9)


@pytest.mark.parametrize("beside", ["rotary", "alibi", "shaw"])
def test_every_kernel_gives_what_the_reference_gives(beside: str) -> None:
    encodings = [situs.entry(beside).build(head_dim=8, num_heads=4), RotaryValue(head_dim=8, **PARTIAL)]
    q, k, v = (torch.randn(2, heads, 33, 8, requires_grad=True) for heads in (4, 2, 2))
    mask = torch.ones(2, 33, dtype=torch.bool)
    mask[0, :9] = False
    request: dict[str, Any] = {"encoding": encodings, "causal": True, "positions": Positions.from_mask(mask)}
    request["key_positions"] = request["positions"]
    expected = situs.attention.reference(q, k, v, **request)
    gradient = torch.randn_like(expected)
    wanted = torch.autograd.grad(expected, (q, k, v), gradient)
    for impl, words in {**situs.explain(q, k, v, **request).others, "auto": "could"}.items():
        if words.startswith("could"):
            out = situs.attend(q, k, v, **request, impl=impl)  # type: ignore[arg-type]
            torch.testing.assert_close(out, expected, rtol=0, atol=1e-5)
            for one, other in zip(torch.autograd.grad(out, (q, k, v), gradient), wanted, strict=True):
                torch.testing.assert_close(one, other, rtol=0, atol=1e-5)


def test_deepseek_v4s_one_vector_is_key_and_value() -> None:
    q, shared = torch.randn(1, 4, 9, 8), torch.randn(1, 1, 9, 8)
    rotary = Rotary(head_dim=8, **PARTIAL)
    out = situs.attend(q, shared, shared, encoding=[rotary, RotaryValue(head_dim=8, **PARTIAL)], causal=True)
    both = rotary(shared)
    gathered = situs.attend(rotary(q), both, both, causal=True)
    torch.testing.assert_close(out, rotary.inverse(gathered), rtol=0, atol=1e-5)


@pytest.mark.parametrize("back", [True, False])
def test_a_cache_holds_rotated_values_and_moves_them(back: bool) -> None:
    encodings = [Rotary(head_dim=8), RotaryValue(head_dim=8, rotate_back=back, **PARTIAL)]
    layer = situs.Attention(dim=16, num_heads=2, encoding=encodings).eval()
    x = torch.randn(2, 13, 16)
    mask = torch.ones(2, 12, dtype=torch.bool)
    mask[1, :5] = False
    with torch.no_grad():
        cache, short, padded = (layer.make_cache(batch=2, max_length=16) for _ in range(3))
        parts = [layer(part, cache=cache) for part in x[:, :12].split([5, 1, 6], 1)]
        torch.testing.assert_close(torch.cat(parts, 1), layer(x[:, :12]), rtol=0, atol=1e-6)
        where = Positions.from_mask(mask, side="left")
        out = layer(x[:, :12], where, cache=padded)
        torch.testing.assert_close(out[1:, 5:], layer(x[1:, 5:12]), rtol=0, atol=1e-6)
        alone = layer(torch.cat((x[1:, 5:12], x[1:, 12:]), 1))
        torch.testing.assert_close(layer(x[:, 12:], cache=padded)[1:], alone[:, -1:], rtol=0, atol=1e-6)
        cache.evict(4)
        layer(x[:, 4:12], cache=short)
        torch.testing.assert_close(cache.values[:, :, :8], short.values[:, :, :8], rtol=0, atol=1e-6)
        torch.testing.assert_close(layer(x[:, 12:], cache=cache), layer(x[:, 12:], cache=short), rtol=0, atol=1e-6)


def test_a_cache_takes_no_values_that_are_rotated_otherwise() -> None:
    one, other = (RotaryValue(head_dim=8, base=base) for base in (1e4, 1e5))
    cache = situs.KVCache(batch=1, num_heads=2, head_dim=8, max_length=8)
    x = torch.randn(1, 2, 2, 8)
    cache.extend(x, x, x, None, [one])
    cache.extend(x, x, x, None, [RotaryValue(head_dim=8)])  # an equal one
    words = (
        f"encodings must rotate new keys as those in the cache were, since their products would mix two rotations; got "
        f"RotaryValue({other.extra_repr()}) for keys rotated by RotaryValue({one.extra_repr()}). Use a cache for each "
        f"layer, or reset()."
    )
    with raises_exactly(ValueError, words):
        cache.extend(x, x, x, None, [other])


def test_a_map_of_ones_own_is_served_and_is_not_moved() -> None:
    class Shifted(situs.ValueMap):
        def forward(self, x: torch.Tensor, positions: Any = None, *, role: Any = "value") -> torch.Tensor:
            ids = Positions.of(positions, x.shape[2], batch=x.shape[0]).ids[:, None, :, None]
            return x + ids if role == "value" else x - ids

    q = k = v = torch.zeros(1, 1, 3, 2)
    out = situs.attend(q, k, v, encoding=Shifted(), causal=True)
    torch.testing.assert_close(out[0, 0, :, 0], torch.tensor([0.0, -0.5, -1.0]))
    cache = situs.KVCache(batch=1, num_heads=1, head_dim=2, max_length=4)
    cache.extend(q, k, v, None, [Shifted()])
    words = (
        "values must be changed by a map that tells how they are moved, since their positions change; got Shifted. "
        "Define moved(values, before, after)."
    )
    with raises_exactly(TypeError, words):
        cache.evict(1)


def test_what_does_not_fit_is_refused() -> None:
    with raises_exactly(ValueError, "value_dim must be even, since pairs of channels are rotated; got 7."):
        RotaryValue(head_dim=8, value_dim=7)
    x = torch.ones(1, 1, 3, 8)
    words = "value must have 6 channels per head, since RotaryValue was made for as many; got shape (1, 1, 3, 8)."
    with raises_exactly(ValueError, words):
        situs.attend(x, x, x, encoding=RotaryValue(head_dim=8, value_dim=6))


@pytest.mark.compiled
def test_graphs_of_symbolic_sizes_take_rotated_values() -> None:
    torch._dynamo.reset()
    value_map = RotaryValue(head_dim=8, value_dim=6)
    compiled = torch.compile(situs.attend, fullgraph=True, dynamic=True, backend="eager")
    query, key, value = (torch.randn(1, 2, 5, width) for width in (8, 8, 6))
    out = compiled(query, key, value, encoding=value_map, causal=True)
    torch.testing.assert_close(out, situs.attend(query, key, value, encoding=value_map, causal=True))
