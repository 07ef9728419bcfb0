"""A network of the offset: its formula, offsets of any kind, and that each offset is asked for once."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

import situs
from situs import MLPBias, Positions
from situs.encodings import mlp
from tests.encodings.bias_places import assert_follows
from tests.raising import raises_exactly
from tests.references import mlp as paper


def by_paper(encoding: MLPBias, query: NDArray[Any], key: NDArray[Any]) -> NDArray[np.float64]:
    state = {name: value.double().numpy() for name, value in encoding.state_dict().items()}
    hidden, norms = (
        [(state[f"{kind}.{layer}.weight"], state[f"{kind}.{layer}.bias"]) for layer in range(count)]
        for kind, count in (("hidden", encoding.depth), ("norms", encoding.depth * encoding.norm))
    )
    at, seen = (each.reshape(len(each), -1) for each in (query, key))
    return paper.bias(at, seen, hidden, norms, state["out.weight"], encoding.activation, encoding.log_distance)


def drawn(**options: Any) -> MLPBias:
    encoding = MLPBias(**{"num_heads": 2, "width": 5, **options})
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.normal_(std=0.7)
    return encoding


VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "logarithms": {"log_distance": True, "depth": 1},
    "CrossFormer's": {"norm": True, "depth": 3, "activation": "relu"},
    "normalised logarithms": {"norm": True, "log_distance": True},
    "leaky": {"activation": "leaky_relu", "log_distance": True},
}
each_variant = pytest.mark.parametrize("variant", VARIANTS)
assert_is_the_formulas = partial(assert_follows, by_paper, rtol=1e-9, atol=1e-9)


@each_variant
def test_the_bias_is_the_formulas(variant: str) -> None:
    encoding = drawn(**VARIANTS[variant])
    assert_is_the_formulas(encoding, Positions.range(4, start=10_000_000), Positions.range(6, start=9_999_000))
    unsorted = Positions.explicit(torch.tensor([[5, 0, 70_000, 3], [1, 2, 2, -9]]))
    assert_is_the_formulas(encoding, unsorted, Positions.range(3))
    assert_is_the_formulas(encoding, Positions.explicit(torch.tensor([0.5, -3.25, 7e6], dtype=torch.float64)))


@each_variant
def test_the_bias_of_several_axes_is_the_formulas(variant: str) -> None:
    options = VARIANTS[variant]
    grid, moved = Positions.grid(3, 4), Positions.explicit(Positions.grid(2, 3).ids + 1000)
    assert_is_the_formulas(drawn(axes=2, **options), grid)
    assert_is_the_formulas(drawn(axes=2, **options), grid, moved)
    assert_is_the_formulas(drawn(axes=3, **options), Positions.grid(2, 2, 3))


@pytest.mark.parametrize("axes", [1, 2])
def test_every_offset_is_asked_for_once(axes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, plain = [], torch.nn.functional.linear

    def counting(x: Tensor, *weights: Any) -> Tensor:
        asked.append(x.shape[:-1].numel())
        return plain(x, *weights)

    monkeypatch.setattr(mlp, "linear", counting)
    encoding = drawn(axes=axes, depth=1)
    text = Positions.explicit(torch.randperm(40)) if axes == 1 else Positions.grid(5, 8)
    encoding(text)
    assert asked == [79 if axes == 1 else 9 * 15] * 2
    asked.clear()
    encoding(Positions.explicit(text.ids * 1000))  # more offsets than pairs
    assert asked == [1600] * 2


@pytest.mark.parametrize("axes", [1, 2])
def test_attention_adds_it_whatever_the_kernel(axes: int) -> None:
    encoding = drawn(num_heads=4, axes=axes, log_distance=True).double()
    places = Positions.range(12) if axes == 1 else Positions.grid(3, 4)
    q, k, v = (torch.randn(2, 4, 12, 8, dtype=torch.float64, requires_grad=True) for _ in range(3))
    weights = [q, k, v, *encoding.parameters()]
    found = []
    for impl in ("auto", "blockwise", "dense", "reference"):
        out = situs.attend(q, k, v, encoding=encoding, positions=places, causal=True, impl=impl)
        found.append((out, *torch.autograd.grad(out.square().sum(), weights)))
    for each in found[1:]:
        torch.testing.assert_close(each, found[0])
    assert all(bool(gradient.any()) for gradient in found[0][1:])


def test_a_cache_goes_on_beyond_what_was_seen() -> None:
    torch.manual_seed(0)
    layer = situs.Attention(dim=16, num_heads=2, encoding=drawn(log_distance=True)).eval()
    x = torch.randn(1, 20, 16)
    with torch.no_grad():
        whole, cache = layer(x), layer.make_cache(batch=1, max_length=20)
        steps = [layer(x[:, :12], cache=cache), *(layer(x[:, step : step + 1], cache=cache) for step in range(12, 20))]
    torch.testing.assert_close(torch.cat(steps, 1), whole, atol=1e-6, rtol=0)


def test_a_normalised_network_is_bounded_and_others_are_not() -> None:
    assert "bounded" in MLPBias(num_heads=2, norm=True).tags
    assert "bounded" not in MLPBias(num_heads=2).tags
    offsets = torch.tensor([1000, 10_000_000])
    near, far = drawn(norm=True).by_offset(offsets).unbind(-1)
    torch.testing.assert_close(near, far, atol=0.01, rtol=0)


def test_a_fresh_start_draws_every_parameter_anew() -> None:
    encoding = drawn(norm=True)
    before = [parameter.detach().clone() for parameter in encoding.parameters()]
    encoding.reset_parameters()
    assert not any(torch.equal(old, new) for old, new in zip(before, encoding.parameters(), strict=True))
    assert {name for name, _ in encoding.named_parameters()} == {
        *(f"hidden.{layer}.{kind}" for layer in range(2) for kind in ("weight", "bias")),
        *(f"norms.{layer}.{kind}" for layer in range(2) for kind in ("weight", "bias")),
        "out.weight",
    }


def test_what_is_neither_true_nor_false_is_refused() -> None:
    with raises_exactly(TypeError, "norm must be True or False, since hidden layers are normalised or not; got 1."):
        MLPBias(num_heads=2, norm=1)  # type: ignore[arg-type]
    with raises_exactly(
        TypeError,
        "log_distance must be True or False, since distances are handed over by their logarithm or not; got 'yes'.",
    ):
        MLPBias(num_heads=2, log_distance="yes")  # type: ignore[arg-type]
