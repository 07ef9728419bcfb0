"""Gradients, states and changes that once were lost without a word."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import situs
from situs import Attention, Positions, attend
from situs.encodings.bias import Rule
from situs.positions import PositionsLike
from tests.attention.attention_cases import HEADS, WIDTH, build, tensors
from tests.raising import raises_exactly

DIM = HEADS * WIDTH


@pytest.mark.parametrize("name", ["fire", "cope", "shaw", "t5"])
def test_a_second_derivative_is_refused_and_not_left_out(name: str) -> None:
    q, k, v = tensors(6, 6)
    q.requires_grad_()
    out = attend(q, k, v, encoding=build(name), causal=True)
    (gradient,) = torch.autograd.grad(out.sum(), q, create_graph=True)
    with raises_exactly(
        RuntimeError,
        "attend() must be differentiated once with this kernel, since its gradients come from a kernel of their own; "
        'got a double backward pass. Use impl="reference".',
    ):
        gradient.pow(2).sum().backward()


def test_an_encoding_lives_where_the_queries_do() -> None:
    with raises_exactly(
        ValueError,
        "encoding must be on the query's device, cpu, since its parameters meet queries there; got T5Bias on meta. "
        "Move it with encoding.to(query.device).",
    ):
        attend(*tensors(6, 6), encoding=situs.T5Bias(num_heads=HEADS).to("meta"))


@pytest.mark.parametrize("name", ["none", "t5", "shaw"])
def test_a_row_masked_as_low_as_the_dtype_goes_is_the_mean_of_its_values(name: str) -> None:
    q, k, v = tensors(40, 40, dtype=torch.float32)
    mask = torch.zeros(40, 40)
    mask[5] = torch.finfo(torch.float32).min
    encoding = build(name, torch.float32)
    out = attend(q, k, v, encoding=encoding, mask=mask)
    torch.testing.assert_close(out, attend(q, k, v, encoding=encoding, mask=mask, impl="reference"))


class Detour(situs.ScoreEncoding):
    """Reaches its own parameters by a way that a copy of it does not have."""

    def __init__(self, *, num_heads: int, head_dim: int) -> None:
        super().__init__()
        self.num_heads, self.head_dim = num_heads, head_dim
        self.linear = nn.Linear(head_dim, head_dim, dtype=torch.float64)
        self.bound = self._project

    def _project(self, x: Tensor) -> Tensor:
        projected: Tensor = self.linear(x).tanh()
        return projected

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        query_positions: PositionsLike = None,
        key_positions: PositionsLike = None,
        *,
        scale: float | None = None,
        visible: Tensor | None = None,
    ) -> Tensor:
        return (scale or 1.0) * self.bound(query) @ key.transpose(-2, -1)


def test_what_an_encoding_learns_by_a_detour_is_refused() -> None:
    q, k, v = tensors(12, 12)
    with raises_exactly(
        ValueError,
        "encoding must hold all that it learns as its own parameters and submodules, since Detour is asked again "
        f"backward, as a copy with the tensors that were handed over; got a tensor of shape ({WIDTH}, {WIDTH}) that it "
        'reaches otherwise. Call submodules as self.name(...), or use impl="reference".',
    ):
        attend(q.requires_grad_(), k, v, encoding=Detour(num_heads=HEADS, head_dim=WIDTH)).sum().backward()


@pytest.mark.parametrize("name", ["alibi", "kerple", "sandwich", "fire"])
def test_positions_that_require_gradients_get_them(name: str) -> None:
    q, k, v = tensors(12, 12)
    found, encoding = [], build(name)
    for impl in ("auto", "reference"):
        positions = (torch.arange(12, dtype=torch.float64) * 0.7).requires_grad_()
        attend(q, k, v, encoding=encoding, causal=True, positions=positions, impl=impl).sum().backward()
        assert positions.grad is not None
        found.append(positions.grad)
    torch.testing.assert_close(*found)


class Drops(situs.PairBias):
    """Drops biases at random."""

    def __init__(self, *, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.weight = nn.Parameter(torch.ones(1, dtype=torch.float64))

    def rule(self, device: torch.device, dtype: torch.dtype) -> Rule:
        return lambda at_query, at_key, head: torch.dropout(
            self.weight * (at_query - at_key).to(dtype).abs().log1p() + 0 * head, 0.5, train=True
        )


def test_what_an_encoding_draws_is_drawn_again_backward() -> None:
    q, k, v = tensors(600, 600)  # so many scores are formed twice
    encoding = Drops(num_heads=HEADS)

    def loss() -> Tensor:
        torch.manual_seed(3)
        return attend(q, k, v, encoding=encoding).pow(2).sum()

    loss().backward()
    assert encoding.weight.grad is not None
    with torch.no_grad():
        step = 1e-5
        encoding.weight.add_(step)
        above = loss()
        encoding.weight.sub_(2 * step)
        numerical = (above - loss()) / (2 * step)
    torch.testing.assert_close(encoding.weight.grad, numerical[None], rtol=1e-4, atol=1e-6)


def test_ids_changed_in_place_rotate_anew() -> None:
    q, k, v = tensors(12, 12)
    ids, rotary = torch.arange(12), build("rotary")
    positions, keys = Positions.explicit(ids), Positions.range(12)
    attend(q, k, v, encoding=rotary, positions=positions, key_positions=keys)
    ids += 5
    out = attend(q, k, v, encoding=rotary, positions=positions, key_positions=keys)
    moved = attend(q, k, v, encoding=rotary, positions=Positions.explicit(ids.clone()), key_positions=keys)
    assert torch.equal(out, moved)


def test_a_scale_that_learns_is_refused() -> None:
    with raises_exactly(
        TypeError,
        "scale must be a number that does not learn, since kernels take a plain one; got tensor(0.5000, "
        "requires_grad=True). Multiply the queries by it.",
    ):
        attend(*tensors(4, 4), scale=torch.tensor(0.5, requires_grad=True))  # type: ignore[arg-type]


def test_a_scale_by_which_float32_cannot_be_divided_is_refused() -> None:
    with raises_exactly(
        ValueError,
        "scale must be 0 or at least 1e-30 in size, since what is not scaled is divided by it; got 1e-38.",
    ):
        attend(*tensors(4, 4), scale=1e-38)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_numbers_of_eight_bits_are_refused(dtype: torch.dtype) -> None:
    with raises_exactly(
        TypeError,
        f"query must have 16 bits or more per number, since attention computes with fractions; got {dtype}. Convert it "
        "with query.to(torch.bfloat16).",
    ):
        attend(*(each.to(dtype) for each in tensors(4, 4)))


def test_heads_must_be_there() -> None:
    with raises_exactly(
        ValueError, "query heads must be a multiple of key heads, since each key head serves as many; got 0 and 0."
    ):
        attend(*(torch.zeros(1, 0, 4, 8) for _ in range(3)))


@pytest.mark.parametrize("impl", ["auto", "flex"])
def test_an_error_behind_the_cache_leaves_it_as_it_was(impl: str) -> None:
    encoding = situs.Tupe(dim=8, num_heads=HEADS, head_dim=WIDTH, max_length=5)
    layer = Attention(dim=DIM, num_heads=HEADS, encoding=encoding).eval()
    cache, x = layer.make_cache(batch=1, max_length=20), torch.randn(1, 5, DIM)
    with torch.no_grad():
        layer(x, cache=cache)
        with pytest.raises(ValueError, match=r"^positions must lie in 0 \.\. 4|^impl=\"flex\" cannot serve"):
            layer(x[:, :1], cache=cache, impl=impl)
    assert cache.length == 5


def test_a_cache_takes_no_keys_of_another_rotation() -> None:
    layers = [
        Attention(dim=DIM, num_heads=HEADS, encoding=situs.Rotary(head_dim=WIDTH, base=base)).eval()
        for base in (1e4, 1e6)
    ]
    cache, x = layers[0].make_cache(batch=1, max_length=20), torch.randn(1, 5, DIM)
    with torch.no_grad():
        layers[0](x, cache=cache)
        with pytest.raises(ValueError, match=r"^encodings must rotate new keys as those in the cache were, since"):
            layers[1](x[:, :1], cache=cache)
        assert cache.length == 5
        cache.crop(0)
        layers[1](x, cache=cache)
    assert cache.length == 5


def test_an_encoding_that_forgets_an_option_is_told_so() -> None:
    class Forgets(situs.OffsetBias):
        def __init__(self, *, num_heads: int, slope: float = 1.0) -> None:
            super().__init__()
            self.num_heads = num_heads

        def rule(self, device: torch.device, dtype: torch.dtype) -> Rule:
            return lambda offset, head: (offset * head).to(dtype)

    with raises_exactly(
        TypeError,
        "Forgets must keep its option slope under that name, since it is made again from it; got no such attribute. "
        "Write self.slope = slope in __init__.",
    ):
        repr(Forgets(num_heads=2))


@pytest.mark.parametrize("scale", [1e-4, -1e-6, 1e-30])
@pytest.mark.parametrize("causal", [True, False])
def test_products_of_positions_behind_a_small_scale_do_not_overflow_half_precision(scale: float, causal: bool) -> None:
    encoding = situs.Tupe(dim=DIM, num_heads=HEADS, head_dim=WIDTH, init_std=0.5)
    q, k, v = (each.half() for each in tensors(40, 40))
    out = attend(q, k, v, encoding=encoding, causal=causal, scale=scale)
    exact = attend(q.double(), k.double(), v.double(), encoding=encoding, causal=causal, scale=scale)
    torch.testing.assert_close(out.double(), exact, atol=2e-3, rtol=0)
    with raises_exactly(
        ValueError,
        'impl="toeplitz" cannot serve this call, since torch.float16 does not hold vectors of positions that are '
        'divided by so small a scale. Use impl="auto".',
    ):
        attend(q, k, v, encoding=encoding, causal=causal, scale=scale, impl="toeplitz")


def test_a_scale_of_an_encoding_by_which_float32_cannot_be_divided_is_refused() -> None:
    encoding = situs.ProjectedBias(num_heads=HEADS, rank=2, softmax_scale=1e-38)
    q, k, v = tensors(4, 4)
    features = {"relative": torch.ones(len(q), HEADS, 4, 2)}
    with raises_exactly(
        ValueError,
        "softmax_scale must be 0 or at least 1e-30 in size, since what is not scaled is divided by it; got 1e-38.",
    ):
        attend(q, k, v, encoding=encoding, features=features)


def test_a_scale_that_no_float_holds_is_refused() -> None:
    with raises_exactly(
        ValueError,
        "scale must be at most 1.8e308 in size, since it multiplies q . k; got one of about 400 digits.",
    ):
        attend(*tensors(4, 4), scale=10**400)


def test_masks_inputs_and_caches_of_eight_bits_are_refused() -> None:
    eight = torch.float8_e5m2
    with raises_exactly(
        TypeError,
        "mask must have 16 bits or more per number, since it is added to the scores; got torch.float8_e5m2. Convert it "
        "with mask.to(torch.bfloat16).",
    ):
        attend(*tensors(4, 4), mask=torch.zeros(4, 4).to(eight))
    with raises_exactly(
        TypeError,
        "x must have 16 bits or more per number, since Sinusoidal computes with real fractions; got torch.float8_e5m2. "
        "Convert it with x.to(torch.bfloat16).",
    ):
        situs.Sinusoidal(dim=8)(torch.zeros(1, 3, 8).to(eight))
    with raises_exactly(
        TypeError,
        "dtype must have 16 bits or more per number, since keys and values hold fractions; got torch.float8_e5m2. Use "
        "torch.bfloat16.",
    ):
        situs.KVCache(batch=1, num_heads=1, head_dim=4, max_length=4, dtype=eight)
    with raises_exactly(
        TypeError,
        "ids must be integers, float32 or float64, since in half precision neighbouring positions collide (bfloat16 "
        "from 257 on, float16 from 2049 on); got dtype torch.float8_e5m2.",
    ):
        Positions.explicit(torch.zeros(3).to(eight))
