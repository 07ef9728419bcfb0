"""Carrying weights from one pairing to the other: bit-exact there and back, and the same attention."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import linear, rms_norm

from situs import Rotary, convert_pairing
from situs.functional import pairing_permutation
from situs.functional.rotation import Pairing
from tests.raising import raises_exactly

DIRECTIONS: list[tuple[Pairing, Pairing]] = [("interleaved", "halves"), ("halves", "interleaved")]
both_ways = pytest.mark.parametrize(("source", "target"), DIRECTIONS)
HEAD_DIM = 8

TENSORS = {
    "projection": torch.randn(4 * HEAD_DIM, 12),
    "key projection of grouped queries": torch.randn(2 * HEAD_DIM, 12),
    "bias": torch.randn(4 * HEAD_DIM),
    "B of a low-rank adapter": torch.randn(4 * HEAD_DIM, 3),
    "norm on queries and keys": torch.randn(HEAD_DIM),
    "half precision": torch.randn(2 * HEAD_DIM, 5).bfloat16(),
    "whole numbers of a quantised weight": torch.randint(-128, 128, (2 * HEAD_DIM, 5), dtype=torch.int8),
}


@both_ways
@pytest.mark.parametrize("what", TENSORS)
@pytest.mark.parametrize("rotary_dim", [None, 8, 4, 0])
def test_there_and_back_is_bit_exact(what: str, source: Pairing, target: Pairing, rotary_dim: int | None) -> None:
    weight = TENSORS[what]
    there = convert_pairing(weight, head_dim=HEAD_DIM, source=source, target=target, rotary_dim=rotary_dim)
    back = convert_pairing(there, head_dim=HEAD_DIM, source=target, target=source, rotary_dim=rotary_dim)
    assert torch.equal(back, weight)
    assert (there.dtype, there.shape) == (weight.dtype, weight.shape)
    assert torch.equal(there, weight) == (rotary_dim == 0)


def test_the_order_of_channels_is_golden() -> None:
    assert pairing_permutation(6, source="interleaved", target="halves").tolist() == [0, 2, 4, 1, 3, 5]
    assert pairing_permutation(6, source="halves", target="interleaved").tolist() == [0, 3, 1, 4, 2, 5]
    partial = pairing_permutation(8, source="interleaved", target="halves", rotary_dim=4)
    assert partial.tolist() == [0, 2, 1, 3, 4, 5, 6, 7]
    assert pairing_permutation(4, source="halves", target="halves").tolist() == [0, 1, 2, 3]


@given(st.integers(1, 20), st.data())
def test_the_two_orders_are_inverse(pairs: int, data: st.DataObject) -> None:
    turning = 2 * data.draw(st.integers(0, pairs))
    there, back = (
        pairing_permutation(2 * pairs, source=source, target=target, rotary_dim=turning)
        for source, target in DIRECTIONS
    )
    assert there[back].tolist() == list(range(2 * pairs))


def test_other_axes_and_negative_ones_can_be_converted() -> None:
    weight = torch.randn(3, 2 * HEAD_DIM)
    rows = convert_pairing(weight.T, head_dim=HEAD_DIM, source="halves", target="interleaved")
    for dim in (1, -1):
        columns = convert_pairing(weight, head_dim=HEAD_DIM, source="halves", target="interleaved", dim=dim)
        assert torch.equal(columns, rows.T)


@both_ways
@pytest.mark.parametrize("rotary_dim", [8, 4])
def test_a_converted_model_has_the_same_scores(source: Pairing, target: Pairing, rotary_dim: int) -> None:
    """Grouped queries, biases, a low-rank adapter and a norm on queries and keys, at far positions."""
    heads, kv_heads, dim = 4, 2, 12
    x = torch.randn(1, 5, dim, dtype=torch.float64)
    shapes = {"q": heads, "k": kv_heads}
    weights = {
        name: {
            "weight": torch.randn(count * HEAD_DIM, dim, dtype=torch.float64),
            "bias": torch.randn(count * HEAD_DIM, dtype=torch.float64),
            "lora_b": torch.randn(count * HEAD_DIM, 2, dtype=torch.float64),
            "norm": torch.rand(HEAD_DIM, dtype=torch.float64),
        }
        for name, count in shapes.items()
    }
    lora_a = torch.randn(2, dim, dtype=torch.float64)

    def vectors(parts: dict[str, Tensor], pairing: Pairing) -> Tensor:
        projected = linear(x, parts["weight"] + parts["lora_b"] @ lora_a, parts["bias"])
        split = projected.unflatten(-1, (-1, HEAD_DIM)).transpose(1, 2)
        normed = rms_norm(split, (HEAD_DIM,), parts["norm"])
        turned: Tensor = Rotary(head_dim=HEAD_DIM, rotary_dim=rotary_dim, pairing=pairing)(normed, 1_000_003)
        return turned

    def scores(model: dict[str, dict[str, Tensor]], pairing: Pairing) -> Tensor:
        query, key = (vectors(model[name], pairing) for name in ("q", "k"))
        return query @ key.repeat_interleave(heads // kv_heads, 1).transpose(-2, -1)

    converted = {
        name: {
            part: convert_pairing(weight, head_dim=HEAD_DIM, source=source, target=target, rotary_dim=rotary_dim)
            for part, weight in parts.items()
        }
        for name, parts in weights.items()
    }
    expected = scores(weights, source)
    assert torch.allclose(scores(converted, target), expected, rtol=1e-10, atol=1e-10)
    assert not torch.allclose(scores(weights, target), expected, rtol=1e-2)


def test_what_does_not_fit_is_refused() -> None:
    with raises_exactly(
        ValueError,
        "weight must have a multiple of head_dim=8 channels along dim 0, since heads lie there one after another; "
        "got shape (12, 8).",
    ):
        convert_pairing(torch.zeros(12, 8), head_dim=8, source="halves", target="interleaved")
    for name in ("source", "target"):
        pairings = {"source": "halves", "target": "halves", name: "neighbours"}
        with raises_exactly(
            ValueError,
            f"{name} must be one of 'interleaved', 'halves', since channels are paired one way or the other; got "
            f"'neighbours'.",
        ):
            convert_pairing(torch.zeros(8), head_dim=8, **pairings)  # type: ignore[arg-type]
    for head_dim in (0, -8):
        message = f"head_dim must be 1 or more, since it counts the channels of a head; got {head_dim}."
        with raises_exactly(ValueError, message):
            convert_pairing(torch.zeros(8), head_dim=head_dim, source="halves", target="interleaved")
        with raises_exactly(ValueError, message):
            pairing_permutation(head_dim, source="halves", target="interleaved")
    for rotary_dim in (3, 10, -2):
        with raises_exactly(
            ValueError,
            f"rotary_dim must be even and at most head_dim=8, since channels are rotated in pairs; got {rotary_dim}.",
        ):
            convert_pairing(torch.zeros(8), head_dim=8, source="halves", target="interleaved", rotary_dim=rotary_dim)
