"""Golden grids: image, video and text among them, and how decoding goes on after them."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from situs import Positions, Vision
from situs.functional import grid_coordinates, multimodal_coordinates
from tests.references import multimodal as reference

pictures = st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 4))
segments = st.lists(st.one_of(st.integers(0, 6), pictures), max_size=5)


def test_a_grid_counts_its_last_axis_fastest() -> None:
    assert grid_coordinates(3).tolist() == [[0], [1], [2]]
    assert grid_coordinates(2, 3).tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    assert grid_coordinates(2, 1, 2).tolist() == [[0, 0, 0], [0, 0, 1], [1, 0, 0], [1, 0, 1]]


def test_text_alone_advances_all_coordinates_together() -> None:
    coordinates, delta = multimodal_coordinates([2, 3])
    assert coordinates.tolist() == [[place] * 3 for place in range(5)]
    assert delta == 0


def test_an_image_among_text_is_the_papers() -> None:
    coordinates, delta = multimodal_coordinates([2, Vision(1, 2, 3), 2])
    image = [[2, 2, 2], [2, 2, 3], [2, 2, 4], [2, 3, 2], [2, 3, 3], [2, 3, 4]]
    assert coordinates.tolist() == [[0] * 3, [1] * 3, *image, [5] * 3, [6] * 3]
    assert delta == 7 - 10


def test_a_video_counts_its_frames() -> None:
    coordinates, delta = multimodal_coordinates([1, Vision(3, 1, 2), 1])
    video = [[1, 1, 1], [1, 1, 2], [2, 1, 1], [2, 1, 2], [3, 1, 1], [3, 1, 2]]
    assert coordinates.tolist() == [[0] * 3, *video, [4] * 3]
    assert delta == 5 - 8


def test_frames_may_stand_further_apart() -> None:
    coordinates, delta = multimodal_coordinates([1, Vision(3, 1, 1, time_step=25), 1])
    assert coordinates.tolist() == [[0] * 3, [1, 1, 1], [26, 1, 1], [51, 1, 1], [52] * 3]
    assert delta == 53 - 5
    closer, _ = multimodal_coordinates([Vision(4, 1, 1, time_step=0.5)])
    assert closer[:, 0].tolist() == [0, 0, 1, 1]
    assert closer.dtype == torch.int64


def test_two_images_follow_each_other() -> None:
    coordinates, delta = multimodal_coordinates([Vision(1, 1, 2), Vision(1, 2, 1)])
    assert coordinates.tolist() == [[0, 0, 0], [0, 0, 1], [2, 2, 2], [2, 3, 2]]
    assert delta == 0


def test_no_segments_give_no_coordinates() -> None:
    coordinates, delta = multimodal_coordinates([])
    assert (tuple(coordinates.shape), coordinates.dtype, delta) == ((0, 3), torch.int64, 0)


@given(segments)
def test_any_mixture_gives_the_coordinates_of_the_reference(mixture: list[int | tuple[int, int, int]]) -> None:
    expected, expected_delta = reference.ids(mixture)
    coordinates, delta = multimodal_coordinates([each if isinstance(each, int) else Vision(*each) for each in mixture])
    assert coordinates.tolist() == expected.tolist()
    assert delta == expected_delta


@given(segments, st.integers(1, 5))
def test_decoding_goes_on_by_the_delta(mixture: list[int | tuple[int, int, int]], steps: int) -> None:
    """A token in place n has position n + delta on every axis, and the positions of the whole say the same."""
    prompt = [each if isinstance(each, int) else Vision(*each) for each in mixture]
    count, delta = len(multimodal_coordinates(prompt)[0]), multimodal_coordinates(prompt)[1]
    later = Positions.mixed([*prompt, steps])[count:]
    assert later.ids.tolist() == [[[place + delta] * 3 for place in range(count, count + steps)]]
    assert later.slots is not None
    assert later.slots.tolist() == [list(range(count, count + steps))]
