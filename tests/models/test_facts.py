"""facts.json is what transformers' configuration classes say."""

import importlib.util
import json
import pathlib

import pytest

from situs.models.readers.facts import facts_of, model_types

FILE = pathlib.Path(__file__).parent.parent.parent / "docs" / "facts.py"


@pytest.mark.heavy
@pytest.mark.once
def test_facts_are_those_of_transformers() -> None:
    spec = importlib.util.spec_from_file_location("facts", FILE)
    assert spec is not None
    assert spec.loader is not None
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    assert json.loads(maker.FILE.read_text(encoding="utf-8")) == maker.gathered()


def test_a_type_that_transformers_does_not_have_has_no_facts() -> None:
    assert facts_of("brand_new") is None
    assert len(model_types()) == 788
