"""What `verify` returns: whether a port agrees, which mistakes explain it where it does not, and where it differs."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from situs.models.verifying.comparing import Difference

WIDTH = 80
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

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        count, dtypes = len(self.compared), " and ".join(self.dtypes)
        arrays = f"{count} array{'s' * (count != 1)} of {self.model_type}"
        if self.agrees:
            yield f"agrees: {count} of {arrays} within rounding, as {dtypes}"
            return
        yield from _wrapped(f"disagrees: {len(self.differences)} of {arrays} differ by more than rounding of {dtypes}")
        for finding in self.findings:
            yield ""
            yield from _wrapped(f"{finding.where}:")
            if not finding.explanations:
                yield from _wrapped("no mistake of the catalogue explains this, nor do two together", "  ")
            for index, each in enumerate(finding.explanations[:MOST]):
                yield from _wrapped(f"{'or ' * bool(index)}{', and '.join(each.mistakes)}", "  ")
                yield from _wrapped(each.matters, "    ")
                for cure in each.cures:
                    yield from _wrapped(f"correct: {cure}", "    ")
            more = len(finding.explanations) - MOST
            if more > 0:
                yield f"  or {more} other{'s' * (more > 1)}, equally good: fill more arrays to tell them apart"
        yield ""
        yield "first differences:"
        for difference in self.differences[:MOST]:
            yield from _wrapped(str(difference), "  ")
        if len(self.differences) > MOST:
            yield f"  and in {len(self.differences) - MOST} more arrays"


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ", break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
