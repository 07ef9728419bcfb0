"""Tasks by name."""

import pytest

from situs.lab.comparing.corpus import Corpus
from situs.lab.comparing.tasks import TASKS, Text, make_task, of_text
from tests.lab.test_corpus import MANY
from tests.raising import raises_exactly


@pytest.mark.parametrize("name", TASKS)
def test_every_task_is_made_by_its_name(name: str) -> None:
    task = make_task(name, MANY, longest=128)
    assert task.name == name
    assert type(task) is TASKS[name]
    assert task.measure == ("loss" if name == "text" else "accuracy")
    assert of_text(name) == (name == "text")


def test_text_takes_the_corpus_and_the_longest_length() -> None:
    task = make_task("text", MANY, longest=128)
    assert isinstance(task, Text)
    assert task.corpus is MANY
    assert task.longest == 128


@pytest.mark.parametrize(("name", "cure"), [("passkeys", " Did you mean 'passkey'?"), ("sorting", "")])
def test_a_task_must_be_known(name: str, cure: str) -> None:
    message = f"task must be one of text, passkey, copy, reverse, addition, recall; got {name!r}.{cure}"
    with raises_exactly(ValueError, message):
        make_task(name)
    with raises_exactly(ValueError, message):
        of_text(name)


@pytest.mark.parametrize(("corpus", "longest"), [(None, 128), (MANY, None), (None, None)])
def test_text_must_be_given_what_it_reads(corpus: Corpus | None, longest: int | None) -> None:
    message = (
        f"corpus and longest must be given, since text reads windows of a text, chosen for the greatest length to be "
        f"tested; got {corpus!r} and {longest!r}. Corpus.standard_library() is always there."
    )
    with raises_exactly(ValueError, message):
        make_task("text", corpus, longest=longest)
