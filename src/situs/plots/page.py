"""Pages for the browser: one file that needs nothing else, in light and dark, for wide screens and phones.

A page is a template with a head, some facts and sections; this writes what all reports share: lists, tables, figures.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from string import Template

from matplotlib.figure import Figure

from situs.plots.style import DPI, NARROW, WIDE, png

PHONE = "(max-width: 640px)"
NIGHT = "(prefers-color-scheme: dark)"
WIDEST = 14  # characters of a name in one line, as many as transformer_xl has
LONGEST = 24  # characters of a word in a text that is in one line

Kind = tuple[bool, bool]
"""Whether a figure is dark, and whether it is narrow."""
KINDS: tuple[Kind, ...] = ((False, False), (False, True), (True, False), (True, True))


@dataclass(frozen=True)
class Cell:
    """Hold what stands in a cell: a text, a smaller one below, what appears on pointing, and its colour."""

    text: str
    small: str = ""
    title: str = ""
    tone: str = ""


@dataclass(frozen=True)
class Head:
    """Hold the heading of a column, and what it means.

    words: whether its cells hold words, which are aligned left.
    wide: whether phones leave it out, unless the reader asks for all columns.
    """

    text: str
    explained: str
    words: bool = False
    wide: bool = False


@dataclass(frozen=True)
class Grid:
    """Hold a table as it is shown: its name in addresses, its title, what to know before reading it, and its cells."""

    name: str
    title: str
    about: str
    corner: str
    """Over the names of the rows."""
    heads: Sequence[Head]
    rows: Sequence[tuple[str, Sequence[Cell]]]


def page(package: str, template: str, *, fields: Mapping[str, str], sections: Mapping[str, str]) -> str:
    """Write a page whose sections are a template of a package.

    fields: version, made, title, kicker, headline, lead, contents, facts.
    """
    inner = resources.files(package).joinpath(template).read_text(encoding="utf-8")
    outer = resources.files("situs.plots").joinpath("page.html").read_text(encoding="utf-8")
    return Template(outer).substitute({**fields, "main": Template(inner).substitute(sections).rstrip("\n")})


def bullets(sentences: Iterable[str]) -> str:
    """Write sentences as items of a list."""
    return "\n".join(f"<li>{breakable(sentence)}</li>" for sentence in sentences)


def meanings(pairs: Iterable[tuple[str, str]]) -> str:
    """Write names and what they mean as items of a list of definitions."""
    return "\n".join(f"<dt>{breakable(name)}</dt><dd>{breakable(meaning)}</dd>" for name, meaning in pairs)


def facts(numbers: Iterable[tuple[str, str, str]]) -> str:
    """Write the numbers that readers ask for first: name, number, and what it counts."""
    return "\n".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(fact)} <small>{escape(more)}</small></dd></div>"
        for name, fact, more in numbers
    )


def grid_html(grid: Grid) -> str:
    """Write a table with its title."""
    about = f"<p>{escape(grid.about)}</p>\n" if grid.about else ""
    head = "".join(
        f'<th scope="col"{_attributes(_classes(each), each.explained)}><span>{escape(each.text)}</span></th>'
        for each in grid.heads
    )
    body = "\n".join(
        f'<tr><th scope="row">{broken(name)}</th>'
        + "".join(_field(each, cell) for each, cell in zip(grid.heads, cells, strict=True))
        + "</tr>"
        for name, cells in grid.rows
    )
    return (
        f'<h3 id="{grid.name}">{escape(grid.title)}</h3>\n{about}'
        f'<div class="scroll {grid.name.partition("-")[0]}" tabindex="0" role="region" '
        f'aria-labelledby="{grid.name}">\n<table>\n'
        f'<thead>\n<tr><th scope="col">{escape(grid.corner)}</th>{head}</tr>\n</thead>\n'
        f"<tbody>\n{body}\n</tbody>\n</table>\n</div>"
    )


def _classes(head: Head, tone: str = "") -> str:
    names = ("words" if head.words else "", "wide" if head.wide else "", tone)
    return " ".join(name for name in names if name)


def _field(head: Head, cell: Cell) -> str:
    small = f"<small>{escape(cell.small)}</small>" if cell.small else ""
    return f"<td{_attributes(_classes(head, cell.tone), cell.title)}>{escape(cell.text)}{small}</td>"


def _attributes(classes: str, title: str) -> str:
    given = {"class": classes, "title": title}
    return "".join(f' {name}="{escape(value)}"' for name, value in given.items() if value)


def figures_html(kinds: Mapping[Kind, Mapping[str, Figure]], reading: Mapping[str, str]) -> str:
    """Embed figures in a section, each four times: light and dark, for screens and for phones; "" where there are none.

    reading: how to read a figure, by its name or by how its name ends.
    """
    shown = "\n".join(
        _figure(name, {kind: each[name] for kind, each in kinds.items()}, _read(name, reading))
        for name in kinds[False, False]
    )
    if not shown:
        return ""
    return f'<section aria-labelledby="figures">\n<h2 id="figures">Figures</h2>\n{shown}\n</section>'


def _read(name: str, reading: Mapping[str, str]) -> str:
    return reading.get(name) or next((said for end, said in reading.items() if name.endswith(end)), "")


def _figure(name: str, kinds: Mapping[Kind, Figure], reading: str) -> str:
    sources = "".join(
        f'<source media="{media}" srcset="{_uri(kinds[kind])}" {_size(kinds[kind], kind[1])}>\n'
        for kind, media in (((True, True), f"{NIGHT} and {PHONE}"), ((True, False), NIGHT), ((False, True), PHONE))
    )
    plain = kinds[False, False]
    alternative = escape(str(plain.get_label()))
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


def broken(name: str) -> str:
    """Escape a method's name, so that it may go on in a new line where its parts end, and between the words of parts
    that are wider than the column of names on a phone, such as a_long_name or ALongName."""
    pieces = []
    for part in re.split(r"(?<=[+(/:&=,.])", name):
        wide = len(part.rstrip("+(/:&=,.")) > WIDEST
        pieces.append(re.split(r"(?<=_)|(?<=[a-z])(?=[A-Z])", part) if wide else [part])
    return "<wbr>".join(escape(piece) for several in pieces for piece in several)


def breakable(text: str) -> str:
    """Escape a text; long names of methods in it may go on in a new line as in tables."""
    return " ".join(broken(word) if len(word) > LONGEST else escape(word) for word in text.split(" "))


def named_together(heads: Sequence[str]) -> str:
    """Name columns together: those that differ in numbers only by the first and the last of them."""
    forms: dict[str, list[str]] = {}
    for head in heads:
        forms.setdefault(re.sub(r"\d[\d.,]*", "#", head), []).append(head)
    each = [" and ".join(named) if len(named) < 3 else f"{named[0]} to {named[-1]}" for named in forms.values()]
    return " and ".join(each) if len(each) < 3 else f"{', '.join(each[:-1])} and {each[-1]}"
