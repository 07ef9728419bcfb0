"""The dense bias and the bias by offset, at positions of every kind, are the paper's."""

import pytest
import torch

from situs import OffsetBias, PositionProduct, Positions
from situs.attention import reference
from tests.encodings.bias_cases import (
    CASES,
    SEQUENCES,
    Case,
    every_case,
    every_sequence_and_kind,
    kinds_for,
    places_for,
)
from tests.encodings.bias_places import assert_follows

every_real = pytest.mark.parametrize("name", [name for name in SEQUENCES if "real" in CASES[name].make().tags])


def assert_is_the_papers(case: Case, query: Positions, key: Positions | None) -> None:
    assert_follows(case.by_paper, case.make(), query, key, rtol=1e-9, atol=1e-8)


@every_sequence_and_kind
def test_positions_of_every_kind_get_the_papers_bias(name: str, kind: str) -> None:
    assert_is_the_papers(CASES[name], *kinds_for(name)[kind]())


@every_real
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_real_valued_positions_get_the_papers_bias(name: str, dtype: torch.dtype) -> None:
    ids = torch.tensor([[0.0, 2.5, -3.25, 70_000.5], [1e7, 9_999_998.0, 69_999.0, 4.0]], dtype=dtype)
    assert_is_the_papers(CASES[name], Positions.explicit(ids), None)
    assert_is_the_papers(CASES[name], Positions.range(3, start=70_000), Positions.explicit(ids))


@every_real
def test_offsets_of_float32_positions_are_not_rounded(name: str) -> None:
    ids = torch.tensor([0.125, 10_000_000.0])
    assert_is_the_papers(CASES[name], Positions.explicit(ids), None)


@every_real
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_bias_has_the_dtype_asked_for_whatever_the_positions_have(name: str, dtype: torch.dtype) -> None:
    encoding = CASES[name].make()
    for ids in (torch.tensor([0.5, 70_000.0]), torch.tensor([0.5, 70_000.0], dtype=torch.float64)):
        assert encoding(ids, dtype=dtype).dtype == dtype
        if isinstance(encoding, OffsetBias):
            assert encoding.by_offset(ids, dtype=dtype).dtype == dtype


@every_real
def test_float32_attention_takes_float64_positions(name: str) -> None:
    query, key, value = torch.randn(3, 1, 2, 4, 8)
    encoding, ids = CASES[name].make(), torch.tensor([0.5, 3.0, 70_000.25, 7.0], dtype=torch.float64)
    expected = reference(query, key, value, encoding=encoding, positions=ids.float())
    torch.testing.assert_close(reference(query, key, value, encoding=encoding, positions=ids), expected)


@every_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_by_offset_holds_the_whole_dense_bias(name: str, dtype: torch.dtype) -> None:
    encoding = CASES[name].make()
    if not isinstance(encoding, OffsetBias):
        assert name == "fire" or isinstance(encoding, PositionProduct)
        return
    query, key = places_for(name)[3:6], places_for(name)[:9]
    offsets = key.ids[0][None] - query.ids[0][:, None]
    vector = encoding.by_offset(offsets.flatten(0, 1), dtype=dtype)
    assert vector.dtype == dtype
    assert torch.equal(vector.view(2, 3, 9), encoding(query, key, dtype=dtype)[0])


@every_case
def test_no_places_give_an_empty_bias(name: str) -> None:
    encoding, places = CASES[name].make(), places_for(name)
    assert encoding(places, places[:0]).shape == (1, 2, 128, 0)
    assert encoding(places[:0], places).shape == (1, 2, 0, 128)
