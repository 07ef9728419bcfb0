"""x-transformers' DynamicPositionBias and ours on the same weights, at offsets near and far."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from situs import MLPBias, Positions, attend

theirs_of = pytest.importorskip("x_transformers.x_transformers")

HEADS, WIDTH = 3, 12


def pair(depth: int, *, log_distance: bool, norm: bool) -> tuple[Any, MLPBias]:
    """Their module and ours, with random weights, normalisations included."""
    theirs = theirs_of.DynamicPositionBias(WIDTH, heads=HEADS, depth=depth, log_distance=log_distance, norm=norm)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(std=0.6)
    ours = MLPBias(num_heads=HEADS, width=WIDTH, depth=depth, log_distance=log_distance, norm=norm)
    state: dict[str, Any] = {}
    for layer, block in enumerate(theirs.mlp[:-1]):
        state |= {f"hidden.{layer}.weight": block[0].weight, f"hidden.{layer}.bias": block[0].bias}
        if norm:
            first = not layer  # theirs has no bias there
            state[f"norms.{layer}.weight"] = block[1].gamma if first else block[1].weight
            state[f"norms.{layer}.bias"] = torch.zeros(WIDTH) if first else block[1].bias
    ours.load_state_dict({**state, "out.weight": theirs.mlp[-1].weight})
    # theirs makes positions, and logarithms of them, in float32, whatever its weights are
    theirs.mlp[0].register_forward_pre_hook(lambda module, given: (given[0].double(),))
    return theirs.double(), ours.double()


@pytest.mark.parametrize("norm", [False, True], ids=["plain", "normalised"])
@pytest.mark.parametrize("log_distance", [False, True], ids=["distances", "logarithms"])
@pytest.mark.parametrize("depth", [1, 3])
def test_the_bias_is_theirs_but_for_the_outputs_own(depth: int, log_distance: bool, norm: bool) -> None:
    theirs, ours = pair(depth, log_distance=log_distance, norm=norm)
    same = theirs.mlp[-1].bias.view(-1, 1, 1)  # for all keys, so that softmax does not see it
    wanted = theirs(7, 3000).detach()
    bias = ours(Positions.range(7, start=2993), Positions.range(3000))[0]
    torch.testing.assert_close(bias + same, wanted, atol=1e-5 if log_distance else 1e-9, rtol=1e-6)


def test_attention_and_gradients_are_theirs() -> None:
    theirs, ours = pair(2, log_distance=False, norm=True)
    q, k, v = (torch.randn(1, HEADS, 40, 8, dtype=torch.float64) for _ in range(3))
    with_theirs = attend(q, k, v, mask=theirs(40, 40)[None], causal=True)
    with_ours = attend(q, k, v, encoding=ours, causal=True)
    torch.testing.assert_close(with_ours, with_theirs)
    ours_first: Any = ours.hidden[0]
    first, second = (
        torch.autograd.grad(out.square().sum(), [weight])[0]
        for out, weight in ((with_ours, ours_first.weight), (with_theirs, theirs.mlp[0][0].weight))
    )
    torch.testing.assert_close(first, second)
