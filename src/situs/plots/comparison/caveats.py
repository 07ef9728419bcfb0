"""What was done, what limits the results, and how to reproduce them, in words."""

from __future__ import annotations

from collections.abc import Iterable

from situs.lab.comparing.records import Comparison, TextFacts
from situs.lab.naming.methods import FITTED
from situs.plots.comparison.view import View
from situs.plots.comparison.words import listed, seconds


def lead(view: View) -> str:
    """Say below the headline what was done, and what a tie is."""
    size = view.records.settings.size
    said = (
        f"{_count(len(view.methods), 'position encoding')} in decoders of {_count(size.layers, 'layer')} of width "
        f"{size.dim}, trained at {view.train_length:,} {_tokens(view)} (1×) and tested up to {view.longest:,}."
    )
    tied = any(ranking is not None and len(ranking.first) > 1 for ranking in (view.ranking, view.increases))
    return f"{said} Methods tie if the 95 % interval of their difference includes 0." if tied else said


def _tokens(view: View) -> str:
    return "bytes" if view.loss_task == "text" else "tokens"


def facts(view: View) -> list[tuple[str, str, str]]:
    """List the numbers that readers ask for first: name, number, and what it counts."""
    records = view.records
    others = "".join(f", {count} {status}" for status, count in view.unfinished.items())
    found = [
        ("trained at", f"{view.train_length:,}", _tokens(view)),
        ("tested up to", f"{view.longest:,}", f"{view.times(view.longest)} the training length"),
        ("methods", str(len(view.methods)), f"on {listed(view.tasks, 6)}"),
        (
            "trials",
            f"{view.trials - sum(view.unfinished.values())}",
            f"of {view.trials} done{others}; {_count(len(records.seeds), 'seed')}",
        ),
    ]
    if not records.planned:  # the time of a comparison that was stopped is not known
        found.append(("time", seconds(records.seconds), f"on {_cores(records)} cores"))
    return found


def _cores(records: Comparison) -> str:
    return "?" if records.where is None or records.where.cores is None else str(records.where.cores)


def _count(number: int, what: str) -> str:
    return f"one {what}" if number == 1 else f"{number} {what}s"


def caveats(view: View) -> list[str]:
    """List what limits these results."""
    settings, seeds = view.records.settings, len(view.records.seeds)
    size = settings.size
    steps = listed((f"{taught.steps:,} steps on {task}" for task, taught in view.records.tasks.items()), 12)
    same = (
        f"The same tokens are scored at every length, in {settings.windows} windows, so that only the length of the "
        f"text before them changes. A mean over whole windows would favour long ones, where fewer tokens are near the "
        f"beginning."
    )
    several = (
        f"Intervals cover the variation between {seeds} seeds and between windows, not between texts, model sizes or "
        f"languages."
    )
    one = (
        "There is only one seed, so that intervals cover the variation between windows alone and small differences "
        "mean nothing. Run it with more seeds."
    )
    found = [
        same if view.loss_task is not None else "",
        f"Models that were trained too little look robust, since what they have not learnt cannot fail at longer "
        f"lengths. These had {steps}; with more steps, or models larger than {size.layers} layers of width {size.dim}, "
        f"the order may change.",
        f"All methods have the same learning rate ({_rates(view)}); some would do better with another.",
        "All methods have the same number of steps, not the same time. With the same seed, all have the same batches.",
        _fitted(view),
        _ramps(view),
        *(method.description for method in view.methods),
        "Where a table of positions ends, no number is given: using its last row for all later positions would be "
        "another method."
        if any(
            point.ends is not None
            for row in view.rows
            for each in row.scores.values()
            for point in each.levels.values()
        )
        else "",
        one if seeds == 1 else several,
        "Costs depend on this machine, on what else ran on it, on the size of the model and on the kernels that this "
        "version chooses. Their intervals cover the variation between rounds of one measurement only."
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


def _warm_up(view: View) -> str:
    """Say how many steps of warm-up were used, and on which tasks where they differ."""
    tasks: dict[int, list[str]] = {}
    for task, taught in view.records.tasks.items():
        tasks.setdefault(view.records.settings.warm_up_within(taught.steps), []).append(task)
    said = [
        f"{count} step{'s' * (count != 1)}{f' on {listed(of, 12)}' * (len(tasks) > 1)}" for count, of in tasks.items()
    ]
    return listed(said, 12)


def _fitted(view: View) -> str:
    bare = {part.text for method in view.methods for part in method.parts}
    found = [fitted.said for name, fitted in FITTED.items() if name in bare]
    return (
        f"Where defaults suit another length, options were set for the training length: {'; '.join(found)}."
        if found
        else ""
    )


def _ramps(view: View) -> str:
    chosen = {row.name: ramp for row in view.rows if (ramp := _ramp(row.ramps))}
    if not chosen:
        return ""
    files = "pieces" if view.records.corpus is not None and view.records.corpus.cut else "files"
    each = "; ".join(f"{name}: {ramp}" for name, ramp in chosen.items())
    return (
        f"The ramp of YaRN's paper (from 32 rotations within the training length down to 1) does not suit lengths as "
        f"short as these, so ramps were chosen on other {files} than those that are scored. {each}."
    )


def _ramp(ramps: Iterable[tuple[float, float]]) -> str:
    return " or ".join(f"{ramp[0]:g} to {ramp[1]:g}" for ramp in sorted(set(ramps)))


def reproduction(view: View) -> list[tuple[str, str]]:
    """List everything that could change the numbers."""
    records, settings, where = view.records, view.records.settings, view.records.where
    size = settings.size
    machine = [each for each in (where.processor, where.platform, where.device) if each] if where else []
    training = (
        f"AdamW, learning rate {_rates(view)}, at length {settings.train_length:,}; {_warm_up(view)} of "
        f"warm-up, then a cosine decay to a tenth"
    )
    found = [
        ("Versions", f"situs {where.situs}, torch {where.torch}, python {where.python}" if where else ""),
        ("Hardware", f"{', '.join(machine)}; {_cores(records)} cores"),
        ("Seeds", ", ".join(map(str, records.seeds))),
        ("Text", "" if records.corpus is None else _text(records.corpus)),
        ("Own code", _own_code(records)),
        ("Model", f"decoder, {size.layers} layers, width {size.dim}, {size.heads} heads"),
        ("Training", training),
        ("Tests", f"{settings.windows} examples at each length: {listed(map('{:,}'.format, view.lengths), 12)}"),
        ("Time", "" if records.planned else f"{seconds(records.seconds)}, without trials that were finished before"),
    ]
    return [(name, said) for name, said in found if said]


def _own_code(records: Comparison) -> str:
    """Name the hash of the user's modules that each method was made from, where it was made from any."""
    found = {record.trial.method.name: record.trial.source for record in records.trials if record.trial.source}
    said = "; ".join(f"{name}, hash {source}" for name, source in found.items())
    return f"{said}: of each class's file and the modules of one's own that it uses" if said else ""


def _text(corpus: TextFacts) -> str:
    sizes = corpus.bytes
    parts = [
        f"{count:,} {'piece' if corpus.cut else 'file'}{'s' * (count != 1)} to {name}"
        + (f" ({sizes[name]:,} bytes)" if name in sizes else "")
        for name, count in corpus.files.items()
    ]
    said = f"{corpus.name}, hash {corpus.hash}"
    return f"{said}: {listed(parts, 6)}" if parts else said
