"""A gate of each token times a bias of the offset, against the paper's formula."""

from typing import Any

import numpy as np
import pytest
import torch

import situs
from situs import GatedBias, Positions
from tests.raising import raises_exactly
from tests.references import alibi, gated, t5

HEADS, DIM = 3, 12
SMALL = {"num_buckets": 8, "max_distance": 20}

PLACES = {
    "a range": (Positions.range(9), Positions.range(9)),
    "a far chunk": (Positions.range(4, start=10_000_005), Positions.range(9, start=10_000_000)),
    "keys far behind": (Positions.range(3, start=70_000), Positions.range(4)),
    "ids in any order": (Positions.explicit(torch.tensor([7, 2, 30])), Positions.explicit(torch.tensor([3, 7, 1, 26]))),
}


def drawn(**options: Any) -> GatedBias:
    encoding = GatedBias(**{"num_heads": HEADS, "options": SMALL, **options}).double()
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.normal_()
    return encoding


@pytest.mark.parametrize("place", PLACES)
def test_the_bias_is_the_papers(place: str) -> None:
    query, key = PLACES[place]
    encoding, x = drawn(dim=DIM), torch.randn(2, query.length, DIM, dtype=torch.float64)
    q, k = (torch.randn(2, HEADS, each.length, 6, dtype=torch.float64) for each in (query, key))
    features = encoding.project(x)
    added = encoding(q, k, query, key, scale=0.3, features=features)
    state = {name: value.numpy() for name, value in encoding.state_dict().items()}
    table = t5.bias(state["bias_by_offset.table"], query.ids[0].numpy(), key.ids[0].numpy(), 20, True)
    for row in range(2):
        weights = state["projection.weight"], state["projection.bias"], state["strength"]
        gate = gated.gates(x[row].numpy(), *weights)
        np.testing.assert_allclose(features["bias_gate"][row, ..., 0].detach().numpy(), gate, atol=1e-12)
        np.testing.assert_allclose(added[row].detach().numpy(), gated.bias(gate, table), atol=1e-12)


def test_any_bias_of_one_offset_can_be_gated() -> None:
    text, gate = Positions.range(9), torch.randn(1, HEADS, 9, 1, dtype=torch.float64)
    q = torch.randn(1, HEADS, 9, 6, dtype=torch.float64)
    encoding = GatedBias(num_heads=HEADS, bias="ALiBi", options={"factor": 0.5})
    slopes, at = 0.5 * alibi.slopes(HEADS), np.arange(9.0)
    expected = gated.bias(gate[0, ..., 0].numpy(), alibi.bias(slopes, slopes, at, at))
    np.testing.assert_allclose(encoding(q, q, text, text, features={"bias_gate": gate})[0], expected, atol=1e-12)
    for name, options in (("kerple", None), ("sandwich", {"cosine_dim": 8}), ("mlp", {"width": 4, "norm": True})):
        made = GatedBias(num_heads=HEADS, bias=name, options=options)
        bias = made.bias_by_offset(text, dtype=torch.float64)
        torch.testing.assert_close(made(q, q, text, text, features={"bias_gate": gate}), gate * bias)


def test_gates_of_one_leave_the_bias_as_it_is() -> None:
    encoding = drawn(options={**SMALL, "bidirectional": False})
    q, k, v = (torch.randn(1, HEADS, 30, 8, dtype=torch.float64) for _ in range(3))
    ones = {"bias_gate": torch.ones(1, HEADS, 30, 1, dtype=torch.float64)}
    plain = encoding.bias_by_offset
    for impl in ("toeplitz", "blockwise", "reference"):
        out = situs.attend(q, k, v, encoding=encoding, causal=True, features=ones, impl=impl)
        torch.testing.assert_close(out, situs.attend(q, k, v, encoding=plain, causal=True))


