"""``situs inspect``, ``diff``, ``fingerprint`` and ``extend``: what released models do with positions."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from situs.cli.writing import lines_of, require_new, require_writable, terminal_width, write
from situs.registry.spelling import did_you_mean

if TYPE_CHECKING:
    from situs.models import ModelPositions

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

ENGINES = ("transformers", "vllm", "llama.cpp")
METHODS = ("linear", "ntk", "dynamic", "yarn", "llama3", "longrope")
SOURCE = "a config.json, a folder with one, Meta's params.json, a GGUF file, or - for standard input"
PICTURES = (".png", ".svg", ".pdf")


def add_commands(commands: Commands) -> None:
    """Add the four commands to the parser."""
    inspect = commands.add_parser(
        "inspect",
        help="tell what a released model's positions do at a length, and what to set",
        description="Tell what a model's positions do at a length, layer by layer, what each engine makes of its "
        "configuration, and what to set instead.",
    )
    inspect.add_argument("source", metavar="SOURCE", help=SOURCE)
    inspect.add_argument(
        "--target", type=_count, metavar="N", help="tokens of the text (default: what the model declares)"
    )
    inspect.add_argument("--engine", choices=ENGINES, default=ENGINES[0], help="whose reading of the file it is")
    inspect.add_argument("--pairs", action="store_true", help="list every pair of channels by itself")
    inspect.add_argument("--plot", type=Path, metavar="FILE", help="draw the spectrum: .png, .svg or .pdf")
    inspect.add_argument("--dark", action="store_true", help="draw it for dark pages")
    inspect.add_argument("--json", action="store_true", help="print JSON, for programs")
    inspect.set_defaults(run=run_inspect)

    diff = commands.add_parser(
        "diff",
        help="compare what two models do with positions",
        description="Compare two configurations, or a configuration and an engine's reading of it. The exit status is "
        "0 where nothing differs, 1 where something does, and 2 where something cannot be read.",
    )
    diff.add_argument("a", metavar="A", help=SOURCE)
    diff.add_argument("b", metavar="B", help=f"the same, or one of {', '.join(ENGINES)} for that engine's reading of A")
    diff.add_argument("--length", type=_count, metavar="N", help="tokens within which to look for differences")
    diff.add_argument("--json", action="store_true", help="print JSON, for programs")
    diff.set_defaults(run=run_diff)

    fingerprint = commands.add_parser(
        "fingerprint",
        help="print a short hash of what a model does with positions",
        description="Print a short hash of what a model does with positions: 16 hexadecimal digits, the same on every "
        "machine and for every file that says the same in other words. A trainer and a server compare theirs to see "
        "whether they agree. With a second source, the exit status is 0 where both agree, 1 where they differ, and 2 "
        "where one cannot be read.",
    )
    fingerprint.add_argument("a", metavar="SOURCE", help=SOURCE)
    fingerprint.add_argument(
        "b", metavar="OTHER", nargs="?",
        help=f"another source to compare with, or one of {', '.join(ENGINES)} for that engine's reading of SOURCE",
    )  # fmt: skip
    fingerprint.add_argument("--json", action="store_true", help="print JSON, for programs")
    fingerprint.set_defaults(run=run_fingerprint)

    extend = commands.add_parser(
        "extend",
        help="write a configuration for longer texts",
        description="Write a configuration for longer texts. Of --original, --target and --factor any two give the "
        "third; the original length is the configuration's own unless it is given.",
    )
    extend.add_argument("source", metavar="SOURCE", help=SOURCE)
    extend.add_argument("--target", type=_count, metavar="N", help="tokens of the longer texts")
    extend.add_argument("--method", choices=METHODS, help="if left out, the one that the model has, or yarn")
    extend.add_argument("--factor", type=float, metavar="X", help="how many times longer texts become")
    extend.add_argument("--original", type=_count, metavar="N", help="tokens that the model was trained on")
    extend.add_argument(
        "--factors", type=Path, metavar="FILE", help="for longrope: a JSON file with short_factor and long_factor"
    )
    extend.add_argument("--out", type=Path, metavar="FILE", help="file to write; printed if left out")
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
        print(report.render(width=terminal_width(), colour=_colourful(), pairs=options.pairs))
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
        raise ValueError(
            f"--plot needs {missing}. Install it: pip install 'situs[lab]', or '.[lab]' in the repository."
        ) from problem
    write(style.image(report.figure(dark=dark), out.suffix.lower().removeprefix(".")), out)
    print(out, file=sys.stderr)


def run_diff(options: argparse.Namespace) -> int:
    """Print what differs; the exit status is that of ``diff``."""
    from situs import models

    first, second = _both(options.a, options.b, "A", "B")
    found = models.diff(first, second, length=options.length)
    print(json.dumps(found.to_dict(), indent=2) if options.json else found.render(width=terminal_width()))
    served = second.main.lengths.served
    if served is not None and not options.json:
        print(lines_of([f"{options.b} serves {served:,} tokens by default."]))
    return 1 if found else 0


def _both(a: str, b: str, *names: str) -> tuple[ModelPositions, ModelPositions]:
    """Read two sources, or one of them as an engine does; ``names`` are what errors call them."""
    from situs import models

    engine: Any = b
    if engine not in ENGINES or Path(engine).exists():
        meant = "" if b == "-" or Path(b).exists() else did_you_mean(b, ENGINES)
        if meant:
            raise ValueError(
                f"{names[1]} must be a file, a folder or one of {', '.join(ENGINES)}, since {names[0]} is compared "
                f"with it; got {b!r}.{meant}"
            )
        return models.read(a), models.read(b)
    if a == "-":
        raise ValueError(
            f"{names[0]} must be a file where {names[1]} is an engine, since both read it; got standard input."
        )
    return models.read(a), models.read(a, engine=engine)


def run_fingerprint(options: argparse.Namespace) -> int:
    """Print one fingerprint, or two and whether they are the same by the exit status."""
    from situs import models

    if options.b is None:
        found = [models.fingerprint(options.a)]
    else:
        found = list(map(models.fingerprint, _both(options.a, options.b, "SOURCE", "OTHER")))
    same = len(set(found)) == 1
    if options.json:
        sources = [options.a] if options.b is None else [options.a, options.b]
        rows = [{"source": source, "fingerprint": each} for source, each in zip(sources, found, strict=True)]
        print(json.dumps({"fingerprints": rows, "same": same}, indent=2))
    elif options.b is None:
        print(found[0])
    else:
        print(f"{found[0]}  {options.a}\n{found[1]}  {options.b}")
    return 0 if same else 1


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
    told = [
        f"{longer.method} with factor {longer.factor:.6g}: from {longer.original:,} to {longer.target:,} tokens.",
        str(longer.change),
        *(f"Note: {note}." for note in longer.notes),
    ]
    print(lines_of(told), file=sys.stderr)
    return 0
