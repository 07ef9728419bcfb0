"""Rotary's channels that stand last, the other direction, and keys whose rotated part all heads share."""

from typing import Any

import pytest
import torch
from torch import Tensor

import situs
from situs import Positions, Rotary, RotationEncoding
from situs.functional.pairing import convert_pairing
from situs.functional.rotation import PAIRINGS, Pairing
from situs.rotation.fused import planning
from tests.raising import raises_exactly

both_pairings = pytest.mark.parametrize("pairing", PAIRINGS)
START = 1_000_003
CASES = (
    (torch.float64, 20, 6), (torch.float32, 48, 16), (torch.bfloat16, 20, 6), (torch.float16, 8, 8),
)  # fmt: skip


def both(pairing: Pairing, head_dim: int = 20, rotary_dim: int = 6) -> tuple[Rotary, Rotary]:
    """An encoding whose rotated channels stand last, and one with the same channels first."""
    options: dict[str, Any] = {"head_dim": head_dim, "rotary_dim": rotary_dim, "pairing": pairing}
    return Rotary(**options, channels="trailing"), Rotary(**options)


def swapped(x: Tensor, first: int) -> Tensor:
    """The first channels behind the others."""
    return torch.cat((x[..., first:], x[..., :first]), -1)


@both_pairings
@pytest.mark.parametrize("fused", [True, False], ids=["compiled loop", "operations"])
def test_trailing_channels_are_rotated_as_leading_ones(
    pairing: Pairing, fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not fused:
        monkeypatch.setattr(planning, "available", lambda: False)
    for dtype, head_dim, rotary_dim in CASES:
        trailing, leading = both(pairing, head_dim, rotary_dim)
        x = torch.randn(2, 3, 9, head_dim).to(dtype)
        expected = swapped(leading(swapped(x, head_dim - rotary_dim), START), rotary_dim)
        query, key = trailing.both(x, x[:, :1], START)
        torch.testing.assert_close(trailing(x, START), expected)
        torch.testing.assert_close(query, expected)
        torch.testing.assert_close(key, expected[:, :1])
        assert torch.equal(query[..., : head_dim - rotary_dim], x[..., : head_dim - rotary_dim])


@both_pairings
def test_trailing_channels_are_undone_moved_and_written_as_a_matrix(pairing: Pairing) -> None:
    trailing, _ = both(pairing)
    x = torch.randn(1, 2, 5, 20, dtype=torch.float64, requires_grad=True)
    rotated = trailing(x, START)
    torch.testing.assert_close(rotated[:, :, 3], x[:, :, 3] @ trailing.rotation_matrix(START + 3).T)
    torch.testing.assert_close(trailing.inverse(rotated, START), x)
    torch.testing.assert_close(trailing.rerotate(rotated, START, 7), trailing(x, 7))
    few = x.detach()[:, :1, :1].requires_grad_()
    assert torch.autograd.gradcheck(lambda x: trailing(x, START), (few,), check_forward_ad=True)
    mapped = torch.vmap(lambda x: trailing(x[None], START)[0])(x.detach())
    torch.testing.assert_close(mapped, rotated.detach())


def test_a_checkpoint_with_trailing_channels_is_carried_to_the_other_pairing() -> None:
    halves, interleaved = both("halves")[0], both("interleaved")[0]
    query, key = torch.randn(2, 2 * 20, 12, dtype=torch.float64)  # projections of two heads
    x = torch.randn(1, 5, 12, dtype=torch.float64)

    def scores(encoding: Rotary, *weights: Tensor) -> Tensor:
        heads = [(x @ weight.T).unflatten(-1, (2, 20)).transpose(1, 2) for weight in weights]
        query, key = encoding.both(heads[0], heads[1], START)
        return query @ key.mT

    there: dict[str, Any] = {"head_dim": 20, "rotary_dim": 6, "channels": "trailing"}
    carried = [convert_pairing(each, source="interleaved", target="halves", **there) for each in (query, key)]
    torch.testing.assert_close(scores(halves, *carried), scores(interleaved, query, key))
    back = convert_pairing(carried[0], source="halves", target="interleaved", **there)
    assert torch.equal(back, query)


@both_pairings
def test_the_other_direction_is_the_inverse(pairing: Pairing) -> None:
    backward, forward = (Rotary(head_dim=8, pairing=pairing, reverse=reverse) for reverse in (True, False))
    x = torch.randn(1, 2, 5, 8, dtype=torch.float64)
    torch.testing.assert_close(backward(x, START), forward.inverse(x, START))
    torch.testing.assert_close(backward.rerotate(backward(x, START), START, 7), backward(x, 7))
    assert backward.describe()["wavelengths"] == forward.describe()["wavelengths"]
    assert torch.equal(backward.frequencies, -forward.frequencies)


@both_pairings
@pytest.mark.parametrize("channels", ["leading", "trailing"])
def test_keys_with_a_shared_part_are_those_that_every_head_would_rotate(pairing: Pairing, channels: Any) -> None:
    rotary = Rotary(head_dim=20, rotary_dim=6, pairing=pairing, channels=channels)
    plain, shared = torch.randn(2, 3, 9, 14), torch.randn(2, 1, 9, 6)
    parts = plain, shared.expand(-1, 3, -1, -1)
    unrotated = torch.cat(parts if channels == "trailing" else parts[::-1], -1)
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[0, :4] = False
    for where in (START, Positions.from_mask(mask)):
        torch.testing.assert_close(rotary.join_keys(plain, shared, where), rotary(unrotated, where, role="key"))
    query, value = torch.randn(2, 3, 9, 20), torch.randn(2, 3, 9, 4)
    ours = situs.attend(rotary(query), rotary.join_keys(plain, shared), value, scale=rotary.scale_for(20))
    torch.testing.assert_close(ours, situs.attend(query, unrotated, value, encoding=rotary), rtol=0, atol=1e-5)


def test_keys_that_do_not_fit_are_refused() -> None:
    rotary = both("halves")[0]
    words = (
        "plain and shared must be (batch, heads, sequence, 14) and (batch, 1, sequence, 6) of one dtype, since "
        "all heads share the rotated channels; got shapes (1, 2, 3, 14) and (1, 2, 3, 6) of torch.float32 and "
        "torch.float32."
    )
    with raises_exactly(ValueError, words):
        rotary.join_keys(torch.ones(1, 2, 3, 14), torch.ones(1, 2, 3, 6))
    words = "shared must have 6 channels, since Rotary was made with rotary_dim=6; got shape (1, 1, 3, 14)."
    with raises_exactly(ValueError, words):
        rotary.join_keys(torch.ones(1, 2, 3, 14), torch.ones(1, 1, 3, 14))
    per_head = Rotary(head_dim=20, rotary_dim=6, base=(1e4, 1e5))
    words = (
        "base must be one number where heads share a key's rotated channels, since these are rotated once; got 2 bases."
    )
    with raises_exactly(ValueError, words):
        per_head.join_keys(torch.ones(1, 2, 3, 14), torch.ones(1, 1, 3, 6))


def test_keys_of_other_channels_are_not_moved() -> None:
    trailing, leading = both("halves")
    source: RotationEncoding = leading
    words = "source must rotate the same channels, since keys are moved pair by pair; got channels='leading' for "
    with raises_exactly(ValueError, words + "'trailing'."):
        trailing.rerotate(torch.ones(1, 1, 3, 20), 0, 4, source=source)
    words = "channels must be one of 'leading', 'trailing', since the rotated channels of a head stand first or last; "
    with raises_exactly(ValueError, words + "got 'last'."):
        Rotary(head_dim=8, channels="last")  # type: ignore[arg-type]
