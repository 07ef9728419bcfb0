"""The page of a comparison: one file that needs nothing else, in light and dark, for wide screens and phones."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping
from html import escape
from importlib import resources
from string import Template

from matplotlib.figure import Figure

from situs.lab.comparing.records import Comparison
from situs.plots.comparison import caveats, words
from situs.plots.comparison.beside import Beside, beside, differences
from situs.plots.comparison.figures import figures
from situs.plots.comparison.table import broken, explanations, table_csv, table_html
from situs.plots.comparison.view import View
from situs.plots.style import DPI, NARROW, WIDE, png

__all__ = ["report_html", "table_csv"]

PHONE = "(max-width: 640px)"
NIGHT = "(prefers-color-scheme: dark)"
READING = {
    "loss-by-length": "Each line is a method, and starts at 0 by definition; the number beside its name is the loss "
    "that it starts from. Flat is good, if that number is low.",
    "loss-by-position": "Losses first fall, since the beginning of a text has little before it to predict from. What "
    "happens right of the dashed line is the encoding's doing.",
    "by-depth": "Each field is a length and a depth: the fuller its colour, the more answers were found there. "
    "Hatched: the table of positions ends before.",
    "by-length": "An example counts only if all of its answer is right.",
    "cost-and-reach": "Times are those of a forward pass of the attention layers, projections included, on the machine "
    "named below.",
}


def report_html(records: Comparison | View) -> str:
    """Write the page. Everything on it is worked out from the records."""
    view = View.of(records)
    compared = beside(view)
    drawn = _figures(view)
    sections = {
        "findings": "Findings",
        "table": "Table",
        "figures": "Figures" if drawn else "",
        "literature": "Literature",
    }
    sections |= {"caveats": "Trust", "reproduce": "Reproduce"}
    found = words.findings(view)
    made = view.records.made[:10]
    fields = {
        "version": escape(view.records.where.situs if view.records.where else ""),
        "made": escape(made),
        "title": escape(f"{words.headline(view)} · situs compare"),
        "kicker": escape(f"situs compare · {made} · preset {view.records.preset or 'of one’s own'}"),
        "headline": escape(words.headline(view)),
        "lead": escape(caveats.lead(view)),
        "contents": " ".join(f'<a href="#{name}">{text}</a>' for name, text in sections.items() if text),
        "facts": _facts(view),
        "findings": _list(found or ["No trial was finished, so there is nothing to tell."]),
        "about": escape(caveats.about(view)),
        "table": table_html(view),
        "meanings": _meanings(explanations(view)),
        "figures": drawn,
        "differences": escape(differences(compared)),
        "studies": "\n".join(_study(number, each) for number, each in enumerate(compared)),
        "caveats": _list(caveats.caveats(view)),
        "failures": _failures(view),
        "command": escape(view.records.command or "situs compare"),
        "reproduction": _meanings(caveats.reproduction(view)),
    }
    template = resources.files("situs.plots.comparison").joinpath("report.html").read_text(encoding="utf-8")
    return Template(template).substitute(fields)


def _list(sentences: Iterable[str]) -> str:
    return "\n".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)


def _meanings(pairs: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f"<dt>{escape(name)}</dt><dd>{escape(meaning)}</dd>" for name, meaning in pairs)


def _facts(view: View) -> str:
    return "\n".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(fact)} <small>{escape(more)}</small></dd></div>"
        for name, fact, more in caveats.facts(view)
    )


def _figures(view: View) -> str:
    """Embed all figures, each four times: by day and by night, for screens and for phones."""
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


def _study(number: int, each: Beside) -> str:
    published = each.published
    chip = {"differs": "chip differs", "same order": "chip same"}.get(each.verdict, "chip")
    setting = published.setting[0].upper() + published.setting[1:]
    source = f"{published.source}{' (2nd hand: from a transcription of the paper)' if published.second_hand else ''}"
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
    failed = [f"{row.name}, on {problem}" for row in view.rows for problem in row.problems]
    body = f"<ul>\n{_list(failed)}\n</ul>" if failed else "<p>None.</p>"
    return f'<section aria-labelledby="failed">\n<h2 id="failed">Trials that failed</h2>\n{body}\n</section>'
