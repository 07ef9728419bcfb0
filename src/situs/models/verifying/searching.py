"""Search for the mistakes that a port's numbers come from: alone first, then in pairs.

A mistake explains a port if every array that the port has is what a program with that mistake would compute, within
rounding. Where none does with exact angles, angles of float32 are forgiven, and told as one mistake more: every program
rounds them differently, so that they are a tolerance and no prediction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from situs.models.oracle.arrays import Computed
from situs.models.oracle.parts import Part
from situs.models.verifying.comparing import EXACT, FLOAT32, Given, agree
from situs.models.verifying.fitting import fitted_bases, fitted_factors
from situs.models.verifying.frequencies import FREQUENCIES
from situs.models.verifying.layers import LAYERS
from situs.models.verifying.layouts import FLOAT32 as FLOAT32_ANGLES
from situs.models.verifying.layouts import LAYOUTS
from situs.models.verifying.mistake import Mistake
from situs.models.verifying.orders import ORDERS
from situs.models.verifying.scores import SCORES

CATALOGUE: tuple[Mistake, ...] = (*FREQUENCIES, *LAYOUTS, *ORDERS, *LAYERS, *SCORES)
"""Every mistake that is tried, simple causes before those that look alike."""


@dataclass(frozen=True)
class Match:
    """Hold mistakes that together explain a port, and the part as a program with them has it."""

    mistakes: tuple[Mistake, ...]
    part: Part

    def names(self) -> tuple[str, ...]:
        """What was done, in words."""
        return tuple(each.name for each in self.mistakes)


class Search:
    """Search one part for what explains some of a port's arrays."""

    def __init__(self, part: Part, port: Mapping[str, Given]) -> None:
        self.right = part
        computed = Computed(part)
        # small arrays first: most mistakes are ruled out by them
        self.port = dict(sorted(port.items(), key=lambda each: each[1].value.numel()))
        self.numbers = {name: computed.numbers(name) for name in self.port}

    def run(self, beside: Sequence[Mistake] | None = None) -> list[Match]:
        """The simplest explanations: all that are equally simple, none where there is none.

        beside: the mistakes of which one is in every pair that is tried; any two make a pair if left out.
        """
        singles = [(each, changed) for each in CATALOGUE if (changed := each.change(self.right)) is not None]
        exact, forgiven = self._tried([((each,), part) for each, part in singles])
        if self._explains(self.right, FLOAT32):
            forgiven.insert(0, Match((), self.right))
        whole = exact + [match for match in forgiven if not match.mistakes]
        if whole or forgiven:
            return [self._told(each, each in forgiven) for each in whole or forgiven]
        pairs = [
            ((first, second), changed)
            for index, (first, part) in enumerate(singles)
            for second, _ in singles[index + 1 :]
            if first.aspect != second.aspect
            and (beside is None or first in beside or second in beside)
            and (changed := second.change(part)) is not None
        ]
        exact, forgiven = self._tried(pairs)
        if not exact and not forgiven:
            exact, forgiven = self._with_fitted(singles)
        return [self._told(each, each in forgiven) for each in exact or forgiven]

    def _with_fitted(self, singles: Sequence[tuple[Mistake, Part]]) -> tuple[list[Match], list[Match]]:
        """Try the base and the factor that the port's own numbers tell, alone and then with each other mistake."""
        told = [*fitted_factors(self.right, self.port), *fitted_bases(self.right, self.port)]
        fitted = [(each, changed) for each in told if (changed := each.change(self.right)) is not None]
        exact, forgiven = self._tried([((each,), part) for each, part in fitted])
        if exact or forgiven:
            return exact, forgiven
        return self._tried(
            [
                ((first, second), changed)
                for first, part in fitted
                for second, _ in singles
                if first.aspect != second.aspect and (changed := second.change(part)) is not None
            ]
        )

    def _tried(self, candidates: Sequence[tuple[tuple[Mistake, ...], Part]]) -> tuple[list[Match], list[Match]]:
        """Those that explain the port with exact angles, and those that do where angles of float32 are forgiven."""
        exact: list[Match] = []
        forgiven: list[Match] = []
        for mistakes, part in candidates:
            level = self._level(part)
            if level is not None:
                (exact if level == EXACT else forgiven).append(Match(mistakes, part))
        return exact, forgiven

    def _level(self, part: Part) -> float | None:
        """How exact angles must be for a wrong program to explain the port; None where it does not at all."""
        computed, level = Computed(part, self.right), EXACT
        for name, given in self.port.items():
            try:
                numbers = computed.numbers(name)
            except ValueError:  # positions that an encoding refuses: no program could have computed this
                return None
            if numbers.value.shape != given.value.shape:
                return None
            if level == EXACT and not agree(self.right, name, given, numbers, EXACT):
                level = FLOAT32
            if level == FLOAT32 and not agree(self.right, name, given, numbers, FLOAT32):
                return None
        return level

    def _explains(self, part: Part, of_angles: float) -> bool:
        return all(agree(part, name, given, self.numbers[name], of_angles) for name, given in self.port.items())

    def _told(self, match: Match, forgiven: bool) -> Match:
        """Tell angles of float32 as a mistake of their own, where they were forgiven."""
        if not forgiven:
            return match
        part = FLOAT32_ANGLES.change(match.part) or match.part
        return Match((*match.mistakes, FLOAT32_ANGLES), part)
