"""``situs golden`` and ``situs verify``: exact numbers of a model, and what is wrong with a port of it."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from situs.cli.check import printing_to_stderr
from situs.cli.models import SOURCE
from situs.cli.writing import lines_of, require_new, require_writable, terminal_width, write

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

DIGITS = 18
"""Of a whole number: more than any position or length has."""


def add_commands(commands: Commands) -> None:
    """Add both commands to the parser."""
    golden = commands.add_parser(
        "golden",
        help="write exact numbers of a model's positions, for ports to compare with",
        description="Write exact numbers of a model's positions, computed in float64, for tests of a port to another "
        "language or engine: tables, rotated vectors, biases, scores. docs/golden.md describes the file.",
    )
    golden.add_argument("source", metavar="SOURCE", help=SOURCE)
    golden.add_argument("--out", required=True, metavar="FILE", help="FILE.json, FILE.npz or FILE.safetensors")
    golden.add_argument("--force", action="store_true", help="replace --out where it is there already")
    _add_choices(golden)
    golden.set_defaults(run=run_golden)
    verify = commands.add_parser(
        "verify",
        help="compare a port with a model's exact numbers, and name its mistake",
        description="Compare what a port computes with a model's exact numbers. Where they differ by more than "
        "rounding, search for the mistake that explains it, and say what to correct. The exit status is 0 where the "
        "port agrees, 1 where it does not, and 2 where something cannot be read.",
    )
    verify.add_argument("source", metavar="SOURCE", help=SOURCE)
    verify.add_argument(
        "name",
        metavar="PORT",
        help="a golden file into which the port has written its own arrays, any of them; or FILE.py:FUNCTION, which is "
        "called with the inputs of each group of layers and returns arrays by name",
    )
    verify.add_argument(
        "--dtype", metavar="DTYPE",
        help="what the port computes in: float64, float32, float16 or bfloat16; found from its numbers if left out",
    )  # fmt: skip
    verify.add_argument("--json", action="store_true", help="print JSON, for programs")
    _add_choices(verify)
    verify.set_defaults(run=run_verify)


def _add_choices(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--positions", metavar="N,N,...", help="positions of the tokens; 0,1,4095,65536,1000000 if left out"
    )
    parser.add_argument(
        "--layers", metavar="N,N-N,...", help="layers to compute, with those that equal them; all if left out"
    )
    parser.add_argument(
        "--length", metavar="N",
        help="tokens of the sequence, for models whose frequencies depend on it; a short and a long one if left out",
    )  # fmt: skip


def run_golden(options: argparse.Namespace) -> int:
    """Compute, write the file, and say what is in it."""
    from situs import models
    from situs.models.oracle.files import suffix_of

    written = Path(options.out)
    suffix = suffix_of(written, "--out")
    require_new("--out", require_writable("--out", written), force=options.force)
    golden = models.golden(options.source, **_chosen(options))
    write(golden.to_bytes(suffix), written)
    groups = [f"{name}.*  {group['said']}" for name, group in golden.groups()]
    size = written.stat().st_size / 1000
    told = f"{len(golden.inputs)} inputs and {len(golden.outputs)} outputs"
    print(lines_of([f"{written}: {told} of {golden.meta['model_type']}, {size:,.0f} kB"]))
    if groups:
        print(lines_of(groups, indent="  "))
    return 0


def run_verify(options: argparse.Namespace) -> int:
    """Compare, print the verdict, and return 1 where the port disagrees."""
    from situs import models

    with printing_to_stderr() if options.json else contextlib.nullcontext():
        verdict = models.verify(options.source, options.name, dtype=options.dtype, **_chosen(options))
    print(verdict.to_json() if options.json else verdict.render(width=terminal_width()))
    return 0 if verdict.agrees else 1


def _chosen(options: argparse.Namespace) -> dict[str, Any]:
    """The positions, layers and length that were asked for, by name."""
    found: dict[str, Any] = {}
    if options.positions is not None:
        found["positions"] = _numbers("--positions", options.positions)
    if options.layers is not None:
        found["layers"] = _numbers("--layers", options.layers)
    if options.length is not None:
        if not options.length.strip().isdecimal() or len(options.length) > DIGITS:
            raise ValueError(
                f"--length must be one whole number of at most {DIGITS} digits, since it counts the tokens of a "
                f"sequence; got {options.length!r:.60}."
            )
        found["length"] = int(options.length)
    return found


def _numbers(option: str, text: str) -> list[int]:
    """Whole numbers with commas between them, and ranges of them: 0,3-5."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(
                f"{option} must be whole numbers with commas between them, or ranges such as 0-4; got {text!r:.60}."
            )
        if max(len(first), len(last)) > DIGITS:
            raise ValueError(f"{option} must be numbers of at most {DIGITS} digits; got {part!r:.60}.")
        low, high = int(first), int(last or first)
        if high < low:
            raise ValueError(f"{option} must have ranges that begin with the smaller number; got {part!r}.")
        if high - low >= 100_000:
            raise ValueError(f"{option} must be at most 100,000 numbers; got {part!r}.")
        found += range(low, high + 1)
    return found
