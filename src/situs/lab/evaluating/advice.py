"""What an evaluation advises: which scaling to use at the longest length, what to set for it, and what to expect."""

from __future__ import annotations

from dataclasses import dataclass

from situs.lab.evaluating.records import NONE
from situs.lab.evaluating.scalings import extension_of, named
from situs.lab.evaluating.summary import Row, Summary
from situs.lab.scores import HOLDS, LEVEL, Entry, Point, Scores, at


@dataclass(frozen=True)
class Advice:
    """Hold the scaling to use, and why, in sentences."""

    scaling: str
    sentences: tuple[str, ...]
    sets: str = ""
    """The scaling that a configuration says: the same, or the best of those; "" where nothing is to be set."""
    settings: str = ""
    """What to write into config.json for it, as JSON."""
    code: str = ""
    """What to write in Situs, where no configuration says the best scaling."""


def advise(summary: Summary) -> Advice | None:
    """Choose a scaling: the first at the longest length, unless the released model ties with it; None where nothing has
    a number there. Where no configuration says the first, the best that one says is named too."""
    if not summary.entries:
        return None
    first = summary.entries[0]
    released = summary.released
    if released is not None and _suffices(summary, released):
        first = released
    chosen = summary.records.chosen
    better = summary.entries if released is None else summary.entries[: summary.entries.index(released)]
    sayable = next((entry for entry in better if chosen[entry.row.name].settings), None)
    own = chosen[first.row.name]
    said = [*_unlearned(summary), _leading(summary, first)]
    sets = first if own.settings else sayable if own.code else None
    if own.code:
        said.append(f"No configuration says {first.row.name}: {own.code}.")
        if sayable is not None:
            said.append(f"The best that one says is {sayable.row.name}, {_behind(summary, sayable)}.")
    said += [*_expected(summary, first), *(f"{note}." for note in own.notes), *_unmeasured(summary)]
    name = "" if sets is None else sets.row.name
    return Advice(first.row.name, tuple(said), name, chosen[name].settings if name else "", own.code)


def _suffices(summary: Summary, released: Entry[Row]) -> bool:
    """Tell whether the released model is as good as the first, or so nearly that a scaling is not worth its cost."""
    return released.ties or (summary.task == "text" and released.behind.mean < LEVEL)


def instead(summary: Summary, advice: Advice) -> str:
    """Say which settings of the released configuration those to be pasted take the place of, with a comma before it;
    "" where there are none."""
    records = summary.records
    if not (advice.settings and records.config):
        return ""
    said = extension_of(records.config, named(advice.sets), records.setup).instead()
    return f", {said}" if said else ""


def headline(summary: Summary) -> str:
    """Say which scaling is first, in one line without a full stop; first of all, that an evaluation was stopped."""
    records = summary.records
    if not records.planned:
        return _headline(summary)
    missing, total = len(records.missing), len(records.planned)
    return f"Stopped before the end: {missing} of {total} trials missing. {_headline(summary)}"


def _headline(summary: Summary) -> str:
    advice = advise(summary)
    if advice is None:
        return "Nothing was measured at the longest length"
    first = summary.entries[0]
    where = f"at {summary.times(summary.longest)} ({summary.longest:,} tokens)"
    released = summary.released
    if released is not None and released is not first and _suffices(summary, released):
        mean = released.point.mean
        has = f"which has a loss of {mean:.2f}" if summary.task == "text" else f"which has {100 * mean:.0f} % right"
        better = "better" if released.ties else f"better by {LEVEL} nats"
        return f"No scaling is {better} {where} than the model as it was released, {has}"
    tied = [entry.row.name for entry in summary.entries[1:] if entry.ties]
    tie = f", in a tie with {_listed(tied)}" if tied else ""
    if summary.task == "text":
        return f"{_called(first.row.name)} has the lowest loss {where}, {first.point.mean:.2f}{tie}"
    return f"{_called(first.row.name)} has most answers right {where}, {100 * first.point.mean:.0f} %{tie}"


def _called(name: str) -> str:
    return "The model as it was released" if name == NONE else name


def _leading(summary: Summary, first: Entry[Row]) -> str:
    if first.row.name == NONE:
        better = "better" if first.ties else f"better by {LEVEL} nats"
        return f"Use the model as it is: no scaling is {better} at {summary.times(summary.longest)}."
    ahead = summary.released
    gain = "" if ahead is None else f"; without a scaling it is {_apart(summary, ahead)}"
    return f"Use {first.row.name} for texts of up to {summary.longest:,} tokens{gain}."


def _apart(summary: Summary, entry: Entry[Row]) -> str:
    if summary.task == "passkey":
        return f"{100 * entry.behind.mean:.0f} percentage points worse ({_interval(entry.behind, 100, 0)})"
    return f"{entry.behind.mean:.2f} nats worse ({_interval(entry.behind, 1, 2)})"


def _behind(summary: Summary, entry: Entry[Row]) -> str:
    return "in a tie with it" if entry.ties else _apart(summary, entry)


def _interval(point: Point, times: int, digits: int) -> str:
    return f"95 % interval {times * point.low:.{digits}f} to {times * point.high:.{digits}f}"


def _expected(summary: Summary, first: Entry[Row]) -> list[str]:
    """Say what remains: a loss that is higher than within the trained length, and what short texts lose."""
    scores: Scores | None = first.row.scores.get("text")
    if scores is None or summary.task != "text":
        return []
    said = []
    last, base = at(scores.changes, summary.longest), at(scores.changes, summary.base)
    if last is not None and last.mean >= HOLDS:
        said.append(
            f"Even so the loss is {last.mean:.2f} higher than that of the released model at {summary.base:,} tokens, "
            f"on the same tokens with less text before them. Training at the longer length may help."
        )
    if base is not None and base.mean >= HOLDS:
        said.append(
            f"Texts of {summary.base:,} tokens lose {base.mean:.2f} by it: use the released settings for those."
        )
    return said


def _unmeasured(summary: Summary) -> list[str]:
    """Say which scalings have no result at the longest length, though the model can have them."""
    names = [row.name for row in summary.ranking.rest if row.refused is None]
    have = "has" if len(names) == 1 else "have"
    return [f"{_listed(names)} {have} no result at {summary.longest:,} tokens, and may be better."] if names else []


def _unlearned(summary: Summary) -> list[str]:
    """Say that the model predicts no better than a guess by how often tokens occur: then nothing can be compared."""
    text, row = summary.records.text, next((row for row in summary.rows if row.name == NONE), None)
    scores = None if row is None else row.scores.get("text")
    base = None if scores is None else at(scores.levels, summary.base)
    if base is None or text.guessed is None or base.mean < text.guessed:
        return []
    why = "its tokenizer is missing" if text.unit == "byte" else "the tokenizer is another model's"
    return [
        f"These numbers do not tell scalings apart: at {summary.base:,} tokens the released model has a loss of "
        f"{base.mean:.2f}, where guessing each {text.unit} by how often it occurs in the text has {text.guessed:.2f}. "
        f"The model was not trained, or not on such text, or {why}."
    ]


def _listed(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)
