"""A mistake: a function from what a model does to what a program does instead, with words for both.

Mistakes of one aspect exclude each other; any two of different aspects may come together, in the catalogue's order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from situs.models.calls import Call
from situs.models.oracle.parts import Group, Part
from situs.models.oracle.rules import Rule, rotation_at


@dataclass(frozen=True)
class Mistake:
    """Hold a mistake.

    name: what was done, in a few words.
    aspect: what it is about.
    change: a part that makes it; None where a model gives no occasion.
    cure: what to do instead, with the model's own numbers.
    """

    name: str
    aspect: str
    change: Callable[[Part], Part | None]
    cure: Callable[[Part], str]


def in_groups(each: Callable[[Group], Group | None]) -> Callable[[Part], Part | None]:
    """Make a mistake in every group that gives occasion."""
    return lambda part: part.change(each)


def in_rules(change: Callable[[Rule, Group], Rule | None]) -> Callable[[Part], Part | None]:
    """Make a mistake in how vectors are rotated, wherever it changes something."""

    def changed(rule: Rule, group: Group) -> Rule:
        found = change(rule, group)
        return rule if found is None else found

    def each(group: Group) -> Group | None:
        rule = group.rule(group.name)
        if rule is None or change(rule, group) is None:
            return None
        return replace(group, changes=(*group.changes, changed))

    return in_groups(each)


def in_calls(change: Callable[[Call, Group], Call | None]) -> Callable[[Part], Part | None]:
    """Make a mistake in the options of a rotation; values are rotated by the same program."""

    def each(group: Group) -> Group | None:
        call = _changed(group.rotation, group, change)
        values = _changed(group.values, group, change)
        if call is None and values is None:
            return None
        return replace(group, rotation=call or group.rotation, values=values or group.values)

    return in_groups(each)


def _changed(call: Call | None, group: Group, change: Callable[[Call, Group], Call | None]) -> Call | None:
    """Another call, if there is one and a rotation can be made of it."""
    if call is None or call.cls == "RoPEMixed":
        return None
    found = change(call, group)
    if found is None or found == call:
        return None
    try:
        if rotation_at(found, group.length) == rotation_at(call, group.length):
            return None
    except ValueError:  # sizes that do not fit, which no program could run
        return None
    return found


def in_scalings(change: Callable[[Call, Group], Call | None], *kinds: str) -> Callable[[Part], Part | None]:
    """Make a mistake in the options of a scaling, of some kinds."""

    def of_rotation(call: Call, group: Group) -> Call | None:
        scaling = call.option("scaling")
        if scaling is None or (kinds and scaling.cls not in kinds):
            return None
        found = change(scaling, group)
        return None if found is None else call.replace(scaling=found)

    return in_calls(of_rotation)


def plain_of(rule: Rule, group: Group) -> Any:
    """The frequencies without scaling, as a tensor like the rule's; None where there is no scaling."""
    call = group.rotation or group.values
    if call is None or call.cls == "RoPEMixed" or call.option("scaling") is None:
        return None
    frequencies = rotation_at(call.replace(scaling=None), group.length).frequencies
    found = rule.frequencies.new_tensor(frequencies)
    return found.abs() if found.shape == rule.frequencies.shape else None


def scaling_of(group: Group) -> Call | None:
    """The scaling of a group's rotation."""
    call = group.rotation or group.values
    found: Call | None = None if call is None else call.option("scaling")
    return found


def rotating(part: Part) -> Group:
    """The first group that rotates, whose numbers stand for all."""
    return next(group for group in part.groups if group.rotation is not None)


def about_channels(part: Part) -> str:
    """Say which channels are rotated."""
    rule = rotating(part).rule("")
    assert rule is not None
    first, width = 0 if rule.channels == "leading" else rule.head_dim - 2 * rule.pairs, 2 * rule.pairs
    return f"channels {first} to {first + width - 1} of {rule.head_dim} are rotated, pair i by base^(-2i/{width})"


def line(part: Part, *keys: str) -> str:
    """Where a configuration says one of these, with what it says; the first key alone where it is silent."""
    for key in keys:
        for path, value in _settings(part.model.config, ""):
            if path.rpartition(".")[2] == key and not isinstance(value, (Mapping, list)):
                return f"{path}: {value}"
    return f"{keys[0]}, which the configuration leaves to its default"


def _settings(config: Any, path: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    if isinstance(config, Mapping):
        for key, value in config.items():
            here = f"{path}.{key}" if path else str(key)
            found.append((here, value))
            found += _settings(value, here)
    return found


def said(text: str) -> Callable[[Part], str]:
    """A cure that needs no numbers."""
    return lambda part: text
