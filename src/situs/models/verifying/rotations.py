"""Mistakes in how vectors are rotated: pairs, channels, frequencies, factors, coordinates, roundings."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from situs.functional import scaling as formulas
from situs.models.calls import Call
from situs.models.oracle.parts import Group, Part
from situs.models.oracle.rules import Rule, rotation_at
from situs.models.verifying.mistake import (
    Mistake,
    in_calls,
    in_groups,
    in_rules,
    in_scalings,
    line,
    plain_of,
    rotating,
    said,
    scaling_of,
)

BASE = ("rope_theta", "rotary_emb_base", "rotary_embedding_base")
HALF = {torch.bfloat16: "bfloat16", torch.float16: "float16"}
BY_PARTS = ("YaRN", "Llama3Scaling")
BY_BASE = ("NTKScaling", "DynamicNTKScaling")


def _frequencies(make: Callable[[Tensor, Tensor, Group], Tensor | None], *kinds: str) -> Callable[[Part], Part | None]:
    """Make other frequencies of plain and scaled ones, under scalings of some kinds."""

    def change(rule: Rule, group: Group) -> Rule | None:
        scaling, plain = scaling_of(group), plain_of(rule, group)
        if scaling is None or plain is None or (kinds and scaling.cls not in kinds):
            return None
        made = make(plain, rule.frequencies, group)
        if made is None or torch.equal(made, rule.frequencies):
            return None
        return replace(rule, frequencies=made)

    return in_rules(change)


def _factor(group: Group) -> float:
    scaling = scaling_of(group)
    assert scaling is not None
    return float(scaling.option("factor") or 1.0)


def _ratio(plain: Tensor, scaled: Tensor) -> Tensor:
    return torch.where(plain == 0, 1.0, scaled / plain)


def _swapped_betas(plain: Tensor, scaled: Tensor, group: Group) -> Tensor | None:
    scaling, call = scaling_of(group), group.rotation or group.values
    assert scaling is not None
    assert call is not None
    dim, base, length = 2 * len(plain), float(call.option("base", 10000.0)), scaling.option("original_length")
    if scaling.cls == "Llama3Scaling":
        wavelengths = 2 * math.pi / plain
        return torch.where(wavelengths > length / scaling.option("high_frequency_factor", 4.0), plain / _factor(group), plain)
    split = call.option("split")
    if scaling.option("dialect", "hf") == "paper" or (split is not None and split.cls != "Sections"):
        return None
    fast, slow = scaling.option("beta_fast", 32.0), scaling.option("beta_slow", 1.0)
    ramp = formulas.ramp_over_pairs(dim, base, length, fast, slow, scaling.option("truncate", True))
    return formulas.by_parts(dim, base, _factor(group), ramp)


def _every_pair(plain: Tensor, scaled: Tensor, group: Group) -> Tensor:
    """keras-hub's dynamic NTK: what multiplies the base divides every frequency, the first too."""
    dim = 2 * len(plain)
    return plain / float(plain[-1] / scaled[-1]) ** (dim / (dim - 2))


def _over_head(rule: Rule, group: Group) -> Rule | None:
    call = group.rotation or group.values
    if call is None or call.cls != "Rotary" or 2 * rule.pairs == rule.head_dim or call.option("split") is not None:
        return None
    try:
        whole = rotation_at(call.replace(rotary_dim=None, channels=None), group.length).frequencies
    except ValueError:  # factors of longrope, one for each pair that is rotated
        return None
    return replace(rule, frequencies=rule.frequencies.new_tensor(whole[: rule.pairs]).abs())


def _proportional(call: Call, group: Group) -> Call | None:
    scaling, width = call.option("scaling"), call.option("rotary_dim")
    if scaling is not None and scaling.cls == "ProportionalScaling":
        return call.replace(scaling=None, rotary_dim=int(call.option("head_dim") * scaling.option("fraction")))
    if scaling is None and width is not None and call.option("split") is None and call.cls == "Rotary":
        share = Call.of("ProportionalScaling", fraction=width / call.option("head_dim"))
        return call.replace(rotary_dim=None, channels=None, scaling=share)
    return None