def test_wavlms_options_are_the_defaults_and_its_softmax_scale_the_usual_one() -> None:
    bias: Any = GatedBias(num_heads=2).bias_by_offset
    assert (bias.num_buckets, bias.max_distance, bias.bidirectional) == (320, 800, True)
    assert GatedBias(num_heads=2).softmax_scale is None
    assert GatedBias(num_heads=2, options={"softmax_scale": 1.0}).softmax_scale == 1.0
    assert GatedBias(num_heads=2).span == 800


def test_layers_may_share_the_bias_and_have_their_own_gates() -> None:
    first, second = (drawn(dim=DIM) for _ in range(2))
    second.bias_by_offset = first.bias_by_offset
    layers = torch.nn.ModuleList([first, second])
    assert sum(parameter.numel() for parameter in layers.parameters()) == 8 * HEADS + 2 * (2 * DIM // HEADS + 2 + HEADS)
    x, q = torch.randn(1, 5, DIM, dtype=torch.float64), torch.randn(1, HEADS, 5, 4, dtype=torch.float64)
    added = [each(q, q, features=each.project(x)) / each.project(x)["bias_gate"] for each in (first, second)]
    torch.testing.assert_close(*added)


def test_its_configuration_makes_it_again_and_a_fresh_start_draws_all() -> None:
    encoding = drawn(dim=DIM)
    assert GatedBias(**encoding.config).config == encoding.config
    before = {name: value.clone() for name, value in encoding.state_dict().items()}
    encoding.reset_parameters()
    assert not any(torch.equal(value, before[name]) for name, value in encoding.state_dict().items())
    assert encoding.strength is not None
    assert encoding.strength.tolist() == [1.0] * HEADS
    GatedBias(num_heads=2, bias="sandwich").reset_parameters()  # which has none
    assert "learned" not in GatedBias(num_heads=2, bias="alibi").tags
    assert "learned" in GatedBias(num_heads=2, bias="alibi", dim=4).tags


WRONG: list[tuple[type[Exception], dict[str, Any], str]] = [
    (ValueError, {"num_heads": 0}, "num_heads must be 1 or more, since each head has its own gates; got 0."),
    (TypeError, {"bias": 3}, "bias must be a string, since biases are known by their names; got 3."),
    *(
        (
            ValueError,
            {"bias": name, "options": None},
            "bias must name a bias that goes by one offset, such as 't5', 'alibi', 'kerple' or 'mlp', since a gate "
            f"multiplies what each offset gets; got {name!r}.",
        )
        for name in ("fire", "swin", "rotary", "t6")
    ),
    (
        TypeError,
        {"options": {"buckts": 3}},
        "t5 takes num_heads, num_buckets, max_distance, bidirectional, buckets, softmax_scale, init_std; got 'buckts'. "
        "Did you mean 'buckets'?",
    ),
    (
        TypeError,
        {"options": 3},
        "options must be a mapping of names to values, since the bias is made with them; got 3.",
    ),
    (
        ValueError,
        {"options": {"num_heads": 2}},
        "options must leave out num_heads, since the bias has as many heads as gates; got {'num_heads': 2}.",
    ),
    (
        ValueError,
        {"dim": 10},
        "dim must be a multiple of num_heads=3, since a head's gates are computed from its share of the channels; got "
        "10.",
    ),
]


@pytest.mark.parametrize(("error", "options", "message"), WRONG, ids=[str(options) for _, options, _ in WRONG])
def test_what_cannot_be_is_refused(error: type[Exception], options: dict[str, Any], message: str) -> None:
    with raises_exactly(error, message):
        GatedBias(**{"num_heads": HEADS, **options})


def test_gates_are_computed_from_hidden_states_of_its_width() -> None:
    with raises_exactly(
        ValueError,
        "dim must be given when GatedBias is made, since features are projected from hidden states of that width; got "
        "dim=None. Use GatedBias(dim=...), or compute features yourself.",
    ):
        GatedBias(num_heads=2).project(torch.randn(1, 2, 4))
    with raises_exactly(
        ValueError, "x must have shape (batch, sequence, 4), since GatedBias was made with dim=4; got shape (1, 2, 6)."
    ):
        GatedBias(num_heads=2, dim=4).project(torch.randn(1, 2, 6))
