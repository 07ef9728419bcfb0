"""The budget of an evaluation: tokens, time and memory, estimated from one short run and told before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import torch

from situs.lab.comparing.budget import memory, size_in_words
from situs.lab.evaluating.loading import Loaded, synchronise
from situs.lab.evaluating.trial import SAMPLED
from situs.lab.records import STRETCHES

MOST = 1800.0
"""Seconds that an evaluation may take by the estimate, where lengths and windows were not given."""
PROBED = 256  # tokens of the short run
VECTORS = 12
"""Vectors of the model's width that are held for each token at once, with those of the feed-forward layer."""


@dataclass(frozen=True)
class Speed:
    """Hold what a model's forward pass takes, from which longer ones are estimated."""

    seconds: float
    """For a token in a short text."""
    quadratic: float
    """The share that attention adds to it, for each token of the text."""

    def of(self, length: int) -> float:
        """Estimate the seconds of a text of a length."""
        return self.seconds * length * (1 + self.quadratic * length)


@dataclass(frozen=True)
class Budget:
    """Hold what an evaluation takes."""

    trials: int
    tokens: int
    seconds: float
    longest: int
    bytes: int
    """Of the weights and of the longest text, about."""

    def __str__(self) -> str:
        return (
            f"{self.trials} trials read {self.tokens:,} tokens, about {duration(self.seconds)} here by a short run; a "
            f"text of {self.longest:,} tokens takes about {size_in_words(self.bytes)} of memory with the weights."
        )

    def require_room(self, device: str) -> None:
        """Raise if the longest text does not fit this machine."""
        room = memory() if device == "cpu" else None
        if room is not None and self.bytes > room:
            raise ValueError(
                f"the longest text must fit in memory beside the weights; got {self.longest:,} tokens, which take "
                f"about {size_in_words(self.bytes)} of {size_in_words(room)}. Test shorter lengths, or use --dtype "
                f"bfloat16."
            )


def speed_of(loaded: Loaded, device: str, most: int) -> Speed:
    """Run a short text twice, and estimate by how much attention grows from the sizes of the model."""
    length = max(2, min(PROBED, most))
    tokens, at = torch.zeros(length, dtype=torch.long), torch.tensor([length - 1])
    for _ in range(2):
        synchronise(device)
        began = perf_counter()
        with torch.no_grad():
            loaded.logits(tokens, at)
        synchronise(device)
        took = perf_counter() - began
    heads = [layer.heads for layer in loaded.positions.main.layers if layer.heads is not None and layer.kind == "full"]
    pairs = sum(each.queries * (each.dim + each.values) for each in heads)  # products and sums, of half of all pairs
    share = pairs / max(1, 2 * loaded.facts.parameters)  # of the products of a token with all weights
    return Speed(took / length / (1 + share * length), share)


def budget_of(
    loaded: Loaded, speed: Speed, *, lengths: Sequence[int], windows: int, tail: int, scalings: int, tasks: int
) -> Budget:
    """Estimate what trials at these lengths take."""
    each = scalings * tasks
    width = int(getattr(loaded.model.config.get_text_config(), "hidden_size", 0) or 0)
    size = 2 if loaded.dtype in ("bfloat16", "float16") else 4
    scored = min(lengths[-1], STRETCHES * SAMPLED + tail) if loaded.chooses else lengths[-1]
    held = lengths[-1] * VECTORS * width * size + 2 * scored * loaded.vocabulary * 4
    return Budget(
        each * len(lengths), each * windows * sum(lengths), each * windows * sum(map(speed.of, lengths)), lengths[-1],
        loaded.bytes + held,
    )  # fmt: skip


def duration(seconds: float) -> str:
    """Write an estimated time in the unit that suits it."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