def _by_factor(change: Callable[[Rule], Rule]) -> Callable[[Part], Part | None]:
    return in_rules(lambda rule, group: None if rule.factor == 1.0 else change(rule))


def _factor_on_softmax(group: Group) -> Group | None:
    rule = group.rule(group.name)
    if rule is None or rule.factor == 1.0:
        return None
    return replace(group, scale=group.scale * rule.factor**2)


def _lists(long: Callable[[bool], bool]) -> Callable[[Part], Part | None]:
    """Choose LongRoPE's list of factors otherwise."""

    def each(group: Group) -> Group | None:
        scaling = scaling_of(group)
        if scaling is None or scaling.cls != "LongRoPE" or group.length is None:
            return None
        original = scaling.option("original_length")
        is_long = group.length > original
        return None if long(is_long) == is_long else replace(group, length=original + long(is_long))

    return in_groups(each)


def _to_declared(part: Part) -> Part | None:
    declared = part.model.lengths.declared
    change = in_scalings(
        lambda scaling, group: scaling.replace(original_length=declared) if declared else None, *BY_PARTS
    )
    return change(part)


def _reordered(perm: tuple[int, ...]) -> Callable[[Call, Group], Call | None]:
    def change(call: Call, group: Group) -> Call | None:
        split = call.option("split")
        if split is None or split.cls != "Sections" or len(split.option("sizes")) != len(perm):
            return None
        sizes = split.option("sizes")
        return call.replace(split=split.replace(sizes=tuple(sizes[each] for each in perm)))

    return change


def _other_order(call: Call, group: Group) -> Call | None:
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


def _exchanged(perm: tuple[int, ...]) -> Callable[[Rule, Group], Rule | None]:
    def change(rule: Rule, group: Group) -> Rule | None:
        if len(set(rule.axis_of_pair)) < 2 or group.axes != len(perm):
            return None
        return replace(rule, axis_of_pair=tuple(perm[each] for each in rule.axis_of_pair))

    return change


def _one_axis(rule: Rule, group: Group) -> Rule | None:
    return replace(rule, axis_of_pair=(0,) * rule.pairs) if len(set(rule.axis_of_pair)) > 1 else None


def _about_base(part: Part) -> str:
    call = rotating(part).rotation
    assert call is not None
    width = call.option("rotary_dim") or call.option("head_dim")
    return f"w_i = {call.option('base', 10000.0):g}^(-2i/{width}); {line(part, *BASE)}"


def _about_scaling(part: Part) -> str:
    group = next((each for each in part.groups if scaling_of(each) is not None), None)
    scaling = None if group is None else scaling_of(group)
    return f"frequencies are those of {scaling!r:.140}; {line(part, 'rope_type', 'type', 'factor')}"


def _about_factor(part: Part) -> str:
    found = [rule.factor for rule in (group.rule(group.name) for group in part.groups) if rule is not None]
    factor = next((each for each in found if each != 1.0), 1.0)
    return f"multiply cosines and sines by {factor:.9g}, once, and nothing else"


def _about_pairs(part: Part) -> str:
    rule = rotating(part).rule("")
    assert rule is not None
    if len(rule.blocks) > 1:
        return f"pairs are halves of each axis' block of {rule.blocks[0]} channels"
    first = 0 if rule.channels == "leading" else rule.head_dim - 2 * rule.pairs
    second = first + (1 if rule.pairing == "interleaved" else rule.pairs)
    return f"pair i is {rule.pairing}: the first is of channels {first} and {second}"


def _about_channels(part: Part) -> str:
    rule = rotating(part).rule("")
    assert rule is not None
    first = 0 if rule.channels == "leading" else rule.head_dim - 2 * rule.pairs
    return f"channels {first} to {first + 2 * rule.pairs - 1} of {rule.head_dim} are rotated, by w_i over {2 * rule.pairs}"


