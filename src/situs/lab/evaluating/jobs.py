"""Jobs of the worker that measures a released model: planning an evaluation, and its trials.

The process that a person started loads no model: whatever loading or running one does to a process, such as taking all
of its memory, costs one trial. The worker holds the model from the plan on, for one trial after another; one that
replaces it loads the model again, before the time of its trial counts.

    job         answer
    Planning    Planned
    Trial       TrialRecord
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeAlias, cast, final

from situs.lab.evaluating import trial as trials
from situs.lab.evaluating.plan import make_plan
from situs.lab.evaluating.records import Evaluation, Trial, TrialRecord, failed_trial
from situs.lab.evaluating.source import Source
from situs.lab.plain import from_json
from situs.lab.problems import Problem, problem_of
from situs.lab.running.work import Held, Tell, Work

BENCH = "bench"
"""What a worker holds: all that trials run on."""


@dataclass(frozen=True)
class Planning:
    """Ask for the plan of an evaluation, with the options of `make_plan`."""

    lengths: tuple[int, ...] | None = None
    scalings: str | None = None
    tasks: str | None = None
    windows: int | None = None
    original: int | None = None
    dtype: str = "auto"
    device: str = "cpu"

    @property
    def label(self) -> str:
        """The job in words."""
        return "planning"


@dataclass(frozen=True)
class Planned:
    """Hold what was planned, or why nothing can be."""

    asked: Evaluation | None = None
    refused: str | None = None
    """What cannot be, of all that was asked, in a sentence."""
    problem: Problem | None = None
    """What went wrong, where that was nobody's mistake."""


Job: TypeAlias = Planning | Trial
Answer: TypeAlias = Planned | TrialRecord


@final
@dataclass(frozen=True)
class EvaluateWork(Work[Job, Answer]):
    """Know how jobs of an evaluation are done, all on the same model and text."""

    killed: ClassVar[str] = "If memory ran out, test shorter lengths, or use --dtype bfloat16."
    left: ClassVar[str] = "What runs the model must not end its process."

    source: Source

    def own_code(self, job: Job) -> frozenset[str]:
        """Name no modules: code that stands beside a model is not run."""
        return frozenset()

    def prepare(self, job: Job, held: Held, number: int) -> None:
        """Load model and text, unless this worker holds them."""
        if isinstance(job, Trial):
            held[BENCH] = self.source.bench(job, held.get(BENCH))

    def answer(self, job: Job, held: Held, tell: Tell, keep: Callable[[Answer], None]) -> Answer:
        """Plan, and hold the model for the trials; or measure."""
        if isinstance(job, Trial):
            return trials.run(job, held[BENCH], tell)
        try:
            plan = make_plan(Path(self.source.folder), text=self.source.text, **vars(job))
        except (ValueError, TypeError) as error:
            return Planned(refused=str(error))
        except Exception as error:  # for want of memory, or in the model's own code
            return Planned(problem=problem_of(error))
        held[BENCH] = plan.bench
        return Planned(asked=plan.asked)

    def problem(self, job: Job, error: BaseException) -> Problem:
        """Say what was raised."""
        return problem_of(error)

    def failed(self, job: Job, problem: Problem, seconds: float = 0.0, so_far: Answer | None = None) -> Answer:
        """Make the answer to a job that came to nothing."""
        return failed_trial(job, problem) if isinstance(job, Trial) else Planned(problem=problem)

    def read(self, job: Job, text: str) -> Answer:
        """Read the answer to a job."""
        return cast(Answer, from_json(TrialRecord if isinstance(job, Trial) else Planned, text))
