"""The plan of a comparison: what was asked, checked as a whole before anything is trained, and the trials it takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from situs.lab.comparing.budget import Budget
from situs.lab.comparing.corpus import Corpus
from situs.lab.comparing.records import Comparison, Taught, Trial, TrialRecord
from situs.lab.comparing.tasks import TASKS, Task, make_task, of_text
from situs.lab.naming.grammar import Method, parse_all
from situs.lab.naming.methods import require_trainable, suiting_text
from situs.lab.problems import Problem
from situs.lab.settings import Settings, Size

BESIDE = ("temperature", "rotary_value")
"""What models have beside rotary, and so does the preset."""
SCALED = (
    "rotary+linear", "rotary+ntk", "rotary+dynamic_ntk", "rotary+ntk_by_parts", "rotary+yarn", "rotary+llama3",
    "rotary+selfextend", "rotary+rerope", "rotary+dualchunk",
)  # fmt: skip


@dataclass(frozen=True)
class Schooling:
    """Hold how a task is taught."""

    steps: int
    batch: int = Settings.batch
    learning_rate: float = Settings.learning_rate


SCHOOLING = {
    "text": Schooling(300),
    "passkey": Schooling(150),
    "copy": Schooling(800, batch=32, learning_rate=3e-3),
    "reverse": Schooling(1000, batch=32, learning_rate=3e-3),
    "addition": Schooling(1500, batch=64, learning_rate=3e-3),
    "recall": Schooling(600, batch=64, learning_rate=3e-3),
}
"""What each task takes to be learnt at the default size and training length, by methods that can learn it; addition, at
a length of 12. At the rate and batch of text, shaw and transformer_xl get half of copy right after as many steps, and
rotary still guesses at recall after 1500."""


@dataclass(frozen=True)
class Preset:
    """Hold options that go together."""

    encodings: tuple[str, ...]
    tasks: tuple[str, ...]
    seeds: int
    windows: int


def presets() -> dict[str, Preset]:
    """Name options that go together: quick takes some minutes on two cores; full about an hour, without addition, which
    is not learnt at 64 tokens."""
    everything = [name for name in suiting_text() if name != "rotary" and name not in BESIDE]
    beside = [f"rotary&{name}" for name in BESIDE]
    return {
        "quick": Preset(
            (
                "none", "learned", "sinusoidal", "rotary", "rotary+linear", "rotary+ntk", "rotary+yarn", "xpos",
                "alibi", "kerple", "sandwich", "fire", "t5", "shaw", "transformer_xl",
            ),
            ("text", "passkey"), seeds=2, windows=64,
        ),
        "full": Preset(
            (*everything, "rotary", *SCALED, *beside, "rotary+random", "rotary/none"),
            tuple(name for name in TASKS if name != "addition"), seeds=3, windows=128,
        ),
    }  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """Hold a comparison that can be run."""

    methods: list[Method]
    tasks: dict[str, Schooling]
    """How each is taught."""
    seeds: int
    settings: Settings
    """Of all trials, but for what a task's own schooling says."""
    corpus: Corpus | None
    sources: dict[str, str] = field(default_factory=dict)
    """By methods, the hash of their own source; of those that have one."""
    problems: dict[str, Problem] = field(default_factory=dict)
    """By methods, why they cannot be built; of those that cannot."""
    renamed: dict[str, str] = field(default_factory=dict)
    """By methods as they were written, what they are called where their class was named before in another way."""

    @property
    def trials(self) -> list[Trial]:
        """All trainings, each with the methods that share it; seeds last, so that a first picture comes early."""
        shared: dict[Method, list[Method]] = {}
        for method in self.methods:
            shared.setdefault(method.trained, []).append(method)
        return [
            Trial(
                trained, tuple(tested), task, seed, taught.steps, self._settings(taught), self._text(task),
                self.sources.get(tested[0].name, ""),
            )
            for seed in range(self.seeds)
            for task, taught in self.tasks.items()
            for trained, tested in shared.items()
        ]  # fmt: skip

    @property
    def budget(self) -> Budget:
        """What the comparison takes: tokens, and the memory of the longest window."""
        vocabulary = max(TASKS[name].vocabulary for name in self.tasks)
        taught = [schooling.steps * schooling.batch * self.settings.train_length for schooling in self.tasks.values()]
        return Budget.of(self.settings, trials=len(self.trials), trained=max(taught), vocabulary=vocabulary)

    def problem(self, trial: Trial) -> Problem | None:
        """Tell why a trial cannot be begun, if none of its methods can be built."""
        found = [self.problems.get(method.name) for method in trial.tested]
        return found[0] if all(found) else None

    def comparison(self, trials: list[TrialRecord], **more: Any) -> Comparison:
        """Put what was asked beside what came of it; ``more`` are further fields."""
        return Comparison(
            settings=self.settings,
            seeds=list(range(self.seeds)),
            tasks={name: self._taught(name) for name in self.tasks},
            methods=self.methods,
            corpus=None if self.corpus is None else self.corpus.facts(),
            trials=trials,
            **more,
        )

    def _taught(self, name: str) -> Taught:
        schooling = self.tasks[name]
        return Taught(
            steps=schooling.steps,
            batch=schooling.batch,
            learning_rate=schooling.learning_rate,
            measure=self._task(name).measure,
        )

    def _settings(self, taught: Schooling) -> Settings:
        return replace(self.settings, batch=taught.batch, learning_rate=taught.learning_rate)

    def _text(self, task: str) -> str:
        return self.corpus.hash if self.corpus is not None and of_text(task) else ""

    def _task(self, name: str) -> Task:
        return make_task(name, self.corpus, longest=self.settings.lengths[-1], shortest=self.settings.train_length)


