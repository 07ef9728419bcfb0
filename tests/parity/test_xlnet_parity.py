"""XLNet's attention layers of transformers and Transformer-XL's term of ours, on the same queries, keys and values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers import XLNetModel

from situs import Positions, TransformerXL
from situs.attention import reference
from tests.parity.score_models import (
    HEADS,
    TOLERANCE,
    assert_same,
    padded,
    seen_by_xlnet,
    tokens,
    xlnet,
    xlnet_encoding,
)
from tests.parity.wide_transformers import in_float64
from tests.references import attention as attention_formula
from tests.references import transformer_xl as formula

LENGTH = 30

each_direction = pytest.mark.parametrize("kind", ["bi", "uni"])
each_bound = pytest.mark.parametrize("clamp_len", [-1, 1, 7, 1000])


@pytest.fixture
def wide() -> Iterator[None]:
    """transformers computes in float64 within."""
    with in_float64(XLNetModel):
        yield


def remembered(model: Any, length: int, rows: int = 2) -> Any:
    """The memory that an earlier segment leaves."""
    with torch.no_grad():
        return model(tokens(length, rows)).mems


@pytest.mark.usefixtures("wide")
@each_direction
@each_bound
@pytest.mark.parametrize("layer", [0, 1])
def test_attention_equals_ours(kind: str, clamp_len: int, layer: int) -> None:
    model = xlnet(attn_type=kind, clamp_len=clamp_len)
    (seen,) = seen_by_xlnet(model, lambda: model(tokens(LENGTH)), layer=layer)
    assert_same(seen, xlnet_encoding(model, layer=layer), causal=kind == "uni")


@pytest.mark.usefixtures("wide")
@each_direction
@each_bound
@pytest.mark.parametrize(("queries", "memory"), [(LENGTH, 12), (5, 40), (1, 40), (2, 1)])
def test_attention_over_a_memory_equals_ours(kind: str, clamp_len: int, queries: int, memory: int) -> None:
    model = xlnet(attn_type=kind, clamp_len=clamp_len)
    mems = remembered(model, memory)
    (seen,) = seen_by_xlnet(model, lambda: model(tokens(queries), mems=mems))
    assert seen.key.shape[2] == queries + memory
    assert_same(seen, xlnet_encoding(model), causal=kind == "uni")


@pytest.mark.usefixtures("wide")
@each_direction
def test_attention_over_a_long_memory_equals_ours(kind: str) -> None:
    model = xlnet(attn_type=kind, mem_len=2000)
    mems = [torch.randn(2000, 1, 32, dtype=torch.float64) for _ in range(2)]
    (seen,) = seen_by_xlnet(model, lambda: model(tokens(3, 1), mems=mems))
    assert_same(seen, xlnet_encoding(model), causal=kind == "uni")


@pytest.mark.usefixtures("wide")
@each_direction
@each_bound
@pytest.mark.parametrize("side", ["left", "right"])
def test_attention_with_padding_equals_ours(kind: str, clamp_len: int, side: Literal["left", "right"]) -> None:
    model = xlnet(attn_type=kind, clamp_len=clamp_len)
    mask = padded(LENGTH, 19, side)
    mask = mask[1:] if kind == "uni" else mask  # in that direction transformers cannot mask more than one row
    (seen,) = seen_by_xlnet(model, lambda: model(tokens(LENGTH, len(mask)), attention_mask=mask))
    assert_same(seen, xlnet_encoding(model), positions=Positions.from_mask(mask, side=side), causal=kind == "uni")


@pytest.mark.usefixtures("wide")
@each_bound
def test_attention_with_padding_behind_a_memory_equals_ours(clamp_len: int) -> None:
    """XLNet counts padding between memory and tokens as places, so positions are told, and padding by the mask."""
    model = xlnet(clamp_len=clamp_len)
    memory, queries = 12, 20
    mask = padded(queries, 13, "left")
    mems = remembered(model, memory)
    (seen,) = seen_by_xlnet(model, lambda: model(tokens(queries), attention_mask=mask, mems=mems))
    places = torch.arange(memory + queries)
    assert_same(
        seen,
        xlnet_encoding(model),
        positions=Positions.explicit(places[memory:].expand(2, -1), valid=mask.bool()),
        key_positions=Positions.explicit(places),
        mask=torch.cat((torch.ones(2, memory, dtype=torch.bool), mask.bool()), 1)[:, None, None],
    )


@pytest.mark.usefixtures("wide")
@each_direction
@each_bound
def test_attention_equals_ours_where_positions_are_looked_up(kind: str, clamp_len: int) -> None:
    model = xlnet(attn_type=kind, clamp_len=clamp_len)
    (seen,) = seen_by_xlnet(model, lambda: model(tokens(LENGTH)))
    for places in (torch.arange(LENGTH) + 7, torch.arange(LENGTH).double() - 0.5):
        assert_same(seen, xlnet_encoding(model), positions=Positions.explicit(places), causal=kind == "uni")


@pytest.mark.usefixtures("wide")
def test_equal_lengths_of_attention_are_a_window_of_ours() -> None:
    memory = 12
    model = xlnet(attn_type="uni", same_length=True)
    mems = remembered(model, memory)
    (seen,) = seen_by_xlnet(model, lambda: model(tokens(LENGTH), mems=mems))
    assert_same(seen, xlnet_encoding(model), causal=True, window=memory + 1)


@pytest.mark.usefixtures("wide")
@each_bound
def test_rows_read_backwards_are_descending_positions_of_ours(clamp_len: int) -> None:
    model = xlnet(bi_data=True, clamp_len=clamp_len)
    (seen,) = seen_by_xlnet(model, lambda: model(tokens(LENGTH)))
    places = torch.arange(LENGTH)
    assert_same(seen, xlnet_encoding(model), positions=Positions.explicit(torch.stack((places, places.flip(0)))))


@pytest.mark.usefixtures("wide")
def test_both_streams_of_permuted_attention_equal_ours() -> None:
    model = xlnet()
    order = torch.stack([torch.randperm(LENGTH) for _ in range(2)])
    later = (order[:, :, None] <= order[:, None, :]).double()  # a token predicts itself from those before it
    later[:, :, 0] = 0  # and from the first in any case
    whole = torch.eye(LENGTH, dtype=torch.float64).expand(2, -1, -1)
    content, query = seen_by_xlnet(model, lambda: model(tokens(LENGTH), perm_mask=later, target_mapping=whole))
    encoding = xlnet_encoding(model)
    unseen = later[:, None] > 0
    assert_same(query, encoding, mask=~unseen)
    assert_same(content, encoding, mask=~unseen | torch.eye(LENGTH, dtype=torch.bool))


@each_direction
def test_attention_as_released_in_float32_agrees_to_its_rounding(kind: str) -> None:
    """Of angles below 50, off by 50 2^-22 = 1.2e-5 at most."""
    model = xlnet(attn_type=kind)
    mems = remembered(model, 20)
    (seen,) = seen_by_xlnet(model, lambda: model(tokens(LENGTH), mems=mems))
    assert_same(seen, xlnet_encoding(model), causal=kind == "uni", tolerance=1e-4)


@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize("wrong", [{"clamp_len": 8}, {"clamp_len": None}, {"base": 10100.0}], ids=str)
def test_an_encoding_that_is_nearly_right_is_told_apart(wrong: dict[str, Any]) -> None:
    model = xlnet(clamp_len=7)
    (seen,) = seen_by_xlnet(model, lambda: model(tokens(LENGTH)))
    with pytest.raises(AssertionError, match="off by"):
        assert_same(seen, xlnet_encoding(model, **wrong))


@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize("name", ["projection", "content_bias", "position_bias"])
def test_every_weight_of_the_layer_matters(name: str) -> None:
    model = xlnet()
    (seen,) = seen_by_xlnet(model, lambda: model(tokens(LENGTH)))
    encoding = xlnet_encoding(model)
    with torch.no_grad():
        parameter = getattr(encoding, name)
        parameter += 0.1 * torch.randn_like(parameter)
    with pytest.raises(AssertionError, match="off by"):
        assert_same(seen, encoding)


# --- any lengths: against a naive gather

DIM, HEAD_DIM = 6, 4
queries_and_keys = (st.integers(1, 7), st.integers(1, 9))
bounds = st.sampled_from([None, 1, 3, 20])


def encoding_of(clamp_len: int | None) -> TransformerXL:
    return TransformerXL(dim=DIM, num_heads=HEADS, head_dim=HEAD_DIM, clamp_len=clamp_len, init_std=1.0).double()


def vectors(*lengths: int) -> list[Tensor]:
    return [torch.randn(1, HEADS, length, HEAD_DIM, dtype=torch.float64) for length in lengths]


def naive_term(encoding: TransformerXL, q: Tensor, k: Tensor, at_queries: Tensor, at_keys: Tensor) -> Any:
    """Every pair's own sinusoid, met in turn."""
    weights = {name: each.detach().numpy() for name, each in encoding.named_parameters()}
    u, v, projection = weights["content_bias"], weights["position_bias"], weights["projection"]
    places = at_queries.double().numpy(), at_keys.double().numpy()
    return formula.term(q[0].numpy(), k[0].numpy(), *places, u, v, projection, encoding.clamp_len)


