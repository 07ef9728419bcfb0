"""The contract: what every encoding must do, ours or yours.

``check_encoding`` runs it against the reference attention, on the bench (``checks.bench``). Four invariants and
the handling of modules are asked of all; properties, measured by ``checks.measures``, of those whose ``tags`` claim
them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Set
from dataclasses import dataclass, field

import torch

from situs.arguments import require_flag, told
from situs.checks import configurations, form, handling, invariants, properties
from situs.checks.bench import Bench
from situs.checks.modes import usual_modes
from situs.encodings.base import Encoding
from situs.registry import did_you_mean

Check = Callable[[Bench], None]

CHECKS: tuple[Check, ...] = (
    invariants.keeps_shape_and_dtype,
    invariants.leaves_input_alone,
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
    "fading": properties.fades,
    "learned": properties.learns,
}
"""What each tag claims, as the check that measures it."""


TRACEABLE = "Use torch's operations alone: no .item(), .numpy() or .tolist(), and no if over a tensor's values."
CURES: dict[Check, str] = {
    invariants.forms_agree: "Let rule() compute elementwise, from its arguments and the tensors it holds alone: "
    "attention asks it for any shape, and for single numbers.",
    handling.meta_equals_plain: "Make in forward, or hold as parameters, what __init__ computes: on the meta device "
    "it has no values.",
    handling.copied_equals_plain: "Hold options, parameters and tensors alone, and no lambda, lock or open file.",
    handling.compiled_equals_plain: TRACEABLE,
    handling.exported_equals_plain: TRACEABLE,
}
"""What to change where a check that broke does not say so itself."""

RAISED: dict[Check, str] = {
    invariants.remembers_nothing: "Serve texts of any length, or write self.usable_length = ... in __init__ where "
    "positions end.",
    configurations.configurations_apart: configurations.OWN_TABLES + ".",
    handling.loads_strictly: "Make all parameters in __init__, the same ones for the same options.",
    handling.half_equals_plain: "Serve positions of any size, or write self.usable_length = ... in __init__ where they "
    "end. Cast parameters to the dtype that you compute in, self.a.to(dtype), and the result last: .to(x.dtype).",
}
"""What to change where a check could not run to its end."""


class EncodingCheckError(AssertionError):
    """Raised where an encoding broke the contract; its text lists every failure."""


@dataclass(frozen=True)
class CheckReport:
    """Tell what was checked, and what failed with which words."""

    encoding: str
    passed: tuple[str, ...]
    failures: dict[str, str] = field(default_factory=dict)
    where: str = ""
    """File and line of the class, where it is a user's."""

    @property
    def ok(self) -> bool:
        """Whether everything passed."""
        return not self.failures

    def __str__(self) -> str:
        if self.ok:
            return f"{self.encoding} keeps the contract: {len(self.passed)} checks passed."
        asked = len(self.passed) + len(self.failures)
        at = f" (class at {self.where})" if self.where else ""
        lines = [f"{self.encoding} breaks the contract in {len(self.failures)} of {asked} checks{at}:"]
        if form.is_well_formed.__name__ in self.failures:
            lines = [f"{self.encoding} cannot be checked before this is mended{at}:"]
        return "\n".join(lines + [f"  {name}: {words}" for name, words in self.failures.items()])


def check_encoding(encoding: Encoding, *, raise_on_failure: bool = True) -> CheckReport:
    """Run the whole contract over an encoding and report every failure at once, each with what to change.

    Where the encoding cannot run at all, that is the only failure. Works on a copy, on the CPU, in float32, and in
    evaluation mode but where training is what is checked. The caller's grad mode, default dtype, default device and
    autocast change nothing. Raises `EncodingCheckError` unless told not to.
    """
    if not isinstance(encoding, Encoding):
        raise TypeError(
            f"encoding must be a situs.Encoding, since its place tells how to run it; got {told(encoding)}."
        )
    require_flag("raise_on_failure", raise_on_failure, "failures are raised or reported")
    _require_tags(encoding)
    passed, failures = [], {}
    with usual_modes():
        claimed = {TAGS[tag]: f'Mend that, or take "{tag}" out of tags.' for tag in sorted(set(encoding.tags))}
        for check in (form.is_well_formed, *CHECKS, *claimed):
            if form.is_well_formed.__name__ in failures:
                break  # the other checks could only say the same
            cure = claimed.get(check) or CURES.get(check, "")
            words = _failure(check, copy.deepcopy(encoding).to("cpu", torch.float32).eval(), cure)
            if words is None:
                passed.append(check.__name__)
            else:
                failures[check.__name__] = words
    name = type(encoding).__name__
    if passed:  # with options that are kept under their names
        name += f"({encoding.extra_repr()})"
    report = CheckReport(name, tuple(passed), failures, form.where(encoding))
    if raise_on_failure and not report.ok:
        raise EncodingCheckError(str(report))
    return report


def _require_tags(encoding: Encoding) -> None:
    """Raise unless an encoding's tags are a set of names that checks go by."""
    tags: object = encoding.tags
    reason = f"each names a check that {type(encoding).__name__} must pass"
    if isinstance(tags, str):
        raise ValueError(
            f'tags must be a set of names, since {reason}; got the string "{tags}". Write frozenset({{"{tags}"}}).'
        )
    if not isinstance(tags, (Set, list, tuple)):
        raise ValueError(f"tags must be a set of names, since {reason}; got {told(tags)}.")
    unknown = sorted(map(str, set(tags) - TAGS.keys()))
    if unknown:
        raise ValueError(
            f"tags must be among {', '.join(sorted(TAGS))}, since {reason}; got {', '.join(unknown)}."
            f"{did_you_mean(unknown[0], TAGS)}"
        )


def _failure(check: Check, encoding: Encoding, cure: str) -> str | None:
    """Run a check; return its promise, how it was broken and what to change, or None if it was kept."""
    promise = " ".join((check.__doc__ or "").split())
    try:
        check(Bench.around(encoding))
    except KeyboardInterrupt as stop:
        raise KeyboardInterrupt(f"in {check.__name__}{form.raised_at(stop, encoding)}") from stop
    except (Exception, SystemExit) as failure:  # a user's encoding may raise anything; the rest is still to be checked
        at = form.raised_at(failure, encoding)
        if isinstance(failure, AssertionError) and not at:
            said = str(failure)
            return f"{promise} But {said}{'' if said.endswith('?') else '.'} {cure}".rstrip()
        first_line = str(failure).strip().split("\n")[0]
        cure = form.hint(failure, encoding) or cure or RAISED.get(check, "")
        said = f"{promise} But it raised {type(failure).__name__}{at}: {first_line}"
        return f"{said.rstrip('.:')}. {cure}" if cure else said
    return None
