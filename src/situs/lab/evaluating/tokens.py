"""Text as the tokens of a model: by the tokenizer of its folder, or byte by byte where the folder has none."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Int64
from torch import Tensor

from situs.lab.comparing.corpus import Corpus, count_windows, spread_windows, standard_texts, texts_at
from situs.lab.evaluating.records import FOLDER, TokenFacts

FILES = (
    "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "spiece.model", "sentencepiece.bpe.model",
    "vocab.json", "vocab.txt", "tekken.json",
)  # fmt: skip
"""By any of which a folder has a tokenizer."""
BYTES = 256
ENOUGH = 8
"""Times as many tokens as windows have are read, then no more files."""


@dataclass(frozen=True)
class Reader:
    """Turn text into token ids."""

    name: str
    unit: Literal["byte", "token"]
    prefix: tuple[int, ...]
    """Ids that stand before every text."""
    encode: Callable[[str], list[int]]
    """Gives the ids of a text without those around it."""

    def encode_after(self, before: str, text: str) -> list[int]:
        """Give the ids of a text as they are behind another, where its beginning may join the other's end."""
        first, both = self.encode(before), self.encode(before + text)
        return both[len(first) :] if both[: len(first)] == first else self.encode(text)


def reader_of(folder: Path, vocabulary: int | None = None) -> Reader:
    """Load the tokenizer of a folder, or take bytes for tokens where it has none.

    vocabulary: ids that the model has rows for; None where they were compared before.
    """
    if not any((folder / name).is_file() for name in FILES) and not list(folder.glob("*.tiktoken")):
        if vocabulary is not None and vocabulary < BYTES:
            raise ValueError(
                f"{FOLDER} must have a tokenizer, since the model has {vocabulary} ids and bytes need {BYTES}; got "
                f"{str(folder)!r} without one. Put tokenizer.json there."
            )
        return Reader("bytes", "byte", (), _bytes)
    from transformers import AutoTokenizer

    try:
        made: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as problem:
        first = str(problem).strip().partition("\n")[0]
        raise ValueError(
            f"{FOLDER} must have a tokenizer that transformers can load; got {str(folder)!r}: {first}"
        ) from problem

    def encode(text: str) -> list[int]:
        ids: list[int] = made(text, add_special_tokens=False, verbose=False)["input_ids"]
        return ids

    reader = Reader(type(made).__name__, "token", _prefix(made, encode), encode)
    highest = max((*reader.prefix, *encode("".join(map(chr, range(32, 127)))), 0))
    if vocabulary is not None and highest >= vocabulary:
        raise ValueError(
            f"tokenizer must have ids below {vocabulary}, as many as the model has rows for; got {highest}. It is the "
            f"tokenizer of another model."
        )
    return reader


def _bytes(text: str) -> list[int]:
    return list(text.encode())


def _prefix(tokenizer: Any, encode: Callable[[str], list[int]]) -> tuple[int, ...]:
    """Find what a tokenizer puts before a text."""
    whole, inner = tokenizer("a")["input_ids"], encode("a")
    starts = [start for start in range(len(whole)) if whole[start : start + len(inner)] == inner]
    return tuple(whole[: starts[0]]) if starts else ()


@dataclass(frozen=True)
class Tokens:
    """Hold files as tokens, those that are long enough for the longest text."""

    facts: TokenFacts
    prefix: tuple[int, ...]
    documents: list[Tensor]
    longest: int
    """Tokens of the longest file, with what stands before it."""
    remarks: tuple[str, ...] = ()

    def windows(self, length: int, *, target: int, count: int) -> Int64[Tensor, "count length"]:
        """Choose texts of a length, which end at the same tokens at every length up to ``target``."""
        first = torch.tensor(self.prefix, dtype=torch.long).expand(count, -1)
        chosen = spread_windows(self.documents, target - len(self.prefix), count, seed=0)
        return torch.cat((first, chosen[:, chosen.shape[1] - (length - len(self.prefix)) :]), dim=1)


