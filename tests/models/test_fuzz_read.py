"""Readers of anything: a result or a clear error, never another exception, and never long or much memory.

SITUS_SLOW=1 pytest tests/models/test_fuzz_read.py      more than 200,000 configurations
"""

from __future__ import annotations

import json
import os
import random
import time
from typing import Any

import pytest

from situs.models import ConfigError, read
from situs.models.readers.facts import facts_of, model_types
from situs.models.readers.families import FAMILIES
from situs.models.readers.keys import POSITIONS, SIZES
from situs.models.reading import READERS

EACH = 250 if os.environ.get("SITUS_SLOW") == "1" else 1
TYPES = sorted({*model_types(), *READERS, *FAMILIES})
VALUES: list[Any] = [
    None, True, False, 0, 1, 2, 3, 4, 7, 64, 1e4, 0.5, -1, -0.5, 1e308, 10**30, float("nan"), float("inf"), "", "rope",
    "default", "yarn", [], [1], [0, 1, 1, 0], ["full_attention"], ["sliding_attention", "full_attention"], {}, {"a": 1},
    {"rope_type": "yarn", "factor": 4.0}, {"rope_type": "longrope", "short_factor": [1.0], "long_factor": [2.0]},
    {"type": "linear", "factor": 2}, {"rope_theta": 1e4, "rope_type": "llama3"}, {"full_attention": None},
    {"rope_type": None}, {"rope_theta": [1, 2]}, [[1, 2], [3]], [None], "12", "\ud800", "a" * 300,
]  # fmt: skip
KEYS = sorted(POSITIONS | SIZES)


def changed(model_type: str, chance: random.Random) -> dict[str, Any]:
    """The settings of a model type, some of them replaced."""
    facts = facts_of(model_type)
    config: dict[str, Any] = dict(facts.keys) if facts else {}
    own = [*config, "rope_parameters", "rope_scaling", "layer_types", "rope_theta", "num_hidden_layers"]
    for _ in range(chance.choice((1, 1, 2, 4))):
        config[chance.choice(own if chance.random() < 0.8 else KEYS)] = chance.choice(VALUES)
    parts = {key: {"model_type": part} for key, part in (facts.parts if facts else {}).items() if part}
    return {"model_type": model_type, **parts, **config}


def outcome(read_it: Any) -> str:
    """The sentence of an error, or that there was none."""
    try:
        found = read_it()
        return f"{found.to_json()[:1]}{found!r:.1}."
    except ConfigError as problem:
        return str(problem)
    except Exception as problem:
        return repr(problem)


@pytest.mark.once
def test_every_configuration_gives_a_result_or_a_clear_error() -> None:
    for model_type in TYPES:
        chance = random.Random(model_type)
        for _ in range(EACH):
            config = changed(model_type, chance)
            begun = time.process_time()
            said = outcome(lambda config=config: read(config))
            assert said.endswith((".", "?")), f"{config} gave {said}"
            assert time.process_time() - begun < 2


@pytest.mark.once
def test_any_bytes_give_a_result_or_a_clear_error() -> None:
    chance, whole = random.Random(0), json.dumps({"model_type": "llama", "rope_scaling": {"type": "linear"}}).encode()
    for _ in range(EACH * 100):
        text = bytearray(whole)
        for _ in range(chance.randrange(1, 6)):
            text[chance.randrange(len(text))] = chance.randrange(256)
        part = bytes(text[: chance.randrange(1, len(text) + 1)])
        assert outcome(lambda part=part: read(part)).endswith((".", "?"))
