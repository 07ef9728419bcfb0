"""Facts that comparisons and evaluations record alike: scores of a length, progress, and the machine.

A record is a dataclass whose fields are the keys of its JSON file, and which knows whether they fit each other.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib import metadata
from typing import Any, Literal, TypeVar

import torch

T = TypeVar("T")
STRETCHES = 32
"""A text is cut into as many, each of which has a mean loss."""
Measure = Literal["loss", "accuracy"]


class UnsoundError(ValueError):
    """Raised for a record whose fields do not fit each other."""


def require_format(number: int, known: int) -> None:
    """Raise unless records of a format are those that this version reads."""
    if number != known:
        raise UnsoundError(f"format must be {known}, since this version of situs writes and reads it; got {number}")


@dataclass(frozen=True)
class Progress:
    """Hold how far a trial has come."""

    phase: str
    done: int
    total: int
    loss: float | None = None


@dataclass(frozen=True)
class Outcome:
    """Hold the scores of all examples of one length; or where a table ended before, or why there is none."""

    scores: list[float] | None = None
    depths: list[float] | None = None
    """How far into the text each answer lies, where answers lie somewhere."""
    along: list[float] | None = None
    """The loss along the text, in even stretches."""
    ends: int | None = None
    error: str | None = None

    def require_sound(self, windows: int, length: int, measure: Measure | None = None) -> None:
        """Raise unless there is one kind of outcome, with a score for every window that can be one of its measure."""
        given = [name for name in ("scores", "ends", "error") if getattr(self, name) is not None]
        if len(given) != 1:
            raise UnsoundError(f"an outcome must have one of scores, ends and error; got {listed(given)}")
        for name, numbers in (("scores", self.scores), ("depths", self.depths)):
            if numbers is not None and len(numbers) != windows:
                raise UnsoundError(f"{name} must be {windows}, one for each window; got {len(numbers)}")
        if self.ends is not None and not 0 <= self.ends < length:
            raise UnsoundError(f"ends must be less than the length of {length}, since it ends there; got {self.ends}")
        if self.along is not None and len(self.along) != min(STRETCHES, length - 1):
            raise UnsoundError(f"along must be {min(STRETCHES, length - 1)} stretches; got {len(self.along)}")
        losses = [*(self.along or ()), *((self.scores or ()) if measure == "loss" else ())]
        for loss in losses:
            if loss < 0:
                raise UnsoundError(f"losses must be 0 or more, as those of probabilities are; got {loss:g}")
        for share in (self.scores or ()) if measure == "accuracy" else ():
            if not 0 <= share <= 1:
                raise UnsoundError(f"shares of right answers must be 0 .. 1; got {share:g}")


@dataclass(frozen=True)
class Machine:
    """Hold the machine and the versions, as far as they could matter."""

    python: str
    torch: str
    situs: str
    platform: str
    processor: str
    cores: int | None
    device: str

    @staticmethod
    def here(device: str) -> Machine:
        """Describe this machine, with a device of it."""
        return Machine(
            python=platform.python_version(),
            torch=torch.__version__,
            situs=metadata.version("situs"),
            platform=platform.platform(),
            processor=platform.processor() or platform.machine(),
            cores=os.cpu_count(),
            device=torch.cuda.get_device_name(device) if device.startswith("cuda") else device,
        )


def listed(values: Iterable[object]) -> str:
    """Name values one after another; none where there are none."""
    return ", ".join(map(str, values)) or "none"


def hashed(facts: dict[str, Any]) -> str:
    """Give the key of plain data: the same for the same facts, in whatever order."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def now() -> str:
    """Tell the time in UTC, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def unfinished(planned: Mapping[str, T], keys: Iterable[str]) -> list[T]:
    """List what is planned, by keys, and is not among the keys of what is there."""
    there = set(keys)
    return [trial for key, trial in planned.items() if key not in there]
