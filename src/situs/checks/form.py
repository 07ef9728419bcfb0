"""The form of an encoding, asked before everything else: a class that lacks it would fail every check in torch's words.

Also where a user's class is written, so that a report leads there.
"""

from __future__ import annotations

import contextlib
import inspect
import linecache
import math
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from situs.arguments import told
from situs.checks.bench import Bench
from situs.encodings.base import Encoding, InputEncoding, QueryKeyEncoding
from situs.encodings.bias import BiasEncoding, OffsetBias, PairBias
from situs.encodings.score import ScoreEncoding
from situs.encodings.value_map import ValueMap
from situs.registry.origins import short

TAKES: dict[type, tuple[str, ...]] = {
    InputEncoding: ("x", "positions"),
    QueryKeyEncoding: ("x", "positions", "role"),
    ValueMap: ("x", "positions", "role"),
}
"""What forward must take, by where an encoding acts."""

PER_HEAD = "Index what each head has with head: a[head]."


def is_well_formed(bench: Bench) -> None:
    """It keeps its options, has its sizes, takes what attention hands over, and runs."""
    encoding = bench.encoding
    _ = encoding.config  # raises with the cure where an option is not kept under its name
    _require_heads(encoding)
    _require_forward(encoding)
    require_finite(bench)


def require_finite(bench: Bench) -> None:
    """Raise unless the encoding runs on a short text and gives finite numbers there, and on a longer one if it runs."""
    _require_rule(bench.encoding)
    count, longer = bench.length(6), bench.length(64)
    found = bench.encode(bench.tokens(count), bench.positions(count))
    with contextlib.suppress(Exception):  # other checks say where it ends
        found, count = bench.encode(bench.tokens(longer), bench.positions(longer)), longer
    wrong = (~torch.isfinite(found.detach())).nonzero().tolist()
    if wrong:
        _refuse(bench, found, wrong, bench.positions(count).ids[0].tolist())


def _refuse(bench: Bench, found: Tensor, wrong: list[list[int]], ids: list[Any]) -> None:
    """Say where a result is not finite, and what to change."""
    if isinstance(bench.encoding, (BiasEncoding, ScoreEncoding)):
        # (batch, heads, queries, keys), the nearest key first
        index = min(wrong, key=lambda each: (abs(each[-1] - each[-2]), each))
        head, query, key = index[-3:]
        if isinstance(bench.encoding, OffsetBias) and bench.encoding.axes == 1:
            place = f"its bias is {{}} at offset {ids[key] - ids[query]}, head {head}"
            reason = "offset is negative for keys before the query, and 0 at the query itself"
        else:
            place = f"what it adds to scores is {{}} for the query at position {ids[query]} and the key at {ids[key]}"
            place, reason = f"{place}, head {head}", "positions begin at 0"
    else:
        index = wrong[0]
        place, reason = f"its result is {{}} at position {ids[index[-2]]}", "positions begin at 0"
    value = float(found[tuple(index)])
    cure = f"Take no root or logarithm of a negative number, and divide by nothing that can be 0: {reason}"
    if value == -math.inf and isinstance(bench.encoding, BiasEncoding):
        cure = (
            "A bias is finite: take no logarithm of 0, and leave masks to attention, which takes causal, "
            "window and mask"
        )
    raise AssertionError(f"{place.format(value)}. {cure}")


def _require_rule(encoding: Encoding) -> None:
    """Raise unless the rule of a bias can be asked for, and gives a function that takes what it will be given."""
    if not isinstance(encoding, (OffsetBias, PairBias)):
        return
    of_pairs = isinstance(encoding, PairBias)
    wanted = ["query", "key", "head"] if of_pairs else [*["offset"] * encoding.axes, "head"]
    listed = ", ".join(wanted)
    if not _takes(encoding.rule, 2):
        parameters = ", ".join(inspect.signature(type(encoding).rule).parameters)
        raise AssertionError(
            f"rule must take (self, device, dtype), since attention hands them over; got ({parameters})"
            f"{_line_of(encoding.rule)}. Write def rule(self, device, dtype)"
        )
    rule: object = encoding.rule(torch.device("cpu"), torch.float32)
    if not callable(rule):
        cure = "Is a return missing?" if rule is None else f"Write return lambda {listed}: f({listed})"
        raise AssertionError(
            f"rule(self, device, dtype) must return a function of ({listed}); got "
            f"{'None' if rule is None else told(rule)}{_line_of(encoding.rule)}. {cure}"
        )
    if not _takes(rule, len(wanted)):
        raise AssertionError(
            f"rule(self, device, dtype) must return a function of ({listed}), since a bias has a number for each; got "
            f"one of ({', '.join(inspect.signature(rule).parameters)}){_line_of(rule)}. "
            f"Write lambda {listed}: f({listed})"
        )
    if isinstance(encoding, OffsetBias) and encoding.axes == 1:
        _require_offsets(rule, encoding.num_heads)


def _require_offsets(rule: Callable[..., Any], num_heads: int) -> None:
    """Raise where a rule does not use the offset, and so has one number for all offsets."""
    try:
        found = rule(torch.arange(-5, 6)[None], torch.arange(num_heads)[:, None])  # (offset), (head)
    except Exception:  # it is asked again, and what it raises is then told with its line
        return
    if isinstance(found, Tensor) and found.shape[-1:] in ((), (1,)):
        raise AssertionError(
            f"rule(self, device, dtype) must return a function that has a number for each offset; for 11 of them it "
            f"gives shape {tuple(found.shape)}{_line_of(rule)}. Use offset in it; where all offsets get the same, add "
            f"0 * offset"
        )


def hint(problem: BaseException, encoding: Encoding) -> str:
    """Say what to change where torch's words do not: sizes that do not match in a rule are those of heads."""
    of_sizes = isinstance(problem, RuntimeError) and "must match the size of tensor" in str(problem)
    return PER_HEAD if of_sizes and isinstance(encoding, (OffsetBias, PairBias)) else ""


def _takes(function: Callable[..., object], count: int) -> bool:
    """Whether a function takes so many arguments by their order; also where Python cannot tell."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:  # a builtin
        return True
    return True


def _line_of(function: object) -> str:
    """Say file and line of a user's function."""
    code = getattr(function, "__code__", None)
    return "" if code is None else f" at {short(code.co_filename)}:{code.co_firstlineno}"


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
            first, roles = ("value", "values or outputs") if kind is ValueMap else ("query", "queries or keys")
            wanted = f'self, x, positions=None, *, role="{first}"' if "role" in names else "self, x, positions=None"
            reason = (
                f"since attention says whether it hands over {roles}"
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
    return "" if file is None else f"{short(file)}:{line}"


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
    return f" at {short(file)}:{lines[-1]}, `{linecache.getline(file, lines[-1]).strip()}`"
