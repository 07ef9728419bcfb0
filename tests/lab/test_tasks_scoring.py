"""Scores against oracles made by hand: which logits are held against which token."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from situs.lab.comparing.tasks import Examples, by_position, exact, loss_of
from tests.raising import raises_exactly

sizes = st.tuples(st.integers(1, 5), st.integers(2, 9), st.integers(2, 6))
seeds = st.integers(0, 2**40)


def drawn(size: tuple[int, int, int], seed: int) -> tuple[Tensor, Examples]:
    """Random logits, and examples with some tokens scored."""
    count, length, vocabulary = size
    generator = torch.Generator().manual_seed(seed)
    scored = torch.rand(count, length, generator=generator) < 0.4
    scored[:, 0] = False
    scored[torch.arange(count), torch.randint(1, length, (count,), generator=generator)] = True
    tokens = torch.randint(vocabulary, (count, length), generator=generator)
    return torch.randn(count, length, vocabulary, generator=generator), Examples(tokens, scored)


def oracle(examples: Examples, vocabulary: int) -> Tensor:
    """Logits of a model that knows every next token."""
    following = examples.tokens.roll(-1, 1)
    return torch.nn.functional.one_hot(following, vocabulary) * 50.0


@given(sizes, seeds)
def test_losses_are_those_of_plain_arithmetic(size: tuple[int, int, int], seed: int) -> None:
    logits, examples = drawn(size, seed)
    losses, places = loss_of(logits, examples), by_position(logits, examples)
    for row in range(size[0]):
        nats = {}
        for place in range(size[1]):
            if examples.scored[row, place]:
                weights = [math.exp(number) for number in logits[row, place - 1].tolist()]
                nats[place] = -math.log(weights[int(examples.tokens[row, place])] / sum(weights))
                assert float(places[row, place]) == pytest.approx(nats[place], rel=1e-4, abs=1e-5)
            else:
                assert places[row, place].isnan()
        assert float(losses[row]) == pytest.approx(sum(nats.values()) / len(nats), rel=1e-4, abs=1e-5)


@given(sizes, seeds)
def test_exact_means_every_scored_token_is_the_likeliest(size: tuple[int, int, int], seed: int) -> None:
    logits, examples = drawn(size, seed)
    expected = [
        all(
            max(range(size[2]), key=logits[row, place - 1].tolist().__getitem__) == examples.tokens[row, place]
            for place in range(size[1])
            if examples.scored[row, place]
        )
        for row in range(size[0])
    ]
    assert exact(logits, examples).tolist() == expected


@given(sizes, seeds)
def test_an_oracle_is_right_and_one_wrong_answer_spoils_its_example_only(size: tuple[int, int, int], seed: int) -> None:
    _, examples = drawn(size, seed)
    logits = oracle(examples, size[2])
    assert exact(logits, examples).all()
    assert float(loss_of(logits, examples).max()) < 1e-5
    row, place = examples.scored.nonzero()[seed % int(examples.scored.sum())].tolist()
    logits[row, place - 1] = logits[row, place - 1].roll(1)
    assert exact(logits, examples).tolist() == [each != row for each in range(size[0])]
    assert (loss_of(logits, examples) > 1).tolist() == [each == row for each in range(size[0])]


@given(sizes, seeds)
def test_scores_see_only_the_logits_before_scored_tokens(size: tuple[int, int, int], seed: int) -> None:
    """A token's own logits, made after reading it, never count: that would be a leak."""
    logits, examples = drawn(size, seed)
    logits.requires_grad_()
    loss_of(logits, examples).sum().backward()
    assert logits.grad is not None
    touched = logits.grad.abs().sum(2) > 0
    assert torch.equal(touched[:, :-1], examples.scored[:, 1:])
    assert not touched[:, -1].any()


@given(sizes, seeds)
def test_the_last_logits_may_be_absent(size: tuple[int, int, int], seed: int) -> None:
    logits, examples = drawn(size, seed)
    for score in (loss_of, exact, by_position):
        assert torch.equal(score(logits, examples).nan_to_num(), score(logits[:, :-1], examples).nan_to_num())


def test_teacher_forcing_is_greedy_decoding() -> None:
    """A model of the last two tokens, run both ways."""
    table = torch.randn(5, 5, 5, generator=torch.Generator().manual_seed(1))

    def model(tokens: Tensor) -> Tensor:
        return table[tokens, tokens.roll(1, 1)]

    tokens = torch.randint(5, (200, 6), generator=torch.Generator().manual_seed(2))
    for place in (3, 4, 5):  # half of the examples are what the model would write
        tokens[::2, place] = model(tokens)[::2, place - 1].argmax(1)
    scored = torch.zeros_like(tokens, dtype=torch.bool)
    scored[:, 3:] = True
    written = tokens.clone()
    for place in (3, 4, 5):
        written[:, place] = model(written)[:, place - 1].argmax(1)
    same = (written == tokens).all(1)
    assert same[::2].all()
    assert not same.all()
    assert torch.equal(exact(model(tokens), Examples(tokens, scored)), same)


def test_logits_that_are_no_numbers_are_wrong() -> None:
    examples = Examples(torch.zeros(1, 3, dtype=torch.int64), torch.tensor([[False, True, True]]))
    logits = torch.tensor([[[1.0, 0.0], [math.nan, 0.0], [0.0, 0.0]]])
    assert not exact(logits, examples).any()
    assert loss_of(logits, examples).isnan().all()


def test_half_precision_is_scored_in_single() -> None:
    logits, examples = drawn((4, 8, 5), 0)
    rounded = logits.bfloat16()
    assert torch.equal(loss_of(rounded, examples), loss_of(rounded.float(), examples))
    assert loss_of(logits.double(), examples).dtype == torch.float64


def test_scored_must_fit_the_tokens() -> None:
    tokens = torch.zeros(2, 3, dtype=torch.int64)
    marks = torch.tensor([[False, True, False], [False, False, False]])
    with raises_exactly(
        ValueError, "scored must have the shape of tokens, since it marks some of them; got (2, 2) and (2, 3)."
    ):
        Examples(tokens, marks[:, :2])
    with raises_exactly(
        ValueError, "scored must be False at the first token, since nothing before it predicts it; got True."
    ):
        Examples(tokens, ~marks)
    with raises_exactly(
        ValueError,
        "scored must be True somewhere in every example, since its score is a mean over such tokens; got none in "
        "example 1.",
    ):
        Examples(tokens, marks)


@pytest.mark.parametrize("shape", [(2, 3, 5), (3, 6, 5), (2, 7, 5)])
def test_logits_must_fit_the_tokens(shape: tuple[int, int, int]) -> None:
    _, examples = drawn((2, 6, 5), 0)
    message = f"logits must have shape (2, 6, vocabulary), since each token predicts the next; got {tuple(shape)}."
    with raises_exactly(ValueError, message):
        loss_of(torch.zeros(shape), examples)
