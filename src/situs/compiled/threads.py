"""Threads for a compiled loop: those of torch, or else of Python."""

from __future__ import annotations

import ctypes
import os
from array import array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import NamedTuple

import torch

_forked = False


class Team(NamedTuple):
    """Threads that run a program together."""

    run: Callable[[int, array[int], int, object], None]
    """A program, with what it is given, in so many threads; and what must be held meanwhile."""

    number: int
    """The address of a function that tells a thread its number; 0 if there is none."""


@cache
def team() -> Team:
    """Torch's threads, which are awake between its own operations, by way of the OpenMP that torch is linked with; or
    threads of Python, where there is none and in a forked child, whose copy of OpenMP waits for threads that did not
    come along."""
    if _forked:
        return Team(_run_in_threads, 0)
    try:
        library = ctypes.CDLL(torch._C.__file__)
        parallel, number = library.GOMP_parallel, library.omp_get_thread_num
    except (AttributeError, OSError):
        return Team(_run_in_threads, 0)
    parallel.argtypes, parallel.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint], None
    address = ctypes.cast(number, ctypes.c_void_p).value
    assert address is not None
    return Team(lambda program, given, threads, _: parallel(program, given.buffer_info()[0], threads, 0), address)


def _run_in_threads(program: int, given: array[int], threads: int, held: object) -> None:
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(program)

    def run(given: array[int], held: object) -> None:  # holds what it works on, should its caller be interrupted
        function(given.buffer_info()[0])

    others = [_pool().submit(run, given, held) for _ in range(threads - 1)]
    run(given, held)
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
