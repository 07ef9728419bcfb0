"""ALiBi's slopes against the authors' rule, against slopes written down, and as tensor-parallel ranks hold them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from situs import ALiBi, Positions
from situs.functional.slopes import alibi_slopes
from tests.references import alibi as reference

EVERY_HEAD_COUNT = range(1, 129)

# one rounding each, ours and the reference's
ROUNDING = 2**-52


def assert_close(actual: Tensor, expected: object) -> None:
    assert actual.dtype == torch.float64
    torch.testing.assert_close(actual, torch.as_tensor(expected, dtype=torch.float64), rtol=ROUNDING, atol=0)


def plain_formula(heads: int) -> Tensor:
    return 2.0 ** (-8.0 / heads * torch.arange(1, heads + 1, dtype=torch.float64))


@pytest.mark.parametrize(
    ("heads", "slopes"),
    [
        (1, [1 / 256]),
        (2, [1 / 16, 1 / 256]),
        (3, [1 / 16, 1 / 256, 1 / 4]),
        (4, [1 / 4, 1 / 16, 1 / 64, 1 / 256]),
        (6, [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8]),
        (8, [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]),
        (
            12,
            [
                *(1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256),
                *(0.7071067811865476, 0.3535533905932738, 0.1767766952966369, 0.08838834764831845),
            ],
        ),
    ],
    ids=lambda value: f"{value} heads" if isinstance(value, int) else "",
)
def test_slopes_are_those_written_down(heads: int, slopes: list[float]) -> None:
    assert_close(alibi_slopes(heads), slopes)
    assert ALiBi(num_heads=heads).resolved["slopes"] == tuple(alibi_slopes(heads).tolist())


def test_slopes_of_every_head_count_follow_the_authors_rule() -> None:
    for heads in EVERY_HEAD_COUNT:
        assert_close(alibi_slopes(heads), reference.slopes(heads))


@pytest.mark.parametrize("bias_max", [4.0, 8.0, 16.0])
def test_slopes_with_another_maximum_follow_mpts_rule(bias_max: float) -> None:
    for heads in EVERY_HEAD_COUNT:
        assert_close(alibi_slopes(heads, bias_max), reference.slopes_with_maximum(heads, bias_max))


def test_a_power_of_two_follows_the_formula() -> None:
    for heads in (1, 2, 4, 8, 16, 32, 64, 128):
        assert_close(alibi_slopes(heads), plain_formula(heads))


def test_no_other_head_count_follows_the_formula() -> None:
    for heads in EVERY_HEAD_COUNT:
        if heads.bit_count() > 1:
            plain = plain_formula(heads)
            assert not torch.allclose(alibi_slopes(heads), plain, rtol=0.01, atol=0)
            assert not torch.allclose(alibi_slopes(heads).sort().values, plain.sort().values, rtol=0.01, atol=0)


def test_the_formula_is_wrong_in_every_one_of_12_heads() -> None:
    ours = alibi_slopes(12)
    assert bool(((ours / plain_formula(12) - 1).abs() > 0.1).all())
    assert_close(ours, reference.slopes(12))


def test_no_two_heads_share_a_slope() -> None:
    for heads in EVERY_HEAD_COUNT:
        assert len(set(alibi_slopes(heads).tolist())) == heads


@pytest.mark.parametrize("heads", [8, 12, 71, 112])
@pytest.mark.parametrize("sizes", ["one a rank", "two ranks", "uneven"])
@pytest.mark.parametrize("options", [{}, {"factor": 0.125, "bias_max": 4.0}, {"learned": True}], ids=str)
def test_the_heads_of_all_ranks_tile_the_layer(heads: int, sizes: str, options: dict[str, float]) -> None:
    counts = {
        "one a rank": [1] * heads,
        "two ranks": [heads // 2, heads - heads // 2],
        "uneven": [1, 3, heads - 4],
    }[sizes]
    assert sum(counts) == heads
    firsts = [sum(counts[:rank]) for rank in range(len(counts))]
    ranks = [
        ALiBi(num_heads=count, first_head=first, all_heads=heads, **options)  # type: ignore[arg-type]
        for count, first in zip(counts, firsts, strict=True)
    ]
    whole = ALiBi(num_heads=heads, **options)  # type: ignore[arg-type]
    positions = Positions.range(20)
    assert torch.equal(torch.cat([rank(positions) for rank in ranks], 1), whole(positions))
    offsets = torch.arange(-30, 30)
    assert torch.equal(torch.cat([rank.by_offset(offsets) for rank in ranks]), whole.by_offset(offsets))


def test_given_slopes_of_all_heads_are_cut_to_the_ranks_own() -> None:
    slopes = [0.5, 0.25, 0.75, 0.125]
    rank = ALiBi(num_heads=2, first_head=1, all_heads=4, slopes=slopes)
    assert rank.by_offset(torch.tensor([-1])).squeeze(-1).tolist() == [-0.25, -0.75]
