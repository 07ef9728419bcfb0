"""A trial: one scaling on one task at one length, on a loaded model and without training.

In text the same tokens are scored at every length, and only what stands before them grows. The loss along the text is
taken at tokens spread over it, at the longest length. A text is read alone, so that time and memory are those of one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from situs.lab.evaluating.loading import Loaded, synchronise
from situs.lab.evaluating.passkey import ask
from situs.lab.evaluating.records import Setup, Trial, TrialRecord, failed_trial
from situs.lab.evaluating.scalings import applied, named
from situs.lab.evaluating.tokens import Reader, Tokens
from situs.lab.probing.memory import observe
from situs.lab.problems import problem_of
from situs.lab.records import STRETCHES, Outcome, Progress

SAMPLED = 16
"""Tokens of each stretch of a text that the loss along it is taken at, at most."""

WATCHED = 1
"""The number of the text whose memory is counted: not the first, which also makes what stays. Later ones are timed."""

Tell = Callable[[Progress], None]


@dataclass(frozen=True)
class Bench:
    """Hold what all trials of an evaluation run on."""

    loaded: Loaded
    reader: Reader
    tokens: Tokens


@dataclass(frozen=True)
class _Read:
    """Hold what one forward pass gave."""

    logits: Tensor
    seconds: float
    bytes: int | None = None


def run(trial: Trial, bench: Bench, tell: Tell = lambda progress: None) -> TrialRecord:
    """Measure; whatever is raised becomes part of the record."""
    limit = bench.loaded.facts.limit
    if limit is not None and trial.length > limit:
        return TrialRecord(key=trial.key, trial=trial, status="done", outcome=Outcome(ends=limit))
    try:
        with torch.no_grad(), applied(bench.loaded.model, named(trial.scaling), trial.setup):
            return _text(trial, bench, tell) if trial.task == "text" else _passkey(trial, bench, tell)
    except Exception as error:  # for want of memory, or in the model's own code
        return failed_trial(trial, problem_of(error))


def _text(trial: Trial, bench: Bench, tell: Tell) -> TrialRecord:
    setup, length = trial.setup, trial.length
    windows = bench.tokens.windows(length, target=setup.target, count=setup.windows)
    tail = torch.arange(length - setup.tail, length)
    stretches = sampled(length) if length == setup.target else []
    scores: list[float] = []
    along: list[Tensor] = []
    read: list[_Read] = []
    for number, tokens in enumerate(windows):
        tell(Progress("text", number, len(windows)))
        wanted = torch.unique(torch.cat((tail, *stretches)))  # sorted
        read.append(_reading(bench.loaded, tokens, wanted - 1, setup, watched=number == WATCHED))
        nats = torch.full((length,), torch.nan)
        nats[wanted] = _nats(read[-1].logits, tokens[wanted], setup)
        scores.append(float(nats[tail].double().mean()))
        along.append(torch.stack([nats[stretch].double().mean() for stretch in stretches]) if stretches else tail[:0])
    means = torch.stack(along).mean(0).tolist() if stretches else None
    return _record(trial, Outcome(scores=scores, along=means), read)


def sampled(length: int) -> list[Tensor]:
    """Choose tokens spread over each of the equal parts of a text, without its first, which is not predicted."""
    parts = torch.arange(1, length).tensor_split(STRETCHES)
    return [part[:: max(1, -(-len(part) // SAMPLED))] for part in parts if len(part)]


def _passkey(trial: Trial, bench: Bench, tell: Tell) -> TrialRecord:
    setup, length = trial.setup, trial.length
    questions = ask(bench.reader, length, setup.windows)
    right: list[float] = []
    nats: list[float] = []
    read: list[_Read] = []
    for number, (tokens, size) in enumerate(zip(questions.tokens, questions.answers, strict=True)):
        tell(Progress("passkey", number, len(questions.tokens)))
        wanted = torch.arange(length - size, length)
        read.append(_reading(bench.loaded, tokens, wanted - 1, setup, watched=number == WATCHED))
        logits, answer = read[-1].logits, tokens[wanted]
        right.append(float(bool((logits.argmax(-1).cpu() == answer).all()) and bool(logits.isfinite().all())))
        nats.append(float(_nats(logits, answer, setup).double().mean()))
    outcome = Outcome(scores=right, depths=[round(deep, 6) for deep in questions.depth.double().tolist()])
    return _record(trial, outcome, read, nats=nats)


def _nats(logits: Tensor, tokens: Tensor, setup: Setup) -> Tensor:
    """The loss of each token; raises where one is no number, since means of it are none."""
    found = cross_entropy(logits, tokens.to(logits.device), reduction="none").cpu()
    if not bool(found.isfinite().all()):
        worst = float(found[~found.isfinite()][0])
        cure = "" if setup.dtype == "float32" else " Use --dtype float32."
        raise FloatingPointError(
            f"the loss must be a number, since scalings are compared by it; got {worst:g} from the model in "
            f"{setup.dtype}.{cure}"
        )
    return found


def _reading(loaded: Loaded, tokens: Tensor, at: Tensor, setup: Setup, *, watched: bool) -> _Read:
    """Read one text; one of a trial with its memory counted, which takes longer."""
    if watched and setup.device == "cpu":
        seen = observe(lambda: loaded.logits(tokens, at))
        assert isinstance(seen.result, Tensor)
        return _Read(seen.result, seen.seconds, seen.extra_bytes)
    if watched and setup.device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats(setup.device)
        before = torch.cuda.memory_allocated(setup.device)
        read = _timed(loaded, tokens, at, setup)
        return _Read(read.logits, read.seconds, torch.cuda.max_memory_allocated(setup.device) - before)
    return _timed(loaded, tokens, at, setup)


def _timed(loaded: Loaded, tokens: Tensor, at: Tensor, setup: Setup) -> _Read:
    synchronise(setup.device)
    began = perf_counter()
    logits = loaded.logits(tokens, at)
    synchronise(setup.device)
    return _Read(logits, perf_counter() - began)


def _record(trial: Trial, outcome: Outcome, read: list[_Read], *, nats: list[float] | None = None) -> TrialRecord:
    timed = read[WATCHED + 1 :] or read[:WATCHED]
    return TrialRecord(
        key=trial.key, trial=trial, status="done", outcome=outcome, nats=nats,
        seconds=[each.seconds for each in timed], bytes=read[WATCHED].bytes,
    )  # fmt: skip
