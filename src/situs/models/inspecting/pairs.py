"""What each pair of channels does at a length: how often it turned in training, and whether it meets new angles there.

    turns         within the trained length: from one on, a pair has met every angle
    seen          every angle at the target occurred in training, at the same frequency
    interpolated  every angle occurred, but a scaling makes the steps between positions smaller
    never seen    from some distance on, angles are larger than any in training
    not rotated   its frequency is 0: the pair holds no position

A query and a key meet by the angle of their distance, so that layers with a window meet no new ones in longer texts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from situs.models.calls import Call
from situs.models.numbers import Rotation, rotation_by, rotation_call
from situs.models.positions import Layer, spans
from situs.models.training import Training, unscaled

State = Literal["seen", "interpolated", "never seen", "not rotated"]

ROUNDING = 1e-9
"""Angles and frequencies that differ by less, relatively, are the same."""
DTYPES = ("float32", "bfloat16", "float16")
MEASURED = 8192  # positions up to the target, at equal steps, at which rounded angles are measured


@dataclass(frozen=True)
class Pair:
    """Hold what one pair does."""

    index: int
    axis: int
    frequency: float
    """Radians per position at the target."""
    turns: float
    """Within the trained length."""
    state: State
    since: int | None = None
    """The distance from which on angles are new."""

    @property
    def wavelength(self) -> float:
        """Positions per full rotation."""
        return 2 * math.pi / abs(self.frequency) if self.frequency else math.inf


def pairs_of(layer: Layer, training: Training, target: int, *, trained: Layer | None = None) -> tuple[Pair, ...]:
    """What each pair of a layer that rotates does in a text of ``target`` tokens; ``trained`` is the layer as it was in
    training, where a scaling has been added since."""
    call, first_call = rotation_call(layer), rotation_call(layer if trained is None else trained)
    assert call is not None
    assert first_call is not None
    span = layer.reach
    plain = rotation_by(unscaled(first_call)).frequencies
    before = rotation_by(first_call, training.declared).frequencies
    now = rotation_by(call, target)
    first, later, distance = (min(each, span or each) for each in (training.plain, training.declared, target))
    found = []
    for index, frequency in enumerate(map(abs, now.frequencies)):
        by_plain = abs(plain[index])
        by_scaled = abs(before[index]) if training.is_scaled else by_plain
        shown = by_scaled * later  # the largest angle that training with these frequencies showed
        known = max(by_plain * first, shown)
        angle = min(frequency * distance, 2 * math.pi) * (1 - ROUNDING)
        state: State = "seen"
        since = None
        if not frequency:
            state = "not rotated"
        elif known < angle:
            state, since = "never seen", math.ceil(known / frequency)
        elif frequency < by_scaled * (1 - ROUNDING) or (shown < angle and frequency < by_plain * (1 - ROUNDING)):
            state = "interpolated"
        turns = known / (2 * math.pi)
        found.append(Pair(index, now.axis_of_pair[index], now.frequencies[index], turns, state, since))
    return tuple(found)


def scaling_in(layer: Layer, target: int, training: Training | None) -> str:
    """What a scaling of rotary changes in a layer, or why nothing; "" where there is none and one could."""
    if layer.kind in ("linear", "none"):
        return ""
    call = rotation_call(layer)
    if call is None:
        return "a scaling of rotary changes nothing here, because these layers do not rotate"
    scaling = call.option("scaling")
    if scaling is not None and scaling.cls == "DualChunk":
        return _chunked(scaling, target)
    name = "a scaling" if scaling is None else scaling.cls
    span = layer.reach
    known = math.inf if training is None else training.plain
    if span is not None and span <= min(target, known):
        nothing = "a scaling changes nothing here" if scaling is None else f"{name} is not needed here"
        return f"{nothing}, because no key is farther away than {span - 1:,} tokens at any length"
    if scaling is None:
        return ""
    plain, now = rotation_by(unscaled(call)), rotation_by(call, target)
    ratios = [a / b if b else 1.0 for a, b in zip(plain.frequencies, now.frequencies, strict=True)]
    slowed = [index for index, each in enumerate(ratios) if abs(each - 1) > ROUNDING]
    words = [f"slows pairs {spans(tuple(slowed))} by up to {max(ratios):.4g} times"] if slowed else []
    still = [index for index, each in enumerate(now.frequencies) if not each]
    if still:
        words.append(f"leaves pairs {spans(tuple(still))} without a position")
    if now.factor != 1:
        words.append(f"multiplies cosines and sines by {now.factor:.4g}")
    return f"{name} {' and '.join(words) or 'changes nothing at this length'}"


def _chunked(scaling: Call, target: int) -> str:
    """What dual chunks change: nothing in texts that end before the first distance that is cut off."""
    farthest = scaling.option("chunk_size")
    if target <= farthest + 1:
        return f"DualChunk changes nothing at this length: it changes distances beyond {farthest:,}"
    size = farthest - scaling.option("local_size")
    return f"DualChunk counts positions anew every {size:,} tokens, so that no distance is beyond {farthest:,}"


def angle_errors(rotation: Rotation, target: int) -> dict[str, float]:
    """The largest error of an angle, in radians, where position, frequency and product are rounded to a dtype: measured
    at positions up to the target; infinite where positions overflow."""
    import torch

    positions = torch.linspace(0, target - 1, min(target, MEASURED), dtype=torch.float64).round()[:, None]
    frequencies = torch.tensor(rotation.frequencies, dtype=torch.float64)
    exact = positions * frequencies
    found = {}
    for name in DTYPES:
        dtype = getattr(torch, name)
        rounded = (positions.to(dtype) * frequencies.to(dtype)).double()
        error = (rounded - exact).abs().nan_to_num(nan=math.inf, posinf=math.inf).max()
        found[name] = float(error)
    return found
