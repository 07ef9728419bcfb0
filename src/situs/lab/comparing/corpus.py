"""Text to learn from and text to be tested on, in bytes.

Files are held out whole: a window of one file often repeats another of the same file, so a random split would test
memory. Which split a file falls into follows from its name alone, so it stays there when others come or go:

    sha256(name) / 2^256    0 .. 0.8 train        0.8 .. 0.9 tune        0.9 .. 1 test

``tune`` is for choosing a method's settings, on other files than those scored. A file of more than a tenth of the whole
is cut into pieces at blank lines or line ends, which are split like files: it would upset the shares, and a single file
has no other. Of files and pieces with the same content one is left, lest it stand on both sides.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import platform
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeAlias, final, get_args

import torch
from jaxtyping import Int64
from torch import Tensor

from situs.lab.comparing.records import TextFacts

HeldOut: TypeAlias = Literal["tune", "test"]

LIMIT = 10_000_000
LEAST = 4096

# Not sources that people wrote and every installation has: tables whose files repeat each other, generated text, code
# of this machine's build, and packages that distributions leave out.
LEFT_OUT = {
    *("__pycache__", "site-packages", "dist-packages", "lib-dynload", "test", "tests", "idlelib", "lib2to3"),
    *("encodings", "pydoc_data", "tkinter", "turtledemo", "ensurepip", "distutils"),
}


@final
class Corpus:
    """Hold a text in three parts: one to train on, and two whose files training never sees.

    names, files, sizes: of each split, its files' names (a piece's ends in its number), their number and their bytes.
    cut: whether large files were cut into pieces, which then count as files.
    read, left_out: bytes that were read, those that repeat each other among them, and bytes beyond the limit.
    """

    def __init__(self, *, name: str, texts: dict[str, bytes], python: str | None = None) -> None:
        """
        name: what to call it.
        texts: each file's content by its name, which decides where the file goes.
        python: the version of Python whose sources these are.
        """
        self.name = name
        self.python = python
        self.read = sum(map(len, texts.values()))
        self.left_out = 0
        self.hash = _hash(texts)
        texts = _distinct(texts)
        _require_enough(name, texts)
        pieces = _distinct(_cut(texts))
        self.cut = not pieces.keys() <= texts.keys()
        if len(pieces) < 3:
            raise ValueError(
                f"text must have three files or pieces that differ, since two are held out; got {len(pieces)} in "
                f"{name}. Give text that does not repeat itself."
            )
        self._parts: dict[str, dict[str, Tensor]] = {
            split: {piece: torch.frombuffer(bytearray(pieces[piece]), dtype=torch.uint8) for piece in members}
            for split, members in _divide(pieces).items()
        }
        self.names = {split: list(members) for split, members in self._parts.items()}
        self.files = {split: len(members) for split, members in self._parts.items()}
        self.sizes = {split: sum(map(len, members.values())) for split, members in self._parts.items()}
        self._train = torch.cat(list(self._parts["train"].values()))

    @classmethod
    def standard_library(cls, *, limit: int = LIMIT) -> Corpus:
        """Read the sources of the running Python's standard library, ``limit`` bytes of them at most."""
        version = platform.python_version()
        return cls(name=f"Python {version} standard library", texts=standard_texts(limit=limit), python=version)

    @classmethod
    def from_path(cls, path: str | os.PathLike[str], *, limit: int = LIMIT) -> Corpus:
        """Read a text file, or the text files of a folder and those in it; ``limit`` bytes at most. Hidden files, and
        those with NUL bytes, are no text."""
        texts, left_out = texts_at(path, limit=limit)
        made = cls(name=pathlib.Path(path).resolve().name, texts=texts)
        made.left_out = left_out
        return made

    def __repr__(self) -> str:
        count = f"{sum(self.files.values()):,} {'pieces' if self.cut else 'files'}"
        return f"Corpus({self.name}, {sum(self.sizes.values()):,} bytes in {count})"

    def facts(self) -> TextFacts:
        """Tell what identifies the text in a report."""
        return TextFacts(self.name, self.hash, self.python, self.files, self.sizes, self.cut)

    def longest(self, split: HeldOut) -> int:
        """Tell the length of a split's longest file: no window can be longer."""
        return max(map(len, self._parts[split].values()))

    def train_windows(self, generator: torch.Generator, batch: int, length: int) -> Int64[Tensor, "batch length"]:
        """Draw windows at random from the training text, whose files follow one another."""
        if not 1 <= length <= len(self._train):
            raise ValueError(
                f"length must be 1 .. {len(self._train)}, the bytes to train on; got {length}. Give more text."
            )
        starts = torch.randint(0, len(self._train) - length + 1, (batch,), generator=generator, device="cpu")
        return self._train.unfold(0, length, 1)[starts].long()

    def test_windows(
        self, length: int, count: int, seed: int, split: HeldOut = "test"
    ) -> Int64[Tensor, "count length"]:
        """Choose different windows spread over the held-out text, each inside one file; the same for the same seed.

        Ask for the longest length of an experiment, and take the last bytes of each window for shorter ones.
        """
        self.require_held_out(length, split)
        texts = list(self._parts[split].values())
        total = count_windows(texts, length)
        if not 1 <= count <= total:
            raise ValueError(
                f"count must be 1 .. {total}, the windows of {length} bytes in the {split} text; got {count}. Use "
                f"shorter ones, or give more text."
            )
        return spread_windows(texts, length, count, seed)

    def require_held_out(self, length: int, split: HeldOut) -> None:
        """Raise unless a held-out file is as long as ``length``."""
        if split not in get_args(HeldOut):
            raise ValueError(f'split must be "tune" or "test", since models are trained on the rest; got {split!r}.')
        if not 1 <= length <= self.longest(split):
            raise ValueError(
                f"length must be 1 .. {self.longest(split)}, since a window lies in one file and the longest of the "
                f"{split} split of {self.name} has as many bytes; got {length}. Test shorter lengths, or give longer "
                f"files."
            )


