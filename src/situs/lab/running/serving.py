"""What a worker does, whoever started it: prepare one job after another, do it, and answer in plain text."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import threading
from functools import partial
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from situs.lab.plain import to_json
from situs.lab.running.work import Held, Work

READY, BEGUN, PROGRESS, SO_FAR, ANSWER = "ready", "begun", "progress", "so far", "answer"
"""Kinds of messages from a worker. The time of a job counts from BEGUN on."""
J = TypeVar("J")
A = TypeVar("A")


class EngineError(ValueError):
    """Raised where trials cannot be run at all."""


def serve(number: int, connection: Connection, dump: str) -> None:
    """Run in a spawned process: send READY, then for each job that comes its progress and its answer.

    dump: a file that Python writes to, where it is, when it crashes or gets SIGUSR1.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to decide
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    threading.Thread(target=_end_with_parent, args=(dump,), name="situs parent", daemon=True).start()
    _divert_output()
    held: Held = {}
    with open(dump, "w") as file, contextlib.suppress(EOFError, OSError):  # the parent is gone
        faulthandler.enable(file, all_threads=False)
        if hasattr(faulthandler, "register"):
            faulthandler.register(signal.SIGUSR1, file, all_threads=False)
        connection.send_bytes(READY.encode())
        while (given := connection.recv()) is not None:
            work, job = given
            _send(connection, ANSWER, _answered(number, work, job, held, connection))


def _answered(number: int, work: Work[J, A], job: J, held: Held, connection: Connection) -> A:
    try:
        work.prepare(job, held, number)
        _send(connection, BEGUN, None)
    except Exception as error:
        return work.failed(job, work.problem(job, error))
    return work.answer(job, held, partial(_send, connection, PROGRESS), partial(_send, connection, SO_FAR))


def _send(connection: Connection, kind: str, content: Any) -> None:
    try:
        connection.send_bytes(f"{kind}\n{to_json(content)}".encode())
    except OSError:
        os._exit(1)  # the parent is gone, and that is no error of the job


def _divert_output() -> None:
    """Let what a job prints go to the error stream: the output is the command's, and may be JSON."""
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
