"""Records: all that a comparison stores, as dataclasses whose fields are the keys of its JSON files.

trials/<key>.json      TrialRecord
measured/<key>.json    Measured
plan.json              Comparison, until it has ended: what is planned, without trials
records.json           Comparison
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from importlib import metadata
from typing import Literal

import torch

from situs.lab.naming.grammar import Method
from situs.lab.plain import to_plain
from situs.lab.probing.findings import Costs, Finding
from situs.lab.records import Machine, Measure, Outcome, UnsoundError, hashed, listed, require_format, unfinished
from situs.lab.settings import Settings

FORMAT = 2
"""Changes where records of before would no longer mean the same."""
Status = Literal["done", "diverged", "failed"]
"""done: every length has a result. diverged: the loss is no number any more. failed: an error, a crash or a timeout;
what was tested before is kept."""


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

    def require_sound(self) -> None:
        """Raise unless all fields fit each other; a trial that failed may lack results."""
        require_format(self.format, FORMAT)
        lengths = set(self.trial.settings.lengths)
        tested = {method.name for method in self.trial.tested}
        if unknown := self.methods.keys() - tested:
            raise UnsoundError(f"methods must be among those tested; got {min(unknown)}")
        if self.status == "done" and (untested := tested - self.methods.keys()):
            raise UnsoundError(f"methods must be all that were tested; got no {min(untested)}")
        if self.status != "failed" and self.measure is None:
            raise UnsoundError("measure must be loss or accuracy, unless a trial failed; got None")
        for seconds in (self.seconds.training, self.seconds.testing):
            if not (math.isfinite(seconds) and seconds >= 0):
                raise UnsoundError(f"seconds must be finite and 0 or more; got {seconds:g}")
        for name, results in self.methods.items():
            if unknown_lengths := results.lengths.keys() - lengths:
                raise UnsoundError(f"lengths of {name} must be those tested at; got {min(unknown_lengths)}")
            if self.status == "done" and (absent := lengths - results.lengths.keys()):
                raise UnsoundError(f"lengths of {name} must be all that were tested at; got no {min(absent)}")
            for length, outcome in results.lengths.items():
                outcome.require_sound(self.trial.settings.windows, length, self.measure)
                if self.status == "done" and outcome.error is not None:
                    raise UnsoundError(f"status must be failed where a length of {name} failed; got done")


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

    def require_sound(self) -> None:
        """Raise unless this is of today's format and has a cost at the training length."""
        require_format(self.format, FORMAT)
        if self.settings.train_length not in self.costs.lengths:
            raise UnsoundError(f"costs must have the training length, {self.settings.train_length}; got none")
        _require_costs(self.costs)


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
    cut: bool = False
    """Whether large files were cut, so that ``files`` counts pieces, too."""


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
    problems: dict[str, list[str]] = field(default_factory=dict)
    """By methods, what could not be measured of them and why."""
    seconds: float = 0.0
    planned: dict[str, Trial] = field(default_factory=dict)
    """By keys, all trials of a comparison that has not ended; none of one that has."""

    @property
    def missing(self) -> list[Trial]:
        """Trials that are planned and not there."""
        return unfinished(self.planned, (record.key for record in self.trials))

    def require_sound(self) -> None:
        """Raise unless all trials are sound and are of the tasks, methods and lengths of the comparison."""
        require_format(self.format, FORMAT)
        if not self.methods or not self.tasks:
            raise UnsoundError("a comparison must have methods and tasks; got none")
        for costs in self.costs.values():
            _require_costs(costs)
        for record in self.trials:
            record.require_sound()
            if record.trial.task not in self.tasks:
                raise UnsoundError(f"trials must be of the comparison's tasks; got one of {record.trial.task}")
            if record.trial.settings.lengths != self.settings.lengths:
                raise UnsoundError(
                    f"trials must be tested at {listed(self.settings.lengths)}; got one at "
                    f"{listed(record.trial.settings.lengths)}"
                )
            if record.measure not in (None, self.tasks[record.trial.task].measure):
                raise UnsoundError(f"trials of {record.trial.task} must have its measure; got {record.measure}")


def _require_costs(costs: Costs) -> None:
    """Raise unless all times and sizes could have been measured."""
    if costs.parameters < 0:
        raise UnsoundError(f"parameters must be 0 or more; got {costs.parameters}")
    for cost in (*costs.lengths.values(), costs.decode):
        for name, value in vars(cost).items():
            if isinstance(value, float) and not (math.isfinite(value) and value > 0):
                raise UnsoundError(f"{name} must be finite and more than 0, as all times and sizes are; got {value:g}")