def _about_axes(part: Part) -> str:
    rule = rotating(part).rule("")
    assert rule is not None
    shown = ", ".join(map(str, rule.axis_of_pair[:9]))
    return f"the coordinates that rotate pairs 0, 1, 2 ... are {shown} ...; the array axis_of_pair has all"


def _rounded() -> Iterator[Mistake]:
    cure = "form angles in float64, or in float32 with whole turns taken off before, and round cosines and sines"
    for dtype, name in HALF.items():
        yield Mistake(
            f"frequencies rounded to {name}", "rounding",
            in_rules(lambda rule, group, dtype=dtype: replace(rule, frequencies=rule.frequencies.to(dtype).double())),
            said("keep frequencies in float32 or wider, whatever the model's dtype is"),
        )  # fmt: skip
        yield Mistake(
            f"positions rounded to {name}", "rounding",
            in_rules(lambda rule, group, dtype=dtype: replace(rule, positions_in=dtype)),
            said(f"keep positions whole: {name} has no odd numbers beyond {256 if name == 'bfloat16' else 2048}"),
        )  # fmt: skip
        yield Mistake(
            f"angles formed in {name}", "rounding",
            in_rules(lambda rule, group, dtype=dtype: None if rule.mixed else replace(rule, angles_in=dtype)),
            said(cure),
        )  # fmt: skip


FLOAT32 = Mistake(
    "float32 angles", "precision",
    in_rules(lambda rule, group: None if rule.mixed else replace(rule, angles_in=torch.float32)),
    said("form position times frequency in float64, or take whole turns off before; then round"),
)  # fmt: skip
"""The usual product of float32 numbers, which is off by a different amount in every program: it is forgiven or not
(`searching`), and computed only to tell from where on it matters."""

_TWO, _THREE = list(itertools.permutations(range(2)))[1:], list(itertools.permutations(range(3)))[1:]
_NAMES = ("time", "height", "width")

