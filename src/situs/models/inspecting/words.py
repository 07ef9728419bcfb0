"""A report as text for a terminal: lines of a width, colour where it is wanted.

layers 0-27: Rotary(head_dim=128, base=1000000.0)
  pairs    wavelength             turns in 32,768   at 131,072
  0-38     6.28 to 25,000         5,220 to 1.3      seen
  39-63    31,000 to 5,050,000    1 to 0.0065       never seen from 32,768 on
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from situs.models.positions import spans
from situs.models.scores import as_share
from situs.models.wrapping import filled, tabled

if TYPE_CHECKING:
    from situs.models.inspecting.advice import Advice
    from situs.models.inspecting.memory import Cache
    from situs.models.inspecting.pairs import Pair
    from situs.models.inspecting.report import Group, Part, Report
    from situs.models.training import Training

BOLD, WARNING, RESET = "\033[1m", "\033[33m", "\033[0m"


def render(report: Report, *, width: int, colour: bool, pairs: bool) -> str:
    """Write a report as lines that are no longer than ``width``, but for what is to be pasted."""
    lines = [line for part in _sections(report, width, pairs) for line in part]
    return "\n".join(lines if colour else map(_plain, lines))


def _plain(line: str) -> str:
    for each in (BOLD, WARNING, RESET):
        line = line.replace(each, "")
    return line


def _sections(report: Report, width: int, pairs: bool) -> Iterator[Iterable[str]]:
    yield _head(report, width)
    for part in report.parts:
        yield _part(part, report, width, pairs)
    yield _advice(report.advice, width)
    yield _engines(report, width)


def _head(report: Report, width: int) -> Iterator[str]:
    model = report.model
    head = f"{model.model_type} at {report.target:,} tokens"
    first, *rest = filled(f"{head}, as {report.engine} reads it", width)
    yield from (first.replace(head, f"{BOLD}{head}{RESET}"), *rest)
    yield f"fingerprint {report.fingerprint}"
    if not model.verified:
        yield from filled("This model type is not in the table: it was read by the general rule.", width, "")
    for note in model.notes:
        yield from filled(f"note: {note}", width, "  ")


def _part(part: Part, report: Report, width: int, pairs: bool) -> Iterator[str]:
    model, training = part.model, part.training
    yield ""
    known = [] if training is None else [f"made for {training.length:,} tokens"]
    if training is not None and training.plain != training.declared:
        known[0] += f" (trained on {training.plain:,} before scaling{_inferred(training)})"
    if training is not None and (model.lengths.declared or 0) > training.length:
        known.append(f"{model.lengths.declared:,} declared")
    if model.lengths.limit is not None:
        known.append(f"{model.lengths.limit:,} at most: {model.lengths.reason}")
    count = len(model.layers)
    named = f"{part.name}: {model.model_type}, " if part.name else ""
    head = f"{named}{count} layer{'s' * (count != 1)}"
    first, *rest = filled(f"{head}; {'; '.join(known) or 'no length is named'}", width, "")
    yield from (first.replace(head, f"{BOLD}{head}{RESET}"), *rest)
    if model is not report.model:
        for note in model.notes:
            yield from filled(f"note: {note}", width, "  ")
    for line in part.tables:
        yield from filled(line, width, "  ")
    if not part.groups:
        for call in model.input:
            yield from filled(f"input: {call!r}", width, "  ")
        for numbers, layer in model.groups():
            yield from filled(f"layers {spans(numbers)}: {layer}", width, "  ")
        return
    for group in part.groups:
        yield from _group(group, part, report.target, width, pairs)
    yield from _costs(part, report.target, width)


def _inferred(training: Training) -> str:
    return ", inferred from its factor" if training.inferred else ""


def _group(group: Group, part: Part, target: int, width: int, pairs: bool) -> Iterator[str]:
    yield from filled(f"layer{'s' * (not group.layers.isdecimal())} {group.layers}: {group.layer}", width, "  ")
    if group.pairs:
        assert part.training is not None
        span = group.layer.reach or part.training.length
        yield from _table(group.pairs, min(span, part.training.length), target, width, each=pairs)
    if group.scaling:
        yield from filled(group.scaling, width, "    ")
    if group.errors:
        told = ", ".join(f"{name} {_radians(error)}" for name, error in group.errors.items())
        yield from filled(f"angles formed in half or single precision are off by up to: {told}", width, "    ")
    for line in group.others:
        yield from filled(line, width, "    ")


def _radians(error: float) -> str:
    if not math.isfinite(error):
        return "any angle (positions overflow)"
    return f"{error:.2g} rad" if error < 2 * math.pi else f"{error:,.0f} rad (more than a turn)"


def _table(pairs: Sequence[Pair], trained: int, target: int, width: int, *, each: bool) -> Iterator[str]:
    """Pairs in rows, those of one state that follow each other in one, unless each is asked for."""
    rows = [("pairs", "wavelength", f"turns in {trained:,}", f"at {target:,}")]
    groups = [[pair] for pair in pairs] if each else [list(some) for _, some in groupby(pairs, lambda pair: pair.state)]
    for some in groups:
        since = min((pair.since for pair in some if pair.since is not None), default=None)
        state = some[0].state + (f" from {since:,} on" if since is not None else "")
        rows.append((spans(tuple(pair.index for pair in some)), _span([pair.wavelength for pair in some]),
                     _span([pair.turns for pair in some]), state))  # fmt: skip
    for number, (row, lines) in enumerate(zip(rows, tabled(rows, width - 4), strict=True)):
        warned = number and "never" in row[3]
        yield from (f"    {WARNING}{line}{RESET}" if warned else f"    {line}" for line in lines)


def _span(numbers: Sequence[float]) -> str:
    first, last = _short(numbers[0]), _short(numbers[-1])
    return first if first == last else f"{first} to {last}"


def _short(number: float | int) -> str:
    """A number with three digits, in words where it is large."""
    if math.isinf(number):
        return "endless"
    for size, word in ((1e12, "e12"), (1e9, " billion"), (1e6, " million")):
        if number >= size:
            return f"{number / size:.3g}{word}"
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _costs(part: Part, target: int, width: int) -> Iterator[str]:
    if part.caches:
        total = sum(cache.bytes for cache in part.caches)
        parts = ", ".join(f"{c.kind} layers {_bytes(c.bytes)} ({_held(c)} each)" for c in part.caches)
        each = f": {parts}" if len(part.caches) > 1 else ""
        yield from filled(f"cache of keys and values, one text, 16 bits: {_bytes(total)}{each}", width, "  ")
    if part.table_bytes:
        yield from filled(
            f"cosines and sines for {target:,} positions in 32 bits: {_bytes(part.table_bytes)}", width, "  "
        )


def _held(cache: Cache) -> str:
    """What one layer holds of a text."""
    tokens = f"{cache.tokens:,} tokens"
    return f"{tokens} and {cache.entries:,} entries" if cache.entries else tokens


def _bytes(count: int) -> str:
    for size, word in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if count >= size:
            return f"{count / size:.3g} {word}" if count < 1000 * size else f"{count / size:,.0f} {word}"
    return f"{count} bytes"


def _advice(advice: Advice, width: int) -> Iterator[str]:
    yield ""
    yield from (f"{BOLD}{line}{RESET}" for line in filled(advice.headline, width, ""))
    for reason in advice.reasons:
        yield from filled(reason, width, "  ")
    if advice.options:
        below = advice.options[0].change.length
        yield from filled(f"What each method would do; changes are the largest below {below:,} tokens:", width, "  ")
        rows = [("method", "factor", "pairs never seen", "change of frequencies", "change of scores")]
        rows += [
            (each.method, f"{each.factor:.4g}", str(each.unseen), as_share(each.change.frequency),
             f"{each.change.score:.2g}")
            for each in advice.options
        ]  # fmt: skip
        for lines in tabled(rows, width, "  "):
            yield from lines
    for place, text in advice.settings.items():
        yield from (f"{BOLD}{line}{RESET}" for line in filled(advice.heading(place), width, "  "))
        said = text.startswith(("-", "{"))  # to be pasted, not read
        yield from (f"    {line}" for line in text.splitlines()) if said else filled(text, width, "    ")


def _engines(report: Report, width: int) -> Iterator[str]:
    yield ""
    yield f"{BOLD}How engines read this file{RESET}"
    for engine, lines in report.engines.items():
        yield from filled(f"{engine}: {lines[0]}", width, "  ")
        for line in lines[1:]:
            yield from filled(line, width, "    ")
