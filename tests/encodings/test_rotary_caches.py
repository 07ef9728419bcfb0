"""Undoing, moving and sharing rotations: keys kept in a cache, and tables kept by positions."""

from typing import Any

import pytest
import torch
from torch import Tensor

from situs import (
    Axial,
    DynamicNTKScaling,
    LinearScaling,
    LongRoPE,
    NTKScaling,
    Positions,
    Rotary,
    Sections,
    XPos,
    YaRN,
)
from situs.encodings.rotation import RotationEncoding
from situs.functional.rotation import PAIRINGS, Pairing
from tests.raising import raises_exactly

both_pairings = pytest.mark.parametrize("pairing", PAIRINGS)
YARN = YaRN(factor=8.0, original_length=2048)
LONGROPE = LongRoPE(factor=4.0, original_length=16, short_factors=(1.0,) * 4, long_factors=(1.0, 2.0, 3.0, 4.0))

ENCODINGS: dict[str, RotationEncoding] = {
    "plain": Rotary(head_dim=8),
    "interleaved": Rotary(head_dim=8, pairing="interleaved"),
    "partial": Rotary(head_dim=8, rotary_dim=4),
    "per head": Rotary(head_dim=8, base=[100.0, 10_000.0]),
    "yarn": Rotary(head_dim=8, scaling=YARN),
    "xpos": XPos(head_dim=8),
}
every_encoding = pytest.mark.parametrize("name", ENCODINGS)


@every_encoding
@pytest.mark.parametrize("role", ["query", "key"])
@pytest.mark.parametrize("start", [0, 30_000])
def test_inverse_undoes_forward(name: str, role: Any, start: int) -> None:
    encoding = ENCODINGS[name]
    for dtype, bound in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        x = torch.randn(1, 2, 5, 8, dtype=dtype)
        back = encoding.inverse(encoding(x, start, role=role), start, role=role)
        assert torch.allclose(back, x, rtol=0, atol=bound)


@every_encoding
def test_rerotated_keys_are_keys_turned_afresh(name: str) -> None:
    encoding = ENCODINGS[name]
    keys = torch.randn(1, 2, 6, 8, dtype=torch.float64)
    old, new = torch.tensor([0, 5, 257, 9000, 20_000, 30_000]), torch.tensor([30_000, 4, 0, 65, 20_001, 257])
    moved = encoding.rerotate(encoding(keys, old, role="key"), old, new)
    assert torch.allclose(encoding.inverse(moved, new, role="key"), keys, rtol=0, atol=1e-10)


@both_pairings
@pytest.mark.parametrize("scaling", [None, YARN], ids=["plain", "yarn"])
def test_a_thousand_shifts_drift_by_half_a_unit_each(pairing: Pairing, scaling: YaRN | None) -> None:
    """Float32 keys moved back by one place a thousand times stay within 1000 * 2^-24 = 6e-5 of their norm of a
    fresh rotation; YaRN's magnitude, applied each time, would have made them 10^83 times as long."""
    encoding = Rotary(head_dim=64, pairing=pairing, scaling=scaling)
    keys = torch.randn(1, 2, 8, 64)
    start = 1_000_003
    moved = encoding(keys, start, role="key")
    for shift in range(1000):
        moved = encoding.rerotate(moved, start - shift, start - shift - 1)
    fresh = encoding(keys, start - 1000, role="key")
    assert float(((moved - fresh).norm(dim=-1) / fresh.norm(dim=-1)).max()) <= 1000 * 2**-24
    assert moved.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rerotating_half_precision_rounds_once(dtype: torch.dtype) -> None:
    encoding = Rotary(head_dim=8, scaling=YARN)
    keys = torch.randn(1, 2, 6, 8).to(dtype)
    moved = encoding.rerotate(keys, 65_537, 10_000_000)
    assert moved.dtype == dtype
    exact = encoding.rerotate(keys.double(), 65_537, 10_000_000)
    assert torch.allclose(moved.double(), exact, rtol=torch.finfo(dtype).eps / 2, atol=4e-6)


@both_pairings
def test_keys_move_between_two_sets_of_frequencies(pairing: Pairing) -> None:
    plain, scaled = (Rotary(head_dim=8, pairing=pairing, scaling=scaling) for scaling in (None, YARN))
    keys = torch.randn(1, 2, 6, 8, dtype=torch.float64)
    moved = scaled.rerotate(plain(keys, 100), 100, 3, source=plain)
    assert torch.allclose(moved, scaled(keys, 3), rtol=0, atol=1e-12)
    back = plain.rerotate(moved, 3, 100, source=scaled)
    assert torch.allclose(back, plain(keys, 100), rtol=0, atol=1e-12)


