"""Records: all that an evaluation stores, as dataclasses whose fields are the keys of its JSON files.

trials/<key>.json      TrialRecord
plan.json              Evaluation, until it has ended: what is planned, without trials
records.json           Evaluation
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from importlib import metadata
from typing import Literal

import torch

from situs.lab.plain import to_plain
from situs.lab.problems import Problem
from situs.lab.records import Machine, Measure, Outcome, UnsoundError, hashed, require_format, unfinished

FORMAT = 1
"""Changes where records of before would no longer mean the same."""
FOLDER = "MODEL_DIR"
"""What the folder of a model is called in errors."""
NONE = "none"
"""The scaling of the model as it was released."""
Task = Literal["text", "passkey"]
TASKS: tuple[Task, ...] = ("text", "passkey")
MEASURES: dict[Task, Measure] = {"text": "loss", "passkey": "accuracy"}
Status = Literal["done", "failed"]


@dataclass(frozen=True)
class Setup:
    """Hold what all trials of an evaluation share."""

    trained: int
    """Tokens of the texts that the model was trained on."""
    target: int
    """The longest length, which scalings are set for."""
    windows: int
    """Texts that are read at each length."""
    tail: int
    """Tokens at the end of a text that are scored, the same ones at every length."""
    device: str = "cpu"
    dtype: str = "float32"
    original: int | None = None
    """The trained length where it was given, and not read from the configuration."""

    def times(self, length: int) -> str:
        """Write a length as a multiple of the trained length."""
        return f"{length / self.trained:.3g}×"


@dataclass(frozen=True)
class Trial:
    """Hold one measurement: a scaling on a task at a length."""

    model: str
    """The hash of the configuration and the weights."""
    scaling: str
    task: Task
    length: int
    setup: Setup
    tokens: str
    """The hash of the tokens that are read."""

    @property
    def key(self) -> str:
        """What tells this trial from every other: a hash of all that could change its result."""
        versions = {name: metadata.version(name) for name in ("situs", "transformers")}
        return hashed({"format": FORMAT, **versions, "torch": torch.__version__, **to_plain(self)})

    @property
    def label(self) -> str:
        """The trial in words."""
        return f"{self.scaling} on {self.task} at {self.length:,}"


@dataclass(frozen=True, kw_only=True)
class TrialRecord:
    """Hold what came of a trial."""

    format: int = FORMAT
    key: str
    trial: Trial
    status: Status
    outcome: Outcome
    traceback: str | None = None
    nats: list[float] | None = None
    """The loss on the answer of each text, where answers are asked for."""
    seconds: list[float] = field(default_factory=list)
    """Of each forward pass over one text."""
    bytes: int | None = None
    """Memory of one forward pass at its worst moment, beside the weights."""

    def require_sound(self) -> None:
        """Raise unless all fields fit each other."""
        require_format(self.format, FORMAT)
        trial = self.trial
        self.outcome.require_sound(trial.setup.windows, trial.length, MEASURES[trial.task])
        if (self.status == "failed") != (self.outcome.error is not None):
            raise UnsoundError(f"status must be failed where there is an error, and only there; got {self.status}")
        if self.nats is not None and len(self.nats) != trial.setup.windows:
            raise UnsoundError(f"nats must be {trial.setup.windows}, one for each window; got {len(self.nats)}")
        for seconds in self.seconds:
            if not (math.isfinite(seconds) and seconds > 0):
                raise UnsoundError(f"seconds must be finite and more than 0; got {seconds:g}")
        if self.bytes is not None and self.bytes < 0:
            raise UnsoundError(f"bytes must be 0 or more; got {self.bytes}")


def failed_trial(trial: Trial, problem: Problem) -> TrialRecord:
    """Make the record of a trial that failed."""
    return TrialRecord(
        key=trial.key, trial=trial, status="failed", outcome=Outcome(error=problem.said),
        traceback=problem.traceback or None,
    )  # fmt: skip


@dataclass(frozen=True)
class ModelFacts:
    """Hold what identifies the model of an evaluation."""

    name: str
    hash: str
    model_type: str
    parameters: int
    limit: int | None = None
    """Tokens beyond which it cannot run."""


@dataclass(frozen=True)
class TokenFacts:
    """Hold what identifies the text of an evaluation, as tokens."""

    name: str
    hash: str
    unit: Literal["byte", "token"]
    tokenizer: str
    prefix: int
    """Tokens that the tokenizer puts before every text, such as the one that begins it."""
    documents: int = 0
    """Files that are as long as the longest text."""
    tokens: int = 0
    """Of those files together."""
    guessed: float | None = None
    """The loss, in nats, of who guesses each token by how often it occurs in those files."""


@dataclass(frozen=True)
class Needle:
    """Hold how a passkey lies in a text of one length, in tokens."""

    length: int
    parts: dict[str, int]
    """How many tokens the beginning, the needle, the question and the answer have at most; the rest is filler."""
    nearest: int
    """Tokens from the needle's end to the answer, at least."""
    farthest: int
    beyond: int
    """How many of the texts have them farther apart than the trained length."""


