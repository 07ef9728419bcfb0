"""Addition: two decimal numbers of as many digits, and their sum, least significant digit first.

As in Kazemnejad et al. 2023, arXiv:2305.19466, but for the order of the sum, which is that of Lee et al. 2023, Teaching
Arithmetic to Small Transformers, arXiv:2307.03381; that it is written with n + 1 digits, a zero last where nothing is
carried, is the alignment of Zhou et al. 2024, arXiv:2402.09371.

    a_n .. a_1 + b_n .. b_1 = c_1 .. c_n+1        n = (length - 3) // 3; scored: the sum, right as a whole

Where length is no multiple of 3, the sequence ends in one or two tokens that are not scored. Written from its end, a
digit depends on two columns and on the digit before it; from its front, on all carries behind it. A decoder of two
layers and width 64 with rotary learns three digits that way, at a training length of 12, and gets no sum right that is
written from its front. Longer sums it gets wrong, and trained at 64 tokens, which is 20 digits, it learns to add none.
"""

from __future__ import annotations

from typing import Literal, final

import torch
from jaxtyping import Int64
from torch import Tensor

from situs.lab.comparing.corpus import HeldOut
from situs.lab.comparing.tasks.base import Examples, Task, draw, require_length, seeded

PLUS, EQUALS, END = 10, 11, 12  # tokens 0 .. 9 are the digits
SHORTEST = 6


@final
class Addition(Task):
    """Add two numbers of (length - 3) // 3 digits."""

    name = "addition"
    measure: Literal["loss", "accuracy"] = "accuracy"
    vocabulary = END + 1

    def train_batch(self, generator: torch.Generator, batch: int, length: int) -> Examples:
        """Draw numbers of 1 .. (length - 3) // 3 digits, as many for a whole batch."""
        _require(length)
        digits = int(draw(1, length // 3, (), generator))
        return _ask(3 * digits + 3, batch, generator)

    def held_out(self, split: HeldOut, length: int, count: int, seed: int) -> Examples:
        """Draw numbers of (length - 3) // 3 digits."""
        _require(length)
        return _ask(length, count, seeded(self.name, split, seed))


def _require(length: int) -> None:
    require_length(length, SHORTEST, "addition", "two digits, two signs and a sum of two digits")


def _ask(length: int, count: int, generator: torch.Generator) -> Examples:
    digits = length // 3 - 1
    numbers = draw(0, 10, (2, count, digits), generator)
    numbers[:, :, 0] = draw(1, 10, (2, count), generator)
    tokens = torch.full((count, length), END, device="cpu")
    tokens[:, :digits] = numbers[0]
    tokens[:, digits] = PLUS
    tokens[:, digits + 1 : 2 * digits + 1] = numbers[1]
    tokens[:, 2 * digits + 1] = EQUALS
    answer = slice(2 * digits + 2, 3 * digits + 3)
    tokens[:, answer] = _sum(numbers[0], numbers[1]).flip(1)
    scored = torch.zeros_like(tokens, dtype=torch.bool)
    scored[:, answer] = True
    return Examples(tokens, scored)


def _sum(first: Int64[Tensor, "examples digits"], second: Int64[Tensor, "examples digits"]) -> Tensor:
    """Add numbers; gives the sum's digits, one more than the summands have, most significant first."""
    total = torch.nn.functional.pad(first + second, (1, 0))
    for digit in range(total.shape[1] - 1, 0, -1):
        total[:, digit - 1] += total[:, digit] // 10
        total[:, digit] %= 10
    return total
