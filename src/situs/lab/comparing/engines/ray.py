"""The Ray engine: trials as tasks of a Ray cluster. See `situs.lab.running.clusters`.

The text travels once, through the object store, so no other machine needs the path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from situs.lab.comparing.jobs import CompareWork, CorpusSource
from situs.lab.comparing.records import Trial, TrialRecord
from situs.lab.comparing.trial import longest_first
from situs.lab.running import clusters


def run(trials: Iterable[Trial], source: CorpusSource, *, done: Callable[[TrialRecord], None], **options: Any) -> None:
    """Run trials, the longest first, and hand over each record as soon as it is there.

    options: those of `situs.lab.running.clusters.run`.
    """
    chosen = longest_first(trials)

    def work() -> Any:
        return CompareWork(source, source.load() if any(trial.corpus for trial in chosen) else None)

    clusters.run(chosen, work, done=lambda trial, record: done(record), **options)
