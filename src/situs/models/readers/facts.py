"""What transformers' own configuration classes say where a file is silent, for every model type that it has.

facts.json is written by ``docs/facts.py`` from the classes themselves, and compared with them by the tests.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any


@dataclass(frozen=True)
class Facts:
    """Hold the defaults of one model type.

    keys: settings that a file may leave out.
    parts: the settings that hold a configuration of their own, with its model type where that is fixed.
    renamed: common names of settings, with the names under which files of this type have them.
    theta: base of the frequencies where nothing else says one.
    share: of the channels that are rotated, where nothing else says one.
    rope: the whole object of rope parameters, where nothing at all is said.
    """

    keys: Mapping[str, Any] = field(default_factory=dict)
    parts: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    theta: float | int | None = None
    share: float | int | None = None
    rope: Mapping[str, Any] | None = None


@functools.cache
def _all() -> dict[str, dict[str, Any]]:
    text = resources.files("situs.models.readers").joinpath("facts.json").read_text(encoding="utf-8")
    types: dict[str, dict[str, Any]] = json.loads(text)["types"]
    return types


def facts_of(model_type: str) -> Facts | None:
    """The defaults of a model type; None where transformers has no such type."""
    found = _all().get(model_type)
    return None if found is None else Facts(**found)


def model_types() -> tuple[str, ...]:
    """Every model type that transformers has."""
    return tuple(_all())
