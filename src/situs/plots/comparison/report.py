"""The page of a comparison: one file that needs nothing else, in light and dark, for wide screens and phones."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from string import Template

from matplotlib.figure import Figure

from situs.lab.comparing.records import Comparison
from situs.plots.comparison import caveats
from situs.plots.comparison.beside import Beside, beside, differences
from situs.plots.comparison.failures import failures
from situs.plots.comparison.figures import figures
from situs.plots.comparison.findings import findings, headline
from situs.plots.comparison.table import breakable, broken, explanations, tables, tables_html
from situs.plots.comparison.view import View
from situs.plots.style import DPI, NARROW, WIDE, png

PHONE = "(max-width: 640px)"
NIGHT = "(prefers-color-scheme: dark)"
READING = {
    "loss-by-length": "One line per method. All start at 0, since changes are measured from 1×; the number beside a "
    "name is the method's loss at 1×. A flat line is good only if that number is low.",
    "loss-by-position": "Losses usually fall at first, since the first tokens have little text before them to predict "
    "from. Compare methods with each other, not with their own beginning: a scaled method is scaled for the "
    "whole text, so that its loss may be high, and flat, from the first token on.",
    "by-depth": "Each cell is a length and a depth; the stronger its colour, the more answers are right. "
    "Hatched: no number, for the reason above the map.",
    "by-length": "An example counts only if its whole answer is right.",
    "cost-and-loss": "Times are of a forward pass of the attention layers of this small model, projections included, "
    "on the machine named below; the costs above say how sizes matter.",
}


def report_html(records: Comparison | View) -> str:
    """Write the page. Everything on it is computed from the records."""
    view = View.of(records)
    compared = beside(view)
    drawn = _figures(view)
    sections = {
        "findings": "Findings",
        "tables": "Tables",
        "figures": "Figures" if drawn else "",
        "literature": "Literature",
    }
    sections |= {"caveats": "Trust", "reproduce": "Reproduce"}
    found = findings(view)
    made = view.records.made[:10]
    fields = {
        "version": escape(view.records.where.situs if view.records.where else ""),
        "made": escape(made),
        "title": escape(f"{headline(view)} · situs compare"),
        "kicker": escape(f"situs compare · {made} · preset {view.records.preset or 'none'}"),
        "headline": breakable(headline(view)),
        "lead": breakable(caveats.lead(view)),
        "contents": " ".join(f'<a href="#{name}">{text}</a>' for name, text in sections.items() if text),
        "facts": _facts(view),
        "findings": _list(found or ["No trial has a result, so that there is nothing to report."]),
        "choices": " ".join(f'<a href="#{each.name}">{escape(each.title)}</a>' for each in tables(view) if each.about),
        "tables": tables_html(view),
        "meanings": _meanings(explanations(view)),
        "figures": drawn,
        "differences": escape(differences(compared)),
        "studies": _studies(compared),
        "caveats": _list(caveats.caveats(view)),
        "failures": _failures(view),
        "command": escape(view.records.command or "situs compare"),
        "reproduction": _meanings(caveats.reproduction(view)),
    }
    template = resources.files("situs.plots.comparison").joinpath("report.html").read_text(encoding="utf-8")
    return Template(template).substitute(fields)


def _list(sentences: Iterable[str]) -> str:
    return "\n".join(f"<li>{breakable(sentence)}</li>" for sentence in sentences)


def _meanings(pairs: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f"<dt>{breakable(name)}</dt><dd>{breakable(meaning)}</dd>" for name, meaning in pairs)


def _facts(view: View) -> str:
    return "\n".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(fact)} <small>{escape(more)}</small></dd></div>"
        for name, fact, more in caveats.facts(view)
    )


def _figures(view: View) -> str:
    """Embed all figures, each four times: light and dark, for screens and for phones."""
    kinds = {
        (dark, narrow): figures(view, dark=dark, narrow=narrow) for dark in (False, True) for narrow in (False, True)
    }
    shown = "\n".join(_figure(name, {kind: each[name] for kind, each in kinds.items()}) for name in kinds[False, False])
    if not shown:
        return ""
    return f'<section aria-labelledby="figures">\n<h2 id="figures">Figures</h2>\n{shown}\n</section>'


def _figure(name: str, kinds: Mapping[tuple[bool, bool], Figure]) -> str:
    sources = "".join(
        f'<source media="{media}" srcset="{_uri(kinds[kind])}" {_size(kinds[kind], kind[1])}>\n'
        for kind, media in (((True, True), f"{NIGHT} and {PHONE}"), ((True, False), NIGHT), ((False, True), PHONE))
    )
    plain = kinds[False, False]
    alternative = escape(str(plain.get_label()))
    reading = READING.get(name) or next((said for end, said in READING.items() if name.endswith(end)), "")
    return (
        f'<figure id="{escape(name)}">\n<picture>\n{sources}<img src="{_uri(plain)}" alt="{alternative}" '
        f"{_size(plain, False)}>\n</picture>\n<figcaption>{escape(reading)}</figcaption>\n</figure>"
    )


def _uri(figure: Figure) -> str:
    return "data:image/png;base64," + b64encode(png(figure)).decode()


def _size(figure: Figure, narrow: bool) -> str:
    """Write the width and height of a figure, so that nothing jumps."""
    width = NARROW if narrow else WIDE
    return f'width="{round(width * DPI)}" height="{round(float(figure.get_figheight()) * DPI)}"'


def _studies(compared: Sequence[Beside]) -> str:
    """Show every published result that can be compared, and name the others in one line."""
    shown = [each for each in compared if each.compared]
    others = dict.fromkeys(each.published.paper for each in compared if not each.compared)
    named = f"<p>Too few methods were measured to compare with {escape('; '.join(others))}.</p>" if others else ""
    return "\n".join([*(_study(number, each) for number, each in enumerate(shown)), named])


def _study(number: int, each: Beside) -> str:
    published = each.published
    chip = {"differs": "chip differs", "same order": "chip same"}.get(each.verdict, "chip")
    setting = published.setting[0].upper() + published.setting[1:]
    source = f"{published.source}{' (second-hand: from a transcription of the paper)' if published.second_hand else ''}"
    return (
        f'<article class="study" aria-labelledby="study-{number}">\n'
        f'<h3 id="study-{number}">{escape(published.paper)} <span class="{chip}">{escape(each.verdict)}</span></h3>\n'
        f'<p class="setting">{escape(f"{setting}; {source}. {published.remark}")}</p>\n'
        f"<p>Claim: {escape(published.claim)}. {escape(each.said)}</p>\n{_side_by_side(each)}</article>"
    )


def _side_by_side(each: Beside) -> str:
    if not each.rows:
        return ""
    heads = "".join(f'<th scope="col">{head}</th>' for head in ("method", "the literature says", "measured here"))
    rows = "\n".join(
        f'<tr><th scope="row">{broken(method)}</th><td>{escape(theirs)}{_small(more)}</td><td>{escape(ours)}</td></tr>'
        for method, theirs, more, ours in each.rows
    )
    label = escape(f"{each.published.paper}: published and measured")
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">\n<table class="text">\n'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>\n</div>\n"
    )


def _small(text: str) -> str:
    return f"<small>{escape(text)}</small>" if text else ""


def _failures(view: View) -> str:
    found = failures(view, ", on ")
    body = f"<ul>\n{_list(found)}\n</ul>" if found else "<p>None: every trial has a result.</p>"
    return f'<section aria-labelledby="missing">\n<h2 id="missing">What has no result</h2>\n{body}\n</section>'
