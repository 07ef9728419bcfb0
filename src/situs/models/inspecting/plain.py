"""A report as plain data, as JSON holds it."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from situs.models.inspecting.pairs import Pair
    from situs.models.inspecting.report import Group, Part, Report


def as_plain(report: Report) -> dict[str, Any]:
    """All of a report; numbers that are not finite become null, since JSON has none."""
    advice = report.advice
    return {
        "model_type": report.model.model_type,
        "verified": report.model.verified,
        "engine": report.engine,
        "target": report.target,
        "fingerprint": report.fingerprint,
        "parts": [_part(each) for each in report.parts],
        "notes": [str(note) for note in (*report.model.notes, *_notes_of_parts(report))],
        "advice": {
            "headline": advice.headline,
            "reasons": list(advice.reasons),
            "method": None if advice.extension is None else advice.extension.method,
            "factor": None if advice.extension is None else advice.extension.factor,
            "settings": dict(advice.settings),
            "replaces": [] if advice.extension is None else list(advice.extension.replaces),
            "options": [asdict(each) for each in advice.options],
        },
        "engines": {name: list(lines) for name, lines in report.engines.items()},
    }


def _notes_of_parts(report: Report) -> list[Any]:
    return [note for part in report.parts if part.model is not report.model for note in part.model.notes]


def _part(part: Part) -> dict[str, Any]:
    return {
        "name": part.name,
        "model_type": part.model.model_type,
        "lengths": {name: value for name, value in vars(part.model.lengths).items() if value},
        "trained_length": None if part.training is None else part.training.length,
        "original_length": None if part.training is None else part.training.plain,
        "original_length_is_inferred": part.training is not None and part.training.inferred,
        "groups": [_group(each) for each in part.groups],
        "tables": list(part.tables),
        "cache": [asdict(each) for each in part.caches],
        "cache_bytes": sum(each.bytes for each in part.caches),
        "table_bytes": part.table_bytes,
    }


def _group(group: Group) -> dict[str, Any]:
    return {
        "layers": group.layers,
        "does": str(group.layer),
        "kind": group.layer.kind,
        "window": group.layer.window,
        "scaling": group.scaling,
        "angle_errors": {name: _finite(each) for name, each in group.errors.items()},
        "others": list(group.others),
        "pairs": [_pair(each) for each in group.pairs],
    }


def _pair(pair: Pair) -> dict[str, Any]:
    return {**asdict(pair), "wavelength": _finite(pair.wavelength)}


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
