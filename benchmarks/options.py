"""What every benchmark is asked: how much to measure, and where to write it."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Literal, NamedTuple

Mode = Literal["quick", "default", "full"]


class Options(NamedTuple):
    """How much to measure, and where to write it."""

    mode: Mode
    out: Path


def parse(program: str, description: str) -> Options:
    """Read the command line; ``FULL=1`` in the environment is ``--full``."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=description)
    parser.add_argument("--quick", action="store_true", help="a smoke test: fewer cases, under a minute")
    parser.add_argument(
        "--full", action="store_true", help="every length, dtype and thread count, and the long rows; as FULL=1"
    )
    parser.add_argument("--out", type=Path, help="directory to write to; beside this file, or a new one with --quick")
    given = parser.parse_args()
    full = given.full or os.environ.get("FULL", "0") not in ("", "0")
    mode: Mode = "quick" if given.quick else "full" if full else "default"
    out = given.out or (Path(tempfile.mkdtemp(prefix="situs-bench-")) if mode == "quick" else Path(__file__).parent)
    out.mkdir(parents=True, exist_ok=True)
    return Options(mode, out)
