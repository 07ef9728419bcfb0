"""``situs list`` and ``situs show``: what there is, and what each encoding is."""

from __future__ import annotations

import argparse
import contextlib
import inspect
import json
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import situs
from situs.cli.check import SIZES, find, printing_to_stderr
from situs.registry import ENCODINGS, SCALINGS, Entry, require_options
from situs.registry.families import FAMILIES

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


BESIDE = 75
"""Columns of a terminal from which formulas stand beside names; in narrower ones they stand below."""


def add_commands(commands: Commands) -> None:
    """Add both commands to the parser."""
    listing = commands.add_parser("list", help="list the encodings")
    listing.add_argument(
        "--json",
        action="store_true",
        help="print JSON, for programs: what the table shows, class and paper; all else is in situs show NAME --json",
    )
    listing.set_defaults(run=run_list)
    show = commands.add_parser(
        "show", help="show one encoding: place, paper, formula, parameters, dialects, models, options"
    )
    show.add_argument("name", help="a name that situs list shows, rotary+yarn, MODULE:CLASS, or FILE.py")
    show.add_argument("--json", action="store_true", help="print JSON, for programs")
    show.set_defaults(run=run_show)


def run_list(options: argparse.Namespace) -> int:
    """Print a line for each encoding and each scaling of rotary, or all of them as JSON; without loading torch."""
    rows = {name: (f"situs.{each.cls}", *each[2:]) for name, each in ENCODINGS.items()}
    for name in situs.names():
        if name not in ENCODINGS:  # registered by a program that calls this
            entry = situs.entry(name)
            rows[name] = _class(entry), entry.place, bool(summary(entry)["learned"]), entry.paper, entry.formula
    rows = dict(sorted(rows.items()))
    if options.json:
        rows |= {f"rotary+{name}": (_scaled_by(each.cls), *each[2:]) for name, each in SCALINGS.items()}
        keys = ("name", "class", "place", "learned", "paper", "formula")
        print(json.dumps([dict(zip(keys, (name, *row), strict=True)) for name, row in rows.items()], indent=2))
        return 0
    told = [(name, place, "learned" * learned, formula) for name, (_, place, learned, _, formula) in rows.items()]
    width = _width()
    if width is None or width >= BESIDE:
        _print_rows([("name", "acts on", "", "formula"), *told])
    else:
        for head, (*_, formula) in zip(_rows([row[:3] for row in told], width), told, strict=True):
            print(head)
            _print(formula, "  ")
    print()
    _print("Scalings of rotary (w_i: frequency of pair i, s: factor, L: length of the text, L0: of those trained on)")
    _print_rows([(f"rotary+{name}", each.formula) for name, each in SCALINGS.items()])
    return 0


