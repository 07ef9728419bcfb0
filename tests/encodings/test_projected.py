"""Inkling's projected bias against its formula."""

import numpy as np
import pytest
import torch

import situs
from situs import Positions, ProjectedBias
from tests.raising import raises_exactly
from tests.references import projected

HEADS, RANK, DISTANCES = 3, 4, 5

PLACES = {
    "a range": (Positions.range(9), Positions.range(9)),
    "a far chunk": (Positions.range(4, start=10_000_005), Positions.range(9, start=10_000_000)),
    "ids in any order": (Positions.explicit(torch.tensor([7, 2, 30])), Positions.explicit(torch.tensor([3, 7, 1, 26]))),
}


@pytest.mark.parametrize("place", PLACES)
def test_the_bias_is_the_models(place: str) -> None:
    query_positions, key_positions = PLACES[place]
    encoding = ProjectedBias(num_heads=HEADS, rank=RANK, distances=DISTANCES, init_std=1.0).double()
    q, k = (torch.randn(2, HEADS, each.length, 6, dtype=torch.float64) for each in (query_positions, key_positions))
    relative = torch.randn(2, HEADS, query_positions.length, RANK, dtype=torch.float64)
    added = encoding(q, k, query_positions, key_positions, scale=0.3, features={"relative": relative})
    for row in range(2):
        ids = (each.ids[0].numpy() for each in (query_positions, key_positions))
        expected = projected.bias(relative[row].numpy(), encoding.profiles.detach().numpy(), *ids)
        np.testing.assert_allclose(added[row].detach().numpy(), expected, atol=1e-12)


def test_the_projection_splits_heads_first() -> None:
    encoding = ProjectedBias(num_heads=HEADS, rank=RANK, dim=7)
    x = torch.randn(2, 5, 7)
    assert encoding.projection is not None
    expected = (x @ encoding.projection.weight.T).view(2, 5, HEADS, RANK).transpose(1, 2)
    torch.testing.assert_close(encoding.project(x), {"relative": expected})


def test_one_profile_and_equal_tokens_are_a_bias_of_the_offset() -> None:
    encoding = ProjectedBias(num_heads=HEADS, rank=1, distances=6, init_std=1.0)
    q, k, v = (torch.randn(1, HEADS, 12, 8) for _ in range(3))
    out = situs.attend(q, k, v, encoding=encoding, causal=True, features={"relative": torch.ones(1, HEADS, 12, 1)})
    apart = torch.arange(12)[:, None] - torch.arange(12)
    added = torch.where(apart < 6, encoding.profiles[0, apart.clamp(0, 5)], 0.0).detach()
    torch.testing.assert_close(out, situs.attend(q, k, v, mask=added, causal=True), atol=1e-5, rtol=0)


@pytest.mark.parametrize("tempered", [False, True])
def test_a_temperature_multiplies_the_bias_where_it_shall(tempered: bool) -> None:
    encoding = ProjectedBias(num_heads=HEADS, rank=RANK, distances=DISTANCES, init_std=1.0, tempered=tempered)
    q, k, v = (torch.randn(1, HEADS, 9, 8) for _ in range(3))
    relative, text = torch.randn(1, HEADS, 9, RANK), Positions.range(9)
    temperature = situs.Temperature(dialect="inkling", original_length=2)
    growth = temperature.factors(text)
    for impl in ("toeplitz", "reference"):
        out = situs.attend(
            q, k, v, encoding=[temperature, encoding], causal=True, features={"relative": relative}, impl=impl
        )
        alone = {"relative": relative * growth if tempered else relative}
        expected = situs.attend(q * growth, k, v, encoding=encoding, causal=True, features=alone)
        torch.testing.assert_close(out, expected, atol=1e-5, rtol=0)


def test_a_temperature_multiplies_in_the_dtype_of_the_queries() -> None:
    encoding = ProjectedBias(num_heads=HEADS, rank=RANK, distances=DISTANCES, init_std=1.0, tempered=True).double()
    q, k, v = (torch.randn(1, HEADS, 9, 8, dtype=torch.float64) for _ in range(3))
    narrow = torch.randn(1, HEADS, 9, RANK)
    both = [situs.Temperature(dialect="inkling", original_length=2), encoding]
    out, expected = (
        situs.attend(q, k, v, encoding=both, causal=True, features={"relative": each})
        for each in (narrow, narrow.double())
    )
    torch.testing.assert_close(out, expected, atol=1e-12, rtol=0)


def test_what_cannot_be_is_refused() -> None:
    with raises_exactly(ValueError, "distances must be 1 or more, since it sizes the profiles; got 0."):
        ProjectedBias(num_heads=2, distances=0)
    with raises_exactly(
        TypeError, "tempered must be True or False, since a temperature multiplies the bias or not; got 1."
    ):
        ProjectedBias(num_heads=2, tempered=1)  # type: ignore[arg-type]
    encoding = ProjectedBias(num_heads=2, dim=4, rank=3)
    with raises_exactly(
        ValueError,
        "x must have shape (batch, sequence, 4), since ProjectedBias was made with dim=4; got shape (1, 2, 5).",
    ):
        encoding.project(torch.randn(1, 2, 5))
    with raises_exactly(
        TypeError,
        "x must have the dtype of the encoding's weights, torch.float32, since it meets them; got torch.float64. Use "
        "x.to(torch.float32), or torch.autocast.",
    ):
        encoding.project(torch.randn(1, 2, 4, dtype=torch.float64))
    with raises_exactly(
        ValueError,
        "dim must be given when ProjectedBias is made, since features are projected from hidden states of that width; "
        "got dim=None. Use ProjectedBias(dim=...), or compute features yourself.",
    ):
        ProjectedBias(num_heads=2).project(torch.randn(1, 2, 4))
