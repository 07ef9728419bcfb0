"""Tables made before: they belong to the encoding, the role and the lengths that they were made for."""

import copy
import pickle
from typing import Any

import pytest
import torch

from situs import DynamicNTKScaling, LinearScaling, LongRoPE, NoPE, Positions, Rotary, XPos, attend
from situs.rotation import RotationTable
from tests.raising import raises_exactly

LONGROPE = LongRoPE(factor=4.0, original_length=8, short_factors=(1.0,) * 4, long_factors=(3.0,) * 4)
DYNAMIC = DynamicNTKScaling(factor=4.0, original_length=8)
X = torch.randn(1, 1, 4, 8)


def test_a_table_serves_the_encoding_that_made_it_and_its_equals() -> None:
    table = Rotary(head_dim=8).table(Positions.range(4, start=65_537))
    expected = Rotary(head_dim=8)(X, 65_537)
    for each in (table, pickle.loads(pickle.dumps(table)), copy.deepcopy(table)):
        assert torch.equal(Rotary(head_dim=8)(X, each), expected)
    assert torch.equal(Rotary(head_dim=8)(X[:, :, 2:3], table.at(2)), expected[:, :, 2:3])
    back = Rotary(head_dim=8)(expected, table.transposed())
    assert torch.allclose(back, X, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"base": 5e5}, "Rotary(base=10000.0)"),
        ({"scaling": LinearScaling(factor=4.0), "rotary_dim": 4}, "Rotary(rotary_dim=8, scaling=None)"),
    ],
    ids=str,
)
def test_a_table_of_another_configuration_is_refused(options: dict[str, Any], told: str) -> None:
    made = Rotary(head_dim=8).table(Positions.range(4))
    message = (
        f"table must be made by this Rotary or an equal one, since others rotate otherwise; got one made by {told}. "
        f"Use encoding.table(positions)."
    )
    for table in (made, made.transposed(), pickle.loads(pickle.dumps(made))):
        with raises_exactly(ValueError, message):
            Rotary(head_dim=8, **options)(X, table)
        with raises_exactly(ValueError, message):
            Rotary(head_dim=8, **options).both(X, X, table)
    with raises_exactly(ValueError, message):
        Rotary(head_dim=8, **options)(X[:, :, :1], made.at(0))


def test_a_table_of_another_method_or_role_is_refused() -> None:
    xpos = XPos(head_dim=8)
    with raises_exactly(
        ValueError,
        "table must be made by this XPos or an equal one, since others rotate otherwise; got one made by Rotary. Use "
        "encoding.table(positions).",
    ):
        xpos(X, Rotary(head_dim=8).table(Positions.range(4)))
    roles: tuple[Any, Any] = ("query", "key")
    for made, asked in (roles, roles[::-1]):
        table = xpos.table(Positions.range(4), role=made)
        assert torch.equal(xpos(X, table, role=made), xpos(X, role=made))
        with raises_exactly(
            ValueError,
            f"table must be made for role={asked!r}, since XPos rotates queries and keys apart; got one made for "
            f"role={made!r}. Use encoding.table(positions, role={asked!r}).",
        ):
            xpos(X, table, role=asked)
    rotary = Rotary(head_dim=8)  # which turns both alike
    assert torch.equal(rotary(X, rotary.table(Positions.range(4)), role="key"), rotary(X))


def test_a_table_made_by_hand_is_taken_as_it_is() -> None:
    made = Rotary(head_dim=8).table(Positions.range(4))
    assert torch.equal(Rotary(head_dim=8, base=5e5)(X, RotationTable(made.cos, made.sin)), Rotary(head_dim=8)(X))


@pytest.mark.compiled
def test_a_table_of_another_configuration_is_refused_in_a_graph_too() -> None:
    torch._dynamo.reset()
    made, other = Rotary(head_dim=8), Rotary(head_dim=8, base=5e5)
    table = made.table(Positions.range(4))
    turn = torch.compile(lambda x: made(x, table), fullgraph=True, backend="eager")
    torch.testing.assert_close(turn(X), made(X))
    with pytest.raises(Exception, match=r"table must be made by this Rotary"):
        torch.compile(lambda x: other(x, table), fullgraph=True, backend="eager")(X)
    torch._dynamo.reset()


def test_tables_are_asked_for_with_positions_and_a_wide_dtype() -> None:
    for dtype in (torch.bfloat16, torch.float16, torch.int64):
        with raises_exactly(
            ValueError,
            f"dtype must be one of torch.float32, torch.float64, since angles need float32 or wider; got {dtype}.",
        ):
            Rotary(head_dim=8).table(Positions.range(4), dtype=dtype)
    with raises_exactly(
        TypeError,
        "positions must be a situs.Positions, since a table is cached with it; got a tensor of shape (4,) and dtype "
        "torch.int64. Use Positions.explicit(ids) for a tensor of positions, or Positions.range(length).",
    ):
        Rotary(head_dim=8).table(torch.arange(4))  # type: ignore[arg-type]


