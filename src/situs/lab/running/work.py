"""Work: how jobs of one kind are done in a worker, and how their answers are read by the process that asked.

A job goes to a worker as data and its answer comes back as JSON, never as a pickle: reading a pickle could import code
of one's own into the process that asked. The work itself travels with each job, so that it is data, too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

from situs.lab.problems import Problem
from situs.lab.records import Progress

J = TypeVar("J")
A = TypeVar("A")
Tell = Callable[[Progress], None]
Held = dict[str, Any]
"""What a worker holds between its jobs, such as a text or a loaded model."""


class Work(ABC, Generic[J, A]):
    """Know how to do jobs of one kind. Jobs can be hashed and pickled, answers are dataclasses of plain data."""

    killed: ClassVar[str]
    """What a person may do where the system has killed a worker twice at one job, as a sentence."""
    left: ClassVar[str]
    """What a person may do where a worker has ended by itself twice at one job, as a sentence."""

    @abstractmethod
    def own_code(self, job: J) -> frozenset[str]:
        """Name the modules of one's own that a job imports, in whose process no other code may run afterwards."""

    @abstractmethod
    def prepare(self, job: J, held: Held, number: int) -> None:
        """Get what a job needs, in the worker of a number; its time counts only from when this returns."""

    @abstractmethod
    def answer(self, job: J, held: Held, tell: Tell, keep: Callable[[A], None]) -> A:
        """Do a job, in a worker; whatever it raises becomes part of the answer.

        tell: called with progress.
        keep: called with the answer so far, which counts should this process die or hang afterwards.
        """

    @abstractmethod
    def problem(self, job: J, error: BaseException) -> Problem:
        """Say what was raised while a job was prepared."""

    @abstractmethod
    def failed(self, job: J, problem: Problem, seconds: float = 0.0, so_far: A | None = None) -> A:
        """Make the answer to a job that came to nothing, or to no more than ``so_far``."""

    @abstractmethod
    def read(self, job: J, text: str) -> A:
        """Read the answer to a job from JSON; raises `UnreadableError` if it is none."""
