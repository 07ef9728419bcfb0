"""XPos against the paper's formula; its centre cancels in the scores, and its reach is known."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from situs import Positions, Rotary, XPos, attend
from situs.attention import reference
from situs.functional.rotation import PAIRINGS, Pairing
from tests.raising import raises_exactly
from tests.references import rotary, xpos

both_pairings = pytest.mark.parametrize("pairing", PAIRINGS)
both_roles = pytest.mark.parametrize("role", ["query", "key"])


def by_paper(x: Tensor, ids: Tensor, role: str, pairing: str, **options: Any) -> Tensor:
    ladder = rotary.frequencies(x.shape[-1])
    where = ids.double().numpy()
    heads = [xpos.rotate(head.double().numpy(), where, ladder, role, pairing=pairing, **options) for head in x[0]]
    return torch.from_numpy(np.stack(heads))[None]


@both_pairings
@both_roles
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("options", [{}, {"gamma": 0.1, "scale_base": 64.0}, {"gamma": 3.0}], ids=str)
def test_it_turns_and_fades_as_the_paper_says(
    pairing: Pairing, role: Any, dtype: torch.dtype, options: dict[str, float]
) -> None:
    x = torch.randn(1, 2, 5, 8, dtype=dtype)
    ids = torch.tensor([0, 1, -3, 257, 1999])
    turned = XPos(head_dim=8, pairing=pairing, **options)(x, ids, role=role)
    expected = by_paper(x, ids, role, pairing, **options)
    bound = 1e-9 if dtype == torch.float64 else 3e-6
    assert bool(((turned.double() - expected).norm(dim=-1) <= bound * expected.norm(dim=-1)).all())


@both_pairings
@both_roles
@pytest.mark.parametrize("start", [257, 65_537, 10_000_000])
@pytest.mark.parametrize("length", [1, 6, 140])
def test_a_centre_far_away_makes_far_positions_exact(pairing: Pairing, role: Any, start: int, length: int) -> None:
    x = torch.randn(1, 1, length, 8)
    turned = XPos(head_dim=8, pairing=pairing, centre=float(start))(x, start, role=role)
    ids = torch.arange(start, start + length)
    assert torch.allclose(turned.double(), by_paper(x, ids, role, pairing, centre=float(start)), rtol=0, atol=4e-6)


@both_pairings
def test_every_centre_gives_the_same_scores(pairing: Pairing) -> None:
    query, key = torch.randn(2, 1, 2, 40, 8, dtype=torch.float64)
    positions = Positions.range(40)
    scores = []
    for centre in ("origin", "middle", 7.0, -1000.0):
        encoding = XPos(head_dim=8, pairing=pairing, centre=centre)
        turned = encoding.both(query, key, positions, positions)
        scores.append(turned[0] @ turned[1].transpose(-2, -1))
    for other in scores[1:]:
        assert torch.allclose(other, scores[0], rtol=0, atol=1e-10)


def test_the_middle_is_that_of_the_whole_sequence() -> None:
    encoding, x = XPos(head_dim=8, centre="middle"), torch.randn(1, 1, 9, 8, dtype=torch.float64)
    for length, middle in ((9, 5.0), (10, 5.0), (101, 51.0)):
        whole = Positions.range(9, sequence_length=length)
        fixed = XPos(head_dim=8, centre=middle)(x)
        assert torch.allclose(encoding(x, whole), fixed, rtol=0, atol=1e-14)
        decoded = encoding(x[:, :, 8:], whole[8:])
        assert torch.allclose(decoded, fixed[:, :, 8:], rtol=0, atol=1e-14)


def test_each_row_and_document_has_a_middle_of_its_own() -> None:
    encoding, x = XPos(head_dim=8, centre="middle"), torch.randn(2, 1, 12, 8)
    padded = encoding(x, Positions.from_mask(torch.tensor([[0] * 7 + [1] * 5, [1] * 12])))
    assert torch.allclose(padded[:1, :, 7:], encoding(x[:1, :, 7:]), atol=1e-6)
    assert torch.allclose(padded[1:], encoding(x[1:]), atol=1e-6)
    packed = encoding(x[:1], Positions.packed([5, 7]))
    assert torch.allclose(packed[:, :, 5:], encoding(x[:1, :, 5:]), atol=1e-6)


@given(st.integers(-500, 500), st.integers(-500, 500), st.integers(-2000, 2000))
def test_scores_know_the_distance_alone(query_at: int, key_at: int, moved: int) -> None:
    encoding = XPos(head_dim=8)
    query, key = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)

    def score(by: int) -> float:
        return float((encoding(query, query_at + by) * encoding(key, key_at + by, role="key")).sum())

    assert score(moved) == pytest.approx(score(0), rel=1e-9, abs=1e-9)


def test_faster_pairs_fade_faster() -> None:
    encoding = XPos(head_dim=8, gamma=0.4, scale_base=512.0)
    fading = encoding.rotation_matrix(512.0).square().sum(0).sqrt()[::2]
    assert fading.tolist() == pytest.approx(((torch.arange(4) / 4 + 0.4) / 1.4).tolist())
    rising = encoding.rotation_matrix(512.0, role="key").square().sum(0).sqrt()[::2]
    assert (fading * rising).tolist() == pytest.approx([1.0] * 4)


def test_without_decay_it_is_rotary() -> None:
    x = torch.randn(1, 2, 6, 8, dtype=torch.float64)
    endless = XPos(head_dim=8, scale_base=1e18, pairing="halves")
    assert torch.allclose(endless(x, 65_537), Rotary(head_dim=8)(x, 65_537), rtol=0, atol=1e-9)


def test_its_configuration_makes_it_again_and_describe_hides_nothing() -> None:
    for centre in ("origin", "middle", 40.0):
        encoding = XPos(head_dim=8, base=500.0, gamma=0.3, scale_base=100.0, pairing="halves", centre=centre)
        again = XPos(**encoding.config)
        assert again.config == encoding.config
        assert again.identity == encoding.identity
        described = encoding.describe()
        assert described["reach"] == pytest.approx(88 * 100 / -math.log(0.3 / 1.3))
        assert described["reach_in_float16"] == pytest.approx(9.7 * 100 / -math.log(0.3 / 1.3))
        assert described["dialect"] == (centre if isinstance(centre, str) else "fixed centre")
        assert described["encoding"] == "XPos"
        assert encoding.state_dict() == {}


def test_positions_beyond_its_reach_are_refused() -> None:
    encoding, x = XPos(head_dim=8), torch.zeros(1, 1, 2, 8)
    assert encoding.reach == pytest.approx(35_965.3, abs=0.1)
    encoding(x, math.floor(encoding.reach) - 1)
    message = (
        "positions must lie within 35965 of the centre, since beyond it XPos's factor leaves float32; got 36001. Set "
        "centre to a position in the middle of those in use."
    )
    with raises_exactly(ValueError, message):
        encoding(x, 36_000)
    with raises_exactly(ValueError, message):
        encoding(x, torch.tensor([0, -36_001]), role="key")
    XPos(head_dim=8, centre=36_000.0)(x, 36_000)


OUT_OF_FLOAT16 = (
    "positions must lie within 3964 of the centre, since beyond it XPos's factor leaves float16; got 5003. Set centre "
    "to a position in the middle of those in use, or use bfloat16 or float32."
)


def test_vectors_in_float16_reach_less_far() -> None:
    encoding, x = XPos(head_dim=64), torch.randn(1, 1, 4, 64)
    assert encoding.reach_in(torch.float16) == pytest.approx(9.7 * encoding.reach / 88)
    for dtype in (torch.bfloat16, torch.float32, torch.float64):
        assert encoding.reach_in(dtype) == encoding.reach
        assert bool(encoding(x.to(dtype), 5000, role="key").isfinite().all())
    half, far = x.half(), Positions.range(4, start=5000)
    ids = torch.tensor([0, -5003, 5002, 3])
    for turn in (
        lambda: encoding(half, far),
        lambda: encoding(half, far, role="key"),
        lambda: encoding(half, ids),
        lambda: encoding(half, encoding.table(far)),
        lambda: encoding(half, encoding.table(Positions.explicit(ids), role="key"), role="key"),
        lambda: encoding.both(half, half, far, far),
        lambda: encoding.inverse(half, far),
        lambda: encoding.rerotate(half, 0, far),
        lambda: attend(half, half, half, encoding=encoding, causal=True, positions=far),
    ):
        with raises_exactly(ValueError, OUT_OF_FLOAT16):
            turn()
    XPos(head_dim=64, centre=5000.0)(half, far)
    encoding(half, 0)


@both_roles
@pytest.mark.parametrize("sign", [1, -1])
def test_at_the_end_of_its_reach_float16_holds_turned_vectors(role: Any, sign: int) -> None:
    """Entries up to 4 neither overflow nor lose digits to more than what is rounded of a 1."""
    encoding = XPos(head_dim=64)
    x = torch.randn(1, 4, 4, 64).clamp(-2.5, 2.5).half()
    positions = Positions.range(4, start=sign * math.floor(encoding.reach_in(torch.float16)) - 3 * (sign > 0))
    turned, exact = encoding(x, positions, role=role), encoding(x.double(), positions, role=role)
    factors = encoding.magnitude_of(positions, role).repeat_interleave(2, -1)
    assert bool(turned.isfinite().all())
    assert bool(((turned.double() - exact).abs() / factors <= 2**-11 * (exact / factors).abs().clamp(min=1)).all())


def test_float16_attention_near_the_end_of_its_reach_is_the_reference() -> None:
    encoding, x = XPos(head_dim=64), torch.randn(1, 1, 4, 64).half()
    options: dict[str, Any] = {"encoding": encoding, "causal": True, "positions": Positions.range(4, start=3960)}
    torch.testing.assert_close(attend(x, x, x, **options), reference(x, x, x, **options), atol=2e-3, rtol=2e-3)


@both_roles
@pytest.mark.parametrize("sign", [1, -1])
def test_at_the_end_of_its_reach_float32_still_holds_its_factors(role: Any, sign: int) -> None:
    encoding = XPos(head_dim=8)
    last = sign * math.floor(encoding.reach)
    table = encoding.table(Positions.range(1, start=last), role=role)
    factors = torch.hypot(table.cos.double(), table.sin.double())[0, 0, 0]
    decay = torch.from_numpy(xpos.scales(8)).log() * last / 512 * (1 if role == "query" else -1)
    assert torch.allclose(factors, decay.exp(), rtol=1e-6, atol=0)


def test_a_cache_that_mixes_middles_is_refused() -> None:
    query, key = torch.zeros(1, 1, 1, 8), torch.zeros(1, 1, 7, 8)
    late, early = Positions.range(7)[6:], Positions.range(7, sequence_length=6)
    with raises_exactly(
        ValueError,
        'queries and keys must be made for one sequence length, since XPos(centre="middle") chooses by it and a mixed '
        "cache gives wrong scores; got lengths 7 and 6. Plan both with positions.with_sequence_length(n), or move "
        "cached keys with rerotate().",
    ):
        XPos(head_dim=8, centre="middle").both(query, key, late, early)
    XPos(head_dim=8).both(query, key, late, early)


ERRORS: list[tuple[dict[str, Any], str]] = [
    ({"head_dim": 7}, "head_dim must be even, since rotary rotates pairs of channels; got 7."),
    (
        {"head_dim": 8, "pairing": "neox"},
        "pairing must be one of 'interleaved', 'halves', since checkpoints pair neighbouring channels or the two "
        "halves; got 'neox'.",
    ),
    (
        {"head_dim": 8, "gamma": 0.0},
        "gamma must be more than 0, since it sets the decay; got 0.0.",
    ),
    (
        {"head_dim": 8, "scale_base": -1.0},
        "scale_base must be more than 0, since it sets the decay; got -1.0.",
    ),
    (
        {"head_dim": 8, "centre": "end"},
        'centre must be "origin", "middle" or a number, since it is a position; got \'end\'.',
    ),
    ({"head_dim": 8, "base": 1.0}, "base must be more than 1, since wavelengths grow by its powers; got 1.0."),
    ({"head_dim": 8, "base": math.nan}, "base must be finite, since wavelengths grow by its powers; got nan."),
    ({"head_dim": 8, "base": math.inf}, "base must be finite, since wavelengths grow by its powers; got inf."),
    ({"head_dim": 8, "gamma": math.nan}, "gamma must be finite, since it sets the decay; got nan."),
    ({"head_dim": 8, "scale_base": math.inf}, "scale_base must be finite, since it sets the decay; got inf."),
    (
        {"head_dim": 8, "centre": None},
        'centre must be "origin", "middle" or a number, since it is a position; got None.',
    ),
    (
        {"head_dim": 8, "centre": math.nan},
        "centre must be finite, since it is a position; got nan.",
    ),
]


@pytest.mark.parametrize(("options", "message"), ERRORS, ids=[message for _, message in ERRORS])
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with raises_exactly(ValueError, message):
        XPos(**options)


def test_positions_it_cannot_place_are_refused() -> None:
    with raises_exactly(
        ValueError,
        'positions must tell how long the whole sequence is, since XPos(centre="middle") chooses by it and keys '
        "cached earlier must agree; got Positions(range 5..6, length 2). Slice the positions of the whole sequence, "
        "or use positions.with_sequence_length(n).",
    ):
        XPos(head_dim=8, centre="middle")(torch.zeros(1, 1, 2, 8), 5)
    with raises_exactly(
        ValueError,
        "positions must have 1 coordinate each, since this XPos encodes that many; got 2 in "
        "Positions(grid, 1 x 2, length 2, axes 2).",
    ):
        XPos(head_dim=8)(torch.zeros(1, 1, 2, 8), Positions.grid(1, 2))


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("dtype", "cure"), [(torch.float32, "."), (torch.float16, ", or use bfloat16 or float32.")], ids=str
)
def test_a_position_beyond_reach_is_refused_in_a_graph_too(dtype: torch.dtype, cure: str) -> None:
    torch._dynamo.reset()
    encoding = XPos(head_dim=8)
    compiled = torch.compile(lambda x, ids: encoding(x, ids), fullgraph=True, backend="eager")
    reach, x = encoding.reach_in(dtype), torch.ones(1, 1, 2, 8, dtype=dtype)
    near = torch.tensor([0, int(reach)])
    assert bool(compiled(x, near).isfinite().all())
    with raises_exactly(
        RuntimeError,
        f"positions must lie within {reach:.0f} of the centre, since beyond it XPos's factor leaves "
        f"{str(dtype).removeprefix('torch.')}. Set centre to a position in the middle of those in use{cure}",
    ):
        compiled(x, 2 * near)
    torch._dynamo.reset()
