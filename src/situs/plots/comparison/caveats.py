"""What was done, how far to trust it and how to do it again, in words."""

from __future__ import annotations

from collections.abc import Mapping

from situs.lab.comparing.records import Comparison, TextFacts
from situs.lab.comparing.summary import HOLDS, Scores
from situs.lab.naming.methods import FITTED
from situs.plots.comparison.view import View
from situs.plots.comparison.words import best_at, called, holders, listed, seconds, unit


def lead(view: View) -> str:
    """Say what was done and what came out, below the headline."""
    size = view.records.settings.size
    said = (
        f"{len(view.methods)} ways of telling a Transformer where its tokens stand, in decoders of {size.layers} "
        f"layers and width {size.dim}, trained at a length of {view.train_length:,}, tested up to {view.longest:,}."
    )
    best, near = holders(view, view.loss_task), best_at(view, view.loss_task, view.train_length)
    if near and (not best or near[0][0].name != best[0][0].name):
        row, point = near[0]
        said += (
            f" At the training length itself {called(row.name)} reads best: {point.mean:.2f} {unit(view.loss_task)}."
        )
    return said


def facts(view: View) -> list[tuple[str, str, str]]:
    """List the numbers one asks for first: name, number, and what it is of."""
    records = view.records
    done = sum(trial.status == "done" for trial in records.trials)
    return [
        ("trained at", f"{view.train_length:,}", "bytes" if view.loss_task == "text" else "tokens"),
        ("tested up to", f"{view.longest:,}", f"{view.times(view.longest)} as much"),
        ("methods", str(len(view.methods)), f"on {listed(view.tasks, 6)}"),
        ("trials", f"{done}", f"of {len(records.trials)} done, {_count(len(records.seeds), 'seed')}"),
        ("time", seconds(records.seconds), f"on {_cores(records)} cores"),
    ]


def _cores(records: Comparison) -> str:
    return "?" if records.where is None or records.where.cores is None else str(records.where.cores)


def _count(number: int, what: str) -> str:
    return f"one {what}" if number == 1 else f"{number} {what}s"


def about(view: View) -> str:
    """Say what the table shows, in a sentence or two."""
    if view.loss_task is None:
        return "Every method in a row, the best answers at the longest length first."
    return (
        f"Every method in a row, the smallest change at {view.times(view.longest)} first. The loss at the training "
        f"length stands beside its changes, because a method that reads badly has little to lose; a change below "
        f"{HOLDS} {unit(view.loss_task)} counts as held."
    )


def caveats(view: View) -> list[str]:
    """List whatever a careful reader would object."""
    settings, seeds = view.records.settings, len(view.records.seeds)
    size = settings.size
    steps = listed((f"{taught.steps:,} steps on {task}" for task, taught in view.records.tasks.items()), 12)
    same = (
        f"The same tokens are scored at every length, in {settings.windows} windows, so that changes are of the "
        f"length alone. Means over whole windows would flatter long ones, whose beginnings weigh less."
    )
    several = f"Intervals are of {seeds} seeds and the windows. They say nothing of other texts, sizes or languages."
    one = "There is one seed only: intervals are of windows, and close calls mean nothing. Run it with more seeds."
    found = [
        same if view.loss_task is not None else "",
        f"Undertrained models look robust, since what they have not learnt cannot break. These had {steps}; with more, "
        f"or with models larger than {size.layers} layers of width {size.dim}, orders may change.",
        f"One learning rate for all methods ({_rates(view)}) is simple, not fair: some would do better with another.",
        "Steps are the same for all, seconds are not. One seed means the same batches and the same start for all.",
        _fitted(view),
        _ramps(view),
        "Where a table of positions ends, no number is given: to use its last row for all positions beyond would be "
        "another method.",
        one if seeds == 1 else several,
        "Costs are of this machine and of what else it did, with the kernels that this version chooses here."
        if view.cost_lengths
        else "",
    ]
    return [sentence for sentence in found if sentence]


def _rates(view: View) -> str:
    """Say learning rates and batches, and of which tasks where they differ."""
    settings = view.records.settings
    tasks: dict[tuple[float, int], list[str]] = {}
    for task, taught in view.records.tasks.items():
        rate = taught.learning_rate or settings.learning_rate, taught.batch or settings.batch
        tasks.setdefault(rate, []).append(task)
    said = [
        f"{rate:g} in batches of {batch}{f' on {listed(of, 12)}' * (len(tasks) > 1)}"
        for (rate, batch), of in tasks.items()
    ]
    return ", ".join(said)


def _fitted(view: View) -> str:
    bare = {part.text for method in view.methods for part in method.parts}
    found = [fitted.said for name, fitted in FITTED.items() if name in bare]
    return f"Options suit the training length where defaults suit another: {'; '.join(found)}." if found else ""


def _ramps(view: View) -> str:
    chosen = {row.name: ramp for row in view.rows if (ramp := _ramp(row.scores))}
    if not chosen:
        return ""
    each = "; ".join(f"{name}: {ramp}" for name, ramp in chosen.items())
    return (
        f"The ramps of YaRN's paper (from 32 turns within the training length down to 1) do not suit toy lengths, so "
        f"ramps were chosen on other files than those that are scored. {each}."
    )


def _ramp(scores: Mapping[str, Scores]) -> str:
    ramps = sorted({tuple(ramp) for each in scores.values() for ramp in each.ramps})
    return " or ".join(f"{ramp[0]:g} to {ramp[1]:g}" for ramp in ramps)


def reproduction(view: View) -> list[tuple[str, str]]:
    """List all that could change the numbers."""
    records, settings, where = view.records, view.records.settings, view.records.where
    size = settings.size
    machine = [each for each in (where.processor, where.platform, where.device) if each] if where else []
    training = (
        f"AdamW, learning rate {_rates(view)}, at length {settings.train_length:,}; {settings.warm_up} steps of "
        f"warm-up and a cosine down"
    )
    found = [
        ("Versions", f"situs {where.situs}, torch {where.torch}, python {where.python}" if where else ""),
        ("Hardware", f"{', '.join(machine)}; {_cores(records)} cores"),
        ("Seeds", ", ".join(map(str, records.seeds))),
        ("Text", "" if records.corpus is None else _text(records.corpus)),
        ("Model", f"decoder, {size.layers} layers, width {size.dim}, {size.heads} heads"),
        ("Training", training),
        ("Tests", f"{settings.windows} examples at each length: {listed(map('{:,}'.format, view.lengths), 12)}"),
        ("Time", f"{seconds(records.seconds)}, without what was there from before"),
    ]
    return [(name, said) for name, said in found if said]


def _text(corpus: TextFacts) -> str:
    sizes = corpus.bytes
    parts = [
        f"{count:,} files to {name}" + (f" ({sizes[name]:,} bytes)" if name in sizes else "")
        for name, count in corpus.files.items()
    ]
    said = f"{corpus.name}, hash {corpus.hash}"
    return f"{said}: {listed(parts, 6)}" if parts else said
