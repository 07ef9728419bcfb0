"""Verify a port: compare its numbers with the exact ones, and say which mistake they come from where they differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from situs.models.fingerprints import fingerprint
from situs.models.oracle.arrays import Computed
from situs.models.oracle.making import asked, computed_parts, golden, surroundings
from situs.models.oracle.parts import Part
from situs.models.oracle.places import POSITIONS
from situs.models.positions import ModelPositions, spans
from situs.models.reading import read
from situs.models.verifying.comparing import UNITS, Difference, Given, differences
from situs.models.verifying.mattering import matters
from situs.models.verifying.mistake import Mistake
from situs.models.verifying.ports import arrays_of, asked_of, port_of, require_stated
from situs.models.verifying.searching import Match, Search
from situs.models.verifying.verdict import Explanation, Finding, Verdict


def verify(
    source: object,
    port: object,
    *,
    dtype: str | torch.dtype | None = None,
    positions: Iterable[int] | None = None,
    layers: Iterable[int] | None = None,
    length: int | None = None,
) -> Verdict:
    """Compare what a port computes with the exact numbers of a model, and search for the mistake where it differs.

    source: anything that `read` takes, or what it gave.
    port: a golden file that the port filled, with any of its arrays; a mapping of arrays by name; or a function that is
        called with the inputs of each group, as a dict, and returns a mapping of arrays.
    dtype: that the port computes in, "float32" or "bfloat16"; found from its numbers if left out.
    positions, layers, length: as `golden` was given them, where the port's file does not say.

    >>> from situs import models
    >>> config = {"model_type": "llama", "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2}
    >>> def port(group):
    ...     angles = group["positions"][:, None] / 10000 ** (torch.arange(4.0, dtype=torch.float64) / 4)
    ...     return {"cos": angles.cos(), "sin": angles.sin()}
    >>> import torch
    >>> models.verify(config, port).agrees
    True
    """
    model = source if isinstance(source, ModelPositions) else read(source)
    stated = require_stated(dtype)
    given = port_of(port)
    options = {"positions": positions, "layers": layers, "length": length}
    with surroundings():
        wanted: dict[str, Any] = {"positions": POSITIONS, "layers": None, "length": None}
        wanted |= asked_of(given, fingerprint(model), model.model_type)
        wanted |= {key: each for key, each in options.items() if each is not None}
        right = golden(model, **wanted)
        parts = computed_parts(model, asked(model, **wanted))
        arrays = arrays_of(given, parts, right, stated)
        return _judged(model, parts, arrays, copied=_copied(given.meta, arrays, right.arrays))


def _copied(meta: object, arrays: Mapping[str, Given], right: Mapping[str, torch.Tensor]) -> set[str]:
    """Arrays of a golden file that a port left as they were: no evidence of what it computes."""
    if meta is None:
        return set()
    return {name for name, each in arrays.items() if torch.equal(each.value, right[name].double())}


def _judged(model: ModelPositions, parts: tuple[Part, ...], arrays: dict[str, Given], *, copied: set[str]) -> Verdict:
    found: list[Difference] = []
    findings: list[Finding] = []
    for part in parts:
        names = Computed(part).names
        own = {name: each for name, each in arrays.items() if name in names}
        wrong = differences(part, own)
        found += wrong
        if wrong:
            evidence = {name: each for name, each in own.items() if name not in copied}
            findings += _explained(part, evidence, {each.array for each in wrong})
    unexplained = any(not finding.explanations for finding in findings)
    return Verdict(
        not found, model.model_type, _dtypes(arrays), tuple(arrays), tuple(found), tuple(findings),
        _narrower(parts, arrays) if unexplained else None,
        untouched=copied == set(arrays) and any(map(_tells, arrays.values())),
    )  # fmt: skip


def _narrower(parts: tuple[Part, ...], arrays: Mapping[str, Given]) -> str | None:
    """The finest half precision within whose rounding all numbers are right."""
    for dtype in ("float16", "bfloat16"):
        wider = {
            name: Given(each.value, dtype if each.unit < UNITS[dtype] else each.dtype) for name, each in arrays.items()
        }
        if not any(differences(part, wider) for part in parts):
            return dtype
    return None


def _tells(given: Given) -> bool:
    """Whether some number is none that all dtypes hold: fractions of 64 are exact in all."""
    return bool(((given.value * 64) % 1 != 0).any())


def _dtypes(arrays: Mapping[str, Given]) -> tuple[str, ...]:
    """The dtypes that arrays were computed in, by those whose numbers tell."""
    telling = [each.dtype for each in arrays.values() if _tells(each)]
    return tuple(dict.fromkeys(telling)) or ("any dtype",)


def _explained(part: Part, evidence: dict[str, Given], wrong: set[str]) -> list[Finding]:
    """What explains a part as a whole, or else each of its groups by itself, or else arrays of a group."""
    whole = Search(part, evidence).run()
    if whole:
        return [_finding(part, _where(part, wrong), evidence, wrong, whole)]
    findings = []
    names = sorted({name.rpartition(".")[0] for name in wrong})
    for name in names:
        own = {key: each for key, each in evidence.items() if key.rpartition(".")[0] == name}
        differing = wrong & set(own)
        found = Search(part, own).run() if len(names) > 1 else []
        findings += (
            [_finding(part, _where(part, differing), own, differing, found)]
            if found
            else _by_array(part, own, differing)
        )
    return findings


def _by_array(part: Part, evidence: dict[str, Given], wrong: set[str]) -> list[Finding]:
    """What explains arrays of a group by themselves, where nothing explains all: a program may go wrong in one place
    before its tables, and in another behind them. Arrays that one mistake explains are told together."""
    told: list[tuple[list[Match], set[str]]] = []
    known: list[Mistake] = []
    for name in (each for each in Computed(part).names if each in wrong):
        found = Search(part, {name: evidence[name]}).run(beside=known)
        known += [each for match in found[:1] for each in match.mistakes if each not in known]
        for index, (before, arrays) in enumerate(told):
            common = [match for match in before if match.names() in {each.names() for each in found}]
            if common or (not before and not found):
                told[index] = common, {*arrays, name}
                break
        else:
            told.append((found, {name}))
    if not any(found for found, _ in told):
        return [_finding(part, _where(part, wrong), evidence, wrong, [])]
    return [
        _finding(part, f"{_where(part, arrays)}, {_keys(arrays)}", _some(evidence, arrays), arrays, found)
        for found, arrays in told
    ]


def _some(evidence: dict[str, Given], names: set[str]) -> dict[str, Given]:
    return {name: each for name, each in evidence.items() if name in names}


def _keys(names: set[str]) -> str:
    """Names of arrays without that of their group: cos and sin."""
    *first, last = sorted(name.rpartition(".")[2] for name in names)
    return f"{', '.join(first)} and {last}" if first else last


def _finding(part: Part, where: str, evidence: dict[str, Given], wrong: set[str], found: list[Match]) -> Finding:
    told = tuple(
        Explanation(
            match.names(), matters(part, match.part, evidence), tuple(each.cure(part) for each in match.mistakes)
        )
        for match in found
    )
    return Finding(where, tuple(sorted(wrong)), told)


def _where(part: Part, wrong: set[str]) -> str:
    """Which layers, or what else, some arrays belong to."""
    before = part.prefix.removesuffix(".")
    groups = [group for group in part.groups if any(name.startswith(f"{part.name(group)}.") for name in wrong)]
    numbers = tuple(sorted({number for group in groups for number in group.numbers}))
    words = [f"layer{'s' * (len(numbers) > 1)} {spans(numbers)}"] if numbers else []
    words += [
        said
        for key, said in (("schedule.", "the schedule of layers"), ("batch.", "positions of a batch"))
        if any(name.removeprefix(part.prefix).startswith(key) for name in wrong)
    ]
    words += [
        f"the table {table.name}"
        for table in part.tables
        if any(name.startswith(f"{part.name(table)}.") for name in wrong)
    ]
    return f"{before}{': ' * bool(before)}{', '.join(words)}"
