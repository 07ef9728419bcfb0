"""What cannot be learnt from is refused before any training, and the reason given."""

import os
import pathlib
import sysconfig
from typing import Any

import pytest
import torch

from situs.lab.comparing.corpus import Corpus
from tests.lab.test_corpus import MANY, files_of
from tests.lab.test_corpus_reading import fill
from tests.raising import raises_exactly


def test_a_path_must_exist(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "missing.txt"
    with raises_exactly(ValueError, f"path must exist, since text is read from it; got {str(path)!r}."):
        Corpus.from_path(path)


def test_a_path_must_be_readable(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    message = f"path must be readable, since text is read from it; got {str(tmp_path)!r}, which is not."
    with raises_exactly(ValueError, message):
        Corpus.from_path(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("empty.txt", b"", "which is empty"),
        ("utf16.txt", "text\n".encode("utf-16"), "which has NUL bytes. Save UTF-16 text as UTF-8"),
        ("folder/.hidden", b"text\n" * 9, "whose files are all empty, hidden, unreadable or have NUL bytes"),
    ],
)
def test_a_path_must_hold_text(tmp_path: pathlib.Path, name: str, content: bytes, kind: str) -> None:
    path = fill(tmp_path, {name: content}) / name.partition("/")[0]
    with raises_exactly(
        ValueError, f"path must hold text, since models are trained or tested on it; got {str(path)!r}, {kind}."
    ):
        Corpus.from_path(path)


def test_the_standard_library_must_be_there_as_files(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    message = (
        f"the standard library must be there as .py files, since they are the text; got none in {str(tmp_path)!r}. "
        f"Give a text of your own, with Corpus.from_path."
    )
    with raises_exactly(ValueError, message):
        Corpus.standard_library()


@pytest.mark.parametrize(
    ("texts", "size"), [({"a": b"short"}, 5), ({"a": b"x y\n" * 1000, "b": b"x y\n" * 1000}, 4000), ({}, 0)]
)
def test_a_text_must_be_long_enough_to_learn_from(texts: dict[str, bytes], size: int) -> None:
    message = (
        f"text must have 4096 bytes or more that do not repeat, since a model learns nothing from less; got {size} in "
        f"mine. Give more text."
    )
    with raises_exactly(ValueError, message):
        Corpus(name="mine", texts=texts)


def test_a_text_of_one_byte_leaves_nothing_to_predict() -> None:
    message = "text must have two byte values, since one leaves nothing to predict; got only b'a'."
    with raises_exactly(ValueError, message):
        Corpus(name="mine", texts={"one": b"a" * 5000, "two": b"a" * 6000})


def test_a_text_that_repeats_itself_cannot_be_held_out() -> None:
    message = (
        "text must have three files or pieces that differ, since two are held out; got 2 in mine. Give text that does "
        "not repeat itself."
    )
    with raises_exactly(ValueError, message):
        Corpus(name="mine", texts={"one": b"abcdefg\n" * 10_000})


@pytest.mark.parametrize("length", [0, 24_000])
def test_training_windows_must_fit_into_the_training_text(length: int) -> None:
    size = MANY.sizes["train"]
    with raises_exactly(
        ValueError, f"length must be 1 .. {size}, the bytes to train on; got {length}. Give more text."
    ):
        MANY.train_windows(torch.Generator(), 1, length)


@pytest.mark.parametrize("length", [0, 407, 1024])
def test_a_held_out_file_must_be_as_long_as_the_longest_window(length: int) -> None:
    longest = max(len(files_of(60)[name]) for name in MANY.names["test"])
    message = (
        f"length must be 1 .. {longest}, since a window lies in one file and the longest of the test split of many has "
        f"as many bytes; got {length}. Test shorter lengths, or give longer files."
    )
    with raises_exactly(ValueError, message):
        MANY.test_windows(length, 1, 0)


@pytest.mark.parametrize("count", [0, 10**6])
def test_there_must_be_as_many_windows_as_are_asked_for(count: int) -> None:
    total = sum(len(files_of(60)[name]) - 399 for name in MANY.names["test"])
    message = (
        f"count must be 1 .. {total}, the windows of 400 bytes in the test text; got {count}. Use shorter ones, or "
        f"give more text."
    )
    with raises_exactly(ValueError, message):
        MANY.test_windows(400, count, 0)


def test_no_test_is_held_on_text_that_was_trained_on() -> None:
    split: Any = "train"
    message = 'split must be "tune" or "test", since models are trained on the rest; got \'train\'.'
    with raises_exactly(ValueError, message):
        MANY.test_windows(10, 1, 0, split)
