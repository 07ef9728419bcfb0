"""Scalings that choose by the sequence's length: LongRoPE (Phi-3) and dynamic NTK.

transformers looks at the largest position of the whole batch, so a short sequence is turned otherwise beside a long
one than alone; here every sequence has its own length, so rows are compared with their runs alone.
"""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import pad

from situs import Positions
from situs.attention import reference
from tests.parity.attention_probe import SeenAttention, assert_same_attention
from tests.parity.released_models import VOCABULARY, ReleasedModel
from tests.parity.scaled_models import BY_LENGTH
from tests.parity.wide_transformers import WIDE_TOLERANCE

ORIGINAL = 32

each_model = pytest.mark.parametrize("released", BY_LENGTH, ids=str)


def alone(released: ReleasedModel, lengths: tuple[int, ...]) -> list[SeenAttention]:
    """The first layer's attention for each length, every one run by a model that has seen no other."""
    with released.widened():
        torch.manual_seed(1)
        weights = released.build().state_dict()
        seen = []
        for length in lengths:
            model = released.build()
            model.load_state_dict(weights)
            ids = torch.randint(1, VOCABULARY, (1, length))
            seen.append(released.catch(model, lambda model=model, ids=ids: model(ids)))  # type: ignore[misc]
    return seen


@each_model
@pytest.mark.parametrize("length", [ORIGINAL - 1, ORIGINAL, ORIGINAL + 1, 300])
def test_attention_as_released_equals_ours_around_the_original_length(released: ReleasedModel, length: int) -> None:
    model = released.build()
    ids = torch.randint(1, VOCABULARY, (2, length))
    assert_same_attention(released.catch(model, lambda: model(ids)), released.encoding)


@each_model
@pytest.mark.parametrize("length", [ORIGINAL - 1, ORIGINAL, ORIGINAL + 1, 300])
def test_attention_in_float64_equals_ours_around_the_original_length(released: ReleasedModel, length: int) -> None:
    (seen,) = alone(released, (length,))
    assert_same_attention(seen, released.encoding)


@each_model
def test_rows_of_a_left_padded_batch_equal_their_runs_alone(released: ReleasedModel) -> None:
    lengths = (ORIGINAL - 12, ORIGINAL, ORIGINAL + 1, 70)
    longest = max(lengths)
    rows = alone(released, lengths)
    query, key, value = (
        torch.cat([pad(getattr(row, name), (0, 0, longest - row.query.shape[2], 0)) for row in rows])
        for name in ("query", "key", "value")
    )
    mask = torch.arange(longest) >= longest - torch.tensor(lengths)[:, None]
    ours = reference(
        query,
        key,
        value,
        encoding=released.encoding,
        causal=True,
        positions=Positions.from_mask(mask, side="left"),
    )
    for number, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        assert (ours[number, :, longest - length :] - row.output[0]).abs().max() <= WIDE_TOLERANCE


@each_model
def test_crossing_the_original_length_changes_the_attention(released: ReleasedModel) -> None:
    (seen,) = alone(released, (ORIGINAL + 1,))
    wrong = Positions.range(ORIGINAL + 1).with_sequence_length(ORIGINAL)
    with pytest.raises(AssertionError, match="off by"):
        assert_same_attention(seen, released.encoding, positions=wrong)