def test_keys_are_moved_from_what_turned_them() -> None:
    with raises_exactly(
        TypeError,
        "source must be a RotationEncoding, since it tells how keys were rotated; got NoPE(). Keys that were not "
        "rotated are rotated with encoding(keys, role='key').",
    ):
        Rotary(head_dim=8).rerotate(X, 0, 5, source=NoPE())  # type: ignore[arg-type]


def packed_twice(*lengths: int) -> Positions:
    return Positions.batch([Positions.packed(lengths), Positions.packed(lengths)])


LATE = Positions.range(1, start=8, sequence_length=9)
MIXED = {
    "a number and a row": (LATE, Positions.from_mask(torch.ones(1, 8).long())),
    "a row and a number": (Positions.from_mask(torch.ones(1, 9).long())[8:], Positions.range(8)),
    "a number and one of two rows": (LATE, Positions.from_mask(torch.tensor([[1] * 9, [0] * 2 + [1] * 7]))),
    "one row and two": (
        Positions.from_mask(torch.ones(1, 9).long())[8:],
        Positions.from_mask(torch.tensor([[1] * 9, [1] * 8 + [0]])),
    ),
    "a place and its document": (
        Positions.packed([9, 4])[8:9].with_sequence_length(torch.tensor([[8]])),
        Positions.packed([9, 4]),
    ),
    "documents": (Positions.packed([9, 4]).with_sequence_length(torch.tensor([[8]])), Positions.packed([9, 4])),
}


@pytest.mark.parametrize("scaling", [LONGROPE, DYNAMIC], ids=lambda scaling: type(scaling).__name__)
@pytest.mark.parametrize("name", MIXED)
def test_lengths_that_are_told_in_different_ways_are_compared(scaling: Any, name: str) -> None:
    of_queries, of_keys = MIXED[name]
    rows = max(of_queries.rows, of_keys.rows)
    query, key = torch.randn(rows, 1, of_queries.length, 8), torch.randn(rows, 1, of_keys.length, 8)
    with pytest.raises(
        ValueError, match=r"^queries and keys must be made for one sequence length, since .*; got .*\.$"
    ):
        attend(
            query, key, key, encoding=Rotary(head_dim=8, scaling=scaling), positions=of_queries, key_positions=of_keys
        )


def test_mixed_middles_are_refused_however_their_lengths_are_told() -> None:
    query, key = torch.zeros(1, 1, 1, 8), torch.zeros(1, 1, 8, 8)
    with raises_exactly(
        ValueError,
        'queries and keys must be made for one sequence length, since XPos(centre="middle") chooses by it and a mixed '
        "cache gives wrong scores; got lengths 9 and 8. Plan both with positions.with_sequence_length(n), or "
        "move cached keys with rerotate().",
    ):
        XPos(head_dim=8, centre="middle").both(query, key, LATE, Positions.from_mask(torch.ones(1, 8).long()))


AGREEING = {
    "a number and a row": (LATE, Positions.from_mask(torch.ones(1, 9).long())),
    "a number and a row of padding": (LATE, Positions.from_mask(torch.tensor([[1] * 9, [0] * 9]))),
    "one document of two": (Positions.packed([9, 4])[8:9], Positions.packed([9, 4])),
    "one document of two, in two rows": (packed_twice(9, 4)[12:], packed_twice(9, 4)),
    "some documents": (Positions.packed([9, 4])[5:], Positions.packed([9, 4])),
    "padded documents": (
        Positions.batch([Positions.packed([9, 4]), Positions.range(4)])[12:],
        Positions.batch([Positions.packed([9, 4]), Positions.range(4)]),
    ),
}


@pytest.mark.parametrize("scaling", [LONGROPE, DYNAMIC], ids=lambda scaling: type(scaling).__name__)
@pytest.mark.parametrize("name", AGREEING)
def test_lengths_that_agree_are_taken_however_they_are_told(scaling: Any, name: str) -> None:
    of_queries, of_keys = AGREEING[name]
    rows = max(of_queries.rows, of_keys.rows)
    query, key = torch.randn(rows, 1, of_queries.length, 8), torch.randn(rows, 1, of_keys.length, 8)
    rotary = Rotary(head_dim=8, scaling=scaling)
    both = rotary.both(query, key, of_queries, of_keys)
    torch.testing.assert_close(both, (rotary(query, of_queries), rotary(key, of_keys, role="key")), atol=0, rtol=0)