def test_a_cache_of_short_keys_is_moved_to_the_long_frequencies() -> None:
    encoding = Rotary(head_dim=8, scaling=LONGROPE)
    keys = torch.randn(1, 2, 10, 8, dtype=torch.float64)
    short, long = Positions.range(10, sequence_length=16), Positions.range(10, sequence_length=17)
    assert not torch.allclose(encoding(keys, short), encoding(keys, long), atol=0.1)
    moved = encoding.rerotate(encoding(keys, short), short, long)
    assert torch.allclose(moved, encoding(keys, long), rtol=0, atol=1e-12)


def test_keys_of_another_shape_are_not_rerotated() -> None:
    for source in (Rotary(head_dim=8, rotary_dim=4), Rotary(head_dim=8, pairing="interleaved")):
        with raises_exactly(
            ValueError,
            f"source must rotate the same channels, since keys are moved pair by pair; got rotary_dim="
            f"{source.rotary_dim}, pairing={source.pairing!r} for 8, 'halves'.",
        ):
            Rotary(head_dim=8).rerotate(torch.zeros(1, 1, 2, 8), 0, 5, source=source)
    with raises_exactly(
        ValueError, "keys must have 8 channels, since Rotary was made with head_dim=8; got shape (1, 1, 2, 10)."
    ):
        Rotary(head_dim=8).rerotate(torch.zeros(1, 1, 2, 10), 0, 5)


BY_LENGTH = {"DynamicNTKScaling": DynamicNTKScaling(factor=2.0, original_length=16), "LongRoPE": LONGROPE}


@pytest.mark.parametrize("name", BY_LENGTH)
def test_a_cache_that_mixes_lengths_is_refused(name: str) -> None:
    encoding = Rotary(head_dim=8, scaling=BY_LENGTH[name])
    query, key = torch.zeros(1, 1, 1, 8), torch.zeros(1, 1, 17, 8)
    late, early = Positions.range(17)[16:], Positions.range(17, sequence_length=16)
    with raises_exactly(
        ValueError,
        f"queries and keys must be made for one sequence length, since {name} chooses by it and a mixed cache gives "
        "wrong scores; got lengths 17 and 16. Plan both with positions.with_sequence_length(n), or move cached keys "
        "with rerotate().",
    ):
        encoding.both(query, key, late, early)
    encoding.both(query, key, late, Positions.range(17))
    shorter = Positions.range(9)[8:], Positions.range(9, sequence_length=16)
    encoding.both(query, key[:, :, :9], *shorter)  # both within the original length: one set of frequencies


@pytest.mark.parametrize("name", BY_LENGTH)
def test_a_method_that_chooses_by_length_must_be_told_it(name: str) -> None:
    with raises_exactly(
        ValueError,
        f"positions must tell how long the whole sequence is, since {name} chooses by it and keys cached earlier must "
        "agree; got Positions(range 5..6, length 2). Slice the positions of the whole sequence, or use "
        "positions.with_sequence_length(n).",
    ):
        Rotary(head_dim=8, scaling=BY_LENGTH[name])(torch.zeros(1, 1, 2, 8), 5)


@every_encoding
@pytest.mark.parametrize(("queries", "length"), [(3, 3), (1, 7), (1300, 1300)])
def test_both_turns_queries_and_keys_as_each_alone(name: str, queries: int, length: int) -> None:
    encoding = ENCODINGS[name]
    query, key = torch.randn(1, 2, queries, 8), torch.randn(1, 2, length, 8)
    whole = Positions.range(length)
    late = whole if queries == length else whole[length - queries :]
    for given in ((), (None, whole), (late, whole), (late,)):
        turned_query, turned_key = encoding.both(query, key, *given)
        assert torch.allclose(turned_query, encoding(query, length - queries), rtol=0, atol=1e-6)
        assert torch.allclose(turned_key, encoding(key, role="key"), rtol=0, atol=1e-6)


@pytest.mark.parametrize("length", [3, 1300])
def test_one_table_serves_both_where_queries_and_keys_are_turned_alike(length: int) -> None:
    query, key = torch.randn(1, 4, length, 8), torch.randn(1, 2, length, 8)
    for encoding in (Rotary(head_dim=8), Rotary(head_dim=8, scaling=YARN)):
        turned = encoding.both(query, key, encoding.table(Positions.range(length)))
        assert all(map(torch.equal, turned, encoding.both(query, key)))
    xpos = XPos(head_dim=8)
    with pytest.raises(ValueError, match=r"must .*; got .*"):
        xpos.both(query, key, xpos.table(Positions.range(length)))