def read_tokens(reader: Reader, *, text: str | None, longest: int, windows: int) -> Tokens:
    """Read a text file or a folder, or the held-out sources of Python, and tokenise files that are long enough.

    Files are read whole: a model that is not trained needs no other part of them.
    """
    name, texts, left_out = _texts(text)
    room = longest - len(reader.prefix)
    documents: dict[str, Tensor] = {}
    unread, most = [], 0
    for file, content in _shuffled(texts):
        if len(content) < room and (documents or len(content) <= most):
            continue  # a token has a byte at least, so that it is neither long enough nor the longest
        if sum(map(len, documents.values())) >= ENOUGH * windows * longest:
            break
        decoded = _decoded(content)
        if decoded is None:
            unread.append(file)
            continue
        ids = torch.tensor(reader.encode(decoded), dtype=torch.long)
        most = max(most, len(ids))
        if len(ids) >= room:
            documents[file] = ids
    if unread and not most:
        raise ValueError(
            f"--text must be UTF-8, since it is read as such; got {text!r}, which is not. Save it as UTF-8, or give "
            f"another."
        )
    facts = TokenFacts(
        name, _hash(reader, documents), reader.unit, reader.name, len(reader.prefix), len(documents),
        sum(map(len, documents.values())), _guessed(list(documents.values())),
    )  # fmt: skip
    remarks = [
        f"{left_out:,} bytes of {text} are left out, since no more are read than needed." if left_out else "",
        f"{len(unread)} files are left out, since they are not UTF-8: {', '.join(unread[:3])}." if unread else "",
    ]
    return Tokens(
        facts, reader.prefix, list(documents.values()), most + len(reader.prefix),
        tuple(said for said in remarks if said),
    )  # fmt: skip


def no_tokens(reader: Reader) -> Tokens:
    """Read nothing, where no task reads a text."""
    return Tokens(TokenFacts("no text", "", reader.unit, reader.name, len(reader.prefix)), reader.prefix, [], 0)


def _texts(text: str | None) -> tuple[str, dict[str, bytes], int]:
    """Read files by name; without a path, those of Python's sources that ``situs compare`` tests on."""
    if text is None:
        held_out, sources = Corpus.standard_library(), standard_texts()
        return held_out.name, {name: sources[name] for name in held_out.names["test"] if name in sources}, 0
    try:
        texts, left_out = texts_at(text)
    except ValueError as problem:
        said = str(problem)
        raise ValueError(f"--text{said.removeprefix('path')}" if said.startswith("path ") else said) from problem
    return Path(text).resolve().name, texts, left_out


def _shuffled(texts: dict[str, bytes]) -> Sequence[tuple[str, bytes]]:
    """Order files by a hash of their names, so that the first ones are no choice by alphabet."""
    return sorted(texts.items(), key=lambda each: hashlib.sha256(each[0].encode()).digest())


def _decoded(content: bytes) -> str | None:
    """Decode UTF-8; the last character may have been cut. None where it is something else."""
    for cut in range(4):
        try:
            return content[: len(content) - cut].decode("utf-8")
        except UnicodeDecodeError as problem:
            if problem.start < len(content) - 4:
                return None
    return None


def _guessed(documents: Sequence[Tensor]) -> float | None:
    """Give the loss of who knows only how often each token occurs: a model that has learned more is below it."""
    if not documents:
        return None
    counts = torch.cat([*documents]).bincount().double()
    return float(torch.special.entr(counts / counts.sum()).sum())


def _hash(reader: Reader, documents: dict[str, Tensor]) -> str:
    digest = hashlib.blake2b(repr((reader.name, reader.prefix)).encode(), digest_size=16)
    for name, ids in sorted(documents.items()):
        digest.update(f"{name} {len(ids)} ".encode())
        digest.update(ids.numpy().tobytes())
    return digest.hexdigest()


def require_windows(tokens: Tokens, *, lengths: Sequence[int], windows: int) -> None:
    """Raise unless the text has as many windows of the longest length as are read."""
    unit = tokens.facts.unit
    target = lengths[-1]
    if tokens.longest < target:
        raise ValueError(
            f"lengths must be at most {tokens.longest:,}, since a text lies in one file and the longest of "
            f"{tokens.facts.name} has as many {unit}s; got {target:,}. Test shorter lengths, or give longer files with "
            f"--text."
        )
    total = count_windows(tokens.documents, target - len(tokens.prefix))
    if total < windows:
        raise ValueError(
            f"--windows must be at most {total}, as many texts of {target:,} {unit}s as {tokens.facts.name} has; got "
            f"{windows}. Use fewer, or give more text with --text."
        )
