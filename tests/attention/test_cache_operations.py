"""A cache through any mixture of its operations gives what a fresh forward over each row's tokens gives."""

import os
import random
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

import situs
from situs import Attention, Encoding, InputEncoding, KVCache, Positions
from tests.attention.layer_cases import DIM, HEAD_DIM, HEADS, made

SLOW = os.environ.get("SITUS_SLOW") == "1"
WHOLE = 4000  # how long the sequence is told to be, for methods that choose by it
SIZES: dict[str, Any] = {
    "dim": DIM, "num_heads": HEADS, "head_dim": HEAD_DIM, "max_length": WHOLE, "max_distance": 9, "threshold": 6.0,
    "max_position": 5, "init_std": 0.5, "window": (4, 4), "size": (4, 4),
}  # fmt: skip
PAIRS = ["dynamic", "xpos middle", "rotary and t5", "rotary and shaw"]


def encodings(name: str) -> list[Encoding]:
    if name in PAIRS:
        return made(name)
    options = situs.registry.entry(name).options
    sizes = {key: value for key, value in SIZES.items() if key in options}
    if "max_distance" in sizes and not isinstance(options["max_distance"].default, int):
        del sizes["max_distance"]  # one for each axis
    return [situs.create(name, **sizes)]


def is_cached(name: str) -> bool:
    """Whether an encoding acts in attention, and on positions that count tokens."""
    encoding = encodings(name)[0]
    return not isinstance(encoding, InputEncoding) and encoding.axes == 1


NAMES = [*filter(is_cached, situs.names()), *PAIRS]


def make_layer(name: str, *, window: int | None = None) -> Attention:
    torch.manual_seed(1)
    return Attention(dim=DIM, num_heads=HEADS, num_kv_heads=2, encoding=encodings(name), window=window).double().eval()


