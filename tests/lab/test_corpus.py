"""Text is held out by file, the same way everywhere and always."""

import pickle
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from situs.lab.comparing.corpus import Corpus, HeldOut
from situs.lab.comparing.records import TextFacts

pytestmark = pytest.mark.once

seeds = st.integers(0, 2**40)


def random_text(seed: int, size: int) -> bytes:
    """Bytes without NUL that occur nowhere else."""
    return bytes(random.Random(seed).choices(range(1, 256), k=size))


def files_of(count: int, size: int = 400) -> dict[str, bytes]:
    return {f"folder/{number}.txt": random_text(number, size + number % 7) for number in range(count)}


MANY = Corpus(name="many", texts=files_of(60))


def split_of(corpus: Corpus) -> dict[str, str]:
    return {name: split for split, names in corpus.names.items() for name in names}


def training_text(corpus: Corpus, texts: dict[str, bytes]) -> bytes:
    return b"".join(texts[name] for name in corpus.names["train"])


@given(st.integers(30, 80), st.integers(0, 40))
def test_where_a_file_goes_follows_from_its_name_alone(count: int, more: int) -> None:
    """Every file is in one split, and stays there when others come."""
    few, many = (Corpus(name="text", texts=files_of(number)) for number in (count, count + more))
    assert sorted(split_of(few)) == sorted(files_of(count))
    assert split_of(few).items() <= split_of(many).items()


def test_a_file_stays_where_it_is_when_its_content_changes() -> None:
    changed = {name: text[::-1] for name, text in files_of(60).items()}
    assert split_of(Corpus(name="text", texts=changed)) == split_of(MANY)


def test_about_a_tenth_is_held_out_to_tune_and_a_tenth_to_test() -> None:
    """Over 4000 names, within five standard deviations."""
    files = Corpus(name="text", texts=files_of(4000, size=20)).files
    deviation = (4000 * 0.1 * 0.9) ** 0.5
    assert abs(files["tune"] - 400) < 5 * deviation
    assert abs(files["test"] - 400) < 5 * deviation


@given(st.integers(1, 400), st.integers(1, 20), seeds, st.sampled_from(["tune", "test"]))
def test_held_out_windows_lie_inside_single_held_out_files(length: int, count: int, seed: int, split: HeldOut) -> None:
    windows = MANY.test_windows(length, count, seed, split)
    assert windows.shape == (count, length)
    assert windows.dtype == torch.int64
    texts = [files_of(60)[name] for name in MANY.names[split]]
    assert all(any(bytes(window) in text for text in texts) for window in windows.tolist())
    assert torch.equal(windows, MANY.test_windows(length, count, seed, split))


@given(st.integers(1, 2000), st.integers(1, 40), seeds)
def test_training_never_meets_held_out_text(length: int, batch: int, seed: int) -> None:
    windows = MANY.train_windows(torch.Generator().manual_seed(seed), batch, length)
    assert windows.shape == (batch, length)
    assert windows.dtype == torch.int64
    text = training_text(MANY, files_of(60))
    assert all(bytes(window) in text for window in windows.tolist())
    for split in ("tune", "test"):
        held_out = [files_of(60)[name] for name in MANY.names[split]]
        assert not any(file[start : start + 8] in text for file in held_out for start in range(0, len(file) - 8, 97))


def test_training_windows_reach_both_ends_of_the_text() -> None:
    text = training_text(MANY, files_of(60))
    windows = MANY.train_windows(torch.Generator().manual_seed(0), 60, len(text) - 2).tolist()
    assert {bytes(window) for window in windows} == {text[:-2], text[1:-1], text[2:]}


@given(seeds, st.integers(1, 60))
def test_windows_of_a_test_differ_from_each_other(seed: int, count: int) -> None:
    windows = MANY.test_windows(390, count, seed)
    assert len({tuple(window) for window in windows.tolist()}) == count


def test_every_window_there_is_can_be_asked_for_at_once() -> None:
    test = [files_of(60)[name] for name in MANY.names["test"]]
    every = [text[start : start + 398] for text in test for start in range(len(text) - 397)]
    windows = MANY.test_windows(398, len(every), 0)
    assert [bytes(window) for window in windows.tolist()] == every


