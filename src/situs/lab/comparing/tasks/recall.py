"""Recall: pairs of key and value, then one of the keys, whose value is asked.

Associative recall as in Ba et al. 2016, Using Fast Weights to Attend to the Recent Past, arXiv:1610.06258, and Fu et
al. 2023, Hungry Hungry Hippos, arXiv:2212.14052; what solves it is an induction head (Olsson et al. 2022,
arXiv:2209.11895): find the key, read what follows.

    k_1 v_1  k_2 v_2 .. k_n v_n  k_i v_i          n = (length - 2) // 2; scored: the last value

Every sequence has its own dictionary of 16 keys, so keys recur in long ones, with the same value. The asked key stands
among the pairs just once, at a depth of 0 .. 1. A sequence of odd length ends in one more token that is not scored.

Training scores the value of every key that occurred before, as Arora et al. 2023, Zoology, arXiv:2312.04927, ask for
many: one answer a sequence teaches too slowly. It draws the number of pairs evenly on a logarithmic scale: what is
found on short lists carries over to long ones, where small models otherwise stay long at guessing a value seen.
"""

from __future__ import annotations

from typing import Literal, final

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from situs.lab.comparing.corpus import HeldOut
from situs.lab.comparing.tasks.base import Examples, Task, draw, require_length, seeded, spread

KEYS = 16  # tokens 0 .. 15
VALUES = 16  # tokens 16 .. 31
END = KEYS + VALUES
SHORTEST = 4


@final
class Recall(Task):
    """Give the value that stood beside a key, among (length - 2) // 2 pairs."""

    name = "recall"
    measure: Literal["loss", "accuracy"] = "accuracy"
    vocabulary = END + 1

    def __init__(self, *, depths: int = 8) -> None:
        """
        depths: how many depths a test tries, evenly from the first pair to the last.
        """
        if depths < 2:
            raise ValueError(f"depths must be 2 or more, since the first and the last pair are tried; got {depths}.")
        self.depths = depths

    def train_batch(self, generator: torch.Generator, batch: int, length: int) -> Examples:
        """Draw 1 .. (length - 2) // 2 pairs, as many for a whole batch, and ask for one of them."""
        _require(length)
        pairs = int((length // 2) ** torch.rand((), generator=generator, dtype=torch.float64, device="cpu"))
        asked = draw(0, pairs, (batch,), generator)
        whole = _ask(2 * pairs + 2, asked, asked / max(pairs - 1, 1), generator)
        keys = whole.tokens[:, ::2]
        scored = torch.zeros_like(whole.scored)
        scored[:, 1::2] = (keys.unsqueeze(1) == keys.unsqueeze(2)).tril(-1).any(2)
        return Examples(whole.tokens, scored, whole.depth)

    def held_out(self, split: HeldOut, length: int, count: int, seed: int) -> Examples:
        """Draw examples with the same depths at every length."""
        _require(length)
        depth = spread(count, self.depths)
        asked = (depth * (length // 2 - 2)).round().long()
        return _ask(length, asked, depth, seeded(self.name, split, seed))


def _require(length: int) -> None:
    require_length(length, SHORTEST, "recall", "a pair and a question")


def _ask(
    length: int, asked: Int64[Tensor, "examples"], depth: Float[Tensor, "examples"], generator: torch.Generator
) -> Examples:
    count, pairs = len(asked), length // 2 - 1
    key = draw(0, KEYS, (count, 1), generator)
    keys = draw(0, KEYS - 1, (count, pairs + 1), generator)
    keys += keys >= key  # any but the asked one
    keys.scatter_(1, asked.unsqueeze(1), key)
    keys[:, -1:] = key
    dictionary = draw(KEYS, KEYS + VALUES, (count, KEYS), generator)
    end = 2 * pairs + 2
    tokens = torch.full((count, length), END, device="cpu")
    tokens[:, 0:end:2] = keys
    tokens[:, 1:end:2] = dictionary.gather(1, keys)
    scored = torch.zeros_like(tokens, dtype=torch.bool)
    scored[:, end - 1] = True
    return Examples(tokens, scored, depth)
