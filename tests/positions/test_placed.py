"""Tokens without a position, such as [CLS] beside the patches of an image."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from situs import (
    ALiBi,
    Learned,
    LearnedGrid,
    PoPE,
    Positions,
    ReRoPE,
    Rotary,
    RotaryValue,
    Shaw,
    Sinusoidal,
    SwinBias,
    T5Bias,
    attend,
)
from situs.attention.admission import require_counted
from situs.encodings.split import Axial
from tests.raising import raises_exactly


def test_a_grid_may_have_tokens_before_its_cells() -> None:
    positions = Positions.grid(2, 2, prefix=2)
    assert positions.ids.tolist() == [[[0, 0], [0, 0], [0, 0], [0, 1], [1, 0], [1, 1]]]
    assert positions.placed is not None
    assert positions.placed.tolist() == [[False, False, True, True, True, True]]
    assert positions.slots is not None
    assert positions.slots.tolist() == [[0, 1, 2, 3, 4, 5]]
    assert repr(positions) == "Positions(grid, 2 without a position, 2 x 2, length 6, axes 2)"
    assert Positions.grid(2, 2).placed is None
    assert Positions.grid(3, prefix=1).ids.tolist() == [[0, 0, 1, 2]]


def test_what_has_no_position_has_position_0() -> None:
    placed = torch.tensor([False, True, True])
    positions = Positions.explicit(torch.tensor([7, 8, 9]), placed=placed)
    assert positions.ids.tolist() == [[0, 8, 9]]
    assert positions.placed is not None
    assert positions.placed.tolist() == [[False, True, True]]
    assert repr(positions) == "Positions(explicit, length 3, some without a position)"
    drawn = Positions.explicit(torch.tensor([7, 8, 9]), placed=placed).randomised(50, seed=0, count=10)
    assert drawn.ids[0, 0] == 0
    assert drawn.placed is positions.placed or torch.equal(drawn.placed, positions.placed)  # type: ignore[arg-type]


def test_parts_batches_and_packs_know_what_has_no_position() -> None:
    image, other = Positions.grid(2, 2, prefix=1), Positions.grid(1, 2)
    assert image[1:].placed.tolist() == [[True] * 4]  # type: ignore[union-attr]
    assert image.shard(0, 5).placed.tolist() == [[False]]  # type: ignore[union-attr]
    padded = Positions.batch([image, other], side="left")
    assert padded.placed.tolist() == [[False, True, True, True, True], [True] * 5]  # type: ignore[union-attr]
    assert padded.row(1).placed.tolist() == [[True] * 5]  # type: ignore[union-attr]
    packed = Positions.pack([other, image])
    assert packed.placed.tolist() == [[True, True, False, True, True, True, True]]  # type: ignore[union-attr]
    assert Positions.pack([other, other]).placed is None
    assert image.to("meta").placed.device.type == "meta"  # type: ignore[union-attr]


def test_rotary_does_not_rotate_them_and_inputs_add_nothing_or_their_own_row() -> None:
    positions = Positions.grid(2, 3, prefix=2)
    x = torch.randn(1, 2, 8, 16)
    rotated = Rotary(head_dim=16, split=Axial(axes=2))(x, positions)
    assert torch.equal(rotated[:, :, :2], x[:, :, :2])
    assert torch.equal(rotated[:, :, 2:], Rotary(head_dim=16, split=Axial(axes=2))(x[:, :, 2:], Positions.grid(2, 3)))
    embedded = torch.randn(1, 8, 16)
    waves = Sinusoidal(dim=16, axes=2)(embedded, positions)
    assert torch.equal(waves[:, :2], embedded[:, :2])
    assert torch.equal(waves[:, 2:], Sinusoidal(dim=16, axes=2)(embedded[:, 2:], Positions.grid(2, 3)))
    learned = LearnedGrid(dim=16, size=(2, 3), prefix=2)
    assert torch.equal(learned(embedded, positions), learned(embedded))
    with raises_exactly(
        ValueError,
        "positions must have at most 2 tokens without a cell, since the prefix has as many rows; got 3. Make a table "
        "with a longer prefix.",
    ):
        learned(torch.randn(1, 9, 16), Positions.grid(2, 3, prefix=3))


def test_phases_and_rotated_values_leave_them_as_rotary_does() -> None:
    ids, x = torch.arange(6) + 5000, torch.randn(1, 2, 6, 8, dtype=torch.float64)
    some = Positions.explicit(ids, placed=torch.tensor([False, False, True, True, True, True]))
    pope, values = PoPE(head_dim=8, num_heads=2).double(), RotaryValue(head_dim=8)
    torch.nn.init.normal_(pope.delta)  # type: ignore[arg-type]
    for encoding, roles in ((pope, ("query", "key")), (values, ("value", "output"))):
        assert encoding.takes_unplaced
        for role in roles:
            encoded = encoding(x, some, role=role)
            assert torch.equal(encoded[:, :, 2:], encoding(x[:, :, 2:], ids[2:], role=role))
            assert torch.equal(encoded[:, :, :2], encoding(x[:, :, :2], torch.zeros(2, dtype=torch.int64), role=role))
    assert torch.equal(values(x, some)[:, :, :2], x[:, :, :2])
    together = [Rotary(head_dim=8), values]
    expected = attend(x, x, x, encoding=together, positions=some, impl="reference")
    torch.testing.assert_close(attend(x, x, x, encoding=together, positions=some), expected)


UNPLACED = Positions.explicit(torch.arange(4), placed=torch.tensor([False, True, True, True]))
TOLD = "Positions(explicit, length 4, some without a position)"


@pytest.mark.parametrize(
    "encoding",
    [
        ALiBi(num_heads=2),
        T5Bias(num_heads=2, softmax_scale=None),
        Shaw(num_heads=2, head_dim=8),
        Rotary(head_dim=8, scaling=ReRoPE(window=2)),
    ],
    ids=lambda encoding: type(encoding).__name__,
)
def test_encodings_that_have_nothing_for_them_refuse_them(encoding: Any) -> None:
    sentence = (
        f"positions must be those of tokens that all have one, since this {type(encoding).__name__} has nothing for "
        f"others; got {TOLD}."
    )
    x = torch.randn(1, 2, 4, 8)
    with raises_exactly(ValueError, sentence):
        attend(x, x, x, encoding=encoding, positions=UNPLACED)


def test_encodings_of_the_input_and_windows_without_rows_for_them_refuse_them() -> None:
    with raises_exactly(
        ValueError,
        f"positions must be those of tokens that all have one, since this Learned has nothing for others; got {TOLD}.",
    ):
        Learned(dim=8, max_length=9)(torch.randn(1, 4, 8), UNPLACED)
    with raises_exactly(
        ValueError,
        "positions must be those of tokens that all have one, since this SwinBias has nothing for others; got "
        "Positions(grid, 1 without a position, 2 x 2, length 5, axes 2). Build it with cls=True, which has rows for "
        "them.",
    ):
        SwinBias(num_heads=2, window=(2, 2))(Positions.grid(2, 2, prefix=1))


def test_a_cache_refuses_them_for_encodings_that_read_positions_off_slots() -> None:
    slots = torch.arange(4)[None]
    require_counted(replace(UNPLACED, given_slots=slots), [])
    with raises_exactly(
        ValueError,
        f"positions must count the tokens in the cache, since ALiBi reads a key's position off its slot; got {TOLD}.",
    ):
        require_counted(replace(UNPLACED, given_slots=slots), [ALiBi(num_heads=2)])


def test_arguments_of_another_kind_are_refused() -> None:
    with raises_exactly(ValueError, "prefix must be 0 or more, since it counts tokens before the cells; got -1."):
        Positions.grid(2, 2, prefix=-1)
    with raises_exactly(
        TypeError, "placed must be bool, true at tokens that have a position; got dtype torch.int64. Use placed.bool()."
    ):
        Positions.explicit(torch.arange(3), placed=torch.ones(3, dtype=torch.int64))
    with raises_exactly(
        ValueError,
        "placed must have one value for each token, since each has a position; got shape (1, 2) for ids of shape "
        "(1, 3).",
    ):
        Positions.explicit(torch.arange(3), placed=torch.ones(2, dtype=torch.bool))
