"""Every error of positions, word for word."""

import math
from collections.abc import Callable

import pytest
import torch

from situs import Positions, Vision
from situs.positions import align, require
from tests.raising import raises_exactly

Make = Callable[[], object]

BARE = Positions.explicit(torch.arange(3))
TWO_ROWS = Positions.explicit(torch.zeros(2, 3, dtype=torch.int64))

VALUE_ERRORS: list[tuple[Make, str]] = [
    (
        lambda: Positions.range(-1),
        "length must be 0 or more, since it counts tokens; got -1.",
    ),
    (
        lambda: Positions.grid(),
        "sizes must be one or more numbers of 1 or more, since a grid has an axis for each; got ().",
    ),
    (
        lambda: Positions.grid(2, 0),
        "sizes must be one or more numbers of 1 or more, since a grid has an axis for each; got (2, 0).",
    ),
    (
        lambda: Positions.grid(2, 3, step=(1, 0.5, 2)),
        "step must be a number, or 2, one for each axis, since cells lie so far apart; got (1, 0.5, 2).",
    ),
    (
        lambda: Positions.grid(2, 3, step=0),
        "step must be more than 0, since cells lie so far apart; got 0.",
    ),
    (
        lambda: Positions.grid(2, 3, centred=(True,)),
        "centred must be one flag, or 2, one for each axis, since an axis is counted from its centre or from its first "
        "cell; got (True,).",
    ),
    (
        lambda: Positions.grid(2, 3, normalised="separate"),  # type: ignore[arg-type]
        "normalised must be one of 'each', 'longest', 'shortest', since coordinates are divided by a side of the grid; "
        "got 'separate'.",
    ),
    (
        lambda: Positions.grid(2, 3, normalised="each", centred=True),
        "centred must be left out of a normalised grid, since its sizes tell where cells lie; got True.",
    ),
    (
        lambda: Positions.grid(2, 3).augmented(seed=0, jitter=0.5),
        "jitter must be 1 or more, since each axis is stretched or shrunk by at most that; got 0.5.",
    ),
    (
        lambda: Positions.grid(2, 3).scaled((1.0, 2.0, 3.0)),
        "factor must be a number, or 2, one for each axis, since coordinates are multiplied by it; got "
        "(1.0, 2.0, 3.0).",
    ),
    (
        lambda: Positions.packed([1, 2]).prefixed(1),
        "positions must be whole rows without padding, since tokens are put before the first of each row; got "
        "Positions(packed, documents of 1, 2, length 3). Put them before each row, then join rows with Positions.batch "
        "or pack.",
    ),
    (
        lambda: Positions.pack([Positions.packed([1, 2]), BARE]),
        "pack joins rows of one document each, since it numbers them; got a row with documents.",
    ),
    (
        lambda: Positions.batch([]),
        "rows must be one or more Positions of a single row each, since batch joins them; got none.",
    ),
    (
        lambda: Positions.pack([TWO_ROWS, BARE]),
        "rows must be one or more Positions of a single row each, since pack joins them; got [2, 1] rows.",
    ),
    (
        lambda: Positions.batch([BARE, Positions.grid(2, 2)]),
        "rows must have as many axes each, since batch joins their coordinates; got [1, 2] axes.",
    ),
    (
        lambda: Positions.of(Positions.range(9)[2:5], 4),
        "positions must have one for each of the 4 tokens, since each token stands somewhere; got "
        "Positions(range 2..4, length 3, of a sequence of 9). Slice them with positions[first:last], or pass those "
        "of this call only.",
    ),
    (
        lambda: Positions.of(TWO_ROWS, 3, batch=5),
        "positions must have one row, or one for each of the 5 sequences; got 2 rows.",
    ),
    (
        lambda: Positions.range(8).shard(2, 2),
        "rank must lie in 0 .. 1, since there are 2 ranks; got 2.",
    ),
    (
        lambda: Positions.range(8).shard(-1, 2),
        "rank must lie in 0 .. 1, since there are 2 ranks; got -1.",
    ),
    (
        lambda: Positions.range(8).shard(0, 2, layout="striped"),  # type: ignore[arg-type]
        "layout must be one of 'contiguous', 'zigzag', since ranks hold one piece each or two; got 'striped'.",
    ),
    (
        lambda: Positions.range(10).shard(0, 4),
        "length must be a multiple of 4, since contiguous sharding over world_size=4 ranks cuts the sequence into 4 "
        "equal pieces; got 10. Pad it to 12.",
    ),
    (
        lambda: Positions.range(12).shard(0, 4, layout="zigzag"),
        "length must be a multiple of 8, since zigzag sharding over world_size=4 ranks cuts the sequence into 8 "
        "equal pieces; got 12. Pad it to 16.",
    ),
    (
        lambda: Positions.range(8).skipped(20, seed=0, chunks=0),
        "chunks must be 1 or more, since the sequence is cut into them; got 0.",
    ),
    (
        lambda: BARE.randomised(20, seed=0),
        "count must be given where nothing tells how long the whole sequence is, since all its parts must draw the "
        "same sample; got Positions(explicit, length 3).",
    ),
    (
        lambda: Positions.range(1, start=10).randomised(20, seed=0),
        "count must be given where nothing tells how long the whole sequence is, since all its parts must draw the "
        "same sample; got Positions(range 10..10, length 1).",
    ),
    (
        lambda: Positions.range(8).gathered(0),
        "world_size must be 1 or more, since it counts ranks; got 0.",
    ),
    (
        lambda: Positions.batch([BARE], side="middle"),  # type: ignore[arg-type]
        'side must be "left" or "right", since padding stands at an end of each row; got \'middle\'.',
    ),
    (
        lambda: Positions.from_mask(torch.tensor([[1, 1, 2, 2]])),
        "mask must hold 0 and 1, since it marks real tokens; got 2. Documents that share a row go to "
        "Positions.packed(), or explicit(documents=...).",
    ),
    (
        lambda: Positions.range(8).with_sequence_length(-1),
        "sequence_length must be 0 or more, since it counts tokens; got -1.",
    ),
    (
        lambda: Positions.range(8).with_sequence_length(torch.tensor([8, 9])),
        "sequence_length must be a number, or a tensor of shape (batch, 1) or (batch, sequence), since rows or "
        "positions may differ; got shape (2,). Use lengths[:, None] for one a row.",
    ),
    (
        lambda: Vision(3, 2, 2, -1),
        "time_step must be 0 or more, since frames follow one another; got -1.",
    ),
    (
        lambda: Vision(3, 2, 2, math.inf),
        "time_step must be finite, since frames follow one another; got inf.",
    ),
    (
        lambda: Positions.range(8).randomised(7, seed=0),
        "high must be at least 8, since that many different positions are drawn; got 7.",
    ),
    (
        lambda: Positions.range(8).skipped(7, seed=0),
        "high must be at least 8, since that many different positions are drawn; got 7.",
    ),
    (
        lambda: Positions.explicit(torch.tensor([0, 5])).randomised(20, seed=0, count=5),
        "ids must lie in 0 .. 4, since count is 5; got 0 .. 5.",
    ),
    (
        lambda: Positions.explicit(torch.tensor([-2, 1])).skipped(20, seed=0, count=5),
        "ids must lie in 0 .. 4, since count is 5; got -2 .. 1.",
    ),
    (
        lambda: Positions.from_mask(torch.ones(2, 1, 4, 4, dtype=torch.bool)),
        "mask must have shape (batch, sequence), since it marks the tokens of each row; got shape (2, 1, 4, 4). A "
        "(batch, heads, query, key) mask belongs to attention.",
    ),
    (
        lambda: Positions.from_mask(torch.ones(2, 4, dtype=torch.bool), side="both"),  # type: ignore[arg-type]
        'side must be "left", "right" or None, since padding stands at an end or anywhere; got \'both\'.',
    ),
    (
        lambda: Positions.from_mask(torch.tensor([[1, 1, 1], [1, 1, 0]]), side="left"),
        'side must be where the padding stands; got "left", but a real token stands on that side of padding. Leave '
        "side out for padding anywhere.",
    ),
    (
        lambda: Positions.from_mask(torch.tensor([[1, 0, 1]]), side="right"),
        'side must be where the padding stands; got "right", but a real token stands on that side of padding. Leave '
        "side out for padding anywhere.",
    ),
    (
        lambda: Positions.explicit(torch.zeros(1, 2, 3, 4)),
        "ids must have shape (sequence,), (batch, sequence) or (batch, sequence, axes), since each token has a "
        "position; got shape (1, 2, 3, 4).",
    ),
    (
        lambda: Positions.explicit(torch.tensor(3)),
        "ids must have shape (sequence,), (batch, sequence) or (batch, sequence, axes), since each token has a "
        "position; got shape ().",
    ),
    (
        lambda: Positions.explicit(torch.arange(3), documents=torch.zeros(4, dtype=torch.int64)),
        "documents must have one value for each token, since each has a position; got shape (1, 4) for ids of shape "
        "(1, 3).",
    ),
    (
        lambda: Positions.explicit(torch.arange(3), valid=torch.ones(2, 1, dtype=torch.bool)),
        "valid must have one value for each token, since each has a position; got shape (2, 1) for ids of shape "
        "(1, 3).",
    ),
    (
        lambda: Positions.packed(),
        "lengths or cu_seqlens must be given, and not both, since one follows from the other; got lengths=None "
        "and cu_seqlens=None.",
    ),
    (
        lambda: Positions.packed([3], cu_seqlens=torch.tensor([0, 3])),
        "lengths or cu_seqlens must be given, and not both, since one follows from the other; got lengths=[3] and "
        "cu_seqlens=a tensor of shape (2,) and dtype torch.int64.",
    ),
    (
        lambda: Positions.packed(cu_seqlens=torch.zeros(2, dtype=torch.int32, device="meta")),
        "length must be given with cu_seqlens on meta, since reading it would make the host wait.",
    ),
    (
        lambda: Positions.packed(cu_seqlens=torch.tensor([1, 3])),
        "cu_seqlens must begin with 0, where the first document does; got [1, 3].",
    ),
    (
        lambda: Positions.packed(cu_seqlens=torch.zeros(0, dtype=torch.int32)),
        "cu_seqlens must begin with 0, where the first document does; got [].",
    ),
    (
        lambda: Positions.packed([2, -1]),
        "lengths must be 0 or more, since they count tokens; got [2, -1].",
    ),
    (
        lambda: Positions.packed(cu_seqlens=torch.tensor([0, 4, 3])),
        "cu_seqlens must never fall, since documents follow one another; got [0, 4, 3].",
    ),
    (
        lambda: Positions.packed([2, 3], length=8),
        "lengths must add up to length, since documents fill the row; got [2, 3], which makes 5, and length=8. Give "
        "the padding a document of its own.",
    ),
    (
        lambda: align(torch.tensor([4, 9]), None, 2, 6),
        "key_positions must be given, since 6 keys cannot be placed from the positions of 2 queries; got "
        "Positions(explicit, length 2) for the queries.",
    ),
    (
        lambda: align(3, None, 2, 6),
        "key_positions must be given, since 6 keys cannot be placed from the positions of 2 queries; got "
        "Positions(range 3..4, length 2) for the queries.",
    ),
]

