"""Copy and reverse: write a string once more, forwards or backwards.

Two of the tasks of Kazemnejad et al. 2023, The Impact of Positional Encoding on Length Generalization in Transformers,
arXiv:2305.19466, and of Deletang et al. 2023, arXiv:2207.02098.

    START  s_1 .. s_n  THEN  s_1 .. s_n     copy       n = (length - 2) // 2
    START  s_1 .. s_n  THEN  s_n .. s_1     reverse    scored: one s_i of the second string, at a depth of 0 .. 1

Training scores the whole second string. A test scores one of its symbols, given those before it, and tries the middle
of each eighth of the string, since the ends are told by the marks beside them: the accuracy by symbol of Deletang et
al., not that by string of Kazemnejad et al. A string of 511 is lost by a single slip, so that by string nothing is told
apart at 16 times the training length, and who is right on 19 symbols of 20 looks like who guesses.

A sequence of odd length ends in one more token that is not scored. Departure: 16 symbols, so that a string longer than
that repeats some of them and cannot be copied by looking for the last symbol alone. Guessing gets 1 / 16.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal, final

import torch
from jaxtyping import Int64
from torch import Tensor
from torch.nn.functional import one_hot

from situs.lab.comparing.corpus import HeldOut
from situs.lab.comparing.tasks.base import Examples, Task, draw, require_length, seeded

SYMBOLS = 16
START, THEN, END = SYMBOLS, SYMBOLS + 1, SYMBOLS + 2
SHORTEST = 4


class StringTask(Task):
    """Give a string, and ask for what is to be made of it, which has as many symbols."""

    measure: Literal["loss", "accuracy"] = "accuracy"
    vocabulary = END + 1

    def __init__(self, *, depths: int = 8) -> None:
        """
        depths: how many positions of the string a test tries, the middles of as many even parts.
        """
        if depths < 1:
            raise ValueError(f"depths must be 1 or more, since some position of the string is tried; got {depths}.")
        self.depths = depths

    @abstractmethod
    def answer(self, string: Int64[Tensor, "examples symbols"]) -> Int64[Tensor, "examples symbols"]:
        """Give what is to be written."""

    def train_batch(self, generator: torch.Generator, batch: int, length: int) -> Examples:
        """Draw strings of 1 .. (length - 2) // 2 symbols, one size a batch."""
        self._require(length)
        size = 2 * int(draw(1, length // 2, (), generator)) + 2
        return self._ask(size, batch, generator)

    def held_out(self, split: HeldOut, length: int, count: int, seed: int) -> Examples:
        """Draw strings of (length - 2) // 2 symbols, with the same depths at every length."""
        self._require(length)
        whole = self._ask(length, count, seeded(self.name, split, seed))
        depth, symbols = (torch.arange(count, device="cpu") % self.depths + 0.5) / self.depths, length // 2 - 1
        asked = one_hot((depth * symbols).long(), symbols)
        scored = torch.zeros_like(whole.scored)
        scored[whole.scored] = self.answer(asked).flatten().bool()
        return Examples(whole.tokens, scored, depth)

    def _require(self, length: int) -> None:
        require_length(length, SHORTEST, self.name, "two strings and two marks")

    def _ask(self, length: int, count: int, generator: torch.Generator) -> Examples:
        symbols = length // 2 - 1
        tokens = torch.full((count, length), END, device="cpu")
        tokens[:, 0] = START
        tokens[:, 1 : symbols + 1] = draw(0, SYMBOLS, (count, symbols), generator)
        tokens[:, symbols + 1] = THEN
        answer = slice(symbols + 2, 2 * symbols + 2)
        tokens[:, answer] = self.answer(tokens[:, 1 : symbols + 1])
        scored = torch.zeros_like(tokens, dtype=torch.bool)
        scored[:, answer] = True
        return Examples(tokens, scored)


@final
class Copy(StringTask):
    """Write a string once more."""

    name = "copy"

    def answer(self, string: Int64[Tensor, "examples symbols"]) -> Int64[Tensor, "examples symbols"]:
        """Give the string itself."""
        return string


@final
class Reverse(StringTask):
    """Write a string backwards."""

    name = "reverse"

    def answer(self, string: Int64[Tensor, "examples symbols"]) -> Int64[Tensor, "examples symbols"]:
        """Give the string with its last symbol first."""
        return string.flip(1)
