"""Text is read from the standard library, from a file or from a folder."""

import os
import pathlib
import platform
from typing import Any

import pytest

from situs.lab.comparing.corpus import Corpus
from tests.lab.test_corpus import files_of, random_text, split_of


def test_the_standard_library_is_its_sources() -> None:
    corpus = Corpus.standard_library()
    names = split_of(corpus)
    assert corpus.python == platform.python_version()
    assert corpus.name == f"Python {platform.python_version()} standard library"
    assert {"argparse.py", "asyncio/tasks.py", "json/decoder.py"} <= names.keys()
    assert all(name.endswith(".py") for name in names)
    unwanted = {"test", "tests", "site-packages", "lib2to3", "idlelib", "__pycache__", "encodings"}
    assert not [name for name in names if unwanted & set(name.split("/"))]
    assert corpus.sizes["train"] > 2_000_000
    assert sum(corpus.sizes.values()) <= 10_000_000
    assert corpus.longest("test") > 16_384
    assert corpus.facts() == Corpus.standard_library().facts()


def test_a_limit_leaves_out_files_of_every_split() -> None:
    whole, part = Corpus.standard_library(), Corpus.standard_library(limit=1_000_000)
    assert sum(part.sizes.values()) <= 1_000_000
    assert part.sizes["train"] > 600_000
    assert part.sizes["tune"] > 20_000
    assert part.sizes["test"] > 20_000
    uncut = {name: split for name, split in split_of(part).items() if name.endswith(".py")}
    assert len(uncut) > 20
    assert uncut.items() <= split_of(whole).items()


def fill(folder: pathlib.Path, texts: dict[str, bytes]) -> pathlib.Path:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text)
    return folder


def test_a_folder_is_read_to_its_depth_without_what_is_no_text(tmp_path: pathlib.Path) -> None:
    texts = files_of(30) | {"folder/deep/er/é 1.txt": random_text(77, 300)}
    others = {
        "folder/.hidden.txt": random_text(1001, 500),
        ".git/config": random_text(1002, 500),
        "folder/picture.png": b"\x89PNG\0" + random_text(1003, 500),
        "folder/empty.txt": b"",
    }
    fill(tmp_path, texts | others)
    os.mkfifo(tmp_path / "folder" / "pipe")
    (tmp_path / "folder" / "loop").symlink_to(tmp_path)
    (tmp_path / "folder" / "nowhere").symlink_to(tmp_path / "missing")
    corpus = Corpus.from_path(tmp_path)
    assert corpus.facts() == Corpus(name=tmp_path.name, texts=texts).facts()
    assert corpus.facts() == Corpus.from_path(str(tmp_path)).facts()


def test_files_that_cannot_be_read_are_passed_over(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, files_of(30))
    whole = pathlib.Path.open

    def refuse(self: pathlib.Path, mode: str) -> object:
        if self.name == "7.txt":
            raise PermissionError(13, "Permission denied")
        return whole(self, mode)

    monkeypatch.setattr(pathlib.Path, "open", refuse)
    assert sorted(split_of(Corpus.from_path(tmp_path))) == sorted(files_of(30).keys() - {"folder/7.txt"})


def test_a_file_is_read_as_far_as_the_limit(tmp_path: pathlib.Path) -> None:
    (tmp_path / "book.txt").write_bytes(random_text(0, 100_000))
    corpus = Corpus.from_path(tmp_path / "book.txt", limit=50_000)
    assert sum(corpus.sizes.values()) == 50_000
    assert corpus.name == "book.txt"
    assert (corpus.read, corpus.left_out) == (50_000, 50_000)


def test_what_is_no_text_is_not_counted_as_left_out(tmp_path: pathlib.Path) -> None:
    texts = {f"{number}.txt": random_text(0, 5_000) for number in range(2)} | {"book.txt": random_text(1, 50_000)}
    fill(tmp_path, texts | {f"{number}.bin": bytes(80_000) for number in range(9)})
    corpus = Corpus.from_path(tmp_path, limit=100_000)
    assert (corpus.read, corpus.left_out) == (60_000, 0)
    assert sum(corpus.sizes.values()) == 55_000  # one of the two that are the same is enough


def test_links_that_cannot_be_looked_at_are_passed_over(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, files_of(30))
    whole = os.stat

    def refuse(path: Any, *rest: Any, **options: Any) -> os.stat_result:  # root may look anywhere
        if str(path).endswith("7.txt"):
            raise PermissionError(13, "Permission denied")
        return whole(path, *rest, **options)

    monkeypatch.setattr(os, "stat", refuse)
    left = {name for name in files_of(30) if not name.endswith("7.txt")}
    assert sorted(split_of(Corpus.from_path(tmp_path))) == sorted(left)
