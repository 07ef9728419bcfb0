"""Making wrong calls: every callable, every argument, every wrong value for it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn

from situs.arguments import told
from tests.wrong_calls.examples import ALSO, CALLS, MADE
from tests.wrong_calls.judging import complaint, state, unchanged
from tests.wrong_calls.public import Public
from tests.wrong_calls.values import wrong_values

ANYTHING = frozenset({"RotationTable.made_by"})
"""Arguments that take whatever they are given."""


@dataclass(frozen=True)
class Wrong:
    """A call with one wrong argument, and what is wrong with the answer; None where nothing is."""

    call: str
    argument: str
    value: Any
    complaint: str | None
    answer: str

    def __str__(self) -> str:
        return f"{self.call}({self.argument}={told(self.value)}): {self.complaint}: {self.answer}"


def examples_of(public: Public) -> list[dict[str, Any]]:
    """The right calls of a callable."""
    if not public.parameters:
        return [{}]
    own = [next((table[name] for name in public.defined if name in table), None) for table in (CALLS, ALSO)]
    return [dict(make()) for make in own if make is not None]


def made(public: Public) -> Any:
    """An object to call a method on; None for functions and constructors."""
    if public.owner is None:
        return None
    name = public.owner.__name__
    make = MADE.get(public.name, MADE.get(name))
    return public.owner(**CALLS[name]()) if make is None else make()


def call(public: Public, thing: Any, arguments: dict[str, Any]) -> Any:
    """Call with arguments by name, those without a name in order."""
    several = [each.name for each in public.parameters.values() if each.kind is inspect.Parameter.VAR_POSITIONAL]
    unnamed = [item for name in several for item in arguments.get(name, ())]
    named = {name: value for name, value in arguments.items() if name not in several}
    if isinstance(thing, nn.Module) and public.name.endswith(".forward"):
        return thing(*unnamed, **named)
    return public.function(*unnamed, **named) if thing is None else public.function(thing, *unnamed, **named)


def wrong_arguments(public: Public, thing: Any, right: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every argument with every wrong value for it."""
    said = public.annotations
    for name, parameter in public.parameters.items():
        beside = {"annotations": said, "self": thing, **right}
        unnamed = parameter.kind is inspect.Parameter.VAR_POSITIONAL
        for value in wrong_values(public.name, name, said[name], right.get(name), beside):
            yield name, (value, *right[name][1:]) if unnamed else value


def wrong_calls(public: Public) -> Iterator[Wrong]:
    """Make every wrong call of a callable, and judge each answer."""
    thing = made(public)
    for right in examples_of(public):
        for name, value in wrong_arguments(public, thing, right):
            held = [thing, *(each for key, each in right.items() if key != name)]
            before, problem = [state(each) for each in held], None
            try:
                call(public, thing, {**right, name: value})
            except Exception as raised:
                problem = raised
            found = complaint(problem, public.name, name, value)
            if not all(unchanged(old, state(each)) for old, each in zip(before, held, strict=True)):
                found, thing = found or "changed state", made(public)
            yield Wrong(public.name, name, value, found, f"{type(problem).__name__}: {problem}")
