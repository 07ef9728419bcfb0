"""What ends a command early: Ctrl-C, a signal to terminate, and a reader of the output that has left."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator

READER_LEFT = 141  # as shells say it


class TerminatedError(KeyboardInterrupt):
    """Raised where the system asks the program to end, as Ctrl-C does where a person asks."""


@contextlib.contextmanager
def leaving_at_ctrl_c() -> Iterator[None]:
    """End the program at once and without a word at Ctrl-C: nothing is begun yet, and an exception would be printed as
    a traceback or lost, since some modules catch everything while they are imported."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, lambda number, frame: os._exit(130))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def stop_printing() -> int:
    """Print nothing any more, since the reader has stopped, as in ``situs list | head``; returns the exit status."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python would try again when it ends
    return READER_LEFT