@dataclass(frozen=True)
class Chosen:
    """Hold what a scaling sets: its part of the configuration as JSON text, or what to write in Situs."""

    settings: str = ""
    code: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Hold a whole evaluation: what was asked, and all that came of it."""

    format: int = FORMAT
    made: str = ""
    command: str = ""
    where: Machine | None = None
    transformers: str = ""
    model: ModelFacts
    config: str = ""
    """The released configuration, as JSON text."""
    setup: Setup
    lengths: list[int]
    tasks: list[Task]
    scalings: list[str]
    """As they were written; the first is none, the model as it was released."""
    refused: dict[str, str] = field(default_factory=dict)
    """By scalings, why the model cannot have them."""
    chosen: dict[str, Chosen] = field(default_factory=dict)
    """By scalings, what they set."""
    text: TokenFacts
    needles: list[Needle] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    """What was told before the start."""
    trials: list[TrialRecord]
    seconds: float = 0.0
    planned: dict[str, Trial] = field(default_factory=dict)
    """By keys, all trials of an evaluation that has not ended; none of one that has."""

    @property
    def missing(self) -> list[Trial]:
        """Trials that are planned and not there."""
        return unfinished(self.planned, (record.key for record in self.trials))

    @property
    def refusals(self) -> dict[str, str]:
        """By scalings that the model cannot have for one reason, all in one text, that reason."""
        reasons: dict[str, list[str]] = {}
        for name, reason in self.refused.items():
            reasons.setdefault(reason, []).append(name)
        return {", ".join(names): reason for reason, names in reasons.items()}

    @property
    def base(self) -> int:
        """The longest length within the trained one, which changes are counted from."""
        within = [length for length in self.lengths if length <= self.setup.trained]
        return within[-1] if within else self.lengths[0]

    def require_sound(self) -> None:
        """Raise unless all trials are sound and are of the tasks, scalings and lengths of the evaluation."""
        require_format(self.format, FORMAT)
        if not (self.lengths and self.tasks and self.scalings):
            raise UnsoundError("an evaluation must have lengths, tasks and scalings; got none")
        if self.lengths != sorted(set(self.lengths)) or self.lengths[0] < 1:
            raise UnsoundError(f"lengths must be 1 or more, from short to long; got {self.lengths}")
        if self.setup.trained < 1:
            raise UnsoundError(f"trained must be 1 or more; got {self.setup.trained}")
        unknown = [name for name in self.scalings if name not in self.refused and name not in self.chosen]
        if unknown:
            raise UnsoundError(f"chosen must have every scaling that is not refused; got none for {unknown[0]}")
        for settings in (self.config, *(each.settings for each in self.chosen.values())):
            if settings and not _is_object(settings):
                raise UnsoundError(f"configurations must be JSON objects; got {settings:.20}")
        for record in self.trials:
            record.require_sound()
            trial = record.trial
            for name, value, known in (
                ("scaling", trial.scaling, self.scalings), ("task", trial.task, self.tasks),
                ("length", trial.length, self.lengths),
            ):  # fmt: skip
                if value not in known:
                    raise UnsoundError(f"trials must be of the evaluation's {name}s; got one of {value}")


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
