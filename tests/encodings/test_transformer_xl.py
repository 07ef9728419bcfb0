"""Transformer-XL's four terms against the paper's formula; segment memory, and a bound on distances."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from situs import Positions, TransformerXL
from situs.attention import attend, explain, reference
from tests.encodings.score_situations import (
    FAR,
    HEAD_DIM,
    HEADS,
    Array,
    Formula,
    Situation,
    assert_follows,
    assert_gradients,
    situated,
    stirred,
)
from tests.references import transformer_xl

DIM = 6
both_bounds = pytest.mark.parametrize("clamp_len", [None, 3])


def made(**options: Any) -> TransformerXL:
    return stirred(TransformerXL(**{"dim": DIM, "num_heads": HEADS, "head_dim": HEAD_DIM, **options}))


def by_paper(encoding: TransformerXL) -> Formula:
    u, v = (
        np.zeros((HEADS, HEAD_DIM)) if each is None else each.detach().double().numpy()
        for each in (encoding.content_bias, encoding.position_bias)
    )
    w = encoding.projection.detach().double().numpy()
    waves = encoding.clamp_len, encoding.base, encoding.layout, encoding.spacing

    def term(q: Array, k: Array, query_ids: Array, key_ids: Array) -> Array:
        return transformer_xl.term(q, k, query_ids, key_ids, u, v, w, *waves)

    return term


@settings(max_examples=150)
@given(
    st.data(),
    st.sampled_from([None, 1, 4, 400]),
    st.sampled_from([100.0, 10000.0]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([None, 0.7]),
)
def test_the_term_is_the_papers(
    data: st.DataObject, clamp_len: int | None, base: float, kv_heads: int, scale: float | None
) -> None:
    encoding = made(clamp_len=clamp_len, base=base)
    assert_follows(encoding, situated(data), by_paper(encoding), kv_heads=kv_heads, scale=scale, tolerance=1e-7)


@settings(max_examples=40)
@given(st.data(), st.sampled_from([("interleaved", "exclusive", True), ("concatenated", "inclusive", False)]))
def test_the_term_is_that_of_conformers_and_of_gemmas_audio(
    data: st.DataObject, options: tuple[Any, Any, bool]
) -> None:
    layout, spacing, biases = options
    encoding = made(layout=layout, spacing=spacing, biases=biases)
    assert_follows(encoding, situated(data), by_paper(encoding), tolerance=1e-7)
    assert ("content_bias" in encoding.state_dict()) == biases


reals = st.floats(-1000, 1000, width=32)


@given(st.data(), st.integers(1, 2), st.integers(1, 4), st.integers(1, 5), st.sampled_from([None, 2]))
def test_real_positions_meet_the_formula(
    data: st.DataObject, batch: int, queries: int, keys: int, clamp_len: int | None
) -> None:
    told = [
        torch.tensor([[data.draw(reals) for _ in range(count)] for _ in range(batch)], dtype=torch.float64)
        for count in (queries, keys)
    ]
    encoding = made(clamp_len=clamp_len)
    assert "real" in encoding.tags
    assert_follows(encoding, Situation(told[0], told[1], told[0], told[1], batch), by_paper(encoding))


def test_half_a_step_lies_between_whole_ones() -> None:
    encoding = made(clamp_len=2)
    q, k = torch.randn(1, HEADS, 1, HEAD_DIM, dtype=torch.float64), torch.randn(1, HEADS, 3, HEAD_DIM).double()
    told = torch.tensor([[0.0]]), torch.tensor([[-0.5, 1.25, 2.75]])
    assert_follows(encoding, Situation(*told, *told, 1), by_paper(encoding))
    whole = encoding(q, k, torch.tensor([0]), torch.tensor([0.0, 2.0, 3.0]))
    torch.testing.assert_close(encoding(q, k, torch.tensor([0]), torch.tensor([0, 2, 2])), whole)


@both_bounds
def test_segment_memory_is_more_keys_than_queries(clamp_len: int | None) -> None:
    encoding = made(clamp_len=clamp_len)
    q, k, v = torch.randn(3, 2, HEADS, 9, HEAD_DIM, dtype=torch.float64)
    whole = reference(q, k, v, encoding=encoding, causal=True)
    for segment in (1, 4, 8):
        with_memory = reference(q[:, :, -segment:], k, v, encoding=encoding, causal=True)
        torch.testing.assert_close(with_memory, whole[:, :, -segment:])
    middle = Positions.range(9)[3:6]
    with_memory = reference(
        q[:, :, 3:6], k[:, :, :6], v[:, :, :6], encoding=encoding, causal=True, positions=middle, key_positions=0
    )
    torch.testing.assert_close(with_memory, whole[:, :, 3:6])


def test_distances_beyond_the_bound_count_as_the_bound_on_both_sides() -> None:
    encoding = made(clamp_len=3)
    q, k = torch.randn(1, HEADS, 1, HEAD_DIM), torch.randn(1, HEADS, 1, HEAD_DIM)
    for sign in (1, -1):
        at = [encoding(q, k, torch.tensor([50]), torch.tensor([50 + sign * offset])) for offset in (2, 3, 4, 49, FAR)]
        assert all(torch.equal(each, at[1]) for each in at[2:])
        assert not torch.allclose(at[0], at[1])
    ahead, behind = (encoding(q, k, torch.tensor([50]), torch.tensor([key])) for key in (60, 40))
    assert not torch.allclose(ahead, behind)


def test_without_biases_and_projection_it_is_no_position_encoding() -> None:
    encoding = made()
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.zero_()
    q, k, v = torch.randn(3, 1, HEADS, 6, HEAD_DIM)
    assert torch.equal(encoding(q, k), torch.zeros(1, HEADS, 6, 6))
    assert torch.equal(reference(q, k, v, encoding=encoding), reference(q, k, v))


def test_each_bias_does_what_its_letter_says() -> None:
    encoding = made()
    q, k = torch.randn(2, 1, HEADS, 5, HEAD_DIM, dtype=torch.float64)
    with torch.no_grad():
        encoding.projection.zero_()
    only_c = encoding(q, k, scale=1.0)
    assert encoding.content_bias is not None
    u_with_keys = (k * encoding.content_bias[:, None]).sum(-1)
    torch.testing.assert_close(only_c, u_with_keys[:, :, None].expand(-1, -1, 5, -1))
    other = made()
    without_queries = other(torch.zeros_like(q), torch.zeros_like(k), scale=1.0)
    assert other.position_bias is not None
    assert other.content_bias is not None
    with torch.no_grad():
        swapped = other.position_bias.double()[None, :, None].expand(1, -1, 5, -1)
        other.content_bias.zero_()
        other.position_bias.zero_()
    torch.testing.assert_close(other(swapped, torch.zeros_like(k), scale=1.0), without_queries)


@pytest.mark.parametrize("biases", [True, False])
def test_pairs_with_a_token_without_a_position_keep_what_every_key_meets(biases: bool) -> None:
    encoding = made(biases=biases)
    q, k, v = torch.randn(3, 2, HEADS, 7, HEAD_DIM, dtype=torch.float64)
    placed = torch.tensor([[False, True, True, False, True, True, True], [True] * 7])
    at = Positions.explicit(torch.arange(7) + 70_000, placed=placed)
    term, plain = encoding(q, k, at, at, scale=1.0), encoding(q, k, at.ids + 0, at.ids + 0, scale=1.0)
    both = (placed[:, None, :, None] & placed[:, None, None, :]).expand_as(term)
    assert torch.equal(term[both], plain[both])
    u = torch.zeros(HEADS, HEAD_DIM) if encoding.content_bias is None else encoding.content_bias
    of_keys = (k * u[:, None]).sum(-1)[:, :, None].expand_as(term)
    torch.testing.assert_close(term[~both], of_keys[~both].to(term.dtype), rtol=0, atol=1e-12)
    told: dict[str, Any] = {"encoding": encoding, "positions": at}
    expected, out = reference(q, k, v, **told), attend(q, k, v, **told)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
    found, wanted = (torch.autograd.grad(each.square().sum(), encoding.projection) for each in (out, expected))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)
    chosen = explain(q, k, v, **told)
    assert chosen.others["toeplitz"] == "cannot: tokens without a position have no offset"


def test_the_biases_of_several_layers_can_be_one_parameter() -> None:
    first, second = made(), made()
    second.content_bias, second.position_bias = first.content_bias, first.position_bias
    q, k = torch.randn(2, 1, HEADS, 5, HEAD_DIM)
    (first(q, k).sum() + second(q, k).sum()).backward()
    assert len({id(each) for layer in (first, second) for each in layer.parameters()}) == 4
    assert all(each.grad is not None for each in first.parameters())


@both_bounds
def test_its_tags_tell_a_bound_and_its_parameters_are_the_papers_letters(clamp_len: int | None) -> None:
    encoding = made(clamp_len=clamp_len)
    assert ("bounded" in encoding.tags) == (clamp_len is not None)
    assert sorted(encoding.state_dict()) == ["content_bias", "position_bias", "projection"]


def test_everything_starts_normal() -> None:
    encoding = TransformerXL(dim=200, num_heads=50, head_dim=40, init_std=0.3)
    for parameter in (each.detach() for each in encoding.parameters()):
        assert float(parameter.std()) == pytest.approx(0.3, rel=0.05)
        assert float(parameter.mean()) == pytest.approx(0.0, abs=0.03)


def test_gradients_of_real_positions_are_right() -> None:
    reals = torch.tensor([[0.5, 3.25, -1.0]]), torch.tensor([[0.25, 0.0, 7.5, 2.0]])
    assert_gradients(TransformerXL(dim=4, num_heads=2, head_dim=HEAD_DIM), reals)
