"""The command line: parse, call, print."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from situs.cli import check, compare, listing, plot


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``situs ...``; returns the exit status."""
    parser = argparse.ArgumentParser(prog="situs", description="Position encodings for Transformers.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in (listing, plot, check, compare):
        module.add_commands(commands)
    options = parser.parse_args(arguments)
    try:
        status: int = options.run(options)
        return status
    except (ValueError, TypeError) as problem:
        print(f"situs {options.command}: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130  # as shells say it; whoever was at work has told what is kept
