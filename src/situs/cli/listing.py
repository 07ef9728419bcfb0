"""``situs list`` and ``situs show``: what there is, and what each encoding is."""

from __future__ import annotations

import argparse
import contextlib
import inspect
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import situs
from situs.cli.check import SIZES, find, printing_to_stderr
from situs.registry import ENCODINGS, SCALINGS, Entry, require_options
from situs.registry.families import FAMILIES

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


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
    width, places = max(map(len, rows)), max(len(place) for _, place, *_ in rows.values())
    print(f"{'name':<{width}}  {'acts on':<{places}}  {'':<7}  formula")
    for name, (_, place, learned, _, formula) in rows.items():
        print(f"{name:<{width}}  {place:<{places}}  {'learned' if learned else '':<7}  {formula}")
    print("\nScalings of rotary (w_i: frequency of pair i, s: factor, L: length of the text, L0: of those trained on)")
    width = max(map(len, SCALINGS))
    for name, each in SCALINGS.items():
        print(f"rotary+{name:<{width}}  {each.formula}")
    return 0


def run_show(options: argparse.Namespace) -> int:
    """Print all that is known about one encoding."""
    with printing_to_stderr() if options.json else contextlib.nullcontext():
        entry, written = find(options.name)
        facts = summary(entry, written)
    if options.json:
        print(json.dumps(facts, indent=2))
        return 0
    called = "" if options.name == entry.name else f"{options.name} is "
    print(f"{called}{entry.name}{': ' if facts['summary'] else ''}{facts['summary']}\n")
    for label in ("class", "place", "paper", "formula"):
        print(f"{label:<8} {facts[label] or 'not registered'}")
    print(f"{'learned':<8} {learned_in_words(facts['learned'])}")
    for number, (whose, choice) in enumerate(facts["dialects"].items()):
        print(f"{'' if number else 'dialects':<8} {whose}: {choice}")
    rows = {each.models: each for each in FAMILIES}
    for number, (models, call) in enumerate(facts["models"].items()):
        print(f"{'' if number else 'models':<8} {models}:\n{'':<11}{call}")
        if rows[models].attend:
            print(f"{'':<11}attend(..., {rows[models].attend})")
        if rows[models].note:
            print(f"{'':<11}note: {rows[models].note}")
    print("\noptions" if facts["options"] else "\nno options")
    width = max((len(option["name"]) for option in facts["options"]), default=0)
    for option in facts["options"]:
        default = "required" if option["required"] else f"default {option['default']}"
        print(f"  {option['name']:<{width}}  {default}")
        if option["meaning"]:
            print(f"  {'':<{width}}    {option['meaning']}")
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
