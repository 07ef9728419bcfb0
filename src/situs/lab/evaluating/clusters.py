"""The engine "ray" of an evaluation: trials as tasks of a Ray cluster, one core each, wherever there is one.

Every machine reads the model from its folder, which all must have under the same path, and keeps it for the next trial;
tokens travel through the object store. A task whose worker or machine dies is run again by Ray. Records come back as
JSON, as from ``situs compare``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from situs.lab.comparing.engines.ray import RETRIES, connected, import_ray
from situs.lab.comparing.records import Outcome, Progress
from situs.lab.evaluating import loading
from situs.lab.evaluating import trial as trials
from situs.lab.evaluating.records import Trial, TrialRecord
from situs.lab.evaluating.scalings import Named
from situs.lab.evaluating.tokens import Tokens, reader_of
from situs.lab.evaluating.trial import Bench
from situs.lab.plain import from_json, to_json

LOOKED = 0.5  # seconds between looks at what is ready


@dataclass(frozen=True)
class Parcel:
    """Hold what another process needs to make the same bench."""

    folder: str
    model: str
    """The hash of the folder's configuration and weights."""
    dtype: str
    device: str
    tokens: Tokens
    scalings: dict[str, Named]

    def unpack(self) -> Bench:
        """Load the model here; raises if it is not the one that was planned with."""
        folder = Path(self.folder)
        positions = loading.read_positions(folder)
        loaded = loading.load(folder, positions=positions, dtype=self.dtype, device=self.device)
        if loaded.facts.hash != self.model:
            raise ValueError(
                f"{loading.FOLDER} must hold the same model on every machine, since trials are compared with each "
                f"other; got another in {self.folder!r}."
            )
        return Bench(loaded, reader_of(folder, loaded.vocabulary), self.tokens, self.scalings)


_HELD: dict[str, Bench] = {}
"""The bench of this process, by the hash of its model: a worker does many trials of one."""


def _work(trial: Trial, parcel: Parcel) -> str:
    """Run a trial in a process of the cluster."""
    if trial.model not in _HELD:
        _HELD.clear()
        _HELD[trial.model] = parcel.unpack()
    held = _HELD[trial.model]
    return to_json(trials.run(trial, Bench(held.loaded, held.reader, parcel.tokens, parcel.scalings)))


def run_on_ray(
    chosen: Iterable[Trial],
    *,
    bench: Bench,
    done: Callable[[TrialRecord], None],
    claim: Callable[[Trial], bool] = lambda trial: True,
    tell: Callable[[Trial, Progress], None] = lambda trial, progress: None,
    address: str | None = None,
    gpus_per_trial: float = 0.0,
) -> None:
    """Run trials on a cluster, and hand over each record as soon as it is there.

    address: of the cluster; by default the one that RAY_ADDRESS names, else a new one on this machine.
    gpus_per_trial: a share of a GPU that each trial takes, for trials on "cuda".
    """
    ray = import_ray()
    taken = [trial for trial in chosen if claim(trial)]
    if not taken:
        return
    loaded, setup = bench.loaded, taken[0].setup
    parcel = Parcel(
        str(loaded.folder.resolve()), loaded.facts.hash, setup.dtype, setup.device, bench.tokens, bench.scalings
    )
    with connected(ray, address):
        shared = ray.put(parcel)
        task = ray.remote(num_cpus=1, num_gpus=gpus_per_trial, max_retries=RETRIES)(_work)
        pending = {task.remote(trial, shared): trial for trial in taken}
        for trial in taken:
            tell(trial, Progress("queued", 0, trial.setup.windows))
        try:
            while pending:
                ready, _ = ray.wait(list(pending), timeout=LOOKED)
                for reference in ready:
                    done(_result(ray, reference, pending.pop(reference)))
        finally:
            for reference in pending:
                ray.cancel(reference, force=True)


def _result(ray: Any, reference: Any, trial: Trial) -> TrialRecord:
    try:
        return from_json(TrialRecord, ray.get(reference))
    except ray.exceptions.RayError as error:  # given up by Ray, after its retries
        first = str(error).strip().partition("\n")[0]
        said = f"{type(error).__name__}: {first}"
        return TrialRecord(key=trial.key, trial=trial, status="failed", outcome=Outcome(error=said))
