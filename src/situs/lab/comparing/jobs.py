"""Jobs of a worker: trying a method out, training and testing it, and measuring what it costs and what it does.

All code of one's own runs in them, so that nothing it does reaches the process that asked: neither an exit, nor a
crash, nor a hang. A job goes to a worker as data and its answer comes back as data.

    job            answer
    TryOut         Tried
    Trial          TrialRecord
    Measurement    Found
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, TypeAlias, cast, final

import torch

from situs.lab.comparing import trial as trials
from situs.lab.comparing.corpus import Corpus
from situs.lab.comparing.records import Parameters, Seconds, Trial, TrialRecord
from situs.lab.comparing.trial import Keep, Tell
from situs.lab.model import Decoder
from situs.lab.naming.grammar import Method
from situs.lab.naming.sources import addresses, sources
from situs.lab.plain import from_json, to_json
from situs.lab.probing import costs, properties
from situs.lab.probing.findings import Costs, Finding
from situs.lab.problems import Problem, RefusedError, own_modules, problem_of, require_importable
from situs.lab.running.work import Held, Work
from situs.lab.settings import Settings

TRIED = 8
"""Tokens that a method is tried out with."""


@dataclass(frozen=True)
class TryOut:
    """Ask whether a method can be imported, built and run."""

    method: Method
    settings: Settings

    @property
    def label(self) -> str:
        """The job in words."""
        return f"trying out {self.method}"


@dataclass(frozen=True)
class Tried:
    """Hold what a try-out found."""

    source: str = ""
    """The hash of the method's own source, where it is not of this package."""
    addresses: dict[str, str] = field(default_factory=dict)
    """Where each class of one's own is defined, by the name that was written."""
    refused: str | None = None
    """Why it cannot be compared at all: a wrong name or option, or a module that cannot be imported."""
    problem: Problem | None = None
    """Why it cannot be built or run."""


@dataclass(frozen=True)
class Measurement:
    """Ask for the costs or the properties of a method."""

    method: Method
    settings: Settings
    what: Literal["costs", "properties"]

    @property
    def label(self) -> str:
        """The job in words."""
        return f"measuring the {self.what} of {self.method}"


@dataclass(frozen=True)
class Found:
    """Hold what was measured, or why it was not."""

    costs: Costs | None = None
    properties: dict[str, Finding] | None = None
    problem: Problem | None = None


@dataclass(frozen=True)
class CorpusSource:
    """Tell a worker how to get the text: from a path, or from the standard library where there is none."""

    path: str | None
    hash: str
    """Of the text that the trials were planned with; "" where no task has one."""

    def load(self) -> Corpus:
        """Read the text; raises if it is not the one that was planned with."""
        corpus = Corpus.standard_library() if self.path is None else Corpus.from_path(self.path)
        if corpus.hash != self.hash:
            raise ValueError(
                f"text must stay as it was when the comparison began, since trials are compared with each other; got "
                f"hash {corpus.hash} instead of {self.hash} from {self.path or 'the standard library'}. Run again."
            )
        return corpus


NO_TEXT = CorpusSource(None, "")
Job: TypeAlias = TryOut | Trial | Measurement
Answer: TypeAlias = Tried | TrialRecord | Found


