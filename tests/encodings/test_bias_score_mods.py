"""Biases as a score_mod add the dense bias to each score, and FlexAttention with them is the reference."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from situs import ALiBi, Positions
from situs.attention import reference
from situs.encodings.bias import BiasEncoding
from tests.encodings.bias_cases import (
    CASES,
    LEARNED,
    as_matrix,
    every_case,
    every_sequence_and_kind,
    kinds_for,
    places_for,
)


@every_sequence_and_kind
def test_a_score_mod_adds_the_dense_bias(name: str, kind: str) -> None:
    encoding, (query, key) = CASES[name].make().double(), kinds_for(name)[kind]()
    with torch.no_grad():
        dense = encoding(query, key)
        rows = max(query.rows, query.rows if key is None else key.rows)
        added = as_matrix(encoding.score_mod(query, key), (rows, *dense.shape[1:]), dense.dtype)
    torch.testing.assert_close(added, dense.expand(rows, -1, -1, -1), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["swin v1", "swin v2"])
@pytest.mark.parametrize("kind", ["range", "ids"])
def test_a_windows_score_mod_adds_the_dense_bias(name: str, kind: str) -> None:
    encoding, places = CASES[name].make(), places_for(name, kind)
    with torch.no_grad():
        dense = encoding(places)
        added = as_matrix(encoding.score_mod(places), dense.shape, torch.float32)
    assert torch.equal(added, dense)


def test_a_score_mod_adds_to_the_score_in_its_own_dtype() -> None:
    modify = ALiBi(num_heads=2).score_mod(Positions.range(4, start=10_000_000))
    for dtype in (torch.bfloat16, torch.float32, torch.float64):
        result = modify(torch.tensor(1.5, dtype=dtype), *(torch.tensor(index) for index in (0, 1, 3, 1)))
        assert result.dtype == dtype
        assert result.item() == 1.5 - 2 * 2.0**-8


def assert_flex_is_the_reference(
    encoding: BiasEncoding, places: Positions, causal: bool, attend: Callable[..., Tensor]
) -> None:
    """One attention with the encoding's score_mod against the reference, for batches of two."""
    query, key, value = torch.randn(3, 2, 2, 128, 16)
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 128, 128, device="cpu") if causal else None
    options: dict[str, Any] = {"block_mask": mask, "scale": encoding.scale_for(16)}
    with torch.no_grad():
        result = attend(query, key, value, score_mod=encoding.score_mod(places), **options)
        expected = reference(query, key, value, encoding=encoding, causal=causal, positions=places)
    torch.testing.assert_close(result, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.thin(6)
@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@every_case
@pytest.mark.parametrize("kind", ["range", "ids"])
def test_eager_flex_attention_is_the_reference(name: str, kind: str) -> None:
    for causal in (False, True):
        torch._dynamo.reset()
        assert_flex_is_the_reference(CASES[name].make(), places_for(name, kind), causal, flex_attention)


@pytest.mark.thin(3)
@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("name", LEARNED)
def test_eager_flex_attention_teaches_the_parameters_as_the_reference_does(name: str) -> None:
    torch._dynamo.reset()
    encoding, places = CASES[name].make().double(), places_for(name, "ids")
    query, key, value, slope = torch.randn(4, 2, 2, 128, 16, dtype=torch.float64)
    results = (
        flex_attention(query, key, value, score_mod=encoding.score_mod(places), scale=encoding.scale_for(16)),
        reference(query, key, value, encoding=encoding, positions=places),
    )
    gradients = [torch.autograd.grad(result, list(encoding.parameters()), slope) for result in results]
    torch.testing.assert_close(gradients[0], gradients[1])


@pytest.mark.thin(8)
@pytest.mark.compiled
@pytest.mark.parametrize(
    "name", ["t5", "alibi", "kerple log", "kerple power", "sandwich", "fire", "mlp", "swin v1", "tupe relative"]
)
def test_compiled_flex_attention_is_the_reference(name: str) -> None:
    torch._dynamo.reset()
    causal = name in ("t5", "alibi", "fire")
    assert_flex_is_the_reference(CASES[name].make(), places_for(name), causal, torch.compile(flex_attention))


@pytest.mark.compiled
def test_compiled_flex_attention_takes_ids_by_row_and_biases_one_after_another() -> None:
    torch._dynamo.reset()
    encodings = [CASES[name].make() for name in ("t5", "alibi", "kerple log", "kerple power", "sandwich", "fire")]
    places, (query, key, value) = places_for("t5", "ids"), torch.randn(3, 2, 2, 128, 16)
    with torch.no_grad():
        modifiers = [encoding.score_mod(places) for encoding in encodings]

    def add_all(score: Tensor, batch: Tensor, head: Tensor, query_index: Tensor, key_index: Tensor) -> Tensor:
        for modify in modifiers:
            score = modify(score, batch, head, query_index, key_index)
        return score

    with torch.no_grad():
        result = torch.compile(flex_attention)(query, key, value, score_mod=add_all, scale=0.25)
        expected = reference(query, key, value, encoding=encodings, positions=places, scale=0.25)
    torch.testing.assert_close(result, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_counts_the_heads_of_queries_where_keys_have_fewer() -> None:
    torch._dynamo.reset()
    encoding, places = ALiBi(num_heads=4), Positions.range(32, start=10_000_000)
    query, key, value = torch.randn(1, 4, 32, 16), torch.randn(1, 2, 32, 16), torch.randn(1, 2, 32, 16)
    result = flex_attention(query, key, value, score_mod=encoding.score_mod(places), enable_gqa=True)
    torch.testing.assert_close(result, reference(query, key, value, encoding=encoding, positions=places))
