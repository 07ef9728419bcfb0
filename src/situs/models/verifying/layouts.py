"""Mistakes in which channels are rotated by what: pairs, channels, direction, coordinates, and roundings of angles."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from situs.models.calls import Call
from situs.models.oracle.parts import Group, Part
from situs.models.oracle.rules import Rule
from situs.models.verifying.mistake import Mistake, about_channels, in_calls, in_groups, in_rules, rotating, said

HALF = {torch.bfloat16: "bfloat16", torch.float16: "float16"}
NAMES = ("time", "height", "width")
SIGNS = "a' = a cos - b sin, b' = a sin + b cos; the other way round where rotation.reverse is true"


def _other_pairs(rule: Rule, group: Group) -> Rule | None:
    if rule.pairs < 2:
        return None
    return replace(rule, pairing="halves" if rule.pairing == "interleaved" else "interleaved", blocks=())


def _other_channels(rule: Rule, group: Group) -> Rule | None:
    if 2 * rule.pairs == rule.head_dim:
        return None
    return replace(rule, channels="leading" if rule.channels == "trailing" else "trailing")


def _one_block(rule: Rule, group: Group) -> Rule | None:
    return replace(rule, blocks=()) if len(rule.blocks) > 1 else None


def _one_axis(rule: Rule, group: Group) -> Rule | None:
    return replace(rule, axis_of_pair=(0,) * rule.pairs) if len(set(rule.axis_of_pair)) > 1 else None


def _exchanged(order: tuple[int, ...]) -> Callable[[Rule, Group], Rule | None]:
    def change(rule: Rule, group: Group) -> Rule | None:
        if len(set(rule.axis_of_pair)) < 2 or group.axes != len(order):
            return None
        return replace(rule, axis_of_pair=tuple(order[each] for each in rule.axis_of_pair))

    return change


def _reordered(order: tuple[int, ...]) -> Callable[[Call, Group], Call | None]:
    def change(call: Call, group: Group) -> Call | None:
        split = call.option("split")
        if split is None or split.cls != "Sections" or len(split.option("sizes")) != len(order):
            return None
        sizes = split.option("sizes")
        return call.replace(split=split.replace(sizes=tuple(sizes[each] for each in order)))

    return change


def _other_turns(call: Call, group: Group) -> Call | None:
    split = call.option("split")
    if split is None or split.cls != "Sections":
        return None
    other = "interleaved" if split.option("order", "contiguous") == "contiguous" else "contiguous"
    return call.replace(split=split.replace(order=other))


def _other_ladder(call: Call, group: Group) -> Call | None:
    split = call.option("split")
    if split is None or split.cls != "Axial" or split.option("dims") is not None:
        return None
    return call.replace(split=split.replace(ladder="shared" if split.option("ladder", "own") == "own" else "own"))


def _about_pairs(part: Part) -> str:
    rule = rotating(part).rule("")
    assert rule is not None
    if len(rule.blocks) > 1:
        return f"pairs are halves of each axis' block of {rule.blocks[0]} channels"
    first = 0 if rule.channels == "leading" else rule.head_dim - 2 * rule.pairs
    second = first + (1 if rule.pairing == "interleaved" else rule.pairs)
    kind = "neighbours" if rule.pairing == "interleaved" else "halves"
    return f"pairs are {kind}: the first is of channels {first} and {second}"


def _about_axes(part: Part) -> str:
    rule = rotating(part).rule("")
    assert rule is not None
    shown = ", ".join(map(str, rule.axis_of_pair[:9]))
    return f"pairs 0, 1, 2 ... are rotated by coordinates {shown} ...; the array axis_of_pair has all"


def _in_other_orders() -> Iterator[Mistake]:
    for order in list(itertools.permutations(range(3)))[1:]:
        names = ", ".join(NAMES[each] for each in order)
        yield Mistake(f"sections in another order: {names}", "sections", in_calls(_reordered(order)), _about_axes)
        yield Mistake(f"coordinates in another order: {names}", "axes", in_rules(_exchanged(order)), _about_axes)
    yield Mistake("row and column exchanged", "axes", in_rules(_exchanged((1, 0))), _about_axes)


def _rounded(dtype: torch.dtype, name: str) -> Iterator[Mistake]:
    last = 256 if dtype == torch.bfloat16 else 2048
    yield Mistake(
        f"frequencies rounded to {name}",
        "rounding",
        in_rules(lambda rule, group: replace(rule, frequencies=rule.frequencies.to(dtype).double())),
        said("keep frequencies in float32 or wider, whatever the model's dtype is"),
    )
    yield Mistake(
        f"positions rounded to {name}",
        "rounding",
        in_rules(lambda rule, group: replace(rule, positions_in=dtype)),
        said(f"keep positions whole: {name} has no odd numbers beyond {last}"),
    )
    yield Mistake(
        f"angles formed in {name}",
        "rounding",
        in_rules(lambda rule, group: None if rule.mixed else replace(rule, angles_in=dtype)),
        said("form angles in float64, or in float32 with whole turns taken off before; round cosines and sines"),
    )


FLOAT32 = Mistake(
    "float32 angles",
    "precision",
    in_rules(lambda rule, group: None if rule.mixed else replace(rule, angles_in=torch.float32)),
    said("form position times frequency in float64, or take whole turns off before; then round"),
)
"""The usual product of float32 numbers, which is off by a different amount in every program: it is forgiven or not
(`searching`), and computed only to tell from where on it matters."""

LAYOUTS: tuple[Mistake, ...] = (
    Mistake(
        "leading channels rotated for trailing ones, or the reverse",
        "channels",
        in_rules(_other_channels),
        about_channels,
    ),
    Mistake("pairing swapped: halves for neighbours, or the reverse", "pairing", in_rules(_other_pairs), _about_pairs),
    Mistake("halves of the head for halves of each axis' block", "pairing", in_rules(_one_block), _about_pairs),
    Mistake(
        "rotated the other way",
        "direction",
        in_rules(lambda rule, group: replace(rule, reverse=not rule.reverse)),
        said(SIGNS),
    ),
    Mistake(
        "sines with the other sign",
        "direction",
        in_rules(lambda rule, group: replace(rule, frequencies=-rule.frequencies)),
        said(SIGNS),
    ),
    Mistake(
        "cosines and sines swapped",
        "tables",
        in_rules(lambda rule, group: replace(rule, swaps=not rule.swaps)),
        said(f"cosines are 1 and sines 0 at position 0; {SIGNS}"),
    ),
    Mistake(
        "keys not rotated",
        "keys",
        in_groups(
            lambda group: replace(group, rotates_keys=False) if group.shows_rotation and group.rotation else None
        ),
        said("rotate keys as queries are, each by its own position"),
    ),
    Mistake("sections contiguous for interleaved, or the reverse", "sections", in_calls(_other_turns), _about_axes),
    *_in_other_orders(),
    Mistake("the first coordinate for all pairs", "axes", in_rules(_one_axis), _about_axes),
    Mistake("one ladder for all axes, or one for each, confused", "sections", in_calls(_other_ladder), _about_axes),
    *(mistake for dtype, name in HALF.items() for mistake in _rounded(dtype, name)),
)
