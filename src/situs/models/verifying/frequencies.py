"""Mistakes in frequencies and their factor: base, scaling, lists of factors, share of the head, attention factor."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from situs.functional import scaling as formulas
from situs.models.calls import Call
from situs.models.oracle.parts import Group, Part
from situs.models.oracle.rules import Rule, rotation_at
from situs.models.verifying.mistake import (
    Mistake,
    about_channels,
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


def _unscaled(rule: Rule, group: Group) -> Rule | None:
    plain = plain_of(rule, group)
    if plain is None or rule.factor == 1.0 or torch.equal(plain, rule.frequencies):
        return None
    return replace(rule, frequencies=plain)


def _twice(plain: Tensor, scaled: Tensor, group: Group) -> Tensor:
    return scaled * _ratio(plain, scaled)


def _inverted(plain: Tensor, scaled: Tensor, group: Group) -> Tensor:
    """litgpt's YaRN: of a ramp g, pairs have (1 - g) w + g w / s instead of g w + (1 - g) w / s."""
    return plain * (1 + 1 / _factor(group) - _ratio(plain, scaled))


def _swapped_bounds(plain: Tensor, scaled: Tensor, group: Group) -> Tensor | None:
    scaling, call = scaling_of(group), group.rotation or group.values
    assert scaling is not None
    assert call is not None
    dim, base, length = 2 * len(plain), float(call.option("base", 10000.0)), scaling.option("original_length")
    if scaling.cls == "Llama3Scaling":  # no wavelength lies between the bounds: a step remains
        slow = 2 * math.pi / plain > length / scaling.option("high_frequency_factor", 4.0)
        return torch.where(slow, plain / _factor(group), plain)
    split = call.option("split")
    if scaling.option("dialect", "hf") == "paper" or (split is not None and split.cls != "Sections"):
        return None
    fast, slow = scaling.option("beta_fast", 32.0), scaling.option("beta_slow", 1.0)
    ramp = formulas.ramp_over_pairs(dim, base, length, fast, slow, scaling.option("truncate", True))
    return formulas.by_parts(dim, base, _factor(group), ramp)


def _linear(plain: Tensor, scaled: Tensor, group: Group) -> Tensor:
    return plain / _factor(group)


def _every_pair(plain: Tensor, scaled: Tensor, group: Group) -> Tensor:
    """keras-hub's dynamic NTK: what multiplies the base divides every frequency, the first too."""
    dim = 2 * len(plain)
    ratio: float = float(plain[-1] / scaled[-1]) ** (dim / max(dim - 2, 1))
    return plain / ratio


def _to_declared(part: Part) -> Part | None:
    declared = part.model.lengths.declared
    if declared is None:
        return None
    return in_scalings(lambda scaling, group: scaling.replace(original_length=declared), *BY_PARTS)(part)


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


def _over_head(rule: Rule, group: Group) -> Rule | None:
    call = group.rotation or group.values
    if call is None or call.cls != "Rotary" or 2 * rule.pairs == rule.head_dim or call.option("split") is not None:
        return None
    try:
        whole = rotation_at(call.replace(rotary_dim=None, channels=None), group.length).frequencies
    except ValueError:  # longrope has as many factors as pairs are rotated
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
    """Apply the factor of cosines and sines otherwise, where it is not 1."""
    return in_rules(lambda rule, group: None if rule.factor == 1.0 else change(rule))


def _on_softmax(group: Group) -> Group | None:
    rule = group.rule(group.name)
    return None if rule is None or rule.factor == 1.0 else replace(group, scale=group.scale * rule.factor**2)


def about_base(part: Part) -> str:
    call = rotating(part).rotation
    assert call is not None
    width = call.option("rotary_dim") or call.option("head_dim")
    return f"w_i = {call.option('base', 10000.0):g}^(-2i/{width}); {line(part, *BASE)}"


def about_scaling(part: Part) -> str:
    group = next(each for each in part.groups if scaling_of(each) is not None)
    return f"frequencies are those of {scaling_of(group)!r:.140}; {line(part, 'rope_type', 'type', 'factor')}"


def _about_factor(part: Part) -> str:
    found = [rule.factor for rule in (group.rule(group.name) for group in part.groups) if rule is not None]
    factor = next((each for each in found if each != 1.0), 1.0)
    return f"multiply cosines and sines by {factor:.9g}, once, and nothing else"


