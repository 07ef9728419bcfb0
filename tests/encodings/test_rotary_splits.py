"""Rotary for images, video and text among them: which coordinate turns which pair."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from situs import Axial, Positions, Rotary, Sections, Vision, YaRN
from situs.encodings.split import Split
from situs.functional import contiguous_axis_map, interleaved_axis_map
from situs.functional.rotation import PAIRINGS, Pairing
from tests.raising import raises_exactly
from tests.references import rotary as reference

both_pairings = pytest.mark.parametrize("pairing", PAIRINGS)
FAR = 10_000_000


def by_paper(x: Tensor, coordinates: Tensor, ladder: object, axes: object, pairing: str) -> Tensor:
    """Every head of one row turned by the reference; coordinates (sequence, axes)."""
    heads = [
        reference.rotate_axes(head.double().numpy(), coordinates.double().numpy(), ladder, axes, pairing)  # type: ignore[arg-type]
        for head in x[0]
    ]
    return torch.from_numpy(np.stack(heads))[None]


def assert_close(actual: Tensor, expected: Tensor) -> None:
    assert torch.allclose(actual.double(), expected, rtol=0, atol=2e-6)


@both_pairings
@pytest.mark.parametrize("ladder", ["own", "shared"])
@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize("rotary_dim", [12, 24])
@pytest.mark.parametrize("moved", [0, FAR])
def test_axial_rotary_turns_each_block_by_its_axis(
    pairing: Pairing, ladder: str, axes: int, rotary_dim: int, moved: int
) -> None:
    encoding = Rotary(
        head_dim=24, rotary_dim=rotary_dim, base=100.0, pairing=pairing, split=Axial(axes=axes, ladder=ladder)  # type: ignore[arg-type]
    )  # fmt: skip
    grid = Positions.grid(*(2, 3, 4)[:axes])
    places = Positions.explicit(grid.ids + moved)
    x = torch.randn(1, 2, grid.length, 24)
    frequencies, axis_of_pair = reference.axial_frequencies(rotary_dim, axes, 100.0, ladder)
    assert_close(encoding(x, places), by_paper(x, places.ids[0], frequencies, axis_of_pair, pairing))
    assert encoding.axis_of_pair.tolist() == axis_of_pair.tolist()
    assert torch.equal(encoding(x, places)[..., rotary_dim:], x[..., rotary_dim:])


def test_own_and_shared_ladders_are_golden() -> None:
    own = Rotary(head_dim=16, base=16.0, split=Axial(ladder="own")).frequencies[0]
    assert own.tolist() == pytest.approx([1, 1 / 2, 1 / 4, 1 / 8] * 2)
    shared = Rotary(head_dim=16, base=16.0, split=Axial(ladder="shared")).frequencies[0]
    plain = [16 ** (-pair / 8) for pair in range(8)]
    assert shared.tolist() == pytest.approx([*plain[0::2], *plain[1::2]])


SECTIONS = [
    ((2, 3, 3), "contiguous"),
    ((4, 2, 2), "contiguous"),
    ((4, 2, 2), "interleaved"),
    ((3, 3, 2), "interleaved"),
    ((8, 0, 0), "interleaved"),
]
MIXTURE = Positions.mixed([3, Vision(1, 2, 2), 2, Vision(2, 1, 2), 1])


@both_pairings
@pytest.mark.parametrize(("sizes", "order"), SECTIONS)
@pytest.mark.parametrize("moved", [0, FAR])
def test_sections_turn_each_pair_by_its_axis(pairing: Pairing, sizes: tuple[int, ...], order: str, moved: int) -> None:
    split = Sections(sizes=sizes, order=order)  # type: ignore[arg-type]
    encoding = Rotary(head_dim=16, pairing=pairing, split=split)
    places = Positions.explicit(MIXTURE.ids + moved)
    x = torch.randn(1, 2, MIXTURE.length, 16)
    axis_of_pair = reference.section_axes([*sizes], order == "interleaved")
    assert_close(encoding(x, places), by_paper(x, places.ids[0], reference.frequencies(16), axis_of_pair, pairing))
    assert encoding.axis_of_pair.tolist() == axis_of_pair.tolist()
    assert encoding.axes == 3


def test_axis_maps_are_golden() -> None:
    assert contiguous_axis_map((2, 1, 1)).tolist() == [0, 0, 1, 2]
    assert interleaved_axis_map((2, 1, 1)).tolist() == [0, 1, 2, 0]
    qwen3 = interleaved_axis_map((24, 20, 20))
    assert qwen3[:60].tolist() == [0, 1, 2] * 20
    assert qwen3[60:].tolist() == [0] * 4


@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 20))
def test_sections_get_as_many_pairs_as_they_ask_for(time: int, height: int, width: int) -> None:
    sizes = (time, height, width)
    assert torch.bincount(contiguous_axis_map(sizes), minlength=3).tolist() == [*sizes]
    in_turns = interleaved_axis_map(sizes)
    assert in_turns.tolist() == reference.section_axes([*sizes], True).tolist()
    room = all(3 * size - 3 + axis < sum(sizes) for axis, size in ((1, height), (2, width)) if size)
    assert (torch.bincount(in_turns, minlength=3).tolist() == [*sizes]) == room


@both_pairings
@pytest.mark.parametrize("order", ["contiguous", "interleaved"])
@pytest.mark.parametrize("length", [1, 9, 300])
@pytest.mark.parametrize("start", [0, FAR])
def test_text_alone_is_bit_equal_to_rotary_of_one_axis(pairing: Pairing, order: str, length: int, start: int) -> None:
    split = Sections(sizes=(4, 2, 2), order=order)  # type: ignore[arg-type]
    sectioned = Rotary(head_dim=16, pairing=pairing, split=split)
    plain = Rotary(head_dim=16, pairing=pairing)
    x = torch.randn(1, 2, length, 16)
    assert torch.equal(sectioned(x, start), plain(x, start))
    ids = torch.arange(start, start + length).unsqueeze(0)
    three = Positions.explicit(ids.unsqueeze(-1).expand(-1, -1, 3))
    assert torch.equal(sectioned(x, three), plain(x, ids))


def test_text_of_a_mixture_is_turned_as_text() -> None:
    sectioned, plain = Rotary(head_dim=16, split=Sections(sizes=(2, 3, 3))), Rotary(head_dim=16)
    x = torch.randn(1, 1, MIXTURE.length, 16)
    text = [place for place, (time, height, width) in enumerate(MIXTURE.ids[0].tolist()) if time == height == width]
    assert len(text) > 6
    expected = plain(x[:, :, text], MIXTURE.ids[:, text, 0])
    assert torch.equal(sectioned(x, MIXTURE)[:, :, text], expected)


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_padded_mixture_is_turned_as_it_is_alone(side: str) -> None:
    encoding = Rotary(head_dim=16, split=Sections(sizes=(4, 2, 2), order="interleaved"))
    short = Positions.mixed([1, Vision(1, 2, 2)])
    batch = Positions.batch([short, MIXTURE], side=side)  # type: ignore[arg-type]
    x = torch.randn(2, 1, MIXTURE.length, 16)
    where = slice(0, 5) if side == "right" else slice(-5, None)
    turned = encoding(x, batch)
    assert torch.equal(turned[:1, :, where], encoding(x[:1, :, where], short))
    assert torch.equal(turned[1:], encoding(x[1:], MIXTURE))


def test_decoding_after_a_mixture_takes_one_number_for_all_coordinates() -> None:
    encoding = Rotary(head_dim=16, split=Sections(sizes=(4, 2, 2)))
    x = torch.randn(1, 1, 1, 16)
    whole = Positions.mixed([3, Vision(1, 2, 2), 2])
    assert torch.equal(encoding(x, whole[-1:]), encoding(x, int(whole.ids[0, -1, 0])))


@pytest.mark.parametrize("split", [Axial(axes=2), Axial(axes=2, ladder="shared"), Sections(sizes=(3, 3, 2))], ids=str)
def test_a_split_ladder_can_be_scaled_and_made_again(split: Split) -> None:
    encoding = Rotary(head_dim=16, split=split, scaling=YaRN(factor=4.0, original_length=64))
    again = Rotary(**encoding.config)
    assert again.identity == encoding.identity
    assert torch.equal(again.frequencies, encoding.frequencies)
    assert bool((encoding.frequencies <= Rotary(head_dim=16, split=split).frequencies).all())
    assert encoding.describe()["axes"] == split.axes
    assert hash(split) == hash(again.split)


@both_pairings
def test_the_matrix_of_a_position_takes_a_number_for_each_axis(pairing: Pairing) -> None:
    encoding = Rotary(head_dim=12, pairing=pairing, split=Axial(axes=3))
    x, place = torch.randn(1, 1, 1, 12, dtype=torch.float64), (65_537, 3, -20.5)
    turned = encoding(x, Positions.explicit(torch.tensor(place, dtype=torch.float64)[None, None]))[0, 0, 0]
    asked: Any
    for asked in (place, torch.tensor(place, dtype=torch.float64)):
        assert torch.allclose(encoding.rotation_matrix(asked) @ x[0, 0, 0], turned, rtol=0, atol=1e-10)
    with raises_exactly(
        ValueError,
        "position must have 3 coordinates, since this Rotary encodes that many; got 3. Give (3, 3, 3) for the same on "
        "every axis.",
    ):
        encoding.rotation_matrix(3)
    with raises_exactly(
        ValueError, "position must have 3 coordinates, since this Rotary encodes that many; got (1, 2)."
    ):
        encoding.rotation_matrix((1, 2))
    with raises_exactly(
        ValueError, "position must have 1 coordinate, since this Rotary encodes that many; got (1, 2)."
    ):
        Rotary(head_dim=12).rotation_matrix((1, 2))
    with raises_exactly(TypeError, "position must be a number, since it is multiplied by frequencies; got '3'."):
        Rotary(head_dim=12).rotation_matrix("3")  # type: ignore[arg-type]


def test_the_matrix_of_text_among_images_takes_one_number_or_three() -> None:
    encoding, plain = Rotary(head_dim=12, split=Sections(sizes=(2, 2, 2))), Rotary(head_dim=12)
    for place in (65_537, (65_537,), (65_537.0, 65_537, 65_537)):
        assert torch.equal(encoding.rotation_matrix(place), plain.rotation_matrix(65_537.0))


def test_positions_with_other_axes_are_refused() -> None:
    x = torch.zeros(1, 1, 4, 16)
    with raises_exactly(
        ValueError,
        "positions must have 2 coordinates each, since this Rotary encodes that many; got 1 in "
        "Positions(range 0..3, length 4). "
        "Use Positions.grid(...) for images, or Positions.explicit(ids), with ids of shape (batch, tokens, 2).",
    ):
        Rotary(head_dim=16, split=Axial(axes=2))(x)
    with raises_exactly(
        ValueError,
        "positions must have 3 coordinates each, since this Rotary encodes that many; got 2 in "
        "Positions(grid, 2 x 2, length 4, axes 2). "
        "Use Positions.grid(...) for images, or Positions.explicit(ids), with ids of shape (batch, tokens, 3).",
    ):
        Rotary(head_dim=16, split=Sections(sizes=(3, 3, 2)))(x, Positions.grid(2, 2))


def test_positions_of_one_axis_are_a_plain_sequence() -> None:
    x = torch.randn(1, 1, 4, 16)
    encoding = Rotary(head_dim=16)
    for single in (Positions.grid(4), Positions.explicit(torch.arange(4).view(1, 4, 1))):
        assert torch.equal(encoding(x, single), encoding(x, torch.arange(4)))


@pytest.mark.parametrize("name", ["dims", "bases", "scalings"])
def test_no_axes_at_all_are_refused(name: str) -> None:
    with raises_exactly(ValueError, f"{name} must be one or more, since each axis has its own; got none."):
        Axial(**{name: ()})  # type: ignore[arg-type]
