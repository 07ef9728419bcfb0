"""The contract: what every encoding must do, ours or yours.

``check_encoding`` runs it against the reference attention. Four invariants and the handling of modules are asked of
all; properties are asked of those whose ``tags`` claim them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from situs.checks import configurations, handling, invariants, properties
from situs.checks.subject import Subject
from situs.encodings.base import Encoding

Check = Callable[[Subject], None]

CHECKS: tuple[Check, ...] = (
    invariants.keeps_shape_and_dtype,
    invariants.cached_equals_full,
    invariants.padded_equals_alone,
    invariants.packed_equals_separate,
    invariants.remembers_nothing,
    invariants.serves_any_heads,
    configurations.configurations_apart,
    invariants.forms_agree,
    handling.cast_equals_plain,
    handling.half_equals_plain,
    handling.autocast_equals_plain,
    handling.meta_equals_plain,
    handling.copied_equals_plain,
    handling.loads_strictly,
    handling.compiled_equals_plain,
    handling.exported_equals_plain,
    properties.differentiates,
)

TAGS: dict[str, Check] = {
    "relative": properties.is_relative,
    "stationary": properties.is_stationary,
    "norm": properties.keeps_norm,
    "bounded": properties.is_bounded,
    "unique": properties.is_unique,
    "far": properties.reaches_far,
    "real": properties.takes_real_positions,
    "decaying": properties.decays,
    "learned": properties.learns,
}
"""What each tag claims, as the check that measures it."""


class EncodingCheckError(AssertionError):
    """An encoding broke the contract; its text lists every failure."""


@dataclass(frozen=True)
class CheckReport:
    """What was checked, and what failed with which words."""

    encoding: str
    passed: tuple[str, ...]
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether everything passed."""
        return not self.failures

    def __str__(self) -> str:
        if self.ok:
            return f"{self.encoding} keeps the contract: {len(self.passed)} checks passed."
        asked = len(self.passed) + len(self.failures)
        lines = [f"{self.encoding} breaks the contract in {len(self.failures)} of {asked} checks:"]
        return "\n".join(lines + [f"  {name}: {words}" for name, words in self.failures.items()])


def check_encoding(encoding: Encoding, *, raise_on_failure: bool = True) -> CheckReport:
    """Run the whole contract over an encoding and report every failure at once.

    Works on a copy, on the CPU, in float32, and in evaluation mode but where training is what is checked. Raises
    `EncodingCheckError` unless told not to.
    """
    if not isinstance(encoding, Encoding):
        raise TypeError(
            f"encoding must be a situs.Encoding, since its place tells how to run it; got {type(encoding).__name__}."
        )
    unknown = sorted(encoding.tags - TAGS.keys())
    if unknown:
        raise ValueError(
            f"tags must be among {', '.join(sorted(TAGS))}, since each names a check; got {', '.join(unknown)}."
        )
    passed, failures = [], {}
    for check in (*CHECKS, *(TAGS[tag] for tag in sorted(encoding.tags))):
        subject = Subject(copy.deepcopy(encoding).to("cpu", torch.float32).eval())
        try:
            check(subject)
            passed.append(check.__name__)
        except AssertionError as failure:
            failures[check.__name__] = f"{_promise(check)} But {failure}."
        except Exception as failure:  # a user's encoding may raise anything; the rest is still to be checked
            first_line = str(failure).strip().split("\n")[0]
            failures[check.__name__] = f"{_promise(check)} But it raised {type(failure).__name__}: {first_line}"
    name = f"{type(encoding).__name__}({encoding.extra_repr()})"
    report = CheckReport(name, tuple(passed), failures)
    if raise_on_failure and not report.ok:
        raise EncodingCheckError(str(report))
    return report


def _promise(check: Check) -> str:
    return " ".join((check.__doc__ or "").split())
