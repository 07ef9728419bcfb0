"""Findings: what probing tells of a method, as records."""

from __future__ import annotations

from dataclasses import dataclass

CLAIMS = {
    "unique": "no two positions look alike to a query at the end of the text",
    "relative": "moving all positions by the same amount changes no score",
    "bounded": "effects do not grow without limit with the length of the text",
    "norm_preserving": "the lengths of inputs, queries and keys do not change",
    "decaying": "scores of equal tokens fall with distance",
    "equivariant": "without a causal mask, permuted tokens give outputs permuted in the same way",
}
"""Every property that is probed, and what it claims."""


@dataclass(frozen=True)
class Finding:
    """Hold whether a property was found, and by which number; None where it cannot be asked, for the reason said."""

    holds: bool | None
    number: float | None
    unit: str
    said: str


@dataclass(frozen=True)
class Cost:
    """Hold time and memory at one length, also over those of plain attention; or where a table ended, or an error."""

    time: float | None = None
    time_low: float | None = None
    """The ends of the 95 % interval of ``time``, of a bootstrap that draws the rounds anew."""
    time_high: float | None = None
    rounds: int | None = None
    memory: float | None = None
    plain_milliseconds: float | None = None
    milliseconds: float | None = None
    plain_mib: float | None = None
    mib: float | None = None
    ends: int | None = None
    error: str | None = None


@dataclass(frozen=True)
class DecodeCost:
    """Hold the time of a decode step, also over that of plain attention; or where a table ended, or an error."""

    time: float | None = None
    time_low: float | None = None
    """The ends of the 95 % interval of ``time``, of a bootstrap that draws the rounds anew."""
    time_high: float | None = None
    rounds: int | None = None
    plain_microseconds: float | None = None
    microseconds: float | None = None
    ends: int | None = None
    error: str | None = None


@dataclass(frozen=True)
class Costs:
    """Hold all costs of a method: parameters of the whole model, and time and memory of its attention."""

    parameters: int
    lengths: dict[int, Cost]
    decode: DecodeCost

    @property
    def errors(self) -> dict[str, str]:
        """What went wrong, by the length or the decoding that it went wrong at."""
        found = {str(length): cost.error for length, cost in self.lengths.items()} | {"decoding": self.decode.error}
        return {where: error for where, error in found.items() if error is not None}
