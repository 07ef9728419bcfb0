"""Self-Extend, ReRoPE and dual-chunk attention: distances as in the papers, limits, and what has no rotation alone."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import situs
from situs import DualChunk, Positions, ReRoPE, Rotary, SelfExtend, attend
from situs.attention import reference
from situs.encodings.bands import Bands
from situs.functional import rotary_frequencies
from tests.raising import raises_exactly
from tests.references import bands as papers

WIDTH = 8
EVERY: list[Bands] = [
    SelfExtend(window=5, group=3), ReRoPE(window=5), ReRoPE(window=5, leak=0.25), DualChunk(chunk_size=9, local_size=2)
]  # fmt: skip
PAPERS: list[tuple[Bands, papers.Scores]] = [
    (SelfExtend(window=16, group=4), papers.self_extend(16, 4, 1e4)),
    (SelfExtend(window=7, group=3), papers.self_extend(7, 3, 1e4)),  # a window that is no multiple of the group
    (ReRoPE(window=12), papers.rerope(12, 1e4)),
    (ReRoPE(window=12, leak=1 / 16), papers.leaky_rerope(12, 1 / 16, 1e4)),
    (DualChunk(chunk_size=20, local_size=4), papers.dual_chunk(20, 4, 1e4)),
    (DualChunk(chunk_size=11, local_size=0), papers.dual_chunk(11, 0, 1e4)),
]
every_scaling = pytest.mark.parametrize("scaling", EVERY, ids=str)


def _rotary(scaling: situs.Scaling | None) -> Rotary:
    return Rotary(head_dim=WIDTH, scaling=scaling)


def _inputs(length: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    query, key, value = (torch.randn(1, 2, length, WIDTH, generator=generator).to(dtype) for _ in range(3))
    return query, key, value


def test_self_extend_has_the_distances_of_the_papers_figure() -> None:
    ids = torch.arange(10)
    assert SelfExtend(window=4, group=2).distances(ids[9], ids).tolist() == [6, 6, 5, 5, 4, 4, 3, 2, 1, 0]


def test_dual_chunk_has_the_positions_of_the_papers_example() -> None:
    # chunks of 6 in a model of 10 tokens: queries of the next chunk stand at 6, 7, 8, 9, 9, 9, and later ones at 9
    ids = torch.arange(18)
    found = DualChunk(chunk_size=9, local_size=3).distances(ids[:, None], ids)
    assert found[6:12, 0].tolist() == [6, 7, 8, 9, 9, 9]
    assert found[12:, 0].tolist() == [9] * 6
    assert found[17, 6:].tolist() == [9, 8, 7, 6, 5, 4, 5, 4, 3, 2, 1, 0]


def test_rerope_clips_distances_and_leaks() -> None:
    ids = torch.arange(8)
    assert ReRoPE(window=3).distances(ids[7], ids).tolist() == [3, 3, 3, 3, 3, 2, 1, 0]
    assert ReRoPE(window=3, leak=0.5).distances(ids[7], ids).tolist() == [5, 4.5, 4, 3.5, 3, 2, 1, 0]


@every_scaling
def test_keys_ahead_have_the_same_distances_with_the_sign_turned(scaling: Bands) -> None:
    ids = torch.arange(-20, 40)
    found = scaling.distances(ids[:, None], ids)
    assert torch.equal(found, -found.T)


@pytest.mark.parametrize(("scaling", "scores"), PAPERS, ids=lambda each: str(each) if isinstance(each, Bands) else "")
def test_attention_is_that_of_the_papers(scaling: Bands, scores: papers.Scores) -> None:
    query, key, value = _inputs(53, torch.float64)
    q, k, v = (each[0].numpy() for each in (query, key, value))
    heads = [papers.attention(q[head], k[head], v[head], scores) for head in range(2)]
    expected = torch.stack([torch.from_numpy(each) for each in heads])
    for impl in (reference, attend):
        assert torch.allclose(impl(query, key, value, encoding=_rotary(scaling), causal=True)[0], expected, atol=1e-12)
    narrow = attend(*(each.float() for each in (query, key, value)), encoding=_rotary(scaling), causal=True)
    assert torch.allclose(narrow[0].double(), expected, atol=1e-6)


@settings(max_examples=6, deadline=None)
@given(st.integers(1, 40), st.booleans(), st.sampled_from([0, 1, 7, 10_000_000]))
def test_what_changes_no_distance_is_plain_rotary(length: int, causal: bool, start: int) -> None:
    query, key, value = _inputs(length)
    called: dict[str, Any] = {"causal": causal, "positions": Positions.range(length, start=start)}
    expected = attend(query, key, value, encoding=_rotary(None), **called)
    for scaling in (
        SelfExtend(window=4, group=1), SelfExtend(window=length, group=3), ReRoPE(window=length),
        ReRoPE(window=3, leak=1.0), DualChunk(chunk_size=start + length + 1, local_size=0),
    ):  # fmt: skip
        for impl in ("auto", "banded", "reference"):
            found = attend(query, key, value, encoding=_rotary(scaling), impl=impl, **called)
            assert torch.allclose(found, expected, atol=1e-6), (scaling, impl)


@every_scaling
def test_far_positions_are_as_exact_as_near_ones(scaling: Bands) -> None:
    period = 3 * 7 * 480_000  # of groups and chunks
    query, key, value = _inputs(30)
    near, far = (
        attend(query, key, value, encoding=_rotary(scaling), causal=True, positions=Positions.range(30, start=start))
        for start in (0, period)
    )
    assert torch.allclose(near, far, atol=1e-6)


def test_positions_tell_bands_and_not_places_in_memory() -> None:
    query, key, value = _inputs(12)
    ids = torch.tensor([0, 1, 2, 30, 31, 32, 33, 34, 90, 91, 92, 93])
    positions = Positions.explicit(ids)
    distances = ReRoPE(window=5).distances(ids[:, None], ids)
    angles = distances[..., None].double() * rotary_frequencies(WIDTH, 1e4)
    q, k = (torch.complex(*each.double().chunk(2, -1)) for each in (query, key))
    scores = torch.einsum("bhid,ijd,bhjd->bhij", q, torch.polar(torch.ones_like(angles), angles), k.conj()).real
    scores = (scores / WIDTH**0.5).masked_fill(torch.ones(12, 12).triu(1).bool(), -torch.inf)
    expected = (scores.softmax(-1) @ value.double()).float()
    found = attend(query, key, value, encoding=_rotary(ReRoPE(window=5)), causal=True, positions=positions)
    assert torch.allclose(found, expected, atol=1e-6)


def test_fractions_are_in_the_band_of_their_distance() -> None:
    ids = torch.tensor([0.0, 1.5, 4.5, 5.0, 9.75])
    assert ReRoPE(window=5).distances(ids[4], ids).tolist() == [5, 5, 5, 4.75, 0]
    assert ReRoPE(window=5).distances(ids[0], ids).tolist() == [0, -1.5, -4.5, -5, -5]
    own, before = torch.tensor(1.25), torch.tensor(0.75)  # in chunks of one position each
    assert DualChunk(chunk_size=1, local_size=0).distances(own, before).item() == 1 - 0.75
    query, key, value = _inputs(5)
    called: dict[str, Any] = {"encoding": _rotary(ReRoPE(window=5)), "positions": Positions.explicit(ids)}
    found = situs.explain(query, key, value, **called)
    assert found.impl == "reference"
    assert found.others["banded"] == "cannot: these positions are no whole numbers on one axis"


ALONE: dict[str, Callable[[Rotary, Tensor], object]] = {
    "forward": lambda rotary, x: rotary(x),
    "both": lambda rotary, x: rotary.both(x, x),
    "table": lambda rotary, x: rotary.table(Positions.range(3)),
    "inverse": lambda rotary, x: rotary.inverse(x),
    "rerotate": lambda rotary, x: rotary.rerotate(x, 0, 1),
    "rotation_matrix": lambda rotary, x: rotary.rotation_matrix(3),
}


@pytest.mark.parametrize("name", ALONE)
def test_no_vector_has_a_rotation_by_itself(name: str) -> None:
    with raises_exactly(
        ValueError,
        "scaling must change frequencies for queries or keys to be rotated by themselves, since in bands of distance a "
        "rotation depends on the positions of both; got Rotary(head_dim=8, base=10000.0, rotary_dim=8, "
        "pairing='halves', channels='leading', reverse=False, scaling=ReRoPE(window=5, leak=0.0), split=None). Use "
        "situs.attend(query, key, value, encoding=encoding), or situs.Attention.",
    ):
        ALONE[name](_rotary(ReRoPE(window=5)), torch.zeros(1, 1, 3, WIDTH))


ONLY_FREQUENCIES = (
    "bands of distance change positions, by the pair of a query and a key; got ReRoPE(window=4, leak=0.0). Bands are "
    "for situs.Rotary(scaling=...)."
)
ERRORS: list[tuple[Callable[[], object], str]] = [
    (
        lambda: SelfExtend(window=0, group=2),
        "window must be 1 or more, since pairs at smaller distances stay as trained; got 0.",
    ),
    (
        lambda: SelfExtend(window=4, group=0),
        "group must be 1 or more, since it counts tokens that share a position; got 0.",
    ),
    (lambda: ReRoPE(window=0), "window must be 1 or more, since pairs at smaller distances stay as trained; got 0."),
    (
        lambda: ReRoPE(window=4, leak=1.5),
        "leak must lie in 0 .. 1, since distances grow by it beyond the window; got 1.5.",
    ),
    (
        lambda: DualChunk(chunk_size=0, local_size=0),
        "chunk_size must be 1 or more, since no distance is beyond it; got 0.",
    ),
    (
        lambda: DualChunk(chunk_size=8, local_size=-1),
        "local_size must be 0 or more, since it counts tokens of the chunk before; got -1.",
    ),
    (
        lambda: DualChunk(chunk_size=8, local_size=4),
        "local_size must be less than half of chunk_size=8, since chunks have chunk_size - local_size tokens and lie "
        "behind one another; got 4.",
    ),
    (
        lambda: Rotary(head_dim=8, scaling=ReRoPE(window=4), split=situs.Axial(axes=2)),
        "split must be left out with ReRoPE, since its bands go by the distance along one axis; got "
        f"{situs.Axial(axes=2)!r}.",
    ),
    (
        lambda: attend(*_inputs(3), encoding=[_rotary(ReRoPE(window=2)), _rotary(SelfExtend(window=2, group=2))]),
        "encoding must have bands of distance once at most, since each pair is rotated by those of its band; got two "
        "with bands. Leave one of them out.",
    ),
    (
        lambda: situs.LeRoPE(head_dim=8, scaling=ReRoPE(window=4)),
        "scaling must change frequencies with LeRoPE, since " + ONLY_FREQUENCIES,
    ),
    (
        lambda: situs.RotaryValue(head_dim=8, scaling=ReRoPE(window=4)),
        "scaling must change frequencies with RotaryValue, since " + ONLY_FREQUENCIES,
    ),
    (
        lambda: situs.Axial(axes=2, scalings=(ReRoPE(window=4), None)),
        "scalings must change frequencies with Axial, since " + ONLY_FREQUENCIES,
    ),
]


@pytest.mark.parametrize(("make", "message"), ERRORS)
def test_errors_name_the_rule_and_the_value(make: Callable[[], object], message: str) -> None:
    with raises_exactly(ValueError, message):
        make()


@every_scaling
def test_bands_are_values_that_can_be_copied(scaling: Bands) -> None:
    assert copy.deepcopy(scaling) == pickle.loads(pickle.dumps(scaling)) == scaling
    rotary = _rotary(scaling)
    assert list(rotary.children()) == []
    assert rotary.state_dict() == {}
    assert rotary.without_bands.scaling is None
    assert torch.equal(rotary.frequencies, rotary.without_bands.frequencies)
    assert rotary.describe()["short_context"] == f"unchanged between tokens less than {scaling.exact} apart"
    within = torch.arange(scaling.exact)
    assert torch.equal(scaling.distances(within + 100, torch.tensor(100)).double(), within.double())


def test_a_rotary_without_bands_is_its_own() -> None:
    plain = _rotary(None)
    assert plain.without_bands is plain
    assert plain.bands is None


def test_tags_are_those_that_the_bands_leave() -> None:
    always = {"bounded", "far", "real", "norm"}
    assert _rotary(SelfExtend(window=4, group=2)).tags == always
    assert _rotary(ReRoPE(window=4)).tags == always | {"relative"}
    assert _rotary(ReRoPE(window=4, leak=0.5)).tags == always | {"relative", "unique"}
    assert _rotary(DualChunk(chunk_size=8, local_size=2)).tags == always


@pytest.mark.compiled
@pytest.mark.once
@pytest.mark.thin(4)
@every_scaling
def test_the_contract_holds(scaling: Bands) -> None:
    situs.check_encoding(_rotary(scaling))
