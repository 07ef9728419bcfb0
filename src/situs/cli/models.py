"""``situs inspect``, ``situs diff`` and ``situs extend``: what released models do with positions."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from situs.cli.writing import require_new, require_writable, write

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

ENGINES = ("transformers", "vllm", "llama.cpp")
METHODS = ("linear", "ntk", "dynamic", "yarn", "llama3", "longrope")
SOURCE = "a config.json, a folder with one, Meta's params.json, a GGUF file, or - for standard input"
PICTURES = (".png", ".svg", ".pdf")
WIDEST = 100


def add_commands(commands: Commands) -> None:
    """Add the three commands to the parser."""
    inspect = commands.add_parser(
        "inspect",
        help="tell what a released model's positions do at a length, and what to set",
        description="Tell what a model's positions do at a length, layer by layer, what each engine makes of its "
        "configuration, and what to set instead.",
    )
    inspect.add_argument("source", help=SOURCE)
    inspect.add_argument(
        "--target", type=_count, metavar="N", help="tokens of the text (default: what the model declares)"
    )
    inspect.add_argument("--engine", choices=ENGINES, default=ENGINES[0], help="whose reading of the file to inspect")
    inspect.add_argument("--pairs", action="store_true", help="list every pair of channels by itself")
    inspect.add_argument("--plot", type=Path, metavar="FILE", help="draw the spectrum: .png, .svg or .pdf")
    inspect.add_argument("--dark", action="store_true", help="draw for dark pages")
    inspect.add_argument("--json", action="store_true", help="print JSON, for programs")
    inspect.set_defaults(run=run_inspect)

    diff = commands.add_parser(
        "diff",
        help="compare what two models do with positions",
        description="Compare two configurations, or a configuration and an engine's reading of it. The exit status is "
        "0 where nothing differs, 1 where something does, and 2 where something cannot be read.",
    )
    diff.add_argument("a", help=SOURCE)
    diff.add_argument("b", help=f"the same, or one of {', '.join(ENGINES)} for that engine's reading of A")
    diff.add_argument("--length", type=_count, metavar="N", help="tokens within which to look for differences")
    diff.add_argument("--json", action="store_true", help="print JSON, for programs")
    diff.set_defaults(run=run_diff)

    extend = commands.add_parser(
        "extend",
        help="write a configuration for longer texts",
        description="Write a configuration for longer texts. Of --original, --target and --factor any two give the "
        "third; the original length is the configuration's own unless it is given.",
    )
    extend.add_argument("source", help=SOURCE)
    extend.add_argument("--target", type=_count, metavar="N", help="tokens of the longer texts")
    extend.add_argument("--method", choices=METHODS, help="the one that the model has if left out, or yarn")
    extend.add_argument("--factor", type=float, metavar="X", help="by which the length grows")
    extend.add_argument("--original", type=_count, metavar="N", help="tokens that the model was trained on")
    extend.add_argument(
        "--factors", type=Path, metavar="FILE", help="for longrope: JSON with short_factor, long_factor"
    )
    extend.add_argument("--out", type=Path, metavar="FILE", help="file to write; standard output if left out")
    extend.add_argument("--force", action="store_true", help="replace --out where it is there already")
    extend.set_defaults(run=run_extend)


def _count(text: str) -> int:
    """A number of tokens; 131072, 131_072 or 131,072."""
    try:
        number = int(text.replace(",", ""))
    except ValueError:
        number = 0
    if not 1 <= number <= 2**53:
        raise argparse.ArgumentTypeError(f"must be a number of tokens, such as 131072; got {text!r:.60}.")
    return number


def run_inspect(options: argparse.Namespace) -> int:
    """Print what a model's positions do at a length; draw them where asked."""
    out = None if options.plot is None else require_writable("--plot", options.plot, endings=PICTURES)
    from situs import models

    report = models.inspect(options.source, target=options.target, engine=options.engine)
    if options.json:
        print(json.dumps(report.to_dict(), indent=2))
    else:
        width = min(shutil.get_terminal_size((80, 24)).columns, WIDEST)
        print(report.render(width=width, colour=_colourful(), pairs=options.pairs))
    if out is not None:
        _draw(report, out, dark=options.dark)
    return 0


def _colourful() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def _draw(report: Any, out: Path, *, dark: bool) -> None:
    try:
        from situs.plots import style
    except ModuleNotFoundError as problem:
        missing = str(problem.name).partition(".")[0]
        raise ValueError(f"--plot needs {missing}. Install it: pip install 'situs[lab]'.") from problem
    write(style.image(report.figure(dark=dark), out.suffix.lower().removeprefix(".")), out)
    print(out, file=sys.stderr)


def run_diff(options: argparse.Namespace) -> int:
    """Print what differs; the exit status is that of ``diff``."""
    from situs import models

    engine: Any = options.b
    if engine in ENGINES and not Path(engine).exists():
        if options.a == "-":
            raise ValueError("A must be a file where B is an engine, since both read it; got standard input.")
        first, second = models.read(options.a), models.read(options.a, engine=engine)
    else:
        first, second = models.read(options.a), models.read(options.b)
    found = models.diff(first, second, length=options.length)
    print(json.dumps(found.to_dict(), indent=2) if options.json else found)
    served = second.main.lengths.served
    if served is not None and not options.json:
        print(f"{engine} serves {served:,} tokens by default.")
    return 1 if found else 0


def run_extend(options: argparse.Namespace) -> int:
    """Write the longer configuration; say beside it what changes."""
    from situs import models

    if options.out is not None:
        require_new("--out", require_writable("--out", options.out), force=options.force)
    factors = None
    if options.factors is not None:
        from situs.models.sources.strict import parse

        try:
            factors = parse(options.factors.read_bytes(), str(options.factors))
        except OSError as problem:
            raise ValueError(
                f"--factors must be a file that can be read; got {str(options.factors)!r}: {problem.strerror}."
            ) from None
    longer = models.extend(
        options.source, target=options.target, method=options.method, factor=options.factor, original=options.original,
        factors=factors,
    )  # fmt: skip
    text = json.dumps(longer.config, indent=2) + "\n"
    if options.out is None:
        print(text, end="")
    else:
        write(text.encode(), options.out)
    change = longer.change
    print(
        f"{longer.method} with factor {longer.factor:.6g}: from {longer.original:,} to {longer.target:,} tokens.\n"
        f"Below {change.length:,} tokens frequencies change by up to {100 * change.frequency:.3g} %, scores by up to "
        f"{change.score:.2g} (at distance {change.distance:,}; a token with itself has 1).",
        file=sys.stderr,
    )
    for note in longer.notes:
        print(f"Note: {note}.", file=sys.stderr)
    return 0
