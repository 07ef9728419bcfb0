"""The base that a port's own frequencies tell, where it is none that a catalogue could list.

w_i = base^(-2i/width), so that base = w_i^(-width/2i); of the numbers within rounding of that, the one with the fewest
digits. Frequencies are the port's own, or the angles of its cosines and sines at position 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from situs.models.oracle.parts import Group, Part
from situs.models.verifying.comparing import Given
from situs.models.verifying.frequencies import about_base
from situs.models.verifying.mistake import Mistake, in_calls, plain_of

OF_POWERS = 16.0
"""In units of roundoff: how far off a frequency may be, of which a base is told."""


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
