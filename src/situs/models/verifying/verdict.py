"""What `verify` returns: whether a port agrees, which mistakes explain it where it does not, and where it differs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from situs.models.verifying.comparing import Difference
from situs.models.wrapping import WIDTH, filled

UNTOUCHED = (
    "every array is bit for bit the golden file's own: was the file filled? Write what the port computes over its "
    "arrays."
)
MOST = 4
"""Explanations that are listed, of those that are equally simple."""


@dataclass(frozen=True)
class Explanation:
    """Hold mistakes that together make a port's numbers.

    matters: from which position on, or where else, the numbers differ.
    cures: what to do instead of each.
    """

    mistakes: tuple[str, ...]
    matters: str
    cures: tuple[str, ...]


@dataclass(frozen=True)
class Finding:
    """Hold what explains the arrays of some layers: explanations that are equally good, none where none was found."""

    where: str
    arrays: tuple[str, ...]
    explanations: tuple[Explanation, ...]


@dataclass(frozen=True)
class Verdict:
    """Hold the judgement of a port.

    agrees_in: a dtype within whose rounding all numbers are right, where they are not in that of the port.
    untouched: whether every array is bit for bit the golden file's, as in one that nobody filled.

    >>> from situs import models
    >>> config = {"model_type": "llama", "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2}
    >>> frequencies = [1.0, 0.1, 0.01, 0.001]
    >>> print(models.verify(config, {"layer0.frequencies": frequencies}))
    agrees: 1 of 1 array of llama within rounding, as float32
    >>> verdict = models.verify({**config, "rope_theta": 5e5}, {"layer0.frequencies": frequencies})
    >>> verdict.agrees, verdict.mistakes
    (False, ('base left at 10,000',))
    """

    agrees: bool
    model_type: str
    dtypes: tuple[str, ...]
    compared: tuple[str, ...]
    differences: tuple[Difference, ...] = ()
    findings: tuple[Finding, ...] = ()
    agrees_in: str | None = None
    untouched: bool = False

    @property
    def mistakes(self) -> tuple[str, ...]:
        """The mistakes of the first explanation of each finding."""
        first = (finding.explanations[0] for finding in self.findings if finding.explanations)
        return tuple(dict.fromkeys(name for each in first for name in each.mistakes))

    def describe(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {**asdict(self), "mistakes": list(self.mistakes)}

    def to_json(self) -> str:
        """`describe` as JSON."""
        return json.dumps(self.describe(), indent=2)

    def render(self, *, width: int = WIDTH) -> str:
        """The verdict as text, in lines of at most ``width`` columns."""
        return "\n".join(self._lines(width))

    def __str__(self) -> str:
        return self.render()

    def _lines(self, width: int) -> Iterator[str]:
        count, dtypes = len(self.compared), " and ".join(self.dtypes)
        arrays = f"{count} array{'s' * (count != 1)} of {self.model_type}"
        if self.agrees:
            yield from filled(f"agrees: {count} of {arrays} within rounding, as {dtypes}", width)
            if self.untouched:
                yield from filled(UNTOUCHED, width)
            return
        yield from filled(
            f"disagrees: {len(self.differences)} of {arrays} differ by more than rounding of {dtypes}", width
        )
        if self.agrees_in is not None:
            dtype = self.agrees_in
            yield from filled(
                f"agrees within rounding of {dtype}: give --dtype {dtype}, if the port computes in {dtype}", width
            )
        for finding in self.findings:
            yield ""
            yield from filled(f"{finding.where}:", width)
            if not finding.explanations:
                yield from filled("no mistake of the catalogue explains this, nor do two together", width, "  ")
            for index, each in enumerate(finding.explanations[:MOST]):
                yield from filled(f"{'or ' * bool(index)}{', and '.join(each.mistakes)}", width, "  ")
                yield from filled(each.matters, width, "    ")
                for cure in each.cures:
                    yield from filled(f"correct: {cure}", width, "    ")
            more = len(finding.explanations) - MOST
            if more > 0:
                others = f"or {more} other{'s' * (more > 1)}, equally good: fill more arrays to tell them apart"
                yield from filled(others, width, "  ")
        yield ""
        yield "first differences:"
        for difference in self.differences[:MOST]:
            yield from filled(str(difference), width, "  ")
        if len(self.differences) > MOST:
            more = len(self.differences) - MOST
            yield f"  and in {more} more array{'s' * (more > 1)}"
