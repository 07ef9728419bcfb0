"""The base, or the factor of a scaling, that a port's own frequencies tell, where it is none that a catalogue could
list.

w_i = base^(-2i/width), so that base = w_i^(-width/2i); of the numbers within rounding of that, the one with the fewest
digits. Scalings divide the slowest frequency by their factor; factors have four digits at most. Frequencies are the
port's own, or the angles of its cosines and sines at position 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from situs.models.calls import Call
from situs.models.oracle.parts import Group, Part
from situs.models.oracle.rules import Rule
from situs.models.verifying.comparing import Given
from situs.models.verifying.frequencies import about_base, about_scaling
from situs.models.verifying.mistake import Mistake, in_calls, in_groups, in_scalings, plain_of, scaling_of

OF_POWERS = 16.0
"""In units of roundoff: how far off a frequency may be, of which a base or a factor is told."""
DIGITS = 4
"""Of a factor, at most."""


def fitted_bases(part: Part, port: Mapping[str, Given]) -> list[Mistake]:
    """Mistakes that have the bases which a port's frequencies tell, by its first group that has some."""
    for group in part.groups:
        told = _frequencies(part, group, port)
        if told is not None:
            bases = dict.fromkeys(_bases(group, *told))
            return [_mistake(base) for base in bases if base not in (_base(group), 10000.0)]
    return []


def _mistake(base: float) -> Mistake:
    change = in_calls(lambda call, group: call.replace(base=base))
    return Mistake(f"frequencies are those of base {base:,.10g}", "base", change, about_base)


def fitted_factors(part: Part, port: Mapping[str, Given]) -> list[Mistake]:
    """Mistakes that have the factors which a port's frequencies tell, by its first group that tells one."""
    for group in part.groups:
        scaling = scaling_of(group)
        if scaling is None or not scaling.option("factor"):
            continue
        told = _frequencies(part, group, port)
        factors = [] if told is None else list(dict.fromkeys(_factors(group, scaling, *told)))
        if factors:
            kinds = (True, False) if any(not name.endswith(".frequencies") for name in port) else (True,)
            return [_of_factor(each, in_cosines) for each in factors for in_cosines in kinds]
    return []


def _of_factor(factor: float, in_cosines: bool) -> Mistake:
    """A program with another factor; also in the factor of cosines, where that comes from it, or not there."""
    in_frequencies = in_scalings(lambda scaling, group: scaling.replace(factor=factor))
    said = f"frequencies are those of factor {factor:,.10g}"
    if in_cosines:
        return Mistake(said, "scaling", in_frequencies, about_scaling)

    def change(part: Part) -> Part | None:
        changed = in_frequencies(part)
        before = {group.name: group.rule(group.name) for group in part.groups}
        return None if changed is None else in_groups(lambda group: _with_factor_of(group, before[group.name]))(changed)

    return Mistake(f"{said}, though cosines have the right one", "scaling", change, about_scaling)


def _with_factor_of(group: Group, before: Rule | None) -> Group | None:
    """A group whose cosines have the factor of before; None where they have."""
    now = group.rule(group.name)
    if before is None or now is None or now.factor == before.factor:
        return None
    return replace(group, changes=(*group.changes, lambda rule, _: replace(rule, factor=before.factor)))


def _factors(group: Group, scaling: Call, frequencies: Tensor, unit: float) -> Iterator[float]:
    """The short numbers that may be the factor by which the slowest pair is divided, or from which that comes."""
    rule = group.rule(group.name)
    plain = None if rule is None else plain_of(rule, group)
    if rule is None or plain is None or frequencies.shape != plain.shape:
        return
    slowest = int(plain.argmin())
    divided, right = (float(plain[slowest] / each[slowest].abs()) for each in (frequencies, rule.frequencies))
    own, least, grown = float(scaling.option("factor")), 0.0, 1.0
    if scaling.cls == "DynamicNTKScaling":  # which divides by 1 + factor x what the text is longer
        least, grown = 1.0, (right - 1) / own
    elif abs(right / own - 1) > 1e-9:  # of a ramp that ends before the slowest pair
        return
    if not (math.isfinite(divided) and grown > 0):
        return
    factor, within = (divided - least) / grown, OF_POWERS * unit * divided / grown
    for digits in range(DIGITS):
        short = float(f"{factor:.{digits}e}")
        if short not in (0, own) and abs(short - factor) <= within:
            yield short


def _base(group: Group) -> float:
    assert group.rotation is not None
    return float(group.rotation.option("base", 10000.0))


def _frequencies(part: Part, group: Group, port: Mapping[str, Given]) -> tuple[Tensor, float] | None:
    """The frequencies of a port in one group, and the roundoff of what they are told by."""
    if group.rotation is None or group.rotation.cls != "Rotary":
        return None
    name = part.name(group)
    if f"{name}.frequencies" in port:
        return port[f"{name}.frequencies"].value.abs(), 2.0**-24
    cos, sin = port.get(f"{name}.cos"), port.get(f"{name}.sin")
    if cos is None or sin is None or (1,) not in group.coordinates:
        return None
    row = group.coordinates.index((1,))
    return torch.atan2(sin.value[row], cos.value[row]).abs(), max(cos.unit, sin.unit)


def _bases(group: Group, frequencies: Tensor, unit: float) -> Iterator[float]:
    """What the slowest pair tells, which is the most exact, and the second, which most scalings leave as it is."""
    rule, call = group.rule(group.name), group.rotation
    if rule is None or call is None or len(frequencies) != rule.pairs or rule.pairs < 2:
        return
    width = call.option("rotary_dim") or call.option("head_dim")
    plain = plain_of(rule, group)
    for pair in (rule.pairs - 1, 1):
        scaled = 1.0 if plain is None else float(rule.frequencies[pair].abs() / plain[pair])
        frequency = float(frequencies[pair]) / scaled if scaled else 0.0
        if not 0 < frequency < 1:
            continue
        power = width / (2 * pair)
        logarithm = -power * math.log(frequency)
        if logarithm < 300:
            yield _roundest(math.exp(logarithm), OF_POWERS * unit * power)


def _roundest(base: float, within: float) -> float:
    """The number with the fewest digits that lies this near, relative to its size."""
    listed = (float(f"{base:.{digits}e}") for digits in range(12))
    return next((each for each in listed if abs(each / base - 1) <= within), base)
