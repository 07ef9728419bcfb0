"""Published results: claims with their numbers and sources.

Numbers are the papers'. Where one was taken from a transcription and not from the paper itself, ``second_hand`` says
so, and so does the page.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from situs.lab.naming.scalings import RANDOM
from situs.plots.comparison.words import percent, signed


@dataclass(frozen=True)
class Published:
    """Hold a claim with its numbers.

    compared: the "change" of the loss from the training length on, the "loss", the share of right "answers", or the
        "gain" in right answers that an addition brings.
    numbers: for each method and length, perplexities, shares of right answers, or points gained.
    above: methods whose last number is only known to be higher.
    """

    paper: str
    source: str
    setting: str
    claim: str
    compared: Literal["change", "loss", "answers", "gain"]
    numbers: Mapping[str, Mapping[int, float]]
    train_length: int = 1
    second_hand: bool = False
    remark: str = ""
    above: frozenset[str] = field(default_factory=frozenset)

    @property
    def at(self) -> dict[str, int]:
        """The length each method is compared at: the last that all have, or else the last of each."""
        shared = set.intersection(*(set(each) for each in self.numbers.values()))
        common = max((length for length in shared if length > self.train_length), default=None)
        return {name: common or max(each) for name, each in self.numbers.items()}

    def badness(self, name: str) -> float:
        """Give the number that is compared, less being better: nats per token, or wrong answers."""
        number = self.numbers[name][self.at[name]]
        if self.compared in ("answers", "gain"):
            return -number
        start = self.numbers[name][self.train_length] if self.compared == "change" else 1.0
        return math.log(number / start)

    def said(self, name: str) -> str:
        """Write the number as the paper gives it, and in nats."""
        length = self.at[name]
        number = self.numbers[name][length]
        if self.compared == "answers":
            return percent(number, 1)
        if self.compared == "gain":
            return f"{100 * number:+.1f} points" if number else "the reference"
        more = ">" if name in self.above else ""
        shown = f"{more}{number:,.2f}" if number < 1000 else f"{more}{number:,.0f}"
        if self.compared == "loss":
            return f"{shown} ({more}{self.badness(name):.2f} nats per token)"
        change = f"{more}{signed(self.badness(name))} nats per token"
        return f"{self.numbers[name][self.train_length]:.2f} → {shown} at {length / self.train_length:.2g}× ({change})"

    def others(self, name: str) -> str:
        """Write the numbers at lengths that are not compared."""
        shown = (self.at[name], self.train_length)
        each = [f"{number:.2f} at {length:,}" for length, number in self.numbers[name].items() if length not in shown]
        return f"also {', '.join(each)}" if each else ""


PUBLISHED = (
    Published(
        paper="Press et al. 2021, ALiBi, windows side by side",
        source="arXiv:2108.12409",
        setting="perplexity on WikiText-103, trained at 512, windows that do not overlap",
        claim="beyond the training length sinusoidal fails first, then rotary, then T5's bias; ALiBi does not fail",
        compared="change",
        train_length=512,
        numbers={
            "sinusoidal": {512: 20.05, 1012: 43.54, 1512: 76.23, 3512: 178.97, 15512: 406.0},
            "rotary": {512: 20.07, 1012: 21.37, 1512: 25.99, 3512: 35.54, 15512: 79.25},
            "t5": {512: 19.65, 1012: 18.79, 1512: 18.91, 3512: 22.91},
            "alibi": {512: 19.73, 1012: 18.73, 1512: 18.52, 3512: 18.40, 15512: 18.31},
        },
        second_hand=True,
        remark="In longer windows of this kind fewer tokens are near the beginning, which makes every method look "
        "better; here the same bytes are scored at every length. T5's bias ran out of memory at 15,512.",
    ),
    Published(
        paper="Press et al. 2021, ALiBi, sliding window",
        source="arXiv:2108.12409",
        setting="the same with a window that slides by one token, so that every token has its full context",
        claim="scored in this way, ALiBi keeps its loss and does not improve with length",
        compared="change",
        train_length=512,
        numbers={
            "sinusoidal": {512: 18.35, 3072: 360.0},
            "t5": {512: 17.92, 3072: 30.77},
            "alibi": {512: 17.98, 3072: 18.30},
        },
        second_hand=True,
        remark="Of these results, the one scored most like this comparison.",
    ),
    Published(
        paper="Kazemnejad et al. 2023",
        source="arXiv:2305.19466",
        setting="mean accuracy over 12 splits of algorithmic tasks, longer than trained; from the released results",
        claim="no encoding at all generalises best to longer examples, then T5's bias, ALiBi, rotary and sinusoidal",
        compared="answers",
        numbers={
            "none": {0: 0.577},
            "t5": {0: 0.544},
            "alibi": {0: 0.318},
            "rotary": {0: 0.134},
            "sinusoidal": {0: 0.075},
        },
        remark="Their models are larger than these, and their tasks differ.",
    ),
    Published(
        paper="Haviv et al. 2022",
        source="arXiv:2203.16634",
        setting="perplexity of models of 1.3 billion parameters, at the length they were trained at",
        claim="in large models, leaving out the encoding costs little",
        compared="loss",
        train_length=1,
        numbers={"none": {1: 13.10}, "learned": {1: 13.05}, "sinusoidal": {1: 12.93}, "alibi": {1: 12.51}},
        second_hand=True,
        remark="Small models need an encoding more: compare how far the best and the worst are apart.",
    ),
    Published(
        paper="Chen et al. 2023, position interpolation",
        source="arXiv:2306.15595",
        setting="perplexity of a model of 7 billion parameters on PG-19, trained at 2048, not fine-tuned",
        claim="rotary fails just beyond its training length, and rotary with interpolated positions does not",
        compared="change",
        train_length=2048,
        numbers={"rotary": {2048: 7.20, 4096: 1000.0}, "rotary+linear": {2048: 7.20, 8192: 16.10}},
        above=frozenset({"rotary"}),
        second_hand=True,
    ),
    Published(
        paper="Peng et al. 2023, YaRN",
        source="arXiv:2309.00071",
        setting="perplexity of models of 7 billion parameters, fine-tuned, at 131,072: 32 times the training length",
        claim="YaRN has the lowest loss, then NTK-aware scaling, then interpolation",
        compared="loss",
        train_length=4096,
        numbers={"rotary+yarn": {131072: 2.37}, "rotary+ntk": {131072: 2.71}, "rotary+linear": {131072: 1e4}},
        above=frozenset({"rotary+linear"}),
        second_hand=True,
        remark="Their models were trained further at long lengths, interpolation only at 32,768; these were not.",
    ),
    Published(
        paper="Ruoss et al. 2023, randomised positions",
        source="arXiv:2305.16843",
        setting="accuracy beyond the training length, mean over 15 algorithmic tasks",
        claim="training with positions drawn from a larger range improves accuracy beyond the training length",
        compared="gain",
        numbers={f"+{RANDOM}": {0: 0.120}, "": {0: 0.0}},
    ),
)
