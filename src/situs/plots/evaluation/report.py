"""The page of an evaluation: one file that needs nothing else, in light and dark, for wide screens and phones."""

from __future__ import annotations

import json
from html import escape

from situs.lab.evaluating.advice import Advice, advise, headline, instead
from situs.lab.evaluating.records import Evaluation
from situs.lab.evaluating.summary import Summary
from situs.lab.scores import MISSING
from situs.plots.comparison.words import listed, seconds
from situs.plots.evaluation.figures import figures
from situs.plots.evaluation.tables import grids
from situs.plots.page import (
    KINDS,
    Grid,
    breakable,
    bullets,
    facts,
    figures_html,
    grid_html,
    meanings,
    named_together,
    page,
)

NAMED = 12  # missing trials that are named
FEW = 1024  # tokens of training, below which YaRN's ramp hardly suits
READING = {
    "loss-by-length": "One line per scaling, set for the longest length at every length. The line of none is the model "
    "as it was released; where another line starts above it, short texts pay for the scaling. The number beside a name "
    "is its loss at the longest length.",
    "loss-by-position": "Losses usually fall at first, since the first tokens have little text before them to predict "
    "from. Beyond the trained length, a scaling that works stays level where the released model rises.",
    "by-depth": "Each cell is a length and a depth; the stronger its colour, the more answers are right. Hatched: no "
    "number.",
}


def report_html(summary: Summary) -> str:
    """Write the page. Everything on it is computed from the records."""
    records = summary.records
    drawn = figures_html({kind: figures(summary, dark=kind[0], narrow=kind[1]) for kind in KINDS}, READING)
    sections = {"advice": "What to set", "tables": "Tables", "figures": "Figures" if drawn else ""}
    sections |= {"caveats": "Trust", "missing": "Missing", "reproduce": "Reproduce"}
    made, said = records.made[:10], headline(summary)
    shown = grids(summary)
    fields = {
        "version": escape(records.where.situs if records.where else ""),
        "made": escape(made),
        "title": escape(f"{said} · situs evaluate"),
        "kicker": escape(f"situs evaluate · {made} · {records.model.name}"),
        "headline": breakable(said),
        "lead": breakable(_lead(summary)),
        "contents": " ".join(f'<a href="#{name}">{text}</a>' for name, text in sections.items() if text),
        "facts": facts(_facts(summary)),
    }
    advice = advise(summary)
    inner = {
        "advice": bullets(advice.sentences if advice else ["Nothing was measured at the longest length."]),
        "settings": _settings(summary, advice),
        "choices": " ".join(f'<a href="#{each.name}">{escape(each.title)}</a>' for each in shown),
        "tables": "\n".join(map(grid_html, shown)),
        "meanings": meanings(_meanings(shown)),
        "figures": drawn,
        "caveats": bullets(_caveats(summary)),
        "failures": _failures(summary),
        "command": escape(records.command or "situs evaluate"),
        "reproduction": meanings(_reproduction(records)),
    }
    return page("situs.plots.evaluation", "report.html", fields=fields, sections=inner)


def _settings(summary: Summary, advice: Advice | None) -> str:
    if advice is None or not advice.settings:
        return ""
    text = json.dumps(json.loads(advice.settings), indent=2)
    said = escape(f", for {advice.sets}{instead(summary, advice)}:")
    return f"<p>In <code>config.json</code>{said}</p>\n<pre><code>{escape(text)}</code></pre>"


def _lead(summary: Summary) -> str:
    records = summary.records
    return (
        f"{records.model.name} ({records.model.model_type}, {records.model.parameters:,} parameters), trained at "
        f"{records.setup.trained:,} tokens (1×) and measured up to {summary.longest:,} with {len(records.scalings)} "
        f"scalings, without training. Scalings tie if the 95 % interval of their difference includes 0."
    )


def _facts(summary: Summary) -> list[tuple[str, str, str]]:
    records, setup = summary.records, summary.records.setup
    done = sum(record.status == "done" for record in records.trials)
    total = len(records.planned) or len(records.trials)
    others = {"failed": len(records.trials) - done, MISSING: len(records.missing)}
    said = "".join(f", {count} {status}" for status, count in others.items() if count)
    found = [
        ("trained at", f"{setup.trained:,}", "tokens"),
        ("measured up to", f"{summary.longest:,}", f"{summary.times(summary.longest)} the trained length"),
        ("scalings", str(len(records.scalings)), f"{len(records.scalings) - len(records.refused)} of them measured"),
        ("trials", str(done), f"of {total} done{said}; {setup.windows} texts each"),
    ]
    if not records.planned:  # the time of an evaluation that was stopped is not known
        found.append(("time", seconds(records.seconds), f"on {_cores(records)} cores"))
    return found