@dataclass
class Play:
    """A cache, the tokens that each of its rows stands for, and random operations on both."""

    layer: Attention
    cache: KVCache
    seed: int
    rows: list[Tensor] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        torch.manual_seed(self.seed)
        self.rows = [torch.zeros(0, DIM, dtype=torch.float64) for _ in range(self.cache.batch)]

    def run(self, steps: int) -> None:
        others = [self.crop, self.crop_rows, self.reorder, self.repeat, self.evict, self.reset]
        for _ in range(steps):
            self.append()
            if self.rng.random() < 0.7:
                self.rng.choices(others, weights=[4, 4, 3, 2, 3, 1])[0]()
            self.assert_sizes()

    def append(self) -> None:
        count, batch = self.rng.choice([1, 1, 1, 2, 5, 33, 90]), len(self.rows)
        x = torch.randn(batch, count, DIM, dtype=torch.float64)
        valid = torch.ones(batch, count, dtype=torch.bool)
        side = self.rng.choice(["none", "none", "left", "right", "anywhere"])
        if side != "none":
            real = torch.tensor([self.rng.randint(0, count) for _ in range(batch)])
            valid = torch.arange(count) < real[:, None]
            valid = valid.flip(-1) if side == "left" else valid
            valid = valid[:, torch.randperm(count)] if side == "anywhere" else valid
        lengths = torch.tensor([len(row) for row in self.rows])
        ids = (lengths[:, None] + valid.cumsum(-1) - 1).clamp(min=0)
        positions = Positions.explicit(ids, valid=None if side == "none" else valid, sequence_length=WHOLE)
        by_length = any(getattr(each, "by_length", False) for each in self.layer.encodings)
        told = None if side == "none" and not by_length and self.rng.random() < 0.5 else positions
        out = self.layer(x.masked_fill(~valid[..., None], torch.nan), told, cache=self.cache)
        self.told.append(f"append {count} {side} {valid.sum(-1).tolist()}")
        for row, real in enumerate(valid):
            self.rows[row] = torch.cat((self.rows[row], x[row, real]))
            self.assert_row(row, out[row, real])

    def assert_row(self, row: int, out: Tensor) -> None:
        tokens = self.rows[row]
        if len(out):
            whole = self.layer(tokens[None], Positions.range(len(tokens), sequence_length=WHOLE))[0]
            torch.testing.assert_close(
                out, whole[-len(out) :], atol=1e-10, rtol=0, msg=lambda text: f"row {row} {self.told}\n{text}"
            )

    def assert_sizes(self) -> None:
        own = [len(row) for row in self.rows]
        known = [self.cache.length] * len(own) if self.cache.lengths is None else self.cache.lengths.tolist()
        assert known == own
        assert self.cache.keys.shape[2] <= self.cache.memory.room
        assert self.cache.batch == len(own)

    def crop(self) -> None:
        longest = max(len(row) for row in self.rows)
        length = max(0, longest - self.rng.choice([0, 1, 3, 7, 40]))
        self.try_or_leave(lambda: self.cache.crop(length), [row[:length] for row in self.rows], f"crop {length}")

    def crop_rows(self) -> None:
        lengths = [max(0, len(row) - self.rng.choice([0, 1, 2, 5, 40])) for row in self.rows]
        given: Any = self.rng.choice([lengths, torch.tensor(lengths)])
        after = [row[:length] for row, length in zip(self.rows, lengths, strict=True)]
        self.try_or_leave(lambda: self.cache.crop(given), after, f"crop {lengths}")

    def reorder(self) -> None:
        count = self.rng.choice([len(self.rows)] * 3 + [1, 3])
        rows = [self.rng.randrange(len(self.rows)) for _ in range(count)]
        given: Any = self.rng.choice([rows, torch.tensor(rows), torch.tensor(rows, dtype=torch.int32)])
        self.cache.reorder(given)
        self.rows = [self.rows[row] for row in rows]
        self.told.append(f"reorder {rows}")

    def repeat(self) -> None:
        if len(self.rows) < 3:
            self.cache.repeat(2)
            self.rows = [row for row in self.rows for _ in range(2)]
            self.told.append("repeat 2")

    def evict(self) -> None:
        shortest = min(len(row) for row in self.rows)
        length = max(0, shortest - self.rng.choice([0, 2]))
        if self.try_or_leave(
            lambda: self.cache.crop([length] * len(self.rows)), [r[:length] for r in self.rows], "crop"
        ):
            sinks = self.rng.randint(0, min(3, length))
            count = self.rng.randint(0, length - sinks)
            after = [torch.cat((row[:sinks], row[sinks + count :])) for row in self.rows]
            self.try_or_leave(lambda: self.cache.evict(count, sinks=sinks), after, f"evict {count} {sinks}")

    def reset(self) -> None:
        self.cache.reset()
        self.rows = [row[:0] for row in self.rows]
        self.told.append("reset")

    def try_or_leave(self, operation: Any, after: list[Tensor], told: str) -> bool:
        """A window that was left behind is refused, and then nothing changes."""
        before = self.cache.memory
        try:
            operation()
        except ValueError as problem:
            words = str(problem)
        else:
            self.rows = after
            self.told.append(told)
            return True
        assert self.cache.window is not None, words
        assert words.startswith(("length must be at least", "count must leave the")), words
        assert self.cache.memory is before
        return False


@pytest.mark.parametrize("window", [None, 6], ids=["all", "window"])
@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_any_mixture_of_operations_gives_what_a_fresh_forward_gives(name: str, window: int | None) -> None:
    layer = make_layer(name, window=window)
    for seed in range(2):
        most = None if window else WHOLE
        Play(layer, layer.make_cache(batch=2, max_length=most), seed).run(9)


@pytest.mark.skipif(not SLOW, reason="many repetitions; set SITUS_SLOW=1")
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("window", [None, 1, 2, 17, 64])
@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_more_mixtures(name: str, window: int | None, seed: int) -> None:
    layer = make_layer(name, window=window)
    Play(layer, layer.make_cache(batch=2, max_length=WHOLE), seed).run(20)
