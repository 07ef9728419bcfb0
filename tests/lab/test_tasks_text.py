"""Text is scored at the same bytes at every length, and only what stands before them grows."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from situs.lab.comparing.tasks import Text, by_position, loss_of
from tests.lab.test_corpus import MANY, files_of
from tests.raising import raises_exactly

seeds = st.integers(0, 2**40)


@given(st.integers(2, 390), st.data(), seeds)
def test_every_length_scores_the_same_bytes(longest: int, data: st.DataObject, seed: int) -> None:
    tail = data.draw(st.integers(1, longest - 1))
    length = data.draw(st.integers(tail + 1, longest))
    task = Text(corpus=MANY, longest=longest, tail=tail)
    long, short = task.test(longest, 12, seed), task.test(length, 12, seed)
    assert short.tokens.shape == short.scored.shape == (12, length)
    assert torch.equal(short.tokens, long.tokens[:, -length:])
    assert torch.equal(short.tokens[short.scored], long.tokens[long.scored])
    assert short.scored.sum(1).tolist() == [tail] * 12
    assert short.scored[:, -tail:].all()
    assert torch.equal(short.tokens, task.test(length, 12, seed).tokens)


@given(st.integers(33, 390), seeds)
def test_settings_are_chosen_on_other_files_than_those_scored(length: int, seed: int) -> None:
    examples = Text(corpus=MANY, longest=390).tune(length, 8, seed)
    assert examples.tokens.shape == (8, length)
    assert examples.scored.sum(1).tolist() == [32] * 8
    tune, test = ([files_of(60)[name] for name in MANY.names[split]] for split in ("tune", "test"))
    windows = [bytes(window) for window in examples.tokens.tolist()]
    assert all(any(window in text for text in tune) for window in windows)
    assert not any(window in text for text in test for window in windows)


@given(st.integers(2, 300), st.integers(1, 9), seeds)
def test_training_scores_every_byte_after_the_first(length: int, batch: int, seed: int) -> None:
    task = Text(corpus=MANY, longest=390)
    examples, again = (task.train_batch(torch.Generator().manual_seed(seed), batch, length) for _ in range(2))
    assert examples.tokens.shape == (batch, length)
    assert int(examples.tokens.max()) < task.vocabulary == 256
    assert examples.scored[:, 1:].all()
    assert not examples.scored[:, 0].any()
    assert torch.equal(examples.tokens, again.tokens)


def test_whole_windows_are_those_of_the_test_and_give_the_loss_by_position() -> None:
    task = Text(corpus=MANY, longest=200)
    whole, test = task.whole(6, 3), task.test(200, 6, 3)
    assert torch.equal(whole.tokens, test.tokens)
    logits = torch.randn(6, 200, 256)
    along = by_position(logits, whole)
    assert along[:, 0].isnan().all()
    assert not along[:, 1:].isnan().any()
    assert torch.allclose(along[:, -32:].mean(1), loss_of(logits, test))


@pytest.mark.parametrize("length", [32, 257])
def test_a_test_must_leave_something_to_predict_from_and_fit_its_windows(length: int) -> None:
    message = (
        f"length must be 33 .. 256, since the last 32 bytes are predicted from those before them and windows were "
        f"chosen for longest=256; got {length}."
    )
    with raises_exactly(ValueError, message):
        Text(corpus=MANY, longest=256).test(length, 4, 0)


def test_a_text_too_short_for_the_longest_test_is_refused_at_once() -> None:
    longest = MANY.longest("test")
    message = (
        f"length must be 1 .. {longest}, since a window lies in one file and the longest of the test split of many has "
        f"as many bytes; got 4096. Test shorter lengths, or give longer files."
    )
    with raises_exactly(ValueError, message):
        Text(corpus=MANY, longest=4096)


def test_something_must_be_scored() -> None:
    with raises_exactly(ValueError, "tail must be 1 or more, since a test scores as many bytes; got 0."):
        Text(corpus=MANY, longest=256, tail=0)
