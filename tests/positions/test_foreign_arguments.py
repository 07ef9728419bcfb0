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
        "positions must be a situs.Positions, a tensor, the first position as an int, or None, since each token "
        "stands somewhere; got [0, 1]. Use torch.as_tensor(...) on lists and arrays.",
    ),
    (
        TypeError,
        lambda: Positions.of(True, 2),
        "positions must be a situs.Positions, a tensor, the first position as an int, or None, since each token stands "
        "somewhere; got True. Use torch.as_tensor(...) on lists and arrays.",
    ),
    (
        ValueError,
        lambda: Positions.explicit(torch.tensor([0.0, float("nan")])),
        "ids must be finite, since encodings compute with them; got nan. Mark padding by valid, and let it have "
        "position 0.",
    ),
    (
        TypeError,
        lambda: Positions.explicit(np.arange(3)),  # type: ignore[arg-type]
        "ids must be a tensor, since it has a position for each token; got ndarray. Use torch.as_tensor(...) on "
        "lists and arrays.",
    ),
    (
        TypeError,
        lambda: Positions.explicit(IDS, valid=torch.ones(2, 5, dtype=torch.int64)),
        "valid must be bool, true at real tokens, since others are padding; got dtype torch.int64. Use valid.bool().",
    ),
    (
        TypeError,
        lambda: Positions.explicit(IDS, valid=[True] * 5),  # type: ignore[arg-type]
        "valid must be a tensor, since it marks real tokens; got list. Use torch.as_tensor(...) on lists and arrays.",
    ),
    (
        TypeError,
        lambda: Positions.explicit(IDS, documents=torch.zeros(5)),
        "documents must be whole numbers, since they number the document of each token; got dtype torch.float32.",
    ),
    (
        TypeError,
        lambda: Positions.from_mask([[1, 1, 0]]),  # type: ignore[arg-type]
        "mask must be a tensor, since it marks the tokens of each row; got list. Use torch.as_tensor(...) on lists and "
        "arrays.",
    ),
    (
        TypeError,
        lambda: Positions.packed(cu_seqlens=[0, 3]),  # type: ignore[arg-type]
        "cu_seqlens must be a tensor, since they tell where documents end; got list. Use "
        "torch.as_tensor(...) on lists and arrays.",
    ),
    (
        TypeError,
        lambda: Positions.packed(cu_seqlens=torch.tensor([0.0, 3.0])),
        "cu_seqlens must be whole numbers, since they tell where documents end; got dtype torch.float32.",
    ),
    (
        TypeError,
        lambda: Positions.packed([2.7, 3.2]),  # type: ignore[list-item]
        "lengths must be a whole number, since they count tokens; got 2.7.",
    ),
    (
        TypeError,
        lambda: Positions.range(3.5),  # type: ignore[arg-type]
        "length must be a whole number, since it counts tokens; got 3.5.",
    ),
    (
        TypeError,
        lambda: Positions.range(3, start=[1, 2]),  # type: ignore[arg-type]
        "start must be a whole number, since it is a position; got [1, 2].",
    ),
    (
        TypeError,
        lambda: Positions.grid((2, 3)),  # type: ignore[arg-type]
        "sizes must be a whole number, since they count cells; got (2, 3).",
    ),
    (
        TypeError,
        lambda: Positions.batch([torch.arange(3)]),  # type: ignore[list-item]
        "rows must be a list of Positions, since batch joins them; got Tensor. Use Positions.explicit(...) on tensors.",
    ),
    (
        TypeError,
        lambda: Positions.mixed([3, (1, 2, 2)]),  # type: ignore[list-item]
        "segments must be whole numbers and situs.Vision, since text is told by its number of tokens, and pictures "
        "by their size; got (1, 2, 2).",
    ),
    (
        ValueError,
        lambda: Positions.mixed([3, Vision(1, 0, 2)]),
        "height must be 1 or more, since it counts tokens; got 0.",
    ),
    (
        ValueError,
        lambda: Positions.mixed([3, -1]),
        "segments must be 0 or more, since text is told by its number of tokens, and pictures by their size; got -1.",
    ),
    (
        ValueError,
        lambda: Positions.explicit(IDS, documents=IDS[:1].expand(3, 5)),
        "documents must have one value for each token, since each has a position; got shape (3, 5) for ids of shape "
        "(2, 5).",
    ),
    (
        ValueError,
        lambda: Positions.explicit(IDS, valid=torch.ones(3, 5, dtype=torch.bool)),
        "valid must have one value for each token, since each has a position; got shape (3, 5) for ids of shape "
        "(2, 5).",
    ),
    (
        ValueError,
        lambda: Positions.range(3, start=torch.tensor(4)),
        "start must be an int, or a tensor with one for each row, since rows may differ; got shape (). Use "
        "int(start) for a single one.",
    ),
]


@pytest.mark.parametrize(("error", "make", "message"), FOREIGN, ids=[message for _, _, message in FOREIGN])
def test_what_cannot_be_meant_is_refused_by_name(
    error: type[Exception], make: Callable[[], object], message: str
) -> None:
    with raises_exactly(error, message):
        make()


def test_whole_numbers_of_other_libraries_are_taken() -> None:
    assert Positions.packed(np.array([3, 5])).document_lengths == (3, 5)
    assert Positions.packed(torch.tensor([3, 5])).document_lengths == (3, 5)
