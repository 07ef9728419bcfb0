"""Tasks: what models are trained and tested on.

task = make_task("text", corpus=Corpus.standard_library(), longest=1024)
task = make_task("passkey")
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

from situs.lab.comparing.corpus import Corpus
from situs.lab.comparing.tasks.addition import Addition
from situs.lab.comparing.tasks.base import Examples, Task, all_scored, by_position, exact, loss_of
from situs.lab.comparing.tasks.passkey import Passkey
from situs.lab.comparing.tasks.recall import Recall
from situs.lab.comparing.tasks.strings import Copy, Reverse
from situs.lab.comparing.tasks.text import TAIL, Text
from situs.registry import did_you_mean

__all__ = [
    "TASKS",
    "Addition",
    "Copy",
    "Examples",
    "Passkey",
    "Recall",
    "Reverse",
    "Task",
    "Text",
    "all_scored",
    "by_position",
    "exact",
    "loss_of",
    "make_task",
    "of_text",
]

TASKS: dict[str, type[Task]] = {cls.name: cls for cls in (Text, Passkey, Copy, Reverse, Addition, Recall)}


def make_task(
    name: str, corpus: Corpus | None = None, *, longest: int | None = None, shortest: int | None = None
) -> Task:
    """Make a task by its name. ``text`` reads from the corpus, ``shortest`` to ``longest`` bytes at once; others need
    none of these."""
    found = _known(name)
    if not of_text(name):
        return found()
    if corpus is None or longest is None:
        raise ValueError(
            f"corpus and longest must be given, since {name} reads windows of a text, chosen for the greatest length "
            f"to be tested; got {corpus!r} and {longest!r}. Corpus.standard_library() is always there."
        )
    tail = TAIL if shortest is None else max(1, min(TAIL, shortest // 2))
    return found(corpus=corpus, longest=longest, tail=tail)


def of_text(name: str) -> bool:
    """Tell whether a task reads from a corpus."""
    return "corpus" in inspect.signature(_known(name)).parameters


def _known(name: str) -> Callable[..., Task]:
    if name not in TASKS:
        raise ValueError(f"task must be one of {', '.join(TASKS)}; got {name!r}.{did_you_mean(name, TASKS)}")
    return TASKS[name]