def standard_texts(*, limit: int = LIMIT) -> dict[str, bytes]:
    """Read the sources of the running Python's standard library by name, ``limit`` bytes of them at most."""
    root = pathlib.Path(sysconfig.get_path("stdlib"))
    files = (path for path in _files(root, LEFT_OUT) if path.suffix == ".py" and "sysconfigdata" not in path.name)
    texts, _ = _read(root, files, limit)
    if not texts:
        raise ValueError(
            f"the standard library must be there as .py files, since they are the text; got none in {str(root)!r}. "
            f"Give a text of your own, with Corpus.from_path."
        )
    return texts


def texts_at(path: str | os.PathLike[str], *, limit: int = LIMIT) -> tuple[dict[str, bytes], int]:
    """Read a text file, or those of a folder and of those in it, by name, ``limit`` bytes at most; tells how many bytes
    were left out."""
    source = pathlib.Path(path)
    if not os.path.exists(path):  # "" is none, though a Path of it is the folder here
        raise ValueError(f"path must exist, since text is read from it; got {str(path)!r}.")
    if not os.access(source, os.R_OK):
        raise ValueError(f"path must be readable, since text is read from it; got {str(path)!r}, which is not.")
    if not (source.is_dir() or source.is_file()):
        raise ValueError(
            f"path must be a file or a folder, since every worker reads it again; got {str(path)!r}, which is a "
            f"pipe or a device. Write the text to a file."
        )
    folder, files = (source, list(_files(source, set()))) if source.is_dir() else (source.parent, [source])
    texts, left_out = _read(folder, files, limit)
    if not texts:
        kind = "which is empty" if source.stat().st_size == 0 else "which has NUL bytes. Save UTF-16 text as UTF-8"
        kind = "whose files are all empty, hidden, unreadable or have NUL bytes" if source.is_dir() else kind
        raise ValueError(f"path must hold text, since models are trained or tested on it; got {str(path)!r}, {kind}.")
    return texts, left_out


def count_windows(texts: Sequence[Tensor], length: int) -> int:
    """Count the windows of a length that lie within single texts."""
    return sum(max(0, len(text) - length + 1) for text in texts)


def spread_windows(texts: Sequence[Tensor], length: int, count: int, seed: int) -> Int64[Tensor, "count length"]:
    """Choose different windows spread over texts, one at random in each of ``count`` equal stretches of all that lie
    within single texts; the same for the same seed."""
    views = [text.unfold(0, length, 1) for text in texts if len(text) >= length]
    ends = torch.tensor([len(view) for view in views], device="cpu").cumsum(0)
    borders = torch.arange(count + 1, device="cpu") * int(ends[-1]) // count
    generator = torch.Generator(device="cpu").manual_seed(seed)
    share = torch.rand(count, generator=generator, dtype=torch.float64, device="cpu")
    chosen = borders[:-1] + (share * borders.diff()).long()
    numbers = torch.bucketize(chosen, ends, right=True)
    starts = chosen - torch.nn.functional.pad(ends, (1, 0))[numbers]
    windows = [views[number][start] for number, start in zip(numbers.tolist(), starts.tolist(), strict=True)]
    return torch.stack(windows).long()