def _width() -> int | None:
    """The columns of the terminal; None where a program or a file gets the lines, which are then left whole."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _print_rows(rows: Sequence[Sequence[str]]) -> None:
    """Print rows as a table, whose long cells go on in the next line where the terminal has no room."""
    print("\n".join(_rows(rows, _width())))


def _rows(rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    from situs.models.wrapping import tabled

    return ["\n".join(lines) for lines in tabled(rows, sys.maxsize if width is None else width)]


def _print(text: str, head: str = "") -> None:
    """Print a text behind its head, below which it goes on where the terminal has no room."""
    width = _width()
    if width is None:
        print(head + text)
        return
    told = textwrap.wrap(
        text, max(width, len(head) + 20), initial_indent=head, subsequent_indent=" " * len(head),
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    print("\n".join(told or [head]))


def run_show(options: argparse.Namespace) -> int:
    """Print all that is known about one encoding."""
    with printing_to_stderr() if options.json else contextlib.nullcontext():
        entry, written = find(options.name)
        facts = summary(entry, written)
    if options.json:
        print(json.dumps(facts, indent=2))
        return 0
    called = "" if options.name == entry.name else f"{options.name} is "
    _print(f"{called}{entry.name}{': ' if facts['summary'] else ''}{facts['summary']}")
    print()
    for label in ("class", "place", "paper", "formula"):
        _print(facts[label] or "not registered", f"{label:<9}")
    _print(learned_in_words(facts["learned"]), "learned  ")
    for number, (whose, choice) in enumerate(facts["dialects"].items()):
        _print(f"{whose}: {choice}", " " * 9 if number else "dialects ")
    rows = {each.models: each for each in FAMILIES}
    for number, (models, call) in enumerate(facts["models"].items()):
        _print(f"{models}:", " " * 9 if number else "models   ")
        _print(call, " " * 11)
        if rows[models].attend:
            _print(f"attend(..., {rows[models].attend})", " " * 11)
        if rows[models].note:
            _print(f"note: {rows[models].note}", " " * 11)
    print("\noptions" if facts["options"] else "\nno options")
    width = max((len(option["name"]) for option in facts["options"]), default=0)
    for option in facts["options"]:
        default = "required" if option["required"] else f"default {option['default']}"
        _print(default, f"  {option['name']:<{width}}  ")
        if option["meaning"]:
            _print(option["meaning"], " " * (width + 6))
    return 0


def learned_in_words(shapes: dict[str, list[int]]) -> str:
    """Say the parameters and their shapes, at the sizes that ``situs check`` uses."""
    if not shapes:
        return "nothing"
    named = ", ".join(f"{name} {' x '.join(map(str, shape)) or 'number'}" for name, shape in shapes.items())
    return f"{named}  (at {', '.join(f'{name}={size}' for name, size in SIZES.items())}, as far as it takes them)"


def summary(entry: Entry, written: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Collect an encoding's facts, as plain data; parameters have the shapes of the sizes that ``situs check`` uses,
    and of options that were written with the name."""
    written = written or {}
    require_options(entry.name, entry.options, written)
    meanings = option_meanings(entry)
    encoding = (entry if entry.scaling is None else situs.entry("rotary")).build(**{**SIZES, **written})
    return {
        "name": entry.name,
        "class": _class(entry),
        "place": entry.place,
        "paper": entry.paper,
        "formula": entry.formula,
        "learned": {name: list(parameter.shape) for name, parameter in encoding.named_parameters()},
        "dialects": dict(entry.dialects),
        "models": {each.models: each.encoding for each in FAMILIES if entry.name in each.methods},
        "tags": sorted(encoding.tags),
        "summary": inspect.cleandoc((entry.scaling or entry.cls).__doc__ or "").partition(">>>")[0].rstrip(),
        "options": [
            {
                "name": name,
                "required": parameter.default is inspect.Parameter.empty,
                "default": None if parameter.default is inspect.Parameter.empty else repr(parameter.default),
                "meaning": meanings.get(name, ""),
            }
            for name, parameter in entry.options.items()
        ],
    }


def _class(entry: Entry) -> str:
    """Say how the class is reached in Python."""
    cls = entry.cls
    if not cls.__module__.startswith("situs."):
        return f"{cls.__qualname__} in {inspect.getsourcefile(cls)}"
    return f"situs.{cls.__name__}" if entry.scaling is None else _scaled_by(entry.scaling.__name__)


def _scaled_by(scaling: str) -> str:
    """Say how rotary with a scaling is made in Python."""
    return f"situs.Rotary, with scaling=situs.{scaling}(...)"


def option_meanings(entry: Entry) -> dict[str, str]:
    """Read the options' meanings from the constructor's docstring: ``name: meaning``, continued on indented lines."""
    from situs.encodings import stretch  # loads torch, which situs list needs no more than its formulas

    meanings: dict[str, str] = {}
    name = ""
    for line in (inspect.getdoc(entry.cls.__init__) or "").splitlines():
        head, colon, rest = line.partition(": ")
        if colon and head in entry.options:
            name = head
            meanings[name] = rest
        elif name and line.startswith(" "):
            meanings[name] += " " + line.strip()
    return meanings if entry.scaling is None else {**stretch.MEANINGS, **meanings}
