"""Calls that once gave a wrong number in silence, or torch's own words: wrapped encodings, low masks, stale biases."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

import situs
from situs import Attention, Positions, attend
from situs.attention import reference
from tests.attention.layer_cases import DIM, HEADS, LENGTH, layer_with, tokens
from tests.raising import raises_exactly


class Wrapper(nn.Module):
    """What torch.compile, checkpoints and others put around a module."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner


class Slope(situs.OffsetBias):
    """A bias of one's own whose option may be assigned to."""

    def __init__(self, *, num_heads: int, strength: float = 1.0) -> None:
        super().__init__()
        self.num_heads, self.strength = num_heads, strength

    def rule(self, device: torch.device, dtype: torch.dtype) -> Any:
        return lambda offset, head: self.strength * offset.to(dtype) / (head + 1)


@pytest.mark.parametrize("name", ["rotary", "shaw", "t5", "fire"])
def test_a_wrapped_encoding_is_refused_and_not_left_out(name: str) -> None:
    layer, x = layer_with(name), tokens()
    layer.encodings[0] = Wrapper(layer.encodings[0])
    with pytest.raises(TypeError, match=r"^encodings must be a situs.Encoding or a list of them, since .*; got .*$"):
        layer(x)


MASKS = {"-1e9": -1e9, "finfo": torch.finfo(torch.float32).min, "-1e4": -1e4}


@pytest.mark.parametrize("low", MASKS)
@pytest.mark.parametrize("name", ["none", "alibi", "shaw"])
def test_a_row_that_a_mask_lowers_everywhere_is_as_without_the_mask(name: str, low: str) -> None:
    encoding = {"none": None, "alibi": situs.ALiBi(num_heads=2), "shaw": situs.Shaw(num_heads=2, head_dim=4)}[name]
    positions = Positions.from_mask(torch.tensor([[1, 1, 1, 1, 1, 0, 1, 1]]))
    q, k, v = (torch.randn(1, 2, 8, 4).requires_grad_() for _ in range(3))
    mask, upstream = torch.full((8, 8), MASKS[low]), torch.randn(1, 2, 8, 4)
    found = attend(q, k, v, encoding=encoding, positions=positions, mask=mask)
    wanted = reference(q, k, v, encoding=encoding, positions=positions)
    torch.testing.assert_close(found, wanted, atol=2e-6, rtol=0)
    pairs = zip(*(torch.autograd.grad(out, (q, k, v), upstream) for out in (found, wanted)), strict=True)
    for ours, theirs in pairs:
        torch.testing.assert_close(ours, theirs, atol=2e-6, rtol=0)


@torch.no_grad()
def test_padding_within_rows_of_a_batch_counts_as_such_beside_a_mask() -> None:
    rows = [Positions.from_mask(torch.tensor([[1, 0, 1]])), Positions.range(5)]
    positions, layer = Positions.batch(rows, side="right"), layer_with("none")
    assert positions.side is None
    with pytest.raises(
        ValueError, match=r"^mask must have one column for all keys where a cache is given and padding "
    ):
        layer(tokens(length=5), positions, cache=layer.make_cache(batch=2, max_length=5), mask=torch.ones(5, 5) > 0)


@torch.no_grad()
def test_an_option_of_ones_own_bias_holds_from_the_next_step_on() -> None:
    encoding = Slope(num_heads=HEADS)
    layer, x = Attention(dim=DIM, num_heads=HEADS, encoding=encoding).double().eval(), tokens()
    cache = layer.make_cache(batch=2, max_length=LENGTH)
    layer(x[:, :-2], cache=cache)
    layer(x[:, -2:-1], cache=cache)
    encoding.strength = 5.0
    torch.testing.assert_close(layer(x[:, -1:], cache=cache), layer(x)[:, -1:], atol=1e-11, rtol=0)