@pytest.mark.parametrize("length", [3, 1300])
def test_both_gives_queries_and_keys_back_in_their_own_dtypes(length: int) -> None:
    query, key = torch.randn(1, 2, length, 8, dtype=torch.bfloat16), torch.randn(1, 1, length, 8)
    turned = Rotary(head_dim=8).both(query, key)
    assert [each.dtype for each in turned] == [torch.bfloat16, torch.float32]


def test_hooks_meet_queries_and_keys() -> None:
    query, key = torch.randn(2, 1, 2, 3, 8)
    rotary = Rotary(head_dim=8)
    expected = rotary.both(query, key)
    met: list[Tensor] = []
    handle = rotary.register_forward_pre_hook(lambda module, arguments: met.append(arguments[0]))
    assert all(map(torch.equal, rotary.both(query, key, rotary.table(Positions.range(3))), expected))
    assert all(map(torch.equal, met, (query, key)))
    assert len(met) == 2
    handle.remove()
    handle = rotary.register_forward_hook(lambda module, arguments, turned: 3 * turned)
    assert all(map(torch.equal, rotary.both(query, key), (3 * each for each in expected)))
    handle.remove()
    assert all(map(torch.equal, rotary.both(query, key), expected))


VARIANTS: list[dict[str, Any]] = [
    {},
    {"base": 500_000.0},
    {"base": (10_000.0, 20_000.0)},
    {"pairing": "interleaved"},
    {"rotary_dim": 4},
    {"scaling": LinearScaling(factor=4.0)},
    {"scaling": NTKScaling(factor=4.0)},
    {"scaling": YARN},
    {"scaling": YaRN(factor=8.0, original_length=2048, attention_factor=1.0)},
]


def test_positions_share_tables_among_layers_and_never_among_configurations() -> None:
    shared = Positions.range(40, start=100)
    x = torch.randn(1, 2, 40, 8)
    encodings: list[RotationEncoding] = [Rotary(head_dim=8, **options) for options in VARIANTS]
    encodings += [XPos(head_dim=8), XPos(head_dim=8, gamma=0.5), XPos(head_dim=8, scale_base=256.0)]
    encodings += [XPos(head_dim=8, centre=120.0)]
    for _ in range(2):
        for encoding in encodings:
            for role in ("query", "key"):
                fresh: Tensor = encoding(x, Positions.range(40, start=100), role=role)
                assert torch.equal(encoding(x, shared, role=role), fresh)
    rotaries = len(VARIANTS)
    assert len(shared.tables) == rotaries + 2 * (len(encodings) - rotaries)  # XPos has one a role
    assert Rotary(head_dim=8).table(shared) is encodings[0].table(shared)
    assert encodings[0].table(shared, dtype=torch.float64) is not encodings[0].table(shared)


def test_grids_share_tables_never_among_splits() -> None:
    shared = Positions.explicit(torch.randint(0, 50, (1, 6, 3)))
    x = torch.randn(1, 1, 6, 24)
    splits = [Axial(axes=3), Axial(axes=3, ladder="shared"), Sections(sizes=(4, 4, 4))]
    splits += [Sections(sizes=(4, 4, 4), order="interleaved"), Sections(sizes=(8, 2, 2))]
    for split in splits:
        encoding = Rotary(head_dim=24, split=split)
        assert torch.equal(encoding(x, shared), encoding(x, Positions.explicit(shared.ids)))
    assert len(shared.tables) == len(splits)


@both_pairings
def test_a_table_made_in_inference_mode_serves_training_too(pairing: Pairing) -> None:
    encoding, positions = Rotary(head_dim=8, pairing=pairing), Positions.range(5)
    x = torch.randn(1, 1, 5, 8)
    table = encoding.table(Positions.range(5))  # made before, used within
    with torch.inference_mode():
        expected = encoding(x, positions)
        assert torch.equal(encoding(x, table), expected)
    for given in (positions, table):
        trained = x.clone().requires_grad_()
        turned = encoding(trained, given)
        turned.square().sum().backward()
        assert torch.equal(turned, expected)
        assert trained.grad is not None


@both_pairings
@pytest.mark.parametrize("length", [4, 64])
def test_a_table_of_other_positions_is_refused(pairing: Pairing, length: int) -> None:
    encoding = Rotary(head_dim=64, pairing=pairing)
    x = torch.randn(1, 8, length, 64)
    assert torch.equal(encoding(x, encoding.table(Positions.range(length))), encoding(x))
    with raises_exactly(
        ValueError,
        "table must have an entry for every position of x, and for one or all of its rows and heads, since it rotates "
        f"each vector; got a table of shape (1, 1, {length + 1}, 32) for x of shape (1, 8, {length}, 64).",
    ):
        encoding(x, encoding.table(Positions.range(length + 1)))
