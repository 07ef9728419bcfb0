"""``situs list`` and ``situs show``: what there is, and what each encoding is."""

from __future__ import annotations

import argparse
import inspect
import json
from typing import TYPE_CHECKING, Any

import situs
from situs.cli.check import SIZES
from situs.registry import Entry

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_commands(commands: Commands) -> None:
    """Add both commands to the parser."""
    listing = commands.add_parser("list", help="list the encodings")
    listing.add_argument("--json", action="store_true", help="for programs")
    listing.set_defaults(run=run_list)
    show = commands.add_parser("show", help="show one encoding: place, paper, formula, parameters, dialects, options")
    show.add_argument("name", help="as situs list prints it")
    show.add_argument("--json", action="store_true", help="for programs")
    show.set_defaults(run=run_show)


def run_list(options: argparse.Namespace) -> int:
    """Print a line for each encoding."""
    entries = [situs.entry(name) for name in situs.names()]
    if options.json:
        print(json.dumps([summary(entry) for entry in entries], indent=2))
        return 0
    width, places = (max(len(getattr(entry, what)) for entry in entries) for what in ("name", "place"))
    for entry in entries:
        learned = "learned" if summary(entry)["learned"] else ""
        print(f"{entry.name:<{width}}  {entry.place:<{places}}  {learned:<7}  {entry.formula}")
    return 0


def run_show(options: argparse.Namespace) -> int:
    """Print all that is known about one encoding."""
    entry = situs.entry(options.name)
    facts = summary(entry)
    if options.json:
        print(json.dumps(facts, indent=2))
        return 0
    print(f"{entry.name}: {facts['summary']}\n")
    for label in ("class", "place", "paper", "formula"):
        print(f"{label:<8} {facts[label]}")
    print(f"{'learned':<8} {learned_in_words(facts['learned'])}")
    for number, (whose, choice) in enumerate(facts["dialects"].items()):
        print(f"{'' if number else 'dialects':<8} {whose}: {choice}")
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


def summary(entry: Entry) -> dict[str, Any]:
    """Collect an encoding's facts, as plain data; parameters have the shapes of the sizes that ``situs check`` uses."""
    meanings = option_meanings(entry)
    encoding = entry.build(**SIZES)
    return {
        "name": entry.name,
        "class": f"situs.{entry.cls.__name__}",
        "place": entry.place,
        "paper": entry.paper,
        "formula": entry.formula,
        "learned": {name: list(parameter.shape) for name, parameter in encoding.named_parameters()},
        "dialects": dict(entry.dialects),
        "tags": sorted(encoding.tags),
        "summary": inspect.getdoc(entry.cls) or "",
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


def option_meanings(entry: Entry) -> dict[str, str]:
    """Read the options' meanings from the constructor's docstring: ``name: meaning``, continued on indented lines."""
    meanings: dict[str, str] = {}
    name = ""
    for line in (inspect.getdoc(entry.cls.__init__) or "").splitlines():
        head, colon, rest = line.partition(": ")
        if colon and head in entry.options:
            name = head
            meanings[name] = rest
        elif name and line.startswith(" "):
            meanings[name] += " " + line.strip()
    return meanings
