"""Ctrl-C while modules are imported, which takes a second or more with torch."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator


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
