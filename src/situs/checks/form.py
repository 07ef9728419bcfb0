"""The form of an encoding, asked before everything else: a class that lacks it would fail every check in torch's words.

Also where a user's class is written, so that a report leads there.
"""

from __future__ import annotations

import inspect
import linecache
import traceback
from pathlib import Path

from situs.checks.bench import Bench
from situs.encodings.base import Encoding, InputEncoding, QueryKeyEncoding
from situs.encodings.bias import BiasEncoding
from situs.encodings.score import ScoreEncoding

TAKES: dict[type, tuple[str, ...]] = {
    InputEncoding: ("x", "positions"),
    QueryKeyEncoding: ("x", "positions", "role"),
}
"""What forward must take, by where an encoding acts."""


def is_well_formed(bench: Bench) -> None:
    """It keeps its options, has its sizes, takes what attention hands over, and runs."""
    encoding = bench.encoding
    _ = encoding.config  # raises with the cure where an option is not kept under its name
    _require_heads(encoding)
    _require_forward(encoding)
    count = bench.length(6)
    bench.encode(bench.tokens(count), bench.positions(count))


def _require_heads(encoding: Encoding) -> None:
    """Raise unless an encoding of the scores has its number of heads."""
    heads: int | None = encoding.num_heads
    if isinstance(encoding, (BiasEncoding, ScoreEncoding)) and heads is None:
        raise AssertionError(
            "it has no num_heads, and an encoding of the scores is made for a number of heads. Take num_heads in "
            "__init__ and write self.num_heads = num_heads"
        )


def _require_forward(encoding: Encoding) -> None:
    """Raise unless forward takes what attention hands over, by name."""
    for kind, names in TAKES.items():
        if not isinstance(encoding, kind):
            continue
        parameters = inspect.signature(type(encoding).forward).parameters
        if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
            continue
        missing = [name for name in names[1:] if name not in parameters]
        if missing:
            wanted = 'self, x, positions=None, *, role="query"' if "role" in names else "self, x, positions=None"
            reason = (
                "since attention says whether it hands over queries or keys"
                if missing == ["role"]
                else "since attention hands them over"
            )
            raise AssertionError(
                f"forward does not take {' and '.join(missing)}, {reason}. Write def forward({wanted})"
            )


def where(encoding: Encoding) -> str:
    """Say file and line of a user's class; nothing for a class of ours, or one that was typed into a shell."""
    cls = type(encoding)
    if cls.__module__.startswith("situs."):
        return ""
    try:
        file, (_, line) = inspect.getsourcefile(cls), inspect.getsourcelines(cls)
    except (OSError, TypeError):
        return ""
    return "" if file is None else f"{_short(file)}:{line}"


def raised_at(problem: BaseException, encoding: Encoding) -> str:
    """Say which line of the user's own file an error comes from, and what stands there."""
    try:
        file = inspect.getsourcefile(type(encoding))
    except TypeError:  # typed into a shell
        return ""
    if file is None or type(encoding).__module__.startswith("situs."):
        return ""
    lines = [
        frame.lineno for frame in traceback.extract_tb(problem.__traceback__) if frame.filename == file and frame.lineno
    ]
    if not lines:
        return ""
    return f" at {_short(file)}:{lines[-1]}, `{linecache.getline(file, lines[-1]).strip()}`"


def _short(file: str) -> str:
    """Write a path as seen from the working directory, where it lies in it."""
    path = Path(file).resolve()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
