"""Every answer follows from what stands before it, as decoders that share no code with the tasks find."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from situs.lab.comparing.tasks import TASKS, Copy, Examples, Passkey, Recall, Reverse, Task, make_task
from tests.raising import raises_exactly

seeds = st.integers(0, 2**40)
SHORTEST = {"passkey": 8, "copy": 4, "reverse": 4, "addition": 6, "recall": 4}
every_task = pytest.mark.parametrize("name", SHORTEST)


def find_passkey(prefix: list[int]) -> list[int]:
    key, ask = 32, 33
    assert prefix[-1] == ask
    assert prefix.count(key) == prefix.count(ask) == 1
    hidden = prefix.index(key) + 1
    fillers = prefix[: hidden - 1] + prefix[hidden + 1 : -1]
    assert all(16 <= filler < 32 for filler in fillers)
    return [prefix[hidden]]


def go_on(prefix: list[int], step: int) -> list[int]:
    """What is left to write of the string, forwards or backwards."""
    assert prefix[0] == 16
    then = prefix.index(17)
    string, written = prefix[1:then], prefix[then + 1 :]
    assert all(symbol < 16 for symbol in string)
    assert written == string[::step][: len(written)]
    return string[::step][len(written) :]


def copy(prefix: list[int]) -> list[int]:
    return go_on(prefix, 1)


def reverse(prefix: list[int]) -> list[int]:
    return go_on(prefix, -1)


def add(prefix: list[int]) -> list[int]:
    written = "".join("0123456789+="[token] for token in prefix)
    first, second = written.removesuffix("=").split("+")
    assert len(first) == len(second)
    assert first[0] != "0" != second[0]
    return [int(digit) for digit in reversed(str(int(first) + int(second)).zfill(len(first) + 1))]


def recall(prefix: list[int]) -> list[int]:
    *pairs, key = prefix
    dictionary: dict[int, int] = {}
    for known, value in zip(pairs[::2], pairs[1::2], strict=True):
        assert known < 16 <= value < 32
        assert dictionary.setdefault(known, value) == value
    return [dictionary[key]]


SOLVERS: dict[str, Callable[[list[int]], list[int]]] = {
    "passkey": find_passkey,
    "copy": copy,
    "reverse": reverse,
    "addition": add,
    "recall": recall,
}


def answer_of(tokens: list[int], scored: list[bool]) -> tuple[list[int], list[int]]:
    """What stands before the answer, and the answer, which is one stretch."""
    places = [place for place, mark in enumerate(scored) if mark]
    assert places == list(range(places[0], places[-1] + 1))
    return tokens[: places[0]], tokens[places[0] : places[-1] + 1]


def rows(examples: Examples) -> zip:
    return zip(examples.tokens.tolist(), examples.scored.tolist(), strict=True)


@every_task
@given(st.one_of(st.integers(8, 70), st.sampled_from([511, 512, 1024])), st.integers(1, 20), seeds)
def test_answers_follow_from_what_stands_before_them(name: str, length: int, count: int, seed: int) -> None:
    task = make_task(name)
    for examples in (task.test(length, count, seed), task.tune(length, count, seed)):
        assert examples.tokens.shape == examples.scored.shape == (count, length)
        assert examples.tokens.dtype == torch.int64
        assert 0 <= int(examples.tokens.min()) <= int(examples.tokens.max()) < task.vocabulary
        for tokens, scored in rows(examples):
            prefix, answer = answer_of(tokens, scored)
            expected = SOLVERS[name](prefix)
            assert answer == (expected[:1] if name in ("copy", "reverse") else expected)


@every_task
@given(st.integers(8, 90), st.integers(1, 20), seeds)
def test_training_has_the_form_of_the_test_at_any_size_up_to_its_length(
    name: str, length: int, batch: int, seed: int
) -> None:
    task = make_task(name)
    examples, again = (task.train_batch(torch.Generator().manual_seed(seed), batch, length) for _ in range(2))
    assert torch.equal(examples.tokens, again.tokens)
    assert examples.tokens.shape[0] == batch
    assert SHORTEST[name] <= examples.tokens.shape[1] <= length
    assert 0 <= int(examples.tokens.min()) <= int(examples.tokens.max()) < task.vocabulary
    for tokens, scored in rows(examples):
        if name == "recall":
            for place in (place for place, mark in enumerate(scored) if mark):
                assert recall(tokens[:place]) == [tokens[place]]
            assert scored[-1]
        else:
            prefix, answer = answer_of(tokens, scored)
            assert answer == SOLVERS[name](prefix)
            assert scored[-1]


@every_task
def test_training_meets_every_size_and_sizes_end_at_its_length(name: str) -> None:
    task, generator = make_task(name), torch.Generator().manual_seed(0)
    step = {"passkey": 1, "addition": 3}.get(name, 2)
    lengths = {task.train_batch(generator, 1, 30).tokens.shape[1] for _ in range(1500)}
    assert lengths == set(range(SHORTEST[name], 31, step))


@every_task
@given(seeds)
def test_tests_repeat_themselves_and_differ_from_training_and_tuning(name: str, seed: int) -> None:
    task = make_task(name)
    first, again, other = task.test(64, 8, seed), task.test(64, 8, seed), task.test(64, 8, seed + 1)
    assert torch.equal(first.tokens, again.tokens)
    assert torch.equal(first.scored, again.scored)
    assert not torch.equal(first.tokens, other.tokens)
    tested = {tuple(tokens) for tokens in first.tokens.tolist()}
    tuned = {tuple(tokens) for tokens in task.tune(64, 8, seed).tokens.tolist()}
    generator = torch.Generator().manual_seed(seed)
    trained = {tuple(row) for _ in range(3) for row in task.train_batch(generator, 8, 64).tokens.tolist()}
    assert not tested & (tuned | trained)


@every_task
def test_no_answer_can_be_had_by_always_saying_the_same(name: str) -> None:
    """Every possible answer occurs, the first scored token being any symbol."""
    examples = make_task(name).test(32, 400, 0)
    first = {answer_of(tokens, scored)[1][0] for tokens, scored in rows(examples)}
    assert len(first) == {"addition": 10}.get(name, 16)


@every_task
def test_drawing_leaves_the_generator_of_everyone_else_alone(name: str) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    make_task(name).test(32, 4, 0)
    make_task(name).train_batch(torch.Generator().manual_seed(1), 4, 32)
    assert torch.equal(torch.rand(3), expected)


def asked_place(name: str, prefix: list[int], length: int) -> tuple[int, int]:
    """Where in the text the answer stands, and where it would stand at depth 1."""
    if name == "passkey":
        return prefix.index(32), length - 4
    if name == "recall":
        return prefix.index(prefix[-1]), 2 * (length // 2 - 2)
    then, last = prefix.index(17), length // 2 - 2
    written = len(prefix) - then - 1
    return written if name == "copy" else last - written, last


@pytest.mark.parametrize("name", ["passkey", "copy", "reverse", "recall"])
@given(st.integers(20, 600), st.integers(2, 12), st.integers(1, 5), seeds)
def test_depths_are_even_and_the_same_at_every_length(
    name: str, length: int, depths: int, times: int, seed: int
) -> None:
    made: dict[str, Callable[..., Task]] = {"passkey": Passkey, "copy": Copy, "reverse": Reverse, "recall": Recall}
    task = made[name](depths=depths)
    examples, longer = (task.test(each, depths * times, seed) for each in (length, 8 * length))
    assert examples.depth is not None
    assert longer.depth is not None
    assert torch.equal(examples.depth, longer.depth)
    middles = name in ("copy", "reverse")
    expected = [(level + 0.5) / depths if middles else level / (depths - 1) for level in range(depths)] * times
    assert examples.depth.tolist() == pytest.approx(expected)
    for (tokens, scored), depth in zip(rows(longer), expected, strict=True):
        prefix, _ = answer_of(tokens, scored)
        place, last = asked_place(name, prefix, len(tokens))
        assert abs(place - depth * last) <= 1


@pytest.mark.parametrize("name", ["passkey", "recall"])
def test_training_tries_every_depth_of_its_longest_sequences(name: str) -> None:
    task, generator = make_task(name), torch.Generator().manual_seed(0)
    batches = [task.train_batch(generator, 50, 16) for _ in range(200)]
    depths = {
        depth for each in batches if each.tokens.shape[1] == 16 and each.depth is not None for depth in each.depth
    }
    last = 12 if name == "passkey" else 6
    assert sorted({round(float(depth) * last) for depth in depths}) == list(range(last + 1))


@given(st.integers(8, 600), st.integers(8, 600), st.integers(1, 30), seeds)
def test_passkeys_hide_the_same_values_at_every_length(first: int, second: int, count: int, seed: int) -> None:
    values = [Passkey().test(length, count, seed).tokens[:, -1].tolist() for length in (first, second)]
    assert values[0] == values[1]


def test_the_asked_key_stands_among_the_pairs_once_however_many_there_are() -> None:
    for tokens, scored in rows(Recall().test(1024, 20, 0)):
        prefix, _ = answer_of(tokens, scored)
        assert prefix[:-1].count(prefix[-1]) == 1


@every_task
def test_sequences_must_have_room_for_the_smallest_example(name: str) -> None:
    room = {
        "passkey": "the key, the question and some filler",
        "copy": "two strings and two marks",
        "reverse": "two strings and two marks",
        "addition": "two digits, two signs and a sum of two digits",
        "recall": "a pair and a question",
    }[name]
    task, least = make_task(name), SHORTEST[name]
    message = f"length must be {least} or more, since {name} needs room for {room}; got {least - 1}."
    with raises_exactly(ValueError, message):
        task.test(least - 1, 1, 0)
    with raises_exactly(ValueError, message):
        task.train_batch(torch.Generator(), 1, least - 1)
    assert task.test(least, 3, 0).tokens.shape == (3, least)
    assert task.train_batch(torch.Generator(), 3, least).tokens.shape == (3, least)


def test_depths_must_be_enough() -> None:
    with raises_exactly(ValueError, "depths must be 2 or more, since both ends of the text are tried; got 1."):
        Passkey(depths=1)
    with raises_exactly(ValueError, "depths must be 2 or more, since the first and the last pair are tried; got 1."):
        Recall(depths=1)
    for cls in (Copy, Reverse):
        with raises_exactly(ValueError, "depths must be 1 or more, since some position of the string is tried; got 0."):
            cls(depths=0)


def test_all_but_text_are_here() -> None:
    assert SHORTEST.keys() == TASKS.keys() - {"text"}
