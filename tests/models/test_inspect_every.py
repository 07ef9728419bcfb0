"""Every model type that can be read can be inspected, and extended or refused by a sentence."""

import json
import re

import pytest

from situs.models import ConfigError, diff, extend, inspect, read, reading
from situs.models.readers.facts import model_types

pytestmark = pytest.mark.once

READABLE = []
with pytest.MonkeyPatch.context() as patch:
    patch.setattr(reading, "did_you_mean", lambda *_: "")  # which takes long, and nobody reads
    for _name in model_types():
        try:
            READABLE.append((_name, read({"model_type": _name})))
        except ConfigError:  # which another test counts
            continue


def test_there_are_many() -> None:
    assert len(READABLE) >= 400


@pytest.mark.thin(8)
@pytest.mark.parametrize("name", [name for name, _ in READABLE])
def test_every_model_type_is_inspected(name: str) -> None:
    report = inspect({"model_type": name}, target=200_000)
    text = str(report)
    assert text.startswith(f"{name} at 200,000 tokens")
    assert not re.search(r"\bnan\b", text)
    json.dumps(report.to_dict(), allow_nan=False)
    assert not diff(report.model, report.model)


@pytest.mark.thin(8)
@pytest.mark.parametrize(("name", "model"), READABLE, ids=[name for name, _ in READABLE])
def test_every_model_type_is_extended_or_refused(name: str, model: object) -> None:
    try:
        longer = extend(model, factor=40)
    except ConfigError as problem:
        told = str(problem)
    else:
        assert read(longer.config) == longer.positions
        assert diff(model, longer.positions)
        return
    assert told.startswith(("source must have layers of full attention", "original must be given")), name