def natural_places(queries: int, keys: int) -> tuple[Tensor, Tensor]:
    """Queries are the last of the keys; more queries than keys begin with them."""
    return torch.arange(queries) + max(keys - queries, 0), torch.arange(keys)


@given(*queries_and_keys, bounds)
def test_the_term_equals_a_naive_gather_for_any_lengths(queries: int, keys: int, clamp_len: int | None) -> None:
    encoding = encoding_of(clamp_len)
    q, k = vectors(queries, keys)
    expected = naive_term(encoding, q, k, *natural_places(queries, keys))
    actual = encoding(q, k, scale=1.0)
    assert actual.shape == (1, HEADS, queries, keys)
    np.testing.assert_allclose(actual[0].detach().numpy(), expected, atol=TOLERANCE)


@given(*queries_and_keys, bounds, st.booleans())
def test_attention_equals_a_naive_gather_for_any_lengths(
    queries: int, keys: int, clamp_len: int | None, causal: bool
) -> None:
    encoding = encoding_of(clamp_len)
    q, k, v = vectors(queries, keys, keys)
    at_queries, at_keys = natural_places(queries, keys)
    allowed = (at_queries[:, None] >= at_keys) | (not causal)
    bias = 0.5 * naive_term(encoding, q, k, at_queries, at_keys)
    expected = attention_formula.attention(
        q[0].numpy(), k[0].numpy(), v[0].numpy(), allowed=allowed.numpy(), scale=0.5, bias=bias
    )
    actual = reference(q, k, v, encoding=encoding, causal=causal)
    np.testing.assert_allclose(actual[0].detach().numpy(), expected, atol=TOLERANCE)