ROTATIONS: tuple[Mistake, ...] = (
    Mistake("base left at 10,000", "base", in_calls(lambda call, group: call.replace(base=10000.0)), _about_base),
    Mistake("scaling ignored", "scaling", in_calls(lambda call, group: call.replace(scaling=None)), _about_scaling),
    Mistake("frequencies not scaled, though the factor is applied", "scaling",
            _frequencies(lambda plain, scaled, group: plain), _about_scaling),
    Mistake("scaling applied twice", "scaling",
            _frequencies(lambda plain, scaled, group: scaled * _ratio(plain, scaled)), _about_scaling),
    Mistake("scaling inverted: fast pairs divided, slow ones kept", "scaling",
            _frequencies(lambda plain, scaled, group: plain * (1 + 1 / _factor(group) - _ratio(plain, scaled)), *BY_PARTS),
            _about_scaling),
    Mistake("bounds of the ramp swapped (beta_fast and beta_slow, or low and high)", "scaling",
            _frequencies(_swapped_betas, *BY_PARTS), _about_scaling),
    Mistake("every frequency divided by the factor, as linear scaling does", "scaling",
            _frequencies(lambda plain, scaled, group: plain / _factor(group), *BY_PARTS, *BY_BASE, "LongRoPE"),
            _about_scaling),
    Mistake("first frequency scaled too: what multiplies the base divides all frequencies", "scaling",
            _frequencies(_every_pair, *BY_BASE), _about_scaling),
    Mistake("the factor at every length, where it grows with the sequence", "scaling",
            in_scalings(lambda each, group: Call.of("NTKScaling", factor=each.option("factor")), "DynamicNTKScaling"),
            _about_scaling),
    Mistake("ends of the ramp rounded to whole pairs, or not, against truncate", "ramp",
            in_scalings(lambda each, group: each.replace(truncate=not each.option("truncate", True)), "YaRN"),
            lambda part: f"{line(part, 'truncate')}"),
    Mistake("ramp over turns, as the paper has it, for one over pairs", "ramp",
            in_scalings(lambda each, group: each.replace(dialect="paper", truncate=None), "YaRN"), _about_scaling),
    Mistake("original length taken for the declared one", "original length", _to_declared,
            lambda part: line(part, "original_max_position_embeddings")),
    Mistake("short factors at every length", "lists", _lists(lambda long: False), said(
        "sequences longer than original_max_position_embeddings take long_factor")),
    Mistake("long factors at every length", "lists", _lists(lambda long: True), said(
        "sequences up to original_max_position_embeddings take short_factor")),
    Mistake("short and long factors swapped", "lists", _lists(lambda long: not long), said(
        "short_factor is for sequences up to original_max_position_embeddings, long_factor for longer ones")),
    Mistake("partial and proportional rotation confused", "share", in_calls(_proportional), _about_channels),
    Mistake("all channels rotated", "share",
            in_calls(lambda call, group: call.replace(rotary_dim=None, channels=None)), _about_channels),
    Mistake("frequencies over head_dim instead of rotary_dim", "share", in_rules(_over_head), _about_channels),
    Mistake("leading channels rotated for trailing ones, or the reverse", "channels",
            in_rules(lambda rule, group: None if 2 * rule.pairs == rule.head_dim else replace(
                rule, channels="leading" if rule.channels == "trailing" else "trailing")), _about_channels),
    Mistake("pairing swapped: halves for neighbours, or the reverse", "pairing",
            in_rules(lambda rule, group: None if rule.pairs < 2 else replace(
                rule, pairing="halves" if rule.pairing == "interleaved" else "interleaved", blocks=())), _about_pairs),
    Mistake("halves of the head for halves of each axis' block", "pairing",
            in_rules(lambda rule, group: replace(rule, blocks=()) if len(rule.blocks) > 1 else None), _about_pairs),
    Mistake("rotated the other way", "direction", in_rules(lambda rule, group: replace(rule, reverse=not rule.reverse)),
            said("a' = a cos - b sin, b' = a sin + b cos, with the signs of rotation.reverse")),
    Mistake("sines with the other sign", "direction",
            in_rules(lambda rule, group: replace(rule, frequencies=-rule.frequencies)),
            said("a' = a cos - b sin, b' = a sin + b cos, with the signs of rotation.reverse")),
    Mistake("sections contiguous for interleaved, or the reverse", "sections", in_calls(_other_order), _about_axes),
    *(Mistake(f"sections in another order: {', '.join(_NAMES[each] for each in perm)}", "sections",
              in_calls(_reordered(perm)), _about_axes) for perm in _THREE),
    *(Mistake(f"coordinates in another order: {', '.join(_NAMES[each] for each in perm)}", "axes",
              in_rules(_exchanged(perm)), _about_axes) for perm in _THREE),
    *(Mistake("row and column exchanged", "axes", in_rules(_exchanged(perm)), _about_axes) for perm in _TWO),
    Mistake("the first coordinate for all pairs", "axes", in_rules(_one_axis), _about_axes),
    Mistake("one ladder for all axes, or one for each, confused", "sections", in_calls(_other_ladder), _about_axes),
    Mistake("attention factor missing", "factor", _by_factor(lambda rule: replace(rule, factor=1.0)), _about_factor),
    Mistake("attention factor squared", "factor", _by_factor(lambda rule: replace(rule, factor=rule.factor**2)),
            _about_factor),
    Mistake("attention factor twice as large", "factor", _by_factor(lambda rule: replace(rule, factor=2 * rule.factor)),
            _about_factor),
    Mistake("attention factor doubled: on the softmax scale too", "factor", in_groups(_factor_on_softmax),
            _about_factor),
    Mistake("attention factor on queries alone", "factor",
            _by_factor(lambda rule: replace(rule, factor=1.0, of_queries=rule.factor)), _about_factor),
    Mistake("attention factor on vectors instead of tables (scores are the same)", "factor",
            _by_factor(lambda rule: replace(rule, factor=1.0, of_queries=rule.factor, of_keys=rule.factor)),
            said("nothing, unless tables go to other programs: these expect the factor in them")),
    *_rounded(),
)  # fmt: skip
