"""Text: predict the next byte, the measure of ALiBi's figure 1 made honest.

A mean over whole windows mixes two things: what a method does with far tokens, and how few tokens the early ones of a
window can see (Press et al. 2022, appendix B, call it the early token curse). So a test scores the same last bytes at
every length, and only what stands before them grows: any change is the method's.

    length 64                                  . . . . 32 seen  [32 scored]
    length 128            . . . . . . . . . . . . . .  96 seen  [32 scored]
"""

from __future__ import annotations

from typing import Literal, final

import torch

from situs.lab.comparing.corpus import Corpus, HeldOut
from situs.lab.comparing.tasks.base import Examples, Task, all_scored

TAIL = 32


@final
class Text(Task):
    """Predict the next byte of a text."""

    name = "text"
    measure: Literal["loss", "accuracy"] = "loss"
    vocabulary = 256

    def __init__(self, *, corpus: Corpus, longest: int, tail: int = TAIL) -> None:
        """
        corpus: the text.
        longest: the greatest length that will be tested; windows are chosen for it, so that all lengths share them.
        tail: how many bytes a test scores, the last ones.
        """
        if tail < 1:
            raise ValueError(f"tail must be 1 or more, since a test scores as many bytes; got {tail}.")
        corpus.require_held_out(longest, "test")
        self.corpus = corpus
        self.longest = longest
        self.tail = tail

    def train_batch(self, generator: torch.Generator, batch: int, length: int) -> Examples:
        """Draw windows of ``length`` bytes, scored from the second byte on."""
        return all_scored(self.corpus.train_windows(generator, batch, length))

    def held_out(self, split: HeldOut, length: int, count: int, seed: int) -> Examples:
        """Choose windows scored at their last ``tail`` bytes. Those of the test end at the same bytes at every
        length."""
        if not self.tail < length <= self.longest:
            raise ValueError(
                f"length must be {self.tail + 1} .. {self.longest}, since the last {self.tail} bytes are predicted "
                f"from those before them and windows were chosen for longest={self.longest}; got {length}."
            )
        chosen_for = self.longest if split == "test" else length
        tokens = self.corpus.test_windows(chosen_for, count, seed, split)[:, -length:]
        scored = torch.zeros_like(tokens, dtype=torch.bool)
        scored[:, -self.tail :] = True
        return Examples(tokens, scored)

    def whole(self, count: int, seed: int) -> Examples:
        """Choose the windows of the test at full length, scored from the second byte on: for the loss by position."""
        return all_scored(self.corpus.test_windows(self.longest, count, seed))
