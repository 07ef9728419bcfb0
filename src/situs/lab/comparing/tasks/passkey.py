"""Passkey: find one marked value in a long stretch of filler.

After Mohtashami & Jaggi 2023, Landmark Attention, arXiv:2305.16300, who hid a number in repeated sentences and asked
for it at the end.

    filler .. filler  KEY value  filler .. filler  ASK value
                      at depth 0 .. 1                  scored

Departures: single symbols instead of sentences, so that a small model learns it in seconds, and random filler, so that
nothing but the marker tells where to look. Guessing gets 1 / 16.
"""

from __future__ import annotations

from typing import Literal, final

import torch
from jaxtyping import Int64
from torch import Tensor

from situs.lab.comparing.corpus import HeldOut
from situs.lab.comparing.tasks.base import Examples, Task, draw, require_length, seeded, spread

VALUES = 16  # tokens 0 .. 15; the rest never occurs as an answer
FILLERS = 16
KEY = VALUES + FILLERS
ASK = KEY + 1
SHORTEST = 8


@final
class Passkey(Task):
    """Find one of 16 values hidden in filler. Trained on lengths 8 .. the training length, one a batch."""

    name = "passkey"
    measure: Literal["loss", "accuracy"] = "accuracy"
    vocabulary = ASK + 1

    def __init__(self, *, depths: int = 8) -> None:
        """
        depths: how many depths a test tries, evenly from the beginning to the end.
        """
        if depths < 2:
            raise ValueError(f"depths must be 2 or more, since both ends of the text are tried; got {depths}.")
        self.depths = depths

    def train_batch(self, generator: torch.Generator, batch: int, length: int) -> Examples:
        """Draw texts of any length up to ``length``, with the key at any depth."""
        _require(length)
        size = int(draw(SHORTEST, length + 1, (), generator))
        position = draw(0, size - 3, (batch,), generator)
        value = draw(0, VALUES, (batch,), generator)
        return _hide(value, position, position / (size - 4), size, generator)

    def held_out(self, split: HeldOut, length: int, count: int, seed: int) -> Examples:
        """Draw the same pairs of value and depth at every length; only the filler differs."""
        _require(length)
        generator = seeded(self.name, split, seed)
        value = draw(0, VALUES, (count,), generator)
        depth = spread(count, self.depths)
        return _hide(value, (depth * (length - 4)).round().long(), depth, length, generator)


def _require(length: int) -> None:
    require_length(length, SHORTEST, "passkey", "the key, the question and some filler")


def _hide(
    value: Int64[Tensor, "examples"],
    position: Int64[Tensor, "examples"],
    depth: Tensor,
    length: int,
    generator: torch.Generator,
) -> Examples:
    tokens = draw(VALUES, VALUES + FILLERS, (len(value), length), generator)
    rows = torch.arange(len(value), device="cpu")
    tokens[rows, position] = KEY
    tokens[rows, position + 1] = value
    tokens[:, -2] = ASK
    tokens[:, -1] = value
    scored = torch.zeros_like(tokens, dtype=torch.bool)
    scored[:, -1] = True
    return Examples(tokens, scored, depth)
