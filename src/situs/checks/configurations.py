"""No two configurations share a table: every option is varied, and what the varied encoding gives is compared with what
it gives where no table of the first can serve it."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from situs.checks.bench import Bench
from situs.checks.modes import share_parameters
from situs.checks.require import require_close, require_equal
from situs.encodings.base import Encoding
from situs.positions import Positions

T = TypeVar("T")

# What sets a ladder of frequencies, by the names it goes by: always of effect, if there is more than one pair.
LADDERS = ("base", "theta", "rope_theta")
OWN_TABLES = (
    "Make tables in __init__ or in forward; one that encodings share must be found by all options, dtype and device"
)


def configurations_apart(bench: Bench) -> None:
    """An encoding gives the same whether or not one with other options was used before."""
    count = bench.length(12)
    x, shared = bench.tokens(count), bench.positions(count)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        own = bench.attend(x, shared)
        for number, (option, encoding) in enumerate(_variations(bench.encoding)):
            other = Bench.around(encoding)
            more, positions = other.tokens(other.length(41 + number)), other.positions(other.length(count))
            expected = _unprecedented(other, more, positions, 1e-9)
            if expected is None:
                continue
            require_equal(bench.attend(x, shared), own, f"before and after one with {option} was used", cure=OWN_TABLES)
            if torch.equal(positions.ids, shared.ids):
                positions = shared  # with the tables that are cached on it
            result = other.attend(more[:, : positions.length], positions)
            if not torch.allclose(result, expected, rtol=0, atol=1e-5):  # the nudge may have crossed a step of a rule
                expected = _unprecedented(other, more, positions, -1e-9)
            situation = f"one with {option}, used before and after (is a table shared that should not be?)"
            require_close(result, result if expected is None else expected, situation, cure=OWN_TABLES)
        _require_ladders(bench)


def _unprecedented(other: Bench, x: Tensor, positions: Positions, nudge: float) -> Tensor | None:
    """Attend at these positions in a call that no table made before can serve: longer, farther, and by options a
    little beside. None where it cannot run at all, whatever was used before."""
    encoding, count = other.encoding, x.shape[1]

    def run() -> Tensor:
        twin = type(encoding)(**{name: _nudged(value, nudge) for name, value in encoding.config.items()})
        share_parameters(twin, encoding)
        ids = other.positions(count).ids.clone()
        if count > positions.length and other.extent is None:
            ids[:, -1] = int(min(600 + count, other.end() - 1))
        far = Positions.explicit(ids, sequence_length=positions.length)
        return other.with_encoding(twin.eval()).attend(x, far)[:, :, : positions.length]

    return _attempt(run)


def _require_ladders(bench: Bench) -> None:
    """Raise if a base is of no effect, be there few pairs or many: one table then serves all."""
    config, kind = bench.encoding.config, type(bench.encoding)
    for name in LADDERS:
        base = config.get(name)
        if not isinstance(base, (int, float)) or isinstance(base, bool):
            continue
        for larger in (1, 16):  # a single pair has no base
            sizes = {key: larger * value for key, value in config.items() if key.endswith("dim") and value}
            made = [_attempt(partial(kind, **{**config, **sizes, name: each})) for each in (base, 50 * base)]
            if made[0] is None or made[1] is None:
                break
            share_parameters(made[1], made[0])
            pair = [Bench.around(each.eval()) for each in made if each is not None]
            count = pair[0].length(16)
            if not torch.equal(*(each.encode(each.tokens(count), each.positions(count)) for each in pair)):
                break
        else:
            raise AssertionError(
                f"{name}={base} and {name}={50 * base} give one result; a table is shared that should not be. "
                f"{OWN_TABLES}"
            )


def _variations(encoding: Encoding) -> Iterator[tuple[str, Encoding]]:
    """Make an encoding for every option that can have another value, with that value."""
    config, kind = encoding.config, type(encoding)
    hints = _attempt(partial(typing.get_type_hints, kind.__init__)) or {}
    for name, value in config.items():
        for others in _others(value, hints.get(name)):
            made = (_attempt(partial(kind, **{**config, name: other})) for other in others)
            varied = next((each for each in made if each is not None), None)
            if varied is not None:
                yield f"{name}={varied.config[name]!r}", varied.eval()


def _others(value: Any, hint: Any) -> Iterator[list[Any]]:
    """List values that an option might have instead, the likeliest first; a list for each option that it has itself."""
    members = _members(hint)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        hints = _attempt(partial(typing.get_type_hints, type(value))) or {}
        for field in dataclasses.fields(value):
            for others in _others(getattr(value, field.name), hints.get(field.name)):
                made = (_attempt(partial(dataclasses.replace, value, **{field.name: other})) for other in others)
                yield [each for each in made if each is not None]
        yield [None] * (type(None) in members)
    elif value is None:
        yield [kind(4) for kind in (int, float) if kind in members]
    elif isinstance(value, tuple) and value and all(isinstance(each, (int, float)) for each in value):
        yield [tuple(each) for each in zip(*map(_other_numbers, value), strict=True)]
    elif isinstance(value, (int, float)):
        yield [not value] if isinstance(value, bool) else [each for each in _other_numbers(value) if each != value]
    else:
        yield [choice for choice in members if isinstance(choice, str) and choice != value]


def _other_numbers(value: Any) -> tuple[Any, ...]:
    """Choose numbers far enough to tell, and smaller first, since many are sizes."""
    return (value // 2 if isinstance(value, int) else value / 2), 2 * value, value + 1, value - 1


def _members(hint: Any) -> list[Any]:
    """List the types of a union, and the values of a Literal."""
    if typing.get_origin(hint) is Literal:
        return list(typing.get_args(hint))
    parts = typing.get_args(hint) if hint is not None else ()
    return [hint] if not parts else [each for part in parts for each in _members(part)]


def _nudged(value: Any, nudge: float) -> Any:
    """Change the last digits of all real numbers in a value, so that no table is cached under it."""
    if isinstance(value, float):
        return value * (1 + nudge)
    if isinstance(value, tuple):
        return tuple(_nudged(each, nudge) for each in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return dataclasses.replace(value, **{name: _nudged(each, nudge) for name, each in fields.items()})
    return value


def _attempt(make: Callable[[], T]) -> T | None:
    """Make something, or None where that is refused."""
    try:
        return make()
    except Exception:  # a user's encoding may refuse a value by any error
        return None
