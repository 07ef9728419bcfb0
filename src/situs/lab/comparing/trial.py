"""A trial: one method trained on one task with one seed, then tested at every length, itself and scaled.

The same seed means the same batches for every method, and all are asked the same. In text the same bytes are scored at
every length, so that lengths, too, are compared pair by pair.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter

import torch
from torch import Tensor

from situs.lab.comparing.corpus import Corpus
from situs.lab.comparing.records import Parameters, Results, Seconds, Status, Trial, TrialRecord
from situs.lab.comparing.tasks import Examples, Task, all_scored, by_position, exact, loss_of, make_task
from situs.lab.model import Decoder
from situs.lab.naming.grammar import Method
from situs.lab.naming.scalings import RAMPED, RAMPS, Ramp
from situs.lab.problems import Problem, problem_of
from situs.lab.records import STRETCHES, Outcome, Progress

TOKENS_AT_ONCE = 16384
TUNED_AT = 4  # times the training length, where a ramp is chosen


def longest_first(trials: Iterable[Trial]) -> list[Trial]:
    """Order trials so that none that takes long is left for the end, with nobody at work beside it."""
    return sorted(trials, key=lambda trial: (trial.steps, len(trial.tested)), reverse=True)


Tell = Callable[[Progress], None]
Keep = Callable[[TrialRecord], None]


def run(
    trial: Trial,
    corpus: Corpus | None,
    tell: Tell = lambda progress: None,
    keep: Keep = lambda record: None,
) -> TrialRecord:
    """Train and test. A loss that is no number any more is the status "diverged". Where a test raises, its length has
    the error, the others their scores, and the trial the status "failed".

    tell: called with progress.
    keep: called after each test with the record so far, which counts should this process die or hang in the next.
    """
    settings = trial.settings
    task = make_task(trial.task, corpus, longest=settings.lengths[-1], shortest=settings.train_length)
    began = perf_counter()
    model = Decoder(
        trial.method,
        vocabulary=task.vocabulary,
        size=settings.size,
        train_length=settings.train_length,
        seed=trial.seed,
    ).to(settings.device)
    curve = list(_train(model, task, trial, tell))
    trained = perf_counter()
    parameters = Parameters(
        model=sum(parameter.numel() for parameter in model.parameters()),
        encodings=model.parameters_of_encodings(),
    )
    tested: dict[str, Results] = {}
    problems: list[Problem] = []

    def record(status: Status, error: str | None = None) -> TrialRecord:
        return TrialRecord(
            key=trial.key,
            trial=trial,
            status=status,
            error=problems[0].said if problems else error,
            traceback=problems[0].traceback if problems else None,
            measure=task.measure,
            curve=curve,
            methods=dict(tested),
            parameters=parameters,
            seconds=Seconds(training=trained - began, testing=perf_counter() - trained),
        )

    if _diverged(model, curve):
        return record("diverged", _divergence(trial, *curve[-1]))
    with torch.no_grad():
        model.eval()
        for number, method in enumerate(trial.tested):
            tell(Progress("testing", number, len(trial.tested), curve[-1][1]))
            for results in _tested(model, method, task, trial, problems):
                tested[method.name] = results
                keep(record("failed"))
    return record("failed" if problems else "done")


def _diverged(model: Decoder, curve: list[tuple[int, float]]) -> bool:
    """Tell whether the loss, or a weight after the last step, is no number."""
    finite = all(bool(parameter.isfinite().all()) for parameter in model.parameters())
    return not (finite and math.isfinite(curve[-1][1]))


def _divergence(trial: Trial, step: int, loss: float) -> str:
    """Say when a training diverged, and what may help."""
    what = "a weight" if math.isfinite(loss) else "the loss"
    own = next((part.name for part in trial.method.parts if part.of_ones_own), None)
    cure = "Try a smaller --lr" if own is None else f"Run situs check {own}, or try a smaller --lr"
    return f"diverged: {what} was no number by step {step + 1} of {trial.steps}. {cure}."


def _train(model: Decoder, task: Task, trial: Trial, tell: Tell) -> Iterator[tuple[int, float]]:
    """Train by AdamW with warm-up and a cosine down to a tenth; yields some of the losses, the last one in any case."""
    settings = trial.settings
    generator = torch.Generator().manual_seed(trial.seed)
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=settings.learning_rate, betas=(0.9, 0.95), weight_decay=0.01, fused=True
    )
    every = max(1, trial.steps // 50)
    model.train()
    for step in range(trial.steps):
        for group in optimiser.param_groups:
            group["lr"] = settings.learning_rate * _rate(step, trial.steps, settings.warm_up_within(trial.steps))
        examples = _to(task.train_batch(generator, settings.batch, settings.train_length), settings.device)
        loss = loss_of(model(examples.tokens), examples).mean()
        last = step == trial.steps - 1
        if step % every == 0 or last:
            number = float(loss.detach())
            tell(Progress("training", step + 1, trial.steps, number))
            yield step, number
            if not math.isfinite(number):
                return
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()


def _rate(step: int, steps: int, warm_up: int) -> float:
    """Give the share of the learning rate at a step."""
    if step < warm_up:
        return (step + 1) / warm_up
    done = (step - warm_up) / max(1, steps - warm_up)
    return 0.1 + 0.45 * (1 + math.cos(math.pi * done))


def _tested(model: Decoder, method: Method, task: Task, trial: Trial, problems: list[Problem]) -> Iterator[Results]:
    """Test at every length, with the method's frequencies; yields the results so far, and lists what was raised."""
    found: dict[int, Outcome] = {}
    ramp: Ramp | None = None
    for length in trial.settings.lengths:
        try:
            if length > trial.settings.train_length:
                ramp = ramp or _ramp(model, method, task, trial)
            found[length] = _tested_at(length, model, method, task, trial, ramp or RAMPS[0])
        except (Exception, SystemExit) as error:  # of one's own encoding, or for want of memory
            problem = problem_of(error, trial.method)
            problems.append(Problem(f"{method} at length {length}: {problem.said}", problem.traceback))
            found[length] = Outcome(error=problem.said)
        yield Results(dict(found), (ramp or RAMPS[0]) if method.scaling in RAMPED else None)
    _scale(model, method, trial.settings.train_length, RAMPS[0])


