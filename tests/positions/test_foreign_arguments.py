"""Arguments that cannot be meant are refused by the library, in words that name them, and not by torch."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from situs import Positions, Vision
from tests.raising import raises_exactly

IDS = torch.zeros(2, 5, dtype=torch.int64)

FOREIGN: list[tuple[type[Exception], Callable[[], object], str]] = [
    (
        TypeError,
        lambda: Positions.of([0, 1], 2),  # type: ignore[arg-type]
        "ids must be a tensor of positions; got list. Use torch.as_tensor(...) on lists and arrays.",
    ),
    (
        TypeError,
        lambda: Positions.explicit(np.arange(3)),  # type: ignore[arg-type]
        "ids must be a tensor of positions; got ndarray. Use torch.as_tensor(...) on lists and arrays.",
    ),
    (
        ValueError,
        lambda: Positions.mixed([3, Vision(1, 0, 2)]),
        "time, height and width must be 1 or more, since they count tokens; got 1, 0 and 2.",
    ),
    (
        ValueError,
        lambda: Positions.mixed([3, -1]),
        "a text segment must have 0 or more tokens; got -1.",
    ),
    (
        ValueError,
        lambda: Positions.explicit(IDS, documents=IDS[:1].expand(3, 5)),
        "documents must have one value a place, since each belongs to a position; got shape (3, 5) for ids of shape "
        "(2, 5).",
    ),
    (
        ValueError,
        lambda: Positions.explicit(IDS, valid=torch.ones(3, 5, dtype=torch.bool)),
        "valid must have one value a place, since each belongs to a position; got shape (3, 5) for ids of shape "
        "(2, 5).",
    ),
    (
        ValueError,
        lambda: Positions.range(3, start=torch.tensor(4)),
        "start must be an int, or a tensor with one for each row; got shape (). Use int(start) for a single one.",
    ),
]


@pytest.mark.parametrize(("error", "make", "message"), FOREIGN, ids=[message for _, _, message in FOREIGN])
def test_what_cannot_be_meant_is_refused_by_name(
    error: type[Exception], make: Callable[[], object], message: str
) -> None:
    with raises_exactly(error, message):
        make()
