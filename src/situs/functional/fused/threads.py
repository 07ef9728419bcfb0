"""Threads for a compiled loop: those of torch, or else of Python."""

from __future__ import annotations

import ctypes
import os
from array import array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import torch

_forked = False


@cache
def team() -> Callable[[int, array[int], int, object], None]:
    """How a program is run with a record in several threads, and with what it works on: in torch's threads, which are
    awake between its own operations, by way of the OpenMP that torch is linked with; or in threads of Python, where
    there is none and in a forked child, whose copy of OpenMP waits for threads that did not come along."""
    if _forked:
        return _run_in_threads
    try:
        parallel = ctypes.CDLL(torch._C.__file__).GOMP_parallel
    except (AttributeError, OSError):
        return _run_in_threads
    parallel.argtypes, parallel.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint], None
    return lambda program, record, threads, _: parallel(program, record.buffer_info()[0], threads, 0)


def _run_in_threads(program: int, record: array[int], threads: int, kept: object) -> None:
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(program)

    def run(record: array[int], kept: object) -> None:  # holds what it works on, should its caller be interrupted
        function(record.buffer_info()[0])

    others = [_pool().submit(run, record, kept) for _ in range(threads - 1)]
    run(record, kept)
    for other in others:
        other.result()


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=os.cpu_count(), thread_name_prefix="situs")


def _leave_the_parents_threads() -> None:
    global _forked
    _forked = True
    _pool.cache_clear()
    team.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_the_parents_threads)