def _tested_at(length: int, model: Decoder, method: Method, task: Task, trial: Trial, ramp: Ramp) -> Outcome:
    usable = model.usable_length
    if usable is not None and length > usable:
        return Outcome(ends=usable)
    _scale(model, method, length, ramp)
    examples = task.test(length, trial.settings.windows, seed=0)
    longest = length == trial.settings.lengths[-1]
    return _scores(model, examples, task, trial.settings.device, along_text=longest)


def _scores(model: Decoder, examples: Examples, task: Task, device: str, *, along_text: bool) -> Outcome:
    """Score each example, and the loss along the text where that is asked for."""
    scores: list[float] = []
    along: list[Tensor] = []
    for part in _parts(examples, device):
        logits = model(part.tokens)
        scores += (loss_of(logits, part) if task.measure == "loss" else exact(logits, part).float()).tolist()
        if along_text and task.measure == "loss":
            along.append(by_position(logits, all_scored(part.tokens))[:, 1:])
    stretches = torch.cat(along).mean(0).tensor_split(STRETCHES) if along else ()
    return Outcome(
        scores=scores,
        depths=None if examples.depth is None else examples.depth.tolist(),
        along=[float(stretch.mean()) for stretch in stretches if len(stretch)] or None,
    )


def _ramp(model: Decoder, method: Method, task: Task, trial: Trial) -> Ramp:
    """Choose the ramp that does best on held-out examples which are not the scored ones."""
    if method.scaling not in RAMPED or trial.settings.lengths[-1] <= trial.settings.train_length:
        return RAMPS[0]
    longer = [each for each in trial.settings.multiples if each > 1]
    length = min(longer, key=lambda each: abs(each - TUNED_AT)) * trial.settings.train_length
    examples = task.tune(length, max(8, trial.settings.windows // 4), seed=0)
    losses = {}
    for ramp in RAMPS:
        _scale(model, method, length, ramp)
        parts = [loss_of(model(part.tokens), part) for part in _parts(examples, trial.settings.device)]
        losses[ramp] = float(torch.cat(parts).mean())
    return min(losses, key=lambda ramp: losses[ramp])


def _scale(model: Decoder, method: Method, length: int, ramp: Ramp) -> None:
    if method.scaling is not None:
        model.scaled_to(method, length, ramp)


def _parts(examples: Examples, device: str) -> Iterator[Examples]:
    """Take a few examples at a time, so that memory does not grow with their number."""
    size = max(1, TOKENS_AT_ONCE // examples.tokens.shape[1])
    for first in range(0, len(examples.tokens), size):
        part = slice(first, first + size)
        yield Examples(examples.tokens[part].to(device), examples.scored[part].to(device))


def _to(examples: Examples, device: str) -> Examples:
    return Examples(examples.tokens.to(device), examples.scored.to(device), examples.depth)
