"""The command line: parse, call, print."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import situs
from situs.cli.interrupting import TerminatedError, leaving_at_ctrl_c, stop_printing


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``situs ...``; returns the exit status."""
    try:
        return _run(arguments)
    except TerminatedError:
        return 143
    except KeyboardInterrupt:
        return 130  # as shells say it; whoever was at work has told what is kept


def _run(arguments: Sequence[str] | None) -> int:
    with leaving_at_ctrl_c():
        from situs.cli import check, compare, listing, plot

    parser = argparse.ArgumentParser(prog="situs", description="Position encodings for Transformers.")
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in (listing, plot, check, compare):
        module.add_commands(commands)
    options, rest = parser.parse_known_args(arguments)
    if hasattr(options, "options"):  # argparse takes NAME=VALUE before flags only, people write it anywhere
        options.options += [each for each in rest if "=" in each and not each.startswith("-")]
        rest = [each for each in rest if each not in options.options]
    if rest:
        cure = options.cure(rest) if hasattr(options, "cure") else ""
        parser.error(f"unrecognized arguments: {' '.join(rest)}{cure}")
    try:
        status: int = options.run(options)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        if options.command == "compare":
            raise  # it may be a worker's
        return stop_printing()
    except (ValueError, TypeError) as problem:
        print(f"situs {options.command}: {problem}", file=sys.stderr)
        return 2


class _Version(argparse.Action):
    """Print the version, which is read only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"situs {situs.__version__}")
        parser.exit()