TYPE_ERRORS: list[tuple[Make, str]] = [
    (
        lambda: Positions.range(8)[::2],
        "positions must be sliced along the sequence, as positions[first:last], since rows go together; got "
        "slice(None, None, 2).",
    ),
    (
        lambda: Positions.range(8)[3],  # type: ignore[index]
        "positions must be sliced along the sequence, as positions[first:last], since rows go together; got 3.",
    ),
    (
        lambda: Positions.explicit(torch.tensor([0.5, 1.5])).randomised(9, seed=0, count=3),
        "positions must be whole numbers to be drawn anew, since they are counted by; got ids of dtype torch.float32.",
    ),
    (
        lambda: Positions.from_mask(torch.zeros(2, 4)),
        "mask must be bool or int with true at real tokens, since an additive mask has 0 there; got dtype "
        "torch.float32. Pass mask == 0 if yours is additive.",
    ),
    (
        lambda: Positions.explicit(torch.zeros(3, dtype=torch.bfloat16)),
        "ids must be integers, float32 or float64, since in half precision neighbouring positions collide "
        "(bfloat16 from 257 on, float16 from 2049 on); got dtype torch.bfloat16.",
    ),
    (
        lambda: Positions.explicit(torch.zeros(3, dtype=torch.float16)),
        "ids must be integers, float32 or float64, since in half precision neighbouring positions collide (bfloat16 "
        "from 257 on, float16 from 2049 on); got dtype torch.float16.",
    ),
    (
        lambda: Positions.explicit(torch.zeros(3, dtype=torch.bool)),
        "ids must be numbers, since they are positions; got dtype torch.bool. A mask goes to Positions.from_mask.",
    ),
    (
        lambda: Positions.explicit(torch.zeros(3, dtype=torch.complex64)),
        "ids must be numbers, since they are positions; got dtype torch.complex64. A mask goes to Positions.from_mask.",
    ),
]


@pytest.mark.parametrize(("make", "message"), VALUE_ERRORS, ids=[message for _, message in VALUE_ERRORS])
def test_a_wrong_value_is_refused_in_these_words(make: Make, message: str) -> None:
    with raises_exactly(ValueError, message):
        make()


@pytest.mark.parametrize(("make", "message"), TYPE_ERRORS, ids=[message for _, message in TYPE_ERRORS])
def test_a_wrong_type_is_refused_in_these_words(make: Make, message: str) -> None:
    with raises_exactly(TypeError, message):
        make()


@pytest.mark.parametrize("number", [2, -3])
def test_a_missing_row_is_refused_in_these_words(number: int) -> None:
    with raises_exactly(IndexError, f"row must lie in -2 .. 1, since there are 2; got {number}."):
        TWO_ROWS.row(number)


def test_values_that_cannot_be_read_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(require, "is_deferred", lambda tensor: True)
    assert Positions.from_mask(torch.tensor([[1, 0, 1]]), side="left").side == "left"
    require.within(torch.tensor([9]), 3)