def test_windows_reach_both_ends_of_every_file() -> None:
    test = [files_of(60)[name] for name in MANY.names["test"]]
    drawn = {bytes(window) for seed in range(400) for window in MANY.test_windows(390, 30, seed).tolist()}
    assert {text[:390] for text in test} <= drawn
    assert {text[-390:] for text in test} <= drawn


def test_another_seed_draws_other_windows() -> None:
    assert not torch.equal(MANY.test_windows(64, 16, 0), MANY.test_windows(64, 16, 1))


def test_drawing_leaves_the_generator_of_everyone_else_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    MANY.test_windows(10, 4, 0)
    MANY.train_windows(torch.Generator().manual_seed(0), 4, 10)
    assert torch.equal(torch.rand(3), expected)


@given(st.integers(0, 2**30), st.integers(4096, 300_000), st.integers(1, 200))
def test_a_single_file_is_cut_at_line_ends_and_nothing_is_lost(seed: int, size: int, line: int) -> None:
    text = b"\n".join(random_text(seed + number, line).replace(b"\n", b" ") for number in range(size // (line + 1) + 1))
    corpus = Corpus(name="book", texts={"book.txt": text})
    pieces = sorted(split_of(corpus), key=lambda name: int(name.rpartition("/")[2]))
    assert pieces == [f"book.txt/{number}" for number in range(len(pieces))]
    assert 6 <= len(pieces) <= 65
    assert min(corpus.files.values()) > 0
    assert sum(corpus.sizes.values()) == len(text)
    tensors = {name: part for parts in corpus._parts.values() for name, part in parts.items()}
    contents = [bytes(tensors[name].tolist()) for name in pieces]
    assert b"".join(contents) == text
    a_line_ends_nearby = min(16_384, len(text) // 10) // 4 > line + 1
    assert all(content.endswith(b"\n") or not a_line_ends_nearby for content in contents[:-1])
    assert corpus.longest("test") >= len(text) // 130


def test_a_text_without_lines_or_words_is_cut_all_the_same() -> None:
    corpus = Corpus(name="genome", texts={"genome": bytes(random.Random(0).choices(b"ACGT", k=50_000))})
    assert sum(corpus.files.values()) == 10
    assert corpus.longest("test") == 5000


def test_a_file_that_outweighs_the_others_is_cut_and_they_are_not() -> None:
    names = split_of(Corpus(name="mixed", texts=files_of(30) | {"large.txt": random_text(99, 40_000)}))
    assert sum(name.startswith("large.txt/") for name in names) > 5
    assert sum(name.startswith("folder/") for name in names) == 30


@given(st.integers(3, 9), seeds)
def test_every_split_gets_a_file_however_few_there_are(count: int, seed: int) -> None:
    texts = {f"{seed + number}": random_text(number, 40_000) for number in range(count)}
    assert min(Corpus(name="few", texts=texts).files.values()) > 0


def test_the_same_content_is_kept_once() -> None:
    texts = files_of(40)
    copies = {f"copy of {name}": text for name, text in texts.items()}
    corpus = Corpus(name="copies", texts=texts | copies)
    assert sum(corpus.files.values()) == 40
    assert sum(corpus.sizes.values()) == sum(map(len, texts.values()))


def test_the_hash_names_the_text_whatever_its_order() -> None:
    texts = files_of(30)
    backwards = dict(reversed(texts.items()))
    renamed = {name.replace("/7.", "/seven."): text for name, text in texts.items()}
    changed = texts | {"folder/7.txt": b"other" + texts["folder/7.txt"][5:]}
    hashes = [Corpus(name="text", texts=each).hash for each in (texts, backwards, renamed, changed)]
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 3
    assert Corpus(name="another name", texts=texts).hash == hashes[0]
    assert all(len(each) == 64 and int(each, 16) >= 0 for each in hashes)


def test_facts_say_what_the_text_is() -> None:
    sizes = {split: sum(len(files_of(60)[name]) for name in names) for split, names in MANY.names.items()}
    assert MANY.facts() == TextFacts(name="many", hash=MANY.hash, python=None, files=MANY.files, bytes=sizes)
    assert repr(MANY) == f"Corpus(many, {sum(MANY.sizes.values()):,} bytes in 60 files)"


def test_a_corpus_travels_to_another_process() -> None:
    copy = pickle.loads(pickle.dumps(MANY))
    assert copy.facts() == MANY.facts()
    assert torch.equal(copy.test_windows(50, 8, 3), MANY.test_windows(50, 8, 3))