FREQUENCIES: tuple[Mistake, ...] = (
    Mistake("base left at 10,000", "base", in_calls(lambda call, group: call.replace(base=10000.0)), about_base),
    Mistake("scaling ignored", "scaling", in_calls(lambda call, group: call.replace(scaling=None)), about_scaling),
    Mistake("frequencies not scaled, though the factor is applied", "scaling", in_rules(_unscaled), about_scaling),
    Mistake("scaling applied twice", "scaling", _frequencies(_twice), about_scaling),
    Mistake(
        "scaling inverted: fast pairs divided, slow ones kept",
        "scaling",
        _frequencies(_inverted, *BY_PARTS),
        about_scaling,
    ),
    Mistake(
        "bounds of the ramp swapped (beta_fast and beta_slow, or low and high)",
        "scaling",
        _frequencies(_swapped_bounds, *BY_PARTS),
        about_scaling,
    ),
    Mistake(
        "every frequency divided by the factor, as linear scaling does",
        "scaling",
        _frequencies(_linear, *BY_PARTS, *BY_BASE, "LongRoPE"),
        about_scaling,
    ),
    Mistake(
        "first frequency scaled too: what multiplies the base divides all frequencies",
        "scaling",
        _frequencies(_every_pair, *BY_BASE),
        about_scaling,
    ),
    Mistake(
        "the whole factor at every length, where it grows with the sequence",
        "scaling",
        in_scalings(lambda each, group: Call.of("NTKScaling", factor=each.option("factor")), "DynamicNTKScaling"),
        about_scaling,
    ),
    Mistake(
        "ends of the ramp rounded to whole pairs, or not, against truncate",
        "ramp",
        in_scalings(lambda each, group: each.replace(truncate=not each.option("truncate", True)), "YaRN"),
        lambda part: line(part, "truncate"),
    ),
    Mistake(
        "ramp over turns, as the paper has it, for one over pairs",
        "ramp",
        in_scalings(lambda each, group: each.replace(dialect="paper", truncate=None), "YaRN"),
        about_scaling,
    ),
    Mistake(
        "the declared length taken for the original one",
        "original length",
        _to_declared,
        lambda part: line(part, "original_max_position_embeddings"),
    ),
    Mistake(
        "short factors at every length",
        "lists",
        _lists(lambda long: False),
        said("sequences longer than original_max_position_embeddings take long_factor"),
    ),
    Mistake(
        "long factors at every length",
        "lists",
        _lists(lambda long: True),
        said("sequences up to original_max_position_embeddings take short_factor"),
    ),
    Mistake(
        "short and long factors swapped",
        "lists",
        _lists(lambda long: not long),
        said("short_factor is for sequences up to original_max_position_embeddings, long_factor for longer ones"),
    ),
    Mistake("partial and proportional rotation confused", "share", in_calls(_proportional), about_channels),
    Mistake(
        "all channels rotated",
        "share",
        in_calls(lambda call, group: call.replace(rotary_dim=None, channels=None)),
        about_channels,
    ),
    Mistake("frequencies over head_dim instead of rotary_dim", "share", in_rules(_over_head), about_channels),
    Mistake("attention factor missing", "factor", _by_factor(lambda rule: replace(rule, factor=1.0)), _about_factor),
    Mistake(
        "attention factor squared",
        "factor",
        _by_factor(lambda rule: replace(rule, factor=rule.factor**2)),
        _about_factor,
    ),
    Mistake(
        "attention factor twice as large",
        "factor",
        _by_factor(lambda rule: replace(rule, factor=2 * rule.factor)),
        _about_factor,
    ),
    Mistake("attention factor doubled: on the softmax scale too", "factor", in_groups(_on_softmax), _about_factor),
    Mistake(
        "attention factor on queries alone",
        "factor",
        _by_factor(lambda rule: replace(rule, factor=1.0, of_queries=rule.factor)),
        _about_factor,
    ),
    Mistake(
        "attention factor on vectors instead of tables (scores are the same)",
        "factor",
        _by_factor(lambda rule: replace(rule, factor=1.0, of_queries=rule.factor, of_keys=rule.factor)),
        said("nothing, unless tables go to other programs: these expect the factor in them"),
    ),
)