def test_parameters_of_inference_mode_are_read_anew_in_every_step() -> None:
    with torch.inference_mode():
        layer, x = layer_with("t5"), tokens()
        cache = layer.make_cache(batch=2, max_length=LENGTH)
        layer(x[:, :-2], cache=cache)
        layer(x[:, -2:-1], cache=cache)
        (encoding,) = layer.encodings
        assert isinstance(encoding, situs.T5Bias)
        encoding.table.add_(torch.randn_like(encoding.table))
        torch.testing.assert_close(layer(x[:, -1:], cache=cache), layer(x)[:, -1:], atol=1e-11, rtol=0)


def test_a_parameter_that_is_sharded_by_itself_is_refused() -> None:
    class Sharded(torch.Tensor):
        placements = ()

    encoding = situs.T5Bias(num_heads=2)
    encoding.table = nn.Parameter(encoding.table.detach().as_subclass(Sharded))
    with raises_exactly(
        TypeError,
        "encoding must have whole parameters here, since attention reads them without calling it; got T5Bias sharded "
        "by itself. Shard the layer that it belongs to: fully_shard(attention).",
    ):
        attend(*torch.randn(3, 1, 2, 4, 8), encoding=encoding)


@torch.no_grad()
def test_a_layer_whose_projections_were_replaced_makes_a_cache() -> None:
    class Lora(nn.Module):
        def __init__(self, base: nn.Linear) -> None:
            super().__init__()
            self.base, self.down = base, nn.Linear(DIM, 2).to(base.weight.dtype)
            self.up = nn.Linear(2, base.out_features).to(base.weight.dtype)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.base(x) + self.up(self.down(x))  # type: ignore[no-any-return]

    layer, x = layer_with("alibi"), tokens()
    layer.key = Lora(layer.key)  # type: ignore[assignment]
    cache = layer.make_cache(batch=2, max_length=LENGTH)
    assert cache.dtype == torch.float64
    steps = torch.cat([layer(part, cache=cache) for part in x.split(5, 1)], 1)
    torch.testing.assert_close(steps, layer(x), atol=1e-11, rtol=0)


def test_double_precision_is_refused_under_autocast_too_which_leaves_it_alone() -> None:
    layer = layer_with("none").float()
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(TypeError, match=r"^x must have the dtype of the "):
        layer(tokens())


def test_slopes_are_the_encodings_own() -> None:
    given = [1.0, 2.0]
    encoding = situs.ALiBi(num_heads=2, slopes=given)
    given[0] = 99.0
    assert encoding.config["slopes"] == (1.0, 2.0)
    assert encoding(Positions.range(2))[0, 0, 1, 0] == -1.0


@pytest.mark.parametrize("name", ["rotary", "alibi", "shaw", "cope", "none"])
@torch.no_grad()
def test_a_step_without_tokens_changes_nothing(name: str) -> None:
    layer, x = layer_with(name), tokens()
    cache = layer.make_cache(batch=2, max_length=LENGTH)
    layer(x[:, :4], cache=cache)
    assert layer(x[:, :0], cache=cache).shape == (2, 0, DIM)
    torch.testing.assert_close(layer(x[:, 4:], cache=cache), layer(x)[:, 4:], atol=1e-11, rtol=0)


@torch.no_grad()
def test_a_step_that_is_interrupted_leaves_the_cache_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = layer_with("alibi"), tokens()
    cache = layer.make_cache(batch=2, max_length=LENGTH)
    layer(x[:, :4], cache=cache)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("situs.attention.layer.attend_request", interrupt)
    with pytest.raises(KeyboardInterrupt):
        layer(x[:, 4:], cache=cache)
    assert cache.length == 4


@torch.no_grad()
def test_documents_and_a_cache_are_refused() -> None:
    layer = layer_with("rotary")
    cache = layer.make_cache(batch=2, max_length=LENGTH)
    ids = torch.arange(6)[None]
    for documents in ([[0, 0, 0, 1, 1, 1]], [[7] * 6]):
        positions = Positions.explicit(ids, documents=torch.tensor(documents))
        with pytest.raises(ValueError, match=r"^positions must be of one document per row with a cache, since "):
            layer(tokens(length=6), positions, cache=cache)
    assert cache.length == 0
    assert math.isfinite(float(layer(tokens(length=6), cache=cache).sum()))
