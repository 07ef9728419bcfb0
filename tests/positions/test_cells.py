"""Coordinates of image patches and video frames, as models count them, against their formulas."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from situs import Axial, Positions, Rotary, attend
from tests.references import axial as reference


def test_a_grid_may_begin_anywhere_and_have_steps() -> None:
    cells = Positions.grid(2, 3, first=(7, -1), step=(10, 2))
    assert cells.ids.dtype == torch.int64
    assert cells.ids[0].tolist() == [[7, -1], [7, 1], [7, 3], [17, -1], [17, 1], [17, 3]]
    line = Positions.grid(3, step=0.5)
    assert (line.axes, line.ids.tolist()) == (1, [[0.0, 0.5, 1.0]])
    assert Positions.grid(2, 1, 3, 2).axes == 4
    assert repr(Positions.grid(2, 3)) == "Positions(grid, 2 x 3, length 6, axes 2)"


@pytest.mark.parametrize("sizes", [(1, 4, 6), (2, 3, 5), (3, 1, 2)])
def test_centred_grids_are_those_of_qwen_image(sizes: tuple[int, int, int]) -> None:
    cells = Positions.grid(*sizes, first=(4, 0, 0), centred=(False, True, True))
    assert cells.ids[0].tolist() == reference.qwen_image_coordinates(*sizes, index=4).tolist()


def test_time_goes_by_seconds_as_in_cosmos() -> None:
    cells = Positions.grid(5, 2, 2, step=(24 / 16, 1, 1))
    assert cells.ids.dtype == torch.float64
    assert np.array_equal(cells.ids[0].numpy(), reference.cosmos_coordinates(5, 2, 2, fps=16))


@pytest.mark.parametrize(("by", "theirs"), [("each", "separate"), ("longest", "max"), ("shortest", "min")])
def test_normalised_grids_are_those_of_dinov3(by: Any, theirs: str) -> None:
    cells = Positions.grid(3, 5, normalised=by)
    assert cells.ids.dtype == torch.float64
    assert np.allclose(cells.ids[0].numpy(), reference.dinov3_coordinates(3, 5, theirs), rtol=0, atol=1e-15)


def test_augmented_coordinates_stay_within_what_was_asked_and_follow_from_the_seed() -> None:
    cells = Positions.grid(4, 4, normalised="each")
    drawn = [cells.augmented(seed=seed, shift=0.3, jitter=1.5, rescale=2.0).ids[0] for seed in range(400)]
    assert torch.equal(drawn[7], cells.augmented(seed=7, shift=0.3, jitter=1.5, rescale=2.0).ids[0])
    steps = torch.stack([each[5] - each[0] for each in drawn]) / 0.5  # one down and one right: the factor of each axis
    moves = torch.stack([each.mean(0) for each in drawn]) / steps  # the middle of the grid is 0
    assert 0.28 < float(moves.abs().max()) <= 0.3 + 1e-12
    assert 2.5 < float(steps.max()) <= 3.0 + 1e-12
    assert 1 / 3 - 1e-12 <= float(steps.min()) < 0.4
    ratios = (steps[:, 0] / steps[:, 1]).log().abs()
    assert float(ratios.max()) <= 2 * math.log(1.5) + 1e-12  # the rescaling is one for both axes
    assert abs(float(steps.log().mean())) < 0.05
    only = cells.augmented(seed=3, rescale=2.0)
    assert torch.allclose(only.ids / cells.ids, (only.ids / cells.ids)[0, 0, 0].expand(1, 16, 2))
    assert torch.equal(cells.augmented(seed=3).ids, cells.ids)


def test_parts_of_an_augmented_grid_are_those_of_the_whole() -> None:
    """So that a sequence in chunks, or on several ranks, has the coordinates of the whole."""
    cells = Positions.grid(4, 4, normalised="each")
    whole = cells.augmented(seed=1, shift=0.5, jitter=1.2)
    assert torch.equal(cells[3:9].augmented(seed=1, shift=0.5, jitter=1.2).ids, whole.ids[:, 3:9])
    assert torch.equal(cells.shard(1, 2).augmented(seed=1, shift=0.5, jitter=1.2).ids, whole.ids[:, 8:])


def test_padding_of_changed_coordinates_stays_at_zero() -> None:
    rows = [Positions.grid(2, 2), Positions.grid(1, 3)]
    batch = Positions.batch(rows).augmented(seed=0, shift=2.0).scaled((2.0, 3.0))
    alone = [row.augmented(seed=0, shift=2.0).scaled((2.0, 3.0)) for row in rows]
    assert torch.equal(batch.ids[0], alone[0].ids[0])
    assert torch.equal(batch.ids[1, :3], alone[1].ids[0])
    assert batch.ids[1, 3].tolist() == [0.0, 0.0]
    with_tokens = Positions.batch([each.prefixed(2) for each in alone])
    assert with_tokens.ids[:, :2].count_nonzero() == 0
    assert torch.equal(with_tokens.ids[1, 2:5], alone[1].ids[0])


def test_tokens_before_a_grid_are_not_rotated_and_count_as_the_first() -> None:
    cells = Positions.grid(2, 3, first=5)
    whole = cells.prefixed(2)
    assert whole.ids[0, :2].tolist() == [[0, 0], [0, 0]]
    assert torch.equal(whole.ids[:, 2:], cells.ids)
    assert (whole.length, whole.sequence_length, whole.first_slot) == (8, 8, 0)
    assert torch.equal(cells.prefixed(0).ids, cells.ids)
    rotary, x = Rotary(head_dim=8, split=Axial()), torch.randn(1, 2, 8, 8)
    assert torch.equal(rotary(x, whole)[:, :, :2], x[:, :, :2])
    assert torch.equal(rotary(x, whole)[:, :, 2:], rotary(x[:, :, 2:], cells))
    seen = attend(x, x, x, encoding=rotary, positions=whole, causal=True)
    assert torch.allclose(seen[:, :, :1], x[:, :, :1])


def test_scaled_coordinates_are_exact_multiples() -> None:
    far = Positions.range(3, start=10_000_000).scaled(1 / 3)
    assert far.ids[0].tolist() == [each * (1 / 3) for each in (10_000_000, 10_000_001, 10_000_002)]
    assert far.start is None
    assert far.first_slot == 10_000_000