def _files(count: int) -> str:
    return f"{count:,} file{'s' * (count != 1)}"


def _cores(records: Evaluation) -> str:
    return "?" if records.where is None or records.where.cores is None else str(records.where.cores)


def _caveats(summary: Summary) -> list[str]:
    records, setup = summary.records, summary.records.setup
    passkey = "passkey" in records.tasks
    found = [
        f"The same {setup.tail} {records.text.unit}s at the end of each of {setup.windows} texts are scored at every "
        f"length, so that only the text before them grows. A mean over whole texts would favour long ones."
        if "text" in records.tasks
        else "",
        f"Every scaling is set once, for {summary.longest:,} tokens or as written, and measured so at every length: "
        f"what it does at shorter ones is what they pay. Set for a shorter length, a scaling does better there; give "
        f"--lengths up to it.",
        "The model was not trained further. A scaling that is first without training need not be first after some.",
        f"Intervals cover the variation between {setup.windows} texts of {records.text.name}, not between kinds of "
        f"text or models. If the model was trained on this text, losses are lower than on a new one, and differences "
        f"may be too."
        if "text" in records.tasks
        else f"Intervals cover the variation between {setup.windows} texts of filler, not between models.",
        "Passkey asks for one number in filler that repeats itself. A model that finds it may still miss what is said "
        "once in a real text; one that misses it within the trained length says nothing about scalings."
        if passkey
        else "",
        f"The ramp of YaRN lies between 32 rotations and 1 within the trained length, as in its paper. That suits "
        f"thousands of tokens; {setup.trained:,} are few."
        if setup.trained < FEW and any(name.startswith("yarn") for name in records.scalings)
        else "",
        "Time and memory are of this machine and of whole texts without a cache.",
        *records.remarks,
    ]
    return [sentence for sentence in found if sentence]


def not_run(summary: Summary) -> list[str]:
    """Say which trials are missing where an evaluation was stopped, and how to go on."""
    if not summary.records.planned:
        return []
    missing = [trial.label for trial in summary.records.missing]
    said = [f"Not run before the evaluation was stopped: {listed(missing, NAMED)}."] if missing else []
    return [*said, "The same command goes on where it was stopped."]


def _failures(summary: Summary) -> str:
    refused = [f"{names}: {reason}" for names, reason in summary.records.refusals.items()]
    found = [*refused, *(problem for row in summary.rows for problem in row.problems), *not_run(summary)]
    return f"<ul>\n{bullets(found)}\n</ul>" if found else "<p>None: every trial has a result.</p>"


def _meanings(shown: list[Grid]) -> list[tuple[str, str]]:
    """Explain each kind of column; columns that mean the same share a sentence."""
    found: dict[str, list[str]] = {}
    for grid in shown:
        for head in grid.heads:
            heads = found.setdefault(head.explained, [])
            if head.text not in heads:
                heads.append(head.text)
    return [(named_together(heads), explained) for explained, heads in found.items()]


def _reproduction(records: Evaluation) -> list[tuple[str, str]]:
    """List everything that could change the numbers."""
    where, text, setup = records.where, records.text, records.setup
    machine = [each for each in (where.processor, where.platform, where.device) if each] if where else []
    versions = f"situs {where.situs}, torch {where.torch}, python {where.python}" if where else ""
    read = f"{text.tokens:,} {text.unit}s by {text.tokenizer}"
    found = [
        ("Versions", f"{versions}, transformers {records.transformers}"),
        ("Hardware", f"{', '.join(machine)}; {_cores(records)} cores"),
        ("Model", f"{records.model.name}, hash {records.model.hash}, {setup.dtype} on {setup.device}"),
        ("Text", f"{text.name}, hash {text.hash}: {_files(text.documents)}, {read}"),
        ("Tests", f"{setup.windows} texts at each length: {listed(map('{:,}'.format, records.lengths), 12)}"),
        ("Loss", f"{setup.tail} {text.unit}s of each text, in nats per {text.unit}"),
        ("Time", "" if records.planned else f"{seconds(records.seconds)}, without trials that were finished before"),
    ]
    return [(name, said) for name, said in found if said]