def make_plan(
    *,
    preset: str = "quick",
    encodings: str | None = None,
    tasks: str | None = None,
    text: str | None = None,
    train_length: int = 64,
    multiples: Sequence[int] = (1, 2, 4, 8, 16),
    steps: int | None = None,
    size: Size | None = None,
    learning_rate: float | None = None,
    batch: int | None = None,
    seeds: int | None = None,
    device: str = "cpu",
) -> Plan:
    """Check all that was asked, and raise for the first thing that cannot be, before any training.

    Code of one's own is not run here: `situs.lab.comparing.compare.try_out` does that, in worker processes.

    steps, learning_rate, batch: for all tasks alike; what each takes to be learnt if left out.
    """
    chosen = presets()[preset]
    _require_numbers(train_length, multiples, steps, learning_rate, batch, seeds)
    methods = _methods(",".join(chosen.encodings) if encodings is None else encodings)
    names = list(chosen.tasks) if tasks is None else [name.strip() for name in tasks.split(",") if name.strip()]
    if not names:
        raise ValueError(f"tasks must be names separated by commas, such as text,passkey; got {tasks!r}.")
    corpus = None
    readers = [name for name in names if of_text(name)]
    if readers:
        corpus = Corpus.standard_library() if text is None else _corpus(text)
    elif text is not None:
        raise ValueError(f"text must go with the task text, since no other reads it; got tasks {', '.join(names)}.")
    asked: dict[str, Any] = {"steps": steps, "batch": batch, "learning_rate": learning_rate}
    given = {name: value for name, value in asked.items() if value is not None}
    settings = Settings(
        train_length=train_length,
        multiples=tuple(sorted({1, *multiples})),
        batch=batch or Settings.batch,
        learning_rate=learning_rate or Settings.learning_rate,
        windows=chosen.windows,
        size=size or Size(),
        device=require_device(device),
    )
    plan = Plan(
        methods=methods,
        tasks={name: replace(SCHOOLING[name], **given) for name in dict.fromkeys(names)},
        seeds=seeds or chosen.seeds,
        settings=settings,
        corpus=corpus,
    )
    plan.budget.require_room()
    _require_examples(plan)
    return plan


def _corpus(path: str) -> Corpus:
    """Read the text, and call it by the option that names it where it cannot be."""
    try:
        return Corpus.from_path(path)
    except ValueError as problem:
        said = str(problem)
        raise ValueError(f"--text{said.removeprefix('path')}" if said.startswith("path ") else said) from problem


def _methods(text: str) -> list[Method]:
    """Take apart names that are separated by commas, each once; raises for one of ours that text cannot train."""
    methods = list({method.name: method for method in parse_all(text)}.values())
    for method in methods:
        if not any(part.of_ones_own for part in method.parts):
            require_trainable(method)
    return methods


def _require_numbers(
    train_length: int,
    multiples: Sequence[int],
    steps: int | None,
    learning_rate: float | None,
    batch: int | None,
    seeds: int | None,
) -> None:
    for name, value in (
        ("steps", steps), ("batch", batch), ("seeds", seeds),
    ):  # fmt: skip
        if value is not None and value < 1:
            raise ValueError(f"{name} must be 1 or more; got {value}.")
    if train_length < 2:
        raise ValueError(
            f"train-length must be 2 or more, since a token is predicted from those before it; got {train_length}."
        )
    if learning_rate is not None and not (learning_rate > 0 and math.isfinite(learning_rate)):
        raise ValueError(
            f"lr must be positive and finite, since it scales every update of the weights; got {learning_rate}."
        )
    if not multiples or min(multiples) < 1:
        raise ValueError(
            f"lengths must be whole multiples of the training length, 1 or more, such as 1,2,4; got "
            f"{','.join(map(str, multiples)) or 'none'}."
        )


def require_device(name: str) -> str:
    """Raise unless torch can use a device of that name here."""
    usable = _devices()
    refusal = f"device must be one that torch can use here, which are {', '.join(usable)}; got {name!r}."
    try:
        kind = torch.device(name).type
    except RuntimeError as problem:
        raise ValueError(refusal) from problem
    if kind == "meta":
        raise ValueError("device must hold numbers, since models are trained on it; got 'meta'. Use cpu, cuda or mps.")
    if kind in ("cuda", "mps") and kind not in usable:  # torch would say so in a thousand characters
        raise ValueError(refusal)
    try:
        float(torch.ones(1, device=name).sum())
    except (RuntimeError, AssertionError, NotImplementedError) as problem:
        raise ValueError(refusal) from problem
    return name


def _devices() -> list[str]:
    """List the devices that torch can use here."""
    several = torch.cuda.device_count() if torch.cuda.is_available() else 0
    found = ["cpu", *(["cuda"] if several else []), *(f"cuda:{number}" for number in range(several))]
    return [*found, "mps"] if torch.backends.mps.is_available() else found


def _require_examples(plan: Plan) -> None:
    """Make some examples of every task at every length, lest an hour of training end in an error that was there."""
    settings = plan.settings
    for name in plan.tasks:
        task = make_task(name, plan.corpus, longest=settings.lengths[-1], shortest=settings.train_length)
        task.train_batch(torch.Generator().manual_seed(0), 2, settings.train_length)
        for length in settings.lengths:
            task.test(length, settings.windows if of_text(name) else 1, seed=0)
