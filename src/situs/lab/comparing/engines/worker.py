"""What a worker does, whoever started it: get the text, do one job after another, and answer in plain text.

Answers are JSON, never pickles: reading a pickle could import code of one's own into the process that asked.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import threading
from dataclasses import dataclass
from functools import partial
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from situs.lab.comparing.corpus import Corpus
from situs.lab.comparing.jobs import Answer, Job, answer, failed, prepare
from situs.lab.comparing.records import Trial
from situs.lab.plain import to_json
from situs.lab.problems import problem_of

READY, BEGUN, PROGRESS, SO_FAR, ANSWER = "ready", "begun", "progress", "so far", "answer"
"""Kinds of messages from a worker. The time of a job counts from BEGUN on."""


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


NO_TEXT = CorpusSource(None, "")


def serve(number: int, connection: Connection, dump: str) -> None:
    """Run in a spawned process: send READY, then for each job that comes its progress and its answer.

    dump: a file that Python writes to, where it is, when it crashes or gets SIGUSR1.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to decide
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    threading.Thread(target=_end_with_parent, args=(dump,), name="situs parent", daemon=True).start()
    _divert_output()
    texts: dict[str, Corpus] = {}
    with open(dump, "w") as file, contextlib.suppress(EOFError, OSError):  # the parent is gone
        faulthandler.enable(file, all_threads=False)
        if hasattr(faulthandler, "register"):
            faulthandler.register(signal.SIGUSR1, file, all_threads=False)
        connection.send_bytes(READY.encode())
        while (work := connection.recv()) is not None:
            job, source = work
            _send(connection, ANSWER, _answered(number, job, source, texts, connection))


def _answered(number: int, job: Job, source: CorpusSource, texts: dict[str, Corpus], connection: Connection) -> Answer:
    try:
        choose_gpu(number, job.settings.device)
        text = job.corpus if isinstance(job, Trial) else ""
        if text and text not in texts:
            texts[text] = source.load()
        prepare(job)
        _send(connection, BEGUN, None)
    except Exception as error:
        return failed(job, problem_of(error, job.method))
    return answer(job, texts.get(text), partial(_send, connection, PROGRESS), partial(_send, connection, SO_FAR))


def choose_gpu(number: int, device: str) -> None:
    """Share the GPUs among workers by their numbers, unless one is named."""
    if device == "cuda":
        torch.cuda.set_device(number % max(1, torch.cuda.device_count()))


def _send(connection: Connection, kind: str, content: Any) -> None:
    try:
        connection.send_bytes(f"{kind}\n{to_json(content)}".encode())
    except OSError:
        os._exit(1)  # the parent is gone, and that is no error of the job


def _divert_output() -> None:
    """Let what an encoding prints go to the error stream: the output is the comparison's, and may be JSON."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())


def _end_with_parent(dump: str) -> None:
    """End this worker when its parent ends: one that was killed cannot stop its workers, nor remove their files."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        with contextlib.suppress(OSError):
            os.unlink(dump)
        os._exit(1)