@final
@dataclass(frozen=True)
class CompareWork(Work[Job, Answer]):
    """Know how jobs of a comparison are done.

    corpus: the text where it was read already, for machines that do not have its path.
    """

    killed: ClassVar[str] = "If memory ran out, use fewer workers or a smaller model."
    left: ClassVar[str] = "An encoding must not end its process; let it raise an error."

    source: CorpusSource = NO_TEXT
    corpus: Corpus | None = None

    def own_code(self, job: Job) -> frozenset[str]:
        """Name the modules of one's own that a job imports."""
        return frozenset(own_modules(job.method))

    def prepare(self, job: Job, held: Held, number: int) -> None:
        """Choose a GPU, read the text once, and import what takes seconds."""
        choose_gpu(number, job.settings.device)
        if isinstance(job, Trial):
            if job.corpus and job.corpus not in held:
                held[job.corpus] = self.corpus or self.source.load()
            torch.optim.AdamW([torch.zeros(1)])  # the first one imports half of torch

    def answer(self, job: Job, held: Held, tell: Tell, keep: Callable[[Answer], None]) -> Answer:
        """Do a job on one thread; whatever it raises becomes part of the answer."""
        return answer(job, held.get(job.corpus) if isinstance(job, Trial) else None, tell, keep)

    def problem(self, job: Job, error: BaseException) -> Problem:
        """Say what was raised, and where in the method's own files."""
        return problem_of(error, job.method)

    def failed(self, job: Job, problem: Problem, seconds: float = 0.0, so_far: Answer | None = None) -> Answer:
        """Make the answer to a job that came to nothing, or to no more than ``so_far``."""
        if isinstance(job, TryOut):
            return Tried(problem=problem)
        if isinstance(job, Measurement):
            return Found(problem=problem)
        return failed_trial(job, problem, seconds, so_far if isinstance(so_far, TrialRecord) else None)

    def read(self, job: Job, text: str) -> Answer:
        """Read the answer to a job."""
        kind = Tried if isinstance(job, TryOut) else Found if isinstance(job, Measurement) else TrialRecord
        return cast(Answer, from_json(kind, text))


def choose_gpu(number: int, device: str) -> None:
    """Share the GPUs among workers by their numbers, unless one is named."""
    if device == "cuda":
        torch.cuda.set_device(number % max(1, torch.cuda.device_count()))


def answer(job: Job, corpus: Corpus | None, tell: Tell, keep: Keep) -> Answer:
    """Do a job on one thread; whatever it raises becomes part of the answer."""
    torch.set_num_threads(1)
    torch.manual_seed(job.seed if isinstance(job, Trial) else 0)  # not what the jobs before have drawn
    so_far: list[TrialRecord] = []

    def keep_too(record: TrialRecord) -> None:
        so_far[:] = [record]
        keep(record)

    try:
        if isinstance(job, TryOut):
            return _try_out(job)
        if isinstance(job, Measurement):
            return _readable(Found, _measure(job))
        return _readable(TrialRecord, trials.run(job, corpus, tell, keep_too))
    except BaseException as error:  # SystemExit, too; Ctrl-C does not reach workers
        return CompareWork().failed(job, problem_of(error, job.method), so_far=so_far[0] if so_far else None)


def failed_trial(
    trial: Trial, problem: Problem, seconds: float = 0.0, so_far: TrialRecord | None = None
) -> TrialRecord:
    """Make the record of a trial that failed; results of before stay in it."""
    if so_far is not None:
        return replace(so_far, status="failed", error=problem.said, traceback=problem.traceback)
    return TrialRecord(
        key=trial.key,
        trial=trial,
        status="failed",
        error=problem.said,
        traceback=problem.traceback,
        measure=None,
        curve=[],
        methods={},
        parameters=Parameters(model=None, encodings=None),
        seconds=Seconds(training=seconds, testing=0.0),
    )


def _try_out(job: TryOut) -> Tried:
    """Import the method, build a model of as many layers as its pattern has, and run it on some tokens."""
    method, settings = job.method, job.settings
    try:
        require_importable(method)
    except RefusedError as problem:
        return Tried(refused=str(problem))
    source, defined = sources(method), addresses(method)
    small = replace(settings.size, layers=len(method.pattern))
    tokens = torch.zeros(1, min(settings.train_length, TRIED), dtype=torch.long)
    try:
        model = Decoder(method, vocabulary=4, size=small, train_length=settings.train_length, seed=0)
        model(tokens)
    except BaseException as error:
        return Tried(source, defined, problem=problem_of(error, method))
    return Tried(source, defined)


def _measure(job: Measurement) -> Found:
    if job.what == "costs":
        return Found(costs=costs.measure(job.method, job.settings))
    return Found(properties=properties.measure(job.method, job.settings))


def _readable(kind: type[TrialRecord] | type[Found], found: TrialRecord | Found) -> TrialRecord | Found:
    """Raise unless an answer can be stored and read again: an encoding of one's own may give anything as a number."""
    again = from_json(kind, to_json(found))
    if isinstance(again, TrialRecord):
        again.require_sound()
    return cast("TrialRecord | Found", again)
