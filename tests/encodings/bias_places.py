"""Where biases are tried, near and far, whole and real, of every kind; and what a formula says there."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from situs import BiasEncoding, Positions

Formula = Callable[[Any, NDArray[Any], NDArray[Any]], NDArray[np.float64]]

FAR = [-10_000_000, -70_000, 70_000, 10_000_000]
starts = st.sampled_from([0, 3, 70_000, 10_000_000])
whole_ids = st.lists(st.one_of(st.integers(-300, 300), st.sampled_from(FAR)), min_size=1, max_size=5)
real_ids = st.lists(st.floats(-1e7, 1e7), min_size=1, max_size=5)
any_ids = st.one_of(whole_ids, real_ids)


def placed(ids: Sequence[float]) -> Positions:
    """Ids as drawn: whole numbers stay whole, and reals are float64."""
    return Positions.explicit(torch.tensor(ids, dtype=torch.int64 if isinstance(ids[0], int) else torch.float64))


def left_out(*holes: int) -> Tensor:
    mask = torch.ones(1, 9, dtype=torch.int64)
    mask[0, list(holes)] = 0
    return mask


Kinds = dict[str, Callable[[], tuple[Positions, Positions | None]]]


def kinds(far: int, farthest: int) -> Kinds:
    """Queries and keys of every kind that counts from 0 on, not much past the farthest."""
    return {
        "from 0": lambda: (Positions.range(9), None),
        f"from {far}": lambda: (Positions.range(9, start=far), None),
        f"from {farthest}": lambda: (Positions.range(9, start=farthest), None),
        "decoding": lambda: (Positions.range(1, start=20), Positions.range(21)),
        "decoding far": lambda: (Positions.range(1, start=farthest), Positions.range(7, start=farthest - 6)),
        "more queries than keys": lambda: (Positions.range(9, start=far), Positions.range(2, start=far + 4)),
        "keys far behind": lambda: (Positions.range(3, start=farthest), Positions.range(4)),
        "a start for each row": lambda: (Positions.range(4, start=torch.tensor([0, far, farthest])), None),
        "unsorted": lambda: (Positions.explicit(torch.tensor([[5, 0, farthest], [far, 3, 3]])), None),
        "rows of keys alone": lambda: (Positions.range(3), Positions.explicit(torch.tensor([[5, 1], [far, 2]]))),
        "padded left": lambda: (Positions.from_mask(left_out(0, 1, 2), side="left"), None),
        "padded right": lambda: (Positions.from_mask(left_out(7, 8), side="right"), None),
        "padded in holes": lambda: (Positions.from_mask(torch.cat([left_out(0, 4, 5), left_out(8)])), None),
        "packed": lambda: (Positions.packed([3, 1, 4]), None),
        "randomised": lambda: (Positions.range(8).randomised(far, seed=1), None),
        "skipped": lambda: (Positions.range(8).skipped(farthest, seed=1, chunks=3), None),
        "a zigzag shard": lambda: (
            Positions.range(16, start=far).shard(1, 2, layout="zigzag"),
            Positions.range(16, start=far).shard(0, 2, layout="zigzag"),
        ),
        "a contiguous shard": lambda: (Positions.range(16).shard(1, 2), Positions.range(16)),
        "a slice of padded": lambda: (Positions.from_mask(left_out(0, 1))[4:7], Positions.from_mask(left_out(0, 1))),
    }


ROWS = 512  # of tables that end
KINDS: Kinds = {
    **kinds(70_000, 10_000_000),
    "negative": lambda: (Positions.explicit(torch.tensor([-5, -10_000_000, 4])), Positions.range(3, start=-70_000)),
}
KINDS_WITHIN_A_TABLE = kinds(200, ROWS - 9)


def assert_follows(
    formula: Formula,
    encoding: BiasEncoding,
    query: Positions,
    key: Positions | None = None,
    *,
    rtol: float,
    atol: float,
) -> None:
    """The bias in float64 is the formula's, for every pair of real tokens."""
    bias = encoding(query, key, dtype=torch.float64).detach()
    key = query if key is None else key
    rows = max(query.rows, key.rows)
    assert bias.dtype == torch.float64
    assert bias.shape[1:] == (encoding.num_heads, query.length, key.length)
    assert bias.shape[0] in (1, rows)
    for number in range(rows):
        at_query, at_key = (each.row(number if each.rows > 1 else 0) for each in (query, key))
        expected = formula(encoding, at_query.ids[0].numpy(), at_key.ids[0].numpy())
        actual = bias[number if bias.shape[0] > 1 else 0].numpy()
        if at_query.valid is not None and at_key.valid is not None:
            real = np.ix_(at_query.valid[0].numpy(), at_key.valid[0].numpy())
            actual, expected = (each[:, real[0], real[1]] for each in (actual, expected))
        np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)
