"""What a worker does, whoever started it: get the text, run one trial after another, and turn errors into records."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import traceback
from dataclasses import dataclass
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from time import perf_counter

import torch

from situs.lab.comparing import trial as trials
from situs.lab.comparing.corpus import Corpus
from situs.lab.comparing.records import Parameters, Progress, Seconds, Trial, TrialRecord
from situs.lab.comparing.trial import Tell

READY = "ready"


class EngineError(ValueError):
    """Raised where trials cannot be run at all."""


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


def attempt(trial: Trial, corpus: Corpus | None, tell: Tell) -> TrialRecord:
    """Run a trial on one thread; an error of its own becomes a record with the status "failed"."""
    torch.set_num_threads(1)
    torch.manual_seed(trial.seed)  # lest an encoding that draws at random depend on the trials before
    torch.optim.AdamW([torch.zeros(1)])  # the first one imports for seconds, which are not the trial's
    began = perf_counter()
    try:
        return trials.run(trial, corpus, tell)
    except (Exception, SystemExit) as error:
        return failed(trial, error, perf_counter() - began)


def failed(trial: Trial, error: BaseException, seconds: float) -> TrialRecord:
    """Make the record of a trial that came to nothing."""
    return TrialRecord(
        key=trial.key,
        trial=trial,
        status="failed",
        error=f"{type(error).__name__}: {error}",
        traceback="".join(traceback.format_exception(error)),
        measure=None,
        curve=[],
        methods={},
        parameters=Parameters(model=None, encodings=None),
        seconds=Seconds(training=seconds, testing=0.0),
    )


def serve(number: int, connection: Connection, source: CorpusSource) -> None:
    """Run in a spawned process: send READY, then for each trial that comes its progress and its record."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to decide
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    threading.Thread(target=_end_with_parent, name="situs parent", daemon=True).start()
    corpus: Corpus | None = None
    with contextlib.suppress(EOFError, OSError):  # the parent is gone
        connection.send(READY)
        while (trial := connection.recv()) is not None:
            try:
                choose_gpu(number, trial.settings.device)
                corpus = source.load() if trial.corpus and corpus is None else corpus
            except Exception as error:
                record = failed(trial, error, 0.0)
            else:
                record = attempt(trial, corpus, lambda progress: _send(connection, progress))
            connection.send(record)


def choose_gpu(number: int, device: str) -> None:
    """Share the GPUs among workers by their numbers, unless one is named."""
    if device == "cuda":
        torch.cuda.set_device(number % max(1, torch.cuda.device_count()))


def _send(connection: Connection, progress: Progress) -> None:
    try:
        connection.send(progress)
    except OSError:
        os._exit(1)  # the parent is gone, and that is no error of the trial


def _end_with_parent() -> None:
    """End this worker when its parent ends: one that was killed cannot stop its workers."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
