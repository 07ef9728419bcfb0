"""The decoder: alike for all methods in everything but positions."""

from __future__ import annotations

import pytest
import torch

from situs.lab.model import Decoder
from situs.lab.naming import parse
from situs.lab.naming.methods import suiting_text
from situs.lab.settings import Size

SMALL = Size(dim=16, layers=2, heads=2)


def decoder(name: str, seed: int = 0) -> Decoder:
    return Decoder(parse(name), vocabulary=11, size=SMALL, train_length=12, seed=seed)


@pytest.mark.parametrize("name", [*suiting_text(), "rotary/none", "rotary&alibi", "sinusoidal&t5", "rotary+random"])
def test_it_is_causal_and_learns_with_every_encoding(name: str) -> None:
    model, tokens = decoder(name), torch.randint(11, (2, 12), generator=torch.Generator().manual_seed(1))
    model.eval()
    changed = tokens.clone()
    changed[:, 8:] = 0
    torch.testing.assert_close(model(tokens)[:, :8], model(changed)[:, :8])
    model.train()
    model(tokens).square().sum().backward()
    assert all(each.grad is not None and bool(each.grad.isfinite().all()) for each in model.parameters())


def test_weights_of_one_seed_start_alike_whatever_the_method_is() -> None:
    plain, other = decoder("none").state_dict(), decoder("deberta").state_dict()
    assert plain.keys() < other.keys()
    for name, weight in plain.items():
        assert torch.equal(weight, other[name]), name
    assert not torch.equal(plain["head.weight"], decoder("none", seed=1).state_dict()["head.weight"])


def test_no_two_weights_start_alike() -> None:
    weights = [each.flatten()[:64] for each in decoder("none").parameters() if each.ndim > 1]
    for number, one in enumerate(weights):
        assert not any(torch.equal(one, other) for other in weights[number + 1 :])


def test_making_a_model_leaves_the_random_state_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    decoder("learned")
    assert torch.equal(torch.rand(3), expected)


def test_scaled_frequencies_act_and_can_be_taken_back() -> None:
    model, tokens = decoder("rotary").eval(), torch.arange(24).remainder(11)[None]
    plain = model(tokens)
    model.scaled_to(parse("rotary+linear"), 24, (2.0, 0.25))
    assert not torch.allclose(model(tokens), plain, atol=1e-4)
    model.scaled_to(parse("rotary+linear"), 12, (2.0, 0.25))
    assert torch.equal(model(tokens), plain)


def test_it_knows_where_tables_end_and_what_encodings_learn() -> None:
    assert [decoder(name).usable_length for name in ("learned", "tupe", "alibi")] == [12, 12, None]
    assert decoder("learned").parameters_of_encodings() == 12 * 16
    assert decoder("rotary").parameters_of_encodings() == 0


def test_random_positions_change_from_step_to_step_in_training_alone() -> None:
    model, tokens = decoder("rotary+random"), torch.arange(12).remainder(11)[None]
    assert not torch.equal(model(tokens), model(tokens))
    model.eval()
    assert torch.equal(model(tokens), model(tokens))


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((0, 1, 1), "dim, layers and heads must be 1 or more, since they size the model; got 0, 1 and 1."),
        ((24, 1, 8), "dim must be a multiple of twice heads, since each head has an even share of it; got dim=24 and "
         "heads=8."),
    ],
)  # fmt: skip
def test_sizes_that_do_not_fit_are_refused(sizes: tuple[int, int, int], message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        Size(*sizes)
    assert str(caught.value) == message
