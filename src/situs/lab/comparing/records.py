"""Records: all that a comparison stores, as dataclasses whose fields are the keys of its JSON files.

trials/<key>.json      TrialRecord
measured/<key>.json    Measured
records.json           Comparison
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, Literal

import torch

from situs.lab.naming.grammar import Method
from situs.lab.plain import to_plain
from situs.lab.probing.findings import Costs, Finding
from situs.lab.settings import Settings

FORMAT = 2
"""Changes where records of before would no longer mean the same."""
Measure = Literal["loss", "accuracy"]
Status = Literal["done", "diverged", "failed"]


@dataclass(frozen=True)
class Trial:
    """Hold one training, and the methods that are tested with it."""

    method: Method
    tested: tuple[Method, ...]
    task: str
    seed: int
    steps: int
    settings: Settings
    corpus: str = ""
    """The hash of the text, where the task has one."""
    source: str = ""
    """The hash of the method's own source, where it is not of this package."""

    @property
    def key(self) -> str:
        """What tells this trial from every other: a hash of all that could change its result."""
        versions = {"format": FORMAT, "situs": metadata.version("situs"), "torch": torch.__version__}
        return hashed({**versions, **to_plain(self)})

    @property
    def label(self) -> str:
        """The trial in words."""
        return f"{self.method} on {self.task}, seed {self.seed}"


@dataclass(frozen=True)
class Progress:
    """Hold how far a trial has come."""

    phase: str
    done: int
    total: int
    loss: float | None = None


@dataclass(frozen=True)
class Outcome:
    """Hold the scores of all examples of one length; or where a table ended before."""

    scores: list[float] | None = None
    depths: list[float] | None = None
    """How far into the text each answer lies, where answers lie somewhere."""
    along: list[float] | None = None
    """The loss along the text, in even stretches."""
    ends: int | None = None


@dataclass(frozen=True)
class Results:
    """Hold what one method scored after a training."""

    lengths: dict[int, Outcome]
    ramp: tuple[float, float] | None
    """That of a scaling which has one."""


@dataclass(frozen=True)
class Parameters:
    """Count the parameters of a model, and those of its encodings."""

    model: int | None
    encodings: int | None


@dataclass(frozen=True)
class Seconds:
    """Hold how long a trial took."""

    training: float
    testing: float


@dataclass(frozen=True, kw_only=True)
class TrialRecord:
    """Hold what came of a trial."""

    format: int = FORMAT
    key: str
    trial: Trial
    status: Status
    error: str | None = None
    traceback: str | None = None
    measure: Measure | None
    curve: list[tuple[int, float]]
    """Some steps of the training and their losses."""
    methods: dict[str, Results]
    """By the names of the methods that were tested."""
    parameters: Parameters
    seconds: Seconds


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


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Hold the costs and properties of a method, and what they were measured with."""

    format: int = FORMAT
    method: Method
    settings: Settings
    where: Machine
    source: str | None = None
    """The hash of the method's own source; None for ours, so that what is stored of them is found again."""
    costs: Costs
    properties: dict[str, Finding]


@dataclass(frozen=True, kw_only=True)
class Taught:
    """Hold how a task was taught, and what is measured on it; what is None was as for all."""

    steps: int
    batch: int | None = None
    learning_rate: float | None = None
    measure: Measure


@dataclass(frozen=True)
class TextFacts:
    """Hold what identifies the text of a comparison."""

    name: str
    hash: str
    python: str | None = None
    files: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Hold a whole comparison: what was asked, and all that came of it."""

    format: int = FORMAT
    made: str = ""
    command: str = ""
    preset: str = ""
    where: Machine | None = None
    settings: Settings
    seeds: list[int]
    tasks: dict[str, Taught]
    methods: list[Method]
    corpus: TextFacts | None
    trials: list[TrialRecord]
    costs: dict[str, Costs] = field(default_factory=dict)
    properties: dict[str, dict[str, Finding]] = field(default_factory=dict)
    seconds: float = 0.0


def hashed(facts: dict[str, Any]) -> str:
    """Give the key of plain data: the same for the same facts, in whatever order."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
