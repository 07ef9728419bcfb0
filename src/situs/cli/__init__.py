"""The command line: parse, call, print."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import situs
from situs.cli.interrupting import TerminatedError, leaving_at_ctrl_c, stop_printing
from situs.registry.origins import place_of, sentence_of


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
        from situs.cli import check, compare, convert, evaluate, golden, listing, models, plot

    parser = argparse.ArgumentParser(prog="situs", description="Position encodings for Transformers.")
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in (listing, plot, check, compare, models, golden, convert, evaluate):
        module.add_commands(commands)
    try:
        options, rest = _parsed(parser, arguments)
    except BrokenPipeError:
        return stop_printing()
    if hasattr(options, "options"):  # argparse takes NAME=VALUE before flags only, people write it anywhere
        options.options += [each for each in rest if "=" in each and not each.startswith("-")]
        rest = [each for each in rest if each not in options.options]
    if rest:
        command: argparse.ArgumentParser = commands.choices[options.command]
        command.error(f"unrecognized arguments: {' '.join(rest)}{compare.cure(command, rest, options)}")
    try:
        status: int = options.run(options)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        if options.command in ("compare", "evaluate"):
            raise  # it may be a worker's
        return stop_printing()
    except KeyboardInterrupt as stop:
        place = _own_place(stop, options)
        if str(stop) or place:
            print(f"situs {options.command}: stopped {str(stop) or f'at {place}'}.", file=sys.stderr)
        raise
    except (Exception, SystemExit) as problem:
        place = _own_place(problem, options)
        if not place and not isinstance(problem, (ValueError, TypeError)):
            raise
        said = f"{sentence_of(problem, place)}." if place else str(problem)
        print(f"situs {options.command}: {said}", file=sys.stderr)
        return 2


def _parsed(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    """Parse; help and the version are printed here, and the program ends."""
    try:
        return parser.parse_known_args(arguments)
    except SystemExit:
        sys.stdout.flush()  # or Python would find at its end that the reader has left, and say so
        raise


def _own_place(problem: BaseException, options: argparse.Namespace) -> str:
    """Find the line of one's own code that an error came through, where a class of one's own is named.

    Not for ``situs compare``, which runs such code in workers and says itself what became of them.
    """
    named = str(getattr(options, "name", None) or getattr(options, "names", None) or "")
    return place_of(problem, with_code=True) if ":" in named or ".py" in named else ""


class _Version(argparse.Action):
    """Print the version, which is read only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"situs {situs.__version__}")
        parser.exit()
