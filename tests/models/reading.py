"""Readers of this package, joined to those of `situs.models.read`, and configurations as files hold them."""

from __future__ import annotations

from typing import Any

from situs.models import fixed, tables, vision
from situs.models import read as reading
from situs.models.facts import Facts, facts_of
from situs.models.families import family_of
from situs.models.positions import ModelPositions
from situs.models.view import View

READERS = {**vision.READERS, **tables.READERS, **fixed.READERS}
reading.READERS.update(READERS)


def file_of(config: Any) -> dict[str, Any]:
    """A configuration of transformers as its file holds it, without parts that are configurations of their own."""
    held = config.to_diff_dict()
    parts = set(type(config).sub_configs)
    return {"model_type": config.model_type, **{key: value for key, value in held.items() if key not in parts}}


def read(file: dict[str, Any]) -> ModelPositions:
    """Read one stack; raises where a key that speaks of positions is not read."""
    name = file["model_type"]
    facts = facts_of(name) or Facts()
    view = View(file, defaults=facts.keys, renamed=facts.renamed)
    found: ModelPositions = READERS[name](view, name, family_of(name), facts)
    notes = tuple(reading._unread(view, name, verified=True))
    return found.with_notes(*notes)