def _require_enough(name: str, texts: dict[str, bytes]) -> None:
    size = sum(map(len, texts.values()))
    if size < LEAST:
        raise ValueError(
            f"text must have {LEAST} bytes or more that do not repeat, since a model learns nothing from less; got "
            f"{size} in {name}. Give more text."
        )
    symbol = next(iter(texts.values()))[:1]
    if all(text.count(symbol) == len(text) for text in texts.values()):
        raise ValueError(f"text must have two byte values, since one leaves nothing to predict; got only {symbol!r}.")


def _hash(texts: dict[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, text in sorted(texts.items()):
        digest.update(b"%d %d %b" % (len(os.fsencode(name)), len(text), os.fsencode(name)) + text)
    return digest.hexdigest()


def _share(name: str) -> float:
    """Derive a number from 0 to 1 from a name."""
    return int.from_bytes(hashlib.sha256(os.fsencode(name)).digest()[:8], "big") / 2**64


def _files(root: pathlib.Path, left_out: set[str]) -> Iterator[pathlib.Path]:
    """List the files below a folder that are not hidden."""
    for folder, inner, files in os.walk(root):
        inner[:] = (name for name in inner if name not in left_out and not name.startswith("."))
        paths = (pathlib.Path(folder, name) for name in files if not name.startswith("."))
        yield from filter(os.path.isfile, paths)  # where pathlib would raise for a link into a closed folder


def _read(root: pathlib.Path, paths: Iterable[pathlib.Path], limit: int) -> tuple[dict[str, bytes], int]:
    """Read texts by name, and count the bytes that are left out; of more than ``limit`` bytes, a choice of files by
    name, the last of which is cut."""
    named = {path.relative_to(root).as_posix(): path for path in paths}
    texts: dict[str, bytes] = {}
    left_out = 0
    for name in sorted(named, key=lambda name: _share(f"choice of {name}")):  # not the number that decides the split
        try:
            with named[name].open("rb") as file:
                text, size = file.read(limit), os.fstat(file.fileno()).st_size
        except OSError:
            continue
        if b"\0" in text:
            continue
        left_out += max(0, size - len(text))
        if text:
            texts[name] = text
            limit -= len(text)
    return dict(sorted(texts.items())), left_out


def _distinct(texts: dict[str, bytes]) -> dict[str, bytes]:
    """Leave out files that repeat the content of an earlier one."""
    first = {text: name for name, text in reversed(texts.items())}
    return {name: text for name, text in texts.items() if first[text] == name}


def _cut(texts: dict[str, bytes]) -> dict[str, bytes]:
    """Cut large files into pieces: 64 of the whole text, or as few as 10 if it is short."""
    total = sum(map(len, texts.values()))
    size = max(total // 64, min(16_384, total // 10))
    pieces: dict[str, bytes] = {}
    for name, text in texts.items():
        parts = list(_pieces(text, size)) if len(text) * 10 > total else [text]
        pieces |= {f"{name}/{number}" if len(parts) > 1 else name: part for number, part in enumerate(parts)}
    return pieces


def _pieces(text: bytes, size: int) -> Iterator[bytes]:
    """Cut a text into pieces of ``size`` bytes, or up to a quarter more, to end at a blank line, a line or a word."""
    begin = 0
    while 2 * (len(text) - begin) > 3 * size:
        near = begin + size
        ends = (text.find(border, near, near + size // 4) + len(border) for border in (b"\n\n", b"\n", b" "))
        end = next((end for end in ends if end > near), near)
        yield text[begin:end]
        begin = end
    yield text[begin:]


def _divide(names: Iterable[str]) -> dict[str, list[str]]:
    """Divide names among the splits; if one got none, the largest gives one up."""
    parts: dict[str, list[str]] = {"train": [], "tune": [], "test": []}
    for name in sorted(names, key=_share):
        share = _share(name)
        parts["train" if share < 0.8 else "tune" if share < 0.9 else "test"].append(name)
    for members in parts.values():
        if not members:
            members.append(max(parts.values(), key=len).pop())
    return {split: sorted(members) for split, members in parts.items()}
