"""What a task is: examples, which of their tokens count, and how logits are scored on them.

A token is predicted from all tokens before it, so the logits at position i are scored against token i + 1. Scoring with
the true tokens as input (teacher forcing) says exactly what greedy decoding would: as long as every answer was right,
both have read the same, and after a wrong one both have failed.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.nn.functional import cross_entropy

from situs.lab.comparing.corpus import HeldOut


@dataclass(frozen=True, eq=False)
class Examples:
    """Hold sequences of one length, and what is asked of them.

    scored: True at tokens that are predicted from all before them and count; never the first.
    depth: how far into the text the answer lies, from 0 at its beginning to 1 at its end; None where that has no sense.
    """

    tokens: Int64[Tensor, "examples length"]
    scored: Bool[Tensor, "examples length"]
    depth: Float[Tensor, "examples"] | None = None

    def __post_init__(self) -> None:
        if self.scored.shape != self.tokens.shape:
            raise ValueError(
                f"scored must have the shape of tokens, since it marks some of them; got {tuple(self.scored.shape)} "
                f"and {tuple(self.tokens.shape)}."
            )
        if bool(self.scored[:, :1].any()):
            raise ValueError("scored must be False at the first token, since nothing before it predicts it; got True.")
        if not bool(self.scored.any(1).all()):
            raise ValueError(
                f"scored must be True somewhere in every example, since its score is a mean over such tokens; got none "
                f"in example {int(self.scored.any(1).int().argmin())}."
            )


def all_scored(tokens: Int64[Tensor, "examples length"]) -> Examples:
    """Make examples in which every token but the first counts."""
    scored = torch.ones_like(tokens, dtype=torch.bool)
    scored[:, 0] = False
    return Examples(tokens, scored)


class Task(ABC):
    """Define something to learn at a short length and to be tested on at longer ones.

    measure: what is compared, the loss in nats per token or the share of examples that are wholly right.
    vocabulary: tokens are 0 .. vocabulary - 1.
    """

    name: str
    measure: Literal["loss", "accuracy"]
    vocabulary: int

    @abstractmethod
    def train_batch(self, generator: torch.Generator, batch: int, length: int) -> Examples:
        """Draw examples to learn from, of ``length`` tokens or, where a task comes in sizes, of any shorter one."""

    @abstractmethod
    def held_out(self, split: HeldOut, length: int, count: int, seed: int) -> Examples:
        """Draw examples of exactly ``length`` tokens that training does not see; the same for the same seed."""

    def test(self, length: int, count: int, seed: int) -> Examples:
        """Draw examples to be scored on."""
        return self.held_out("test", length, count, seed)

    def tune(self, length: int, count: int, seed: int) -> Examples:
        """Draw other examples, to choose a method's settings by."""
        return self.held_out("tune", length, count, seed)


def seeded(name: str, split: HeldOut, seed: int) -> torch.Generator:
    """Make a generator for held-out examples: the seed alone would draw what training draws from the same seed."""
    digest = hashlib.sha256(f"situs {split} of {name}, seed {seed}".encode()).digest()
    return torch.Generator(device="cpu").manual_seed(int.from_bytes(digest[:8], "big"))


def draw(low: int, high: int, shape: tuple[int, ...], generator: torch.Generator) -> Int64[Tensor, "..."]:
    """Draw whole numbers, each of ``low .. high - 1`` as likely."""
    return torch.randint(low, high, shape, generator=generator, device="cpu")


def spread(count: int, levels: int) -> Float[Tensor, "count"]:
    """Spread examples over depths 0 .. 1 in ``levels`` even steps, so that each depth has its share of them."""
    levels = min(levels, count)
    return torch.arange(count, device="cpu") % levels / max(levels - 1, 1)


def require_length(length: int, least: int, task: str, room: str) -> None:
    """Raise unless sequences are long enough for the smallest example."""
    if length < least:
        raise ValueError(f"length must be {least} or more, since {task} needs room for {room}; got {length}.")


def loss_of(logits: Float[Tensor, "examples steps vocabulary"], examples: Examples) -> Float[Tensor, "examples"]:
    """Average the loss of each example's scored tokens, in nats; logits of the last token may be absent."""
    asked = _asked(logits, examples)
    nats = asked.nats()
    if len(nats) == len(examples.tokens) * (examples.tokens.shape[1] - 1):  # all are scored, as in training on text
        return nats.view(len(examples.tokens), -1).mean(1)
    total = nats.new_zeros(len(examples.tokens)).index_add(0, asked.example, nats)
    return total / examples.scored.sum(1)


def exact(logits: Float[Tensor, "examples steps vocabulary"], examples: Examples) -> Bool[Tensor, "examples"]:
    """Tell whether every scored token is the likeliest; never where logits are not numbers."""
    asked = _asked(logits, examples)
    wrong = (asked.logits.argmax(1) != asked.token) | asked.logits.isnan().any(1)
    return torch.zeros_like(examples.tokens[:, 0]).index_add(0, asked.example, wrong.long()) == 0


def by_position(
    logits: Float[Tensor, "examples steps vocabulary"], examples: Examples
) -> Float[Tensor, "examples length"]:
    """Compute the loss at each token, in nats; nan where it is not scored."""
    nats = _asked(logits, examples).nats()
    return nats.new_full(examples.tokens.shape, torch.nan).masked_scatter(examples.scored, nats)


class _Asked(NamedTuple):
    """Hold every scored token, in order: the logits that predict it, its id and its example's number."""

    logits: Float[Tensor, "scored vocabulary"]
    token: Int64[Tensor, "scored"]
    example: Int64[Tensor, "scored"]

    def nats(self) -> Float[Tensor, "scored"]:
        wide = torch.promote_types(self.logits.dtype, torch.float32)
        return cross_entropy(self.logits.to(wide), self.token, reduction="none")


def _asked(logits: Tensor, examples: Examples) -> _Asked:
    count, length = examples.tokens.shape
    if logits.ndim != 3 or len(logits) != count or logits.shape[1] not in (length, length - 1):
        raise ValueError(
            f"logits must have shape ({count}, {length}, vocabulary), since each token predicts the next; got "
            f"{tuple(logits.shape)}."
        )
    scored, following = examples.scored[:, 1:], examples.tokens[:, 1:]
    logits = logits[:, : length - 1]
    if bool(scored.all()):  # a view does, and its gradient is one too
        rows = torch.arange(count, device=scored.device).repeat_interleave(length - 1)
        return _Asked(logits.flatten(0, 1), following.flatten(), rows)
    return _Asked(logits[scored], following[scored], scored.nonzero()[:, 0])
