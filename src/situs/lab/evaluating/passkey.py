"""Passkey in plain sentences: a number that is said once in a long text, and asked for at the end.

After Mohtashami & Jaggi 2023, Landmark Attention, arXiv:2305.16300, in other words.

    beginning  filler .. filler  The secret number is 48213.  filler .. filler  The secret number is  48213
                                 at depth 0 .. 1                                 asked                 scored

The true answer is read along (teacher forcing): an answer counts if each of its tokens is the likeliest one, which is
when greedy decoding would give it. Texts have as many tokens as they should, to the token: filler is cut, nothing else.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from situs.lab.comparing.tasks.base import draw, seeded, spread
from situs.lab.evaluating.records import Needle
from situs.lab.evaluating.tokens import Reader

FILLER = "Rain fell on the hills. A river ran down to the sea. Birds crossed the sky at noon. Nobody was in a hurry. "
NEEDLE = "The secret number is {}. "
QUESTION = "\nThe secret number is"
ANSWER = " {}"
DEPTHS = 8
LEAST = 8
"""Tokens of filler that a text must have room for."""


@dataclass(frozen=True)
class Questions:
    """Hold texts of one length, each with its answer at the end."""

    tokens: Int64[Tensor, "texts length"]
    answers: list[int]
    """How many tokens the answer of each text has."""
    depth: Float[Tensor, "texts"]
    apart: list[int]
    """Tokens from the end of the needle to the answer."""


@dataclass(frozen=True)
class _Pieces:
    needle: list[int]
    question: list[int]
    answer: list[int]

    @property
    def size(self) -> int:
        return len(self.needle) + len(self.question) + len(self.answer)


def ask(reader: Reader, length: int, count: int) -> Questions:
    """Make texts of exactly ``length`` tokens: the same numbers at the same depths at every length."""
    pieces = [_pieces(reader, number) for number in _numbers(count)]
    room = length - len(reader.prefix) - max(each.size for each in pieces)
    if room < LEAST:
        raise ValueError(
            f"length must be {length - room + LEAST} or more for passkey, since a text holds {_listed(reader, pieces)} "
            f"and {LEAST} tokens of filler; got {length}. Test longer texts, or leave passkey out with --tasks text."
        )
    depth = spread(count, DEPTHS)
    stream = _filler(reader, length)
    rows, apart = [], []
    for each, deep in zip(pieces, depth.tolist(), strict=True):
        filler = length - len(reader.prefix) - each.size
        before = round(deep * filler)
        rows.append(
            [*reader.prefix, *stream[:before], *each.needle, *stream[before:filler], *each.question, *each.answer]
        )
        apart.append(filler - before + len(each.question))
    return Questions(torch.tensor(rows), [len(each.answer) for each in pieces], depth, apart)


def needle_of(reader: Reader, questions: Questions, trained: int) -> Needle:
    """Tell where the needles of texts lie, relative to the trained length."""
    count, length = questions.tokens.shape
    pieces = [_pieces(reader, number) for number in _numbers(count)]
    return Needle(
        length, _sizes(reader, pieces), min(questions.apart), max(questions.apart),
        sum(distance > trained for distance in questions.apart),
    )  # fmt: skip


def hash_of_pieces(reader: Reader) -> str:
    """Give the hash of what texts are made of, as tokens."""
    pieces = [reader.encode(each) for each in (FILLER, NEEDLE.format(12345), QUESTION, ANSWER.format(67890))]
    return hashlib.blake2b(repr((reader.name, reader.prefix, pieces)).encode(), digest_size=16).hexdigest()


def _numbers(count: int) -> list[int]:
    return draw(10_000, 100_000, (count,), seeded("passkey of sentences", "test", 0)).tolist()


def _pieces(reader: Reader, number: int) -> _Pieces:
    answer = reader.encode_after(QUESTION, ANSWER.format(number))
    return _Pieces(reader.encode(NEEDLE.format(number)), reader.encode(QUESTION), answer)


def _filler(reader: Reader, length: int) -> list[int]:
    once = reader.encode(FILLER)
    return reader.encode(FILLER * (length // max(1, len(once)) + 2))[: max(length, 1)]


def _sizes(reader: Reader, pieces: list[_Pieces]) -> dict[str, int]:
    sizes = {name: max(len(getattr(each, name)) for each in pieces) for name in ("needle", "question", "answer")}
    return {"beginning": len(reader.prefix), **sizes}


def _listed(reader: Reader, pieces: list[_Pieces]) -> str:
    sizes = _sizes(reader, pieces)
    begins = f"{sizes['beginning']} before it, " if sizes["beginning"] else ""
    return f"{begins}a needle of {sizes['needle']}, a question of {sizes['question']}, an answer of {sizes['answer']}"
