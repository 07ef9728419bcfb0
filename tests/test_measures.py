"""Measurements of properties give the numbers that follow from formulas, and do not depend on modes of torch."""

from __future__ import annotations

import math

import pytest
import torch

import situs
from situs import Positions
from situs.checks.bench import Bench, normal
from situs.checks.measures import (
    GROWTH,
    LONG,
    LONGEST,
    ROUNDING,
    TOLD_APART,
    behind_the_last,
    change_by_order,
    change_by_shift,
    change_of_norms,
    distances_between,
    growth,
    scores_by_distance,
)


def test_without_positions_nothing_is_told_apart_and_nothing_changes() -> None:
    bench = Bench.around(situs.NoPE())
    text = Positions.range(8)
    assert float(distances_between(bench, text[-1:], text).min()) <= TOLD_APART
    assert change_by_shift(bench, text, Positions.range(8, start=50)) == 0
    assert change_by_order(bench, text, causal=False) <= ROUNDING < change_by_order(bench, text, causal=True)
    assert change_of_norms(bench, text) == {}
    assert growth(bench)[2:] == (1, 1)


def test_scores_by_distance_are_the_content_and_the_bias_of_alibi() -> None:
    alibi = situs.ALiBi(num_heads=2)
    bench = Bench.around(alibi)
    query, key = normal(2, 5, 1, bench.dim, seed=0)
    found = scores_by_distance(bench, query, key, *behind_the_last((1, 4, 9)))
    content = bench.project(query, 0) @ bench.project(key, 0).transpose(-2, -1) / 4
    slopes = torch.tensor([2**-4.0, 2**-8.0])
    expected = content[..., 0] - slopes[:, None] * torch.tensor([1.0, 4.0, 9.0])
    assert torch.allclose(found, expected, atol=1e-5)


def test_a_linear_bias_grows_with_the_text_and_a_rotation_does_not() -> None:
    found = growth(Bench.around(situs.ALiBi(num_heads=2)))
    assert (found.near, found.far) == (LONG, LONGEST)
    assert found.spread == pytest.approx(LONGEST / LONG, rel=1e-3)
    assert found.vector == 1
    rotary = growth(Bench.around(situs.Rotary(head_dim=16)))
    assert max(rotary.spread, rotary.vector) <= GROWTH


def test_growth_ends_where_a_table_ends() -> None:
    found = growth(Bench.around(situs.Learned(dim=16, max_length=100)))
    assert (found.near, found.far) == (50, 100)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_yarn_changes_the_norms_of_queries_and_keys_by_its_temperature(dtype: torch.dtype) -> None:
    scaling = situs.YaRN(factor=4.0, original_length=64)
    bench = Bench.around(situs.Rotary(head_dim=16, scaling=scaling))
    found = change_of_norms(bench, Positions.range(20, start=3000), dtype)
    assert list(found) == ["queries", "keys"]
    assert list(found.values()) == pytest.approx([0.1 * math.log(4)] * 2, abs=1e-5)


def test_a_shift_changes_the_scores_of_absolute_encodings_alone() -> None:
    first, later = Positions.range(12), Positions.range(12, start=137)
    for name in ("rotary", "alibi", "t5", "shaw"):
        assert change_by_shift(Bench.around(situs.entry(name).build(head_dim=8, num_heads=2)), first, later) <= ROUNDING
    assert change_by_shift(Bench.around(situs.Sinusoidal(dim=16)), first, later) > 0.1


def test_measurements_are_the_same_in_every_mode_of_torch() -> None:
    bench, text = Bench.around(situs.Rotary(head_dim=16)), Positions.range(9)
    plain = change_by_shift(bench, text, Positions.range(9, start=5)), distances_between(bench, text[-1:], text)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.inference_mode():
            again = Bench.around(situs.Rotary(head_dim=16))
            wide = change_by_shift(again, text, Positions.range(9, start=5)), distances_between(again, text[-1:], text)
    finally:
        torch.set_default_dtype(torch.float32)
    assert wide[0] == plain[0]
    assert torch.equal(wide[1], plain[1])
