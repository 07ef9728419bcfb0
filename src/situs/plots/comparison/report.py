"""The page of a comparison: one file that needs nothing else, in light and dark, for wide screens and phones."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from situs.lab.comparing.records import Comparison
from situs.plots.comparison import caveats
from situs.plots.comparison.beside import Beside, beside, differences
from situs.plots.comparison.failures import failures
from situs.plots.comparison.figures import figures
from situs.plots.comparison.findings import findings, headline
from situs.plots.comparison.table import explanations, tables, tables_html
from situs.plots.comparison.view import View
from situs.plots.page import KINDS, breakable, broken, bullets, facts, figures_html, meanings, page

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
    drawn = figures_html({kind: figures(view, dark=kind[0], narrow=kind[1]) for kind in KINDS}, READING)
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
        "facts": facts(caveats.facts(view)),
    }
    inner = {
        "findings": bullets(found or ["No trial has a result, so that there is nothing to report."]),
        "choices": " ".join(f'<a href="#{each.name}">{escape(each.title)}</a>' for each in tables(view) if each.about),
        "tables": tables_html(view),
        "meanings": meanings(explanations(view)),
        "figures": drawn,
        "differences": escape(differences(compared)),
        "studies": _studies(compared),
        "caveats": bullets(caveats.caveats(view)),
        "failures": _failures(view),
        "command": escape(view.records.command or "situs compare"),
        "reproduction": meanings(caveats.reproduction(view)),
    }
    return page("situs.plots.comparison", "report.html", fields=fields, sections=inner)


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
    body = f"<ul>\n{bullets(found)}\n</ul>" if found else "<p>None: every trial has a result.</p>"
    return f'<section aria-labelledby="missing">\n<h2 id="missing">What has no result</h2>\n{body}\n</section>'