@given(*queries_and_keys, bounds, st.integers(-9, 9), st.sampled_from(["ranges", "whole", "scattered", "real"]))
def test_the_term_equals_a_naive_gather_wherever_queries_and_keys_stand(
    queries: int, keys: int, clamp_len: int | None, start: int, kind: str
) -> None:
    encoding = encoding_of(clamp_len)
    q, k = vectors(queries, keys)
    at_queries, at_keys = torch.arange(queries) + start, torch.arange(keys)
    places = Positions.range(queries, start=start), Positions.range(keys)
    if kind == "scattered":
        at_queries, at_keys = torch.randint(-9, 9, (queries,)), torch.randint(1000, (keys,))
    elif kind == "real":
        at_queries, at_keys = 9 * torch.randn(queries).double(), 9 * torch.randn(keys).double()
    if kind != "ranges":
        places = Positions.explicit(at_queries), Positions.explicit(at_keys)
    expected = naive_term(encoding, q, k, at_queries, at_keys)
    actual = encoding(q, k, *places, scale=1.0)
    np.testing.assert_allclose(actual[0].detach().numpy(), expected, atol=TOLERANCE)


@pytest.mark.compiled
def test_an_exported_term_takes_any_length() -> None:
    encoding = encoding_of(None)
    length = torch.export.Dim("length", min=3, max=4096)
    program = torch.export.export(
        encoding, tuple(vectors(40, 40)), dynamic_shapes=({2: length}, {2: length}), strict=False
    ).module()
    for count in (3, 17, 100):
        q, k = vectors(count, count)
        torch.testing.assert_close(program(q, k), encoding(q, k))
