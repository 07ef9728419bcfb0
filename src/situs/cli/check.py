"""``situs check``: run the contract over an encoding of ours, or over one of your own."""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import sys
from collections.abc import Iterator
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import situs
from situs.registry import Entry, is_own
from situs.registry.own import require_imported

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

# What a registered encoding is checked at when no options are given, and what others get that must have them.
SIZES = {"dim": 32, "head_dim": 16, "num_heads": 2, "max_length": 400, "size": (20, 20)}
SCALED = {"factor": 4.0, "original_length": 64, "fraction": 0.5}
SCALED |= {"window": 5, "group": 3, "chunk_size": 9, "local_size": 2}


def add_commands(commands: Commands) -> None:
    """Add the command to the parser."""
    check = commands.add_parser("check", help="check that an encoding keeps the contract")
    check.add_argument(
        "name",
        nargs="?",
        help="a name that situs list shows, rotary+yarn, MODULE:CLASS, or FILE.py; all encodings of Situs if left out",
    )
    check.add_argument(
        "options", nargs="*", metavar="OPTION=VALUE", help="arguments of the encoding, as Python literals"
    )
    check.add_argument("--json", action="store_true", help="print JSON, for programs")
    check.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Check, print every failure, and return 1 if there is one."""
    with printing_to_stderr() if options.json else contextlib.nullcontext():
        if options.name is None:
            encodings = [situs.entry(name).build(**SIZES) for name in situs.names()]
        else:
            encodings = [load(options.name, dict(parse(option) for option in options.options))]
        reports = [situs.check_encoding(encoding, raise_on_failure=False) for encoding in encodings]
    if options.json:
        rows = [{"encoding": r.encoding, "passed": r.passed, "failures": r.failures} for r in reports]
        print(json.dumps(rows, indent=2))
    else:
        print("\n".join(map(str, reports)))
    return 0 if all(report.ok for report in reports) else 1


def parse(option: str) -> tuple[str, Any]:
    """Read ``head_dim=64`` as a name and a value; a value that is no Python literal is text."""
    name, equals, text = option.partition("=")
    if not equals or not name.isidentifier():
        raise ValueError(f"options must be written NAME=VALUE, such as head_dim=64; got {option!r}.")
    try:
        return name, ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return name, text


def load(name: str, options: dict[str, Any]) -> situs.Encoding:
    """Make an encoding by name; sizes that it takes and was not given are those that checks use.

    Of a class of one's own, and where options are given, only sizes without a default are filled in.
    """
    found, written = find(name)
    options = {**written, **options}
    alone = not options and not is_own(found.name)
    takes = {key: each.default for key, each in found.options.items()}
    sizes = {key: size for key, size in SIZES.items() if key in takes and (alone or takes[key] is Parameter.empty)}
    lengths = {key: size for key, size in SCALED.items() if found.scaling is not None and key in takes}
    if "target_length" in options and "factor" not in options:
        del lengths["factor"]
    return found.make(**{**sizes, **lengths, **options})


def find(name: str) -> tuple[Entry, dict[str, Any]]:
    """Look up an encoding, and the options that stand in brackets behind its name; raises in one sentence where a file
    of one's own cannot be imported.

    >>> found, options = find("rotary+llama3(factor=8, original_length=64)")
    >>> found.name, options
    ('rotary+llama3', {'factor': 8, 'original_length': 64})
    """
    options: dict[str, Any] = {}
    if "(" in name and not Path(name).is_file():
        from situs.lab.naming import parse as taken_apart  # needs torch, which situs list does without

        method = taken_apart(name)
        if len(method.parts) > 1 or len(method.added) > 1:
            raise ValueError(f"name must be that of one encoding, since it is looked at alone; got {name!r}.")
        parts = (*method.parts, *method.additions)
        name = "+".join(part.name for part in parts)
        options = {key: value for part in parts for key, value in part.options.items()}
    if is_own(name):
        require_imported(name)
    return situs.entry(name), options


@contextlib.contextmanager
def printing_to_stderr() -> Iterator[None]:
    """Send what code of one's own prints to stderr, so that stdout is JSON and nothing else."""
    with contextlib.redirect_stdout(sys.stderr):
        yield
