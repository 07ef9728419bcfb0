"""``situs convert``: a checkpoint with the other pairing of rotary's channels."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

PAIRINGS = ("interleaved", "halves")


def add_commands(commands: Commands) -> None:
    """Add the command to the parser."""
    convert = commands.add_parser(
        "convert",
        help="convert a checkpoint between the pairings of rotary",
        description="Write a copy of a checkpoint whose queries and keys pair neighbouring channels (interleaved), or "
        "the first half of a head with the second (halves). Biases, norms and LoRA adapters are converted with them. "
        "The source stays as it is.",
    )
    convert.add_argument(
        "source", metavar="SOURCE", type=Path, help="a folder with config.json and safetensors, or a LoRA adapter's"
    )
    convert.add_argument("target", metavar="TARGET", type=Path, help="the folder to make")
    convert.add_argument("--pairing", choices=PAIRINGS, required=True, help="the pairing that the target gets")
    convert.add_argument(
        "--source-pairing", choices=PAIRINGS, help="that of the source, if it is not what its configuration says"
    )
    convert.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="the configuration where the folder has none; for an adapter, its base model's",
    )
    convert.set_defaults(run=run_convert)


def run_convert(options: argparse.Namespace) -> int:
    """Convert, tell the files as they are begun, and what was done."""
    try:
        from situs.huggingface import convert
    except ImportError as problem:
        raise ValueError(str(problem)) from problem

    def progress(file: str, number: int, count: int) -> None:
        print(f"{number + 1} of {count}: {file}", file=sys.stderr, flush=True)

    made = convert(
        options.source, options.target, pairing=options.pairing, source_pairing=options.source_pairing,
        config=options.config, progress=progress,
    )  # fmt: skip
    print(made)
    return 0
