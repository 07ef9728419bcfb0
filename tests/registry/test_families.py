"""Which call stands for a released model: every call runs, and its frequencies are those of transformers."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import pytest
import torch
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import situs
from situs.registry.families import FAMILIES, Family

SIZES: dict[str, Any] = {
    "head_dim": 128, "rope_theta": 10000.0, "rotary_dim": 32, "qk_head_dim": 96,
    "qk_rope_head_dim": 32, "factor": 8.0, "original_length": 8192, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
}  # fmt: skip
FEATURES = {"relative": torch.randn(1, 8, 28, 16), "gate": torch.randn(1, 8, 28, 1)}
FEATURES["bias_gate"] = FEATURES["gate"]
each_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda each: each.models)
each_type = pytest.mark.parametrize(
    ("model_type", "family"), [pytest.param(name, each, id=name) for each in FAMILIES for name in each.types]
)


def made(family: Family, **sizes: Any) -> list[situs.Encoding]:
    """The encodings of a row, with the sizes of a model."""
    found = eval(family.encoding, {"situs": situs, **SIZES, **sizes})
    return list(found) if isinstance(found, list) else [found]


@each_family
def test_every_call_runs(family: Family) -> None:
    encodings = made(family)
    if all(each.place == "input" for each in encodings):
        (encoding,) = encodings
        positions = situs.Positions.grid(14, 14, prefix=1) if isinstance(encoding, situs.LearnedGrid) else None
        length = 12 if positions is None else positions.length
        x: Any = torch.randn(1, length, encoding.config["dim"])
        assert encoding(x, positions).shape == x.shape
        return
    heads = next((each.num_heads for each in encodings if each.num_heads is not None), 8)
    width = next((each.head_dim for each in encodings if each.head_dim is not None), 64)
    given = eval(f"dict({family.attend})", {"situs": situs, "sinks": torch.zeros(heads), **FEATURES})
    if encodings[0].axes > 1 and "positions" not in given:
        given["positions"] = situs.Positions.explicit(torch.randint(0, 9, (1, 28, encodings[0].axes)))
    length = given["positions"].length if "positions" in given else 28
    q, k, v = torch.randn(3, 1, heads, length, width)
    call = {"encoding": encodings, "causal": "grid" not in family.attend} | given
    out = situs.attend(q, k, v, **call)
    assert out.shape == q.shape
    assert bool(out.isfinite().all())


@each_type
def test_frequencies_are_those_of_transformers(model_type: str, family: Family) -> None:
    config: Any = CONFIG_MAPPING[model_type]()
    rotary = next(each for each in made(family, **sizes_of(config)) if isinstance(each, situs.Rotary))
    theirs = rotary_embedding(config)
    frequencies = rotary.frequencies[0].abs()
    given = theirs.inv_freq.float()
    if rotary.split is not None:  # dealt out to the axes in an order of their own
        frequencies, given = (each.sort(descending=True).values for each in (frequencies, given))
    torch.testing.assert_close(frequencies.float(), given, rtol=2e-6, atol=0)
    assert rotary.rotation_factor == pytest.approx(getattr(theirs, "attention_scaling", 1.0), rel=1e-6)


def sizes_of(config: Any) -> dict[str, Any]:
    """The names that calls use, out of a configuration of transformers."""
    rope = config.rope_parameters
    given = getattr(config, "head_dim", None)
    head_dim = given or config.hidden_size // config.num_attention_heads
    qk_rope = getattr(config, "qk_rope_head_dim", 32)
    return {
        "head_dim": head_dim,
        "rope_theta": rope["rope_theta"],
        "rotary_dim": int(head_dim * rope.get("partial_rotary_factor", 1.0)),
        "qk_rope_head_dim": qk_rope,
        "qk_head_dim": qk_rope + getattr(config, "qk_nope_head_dim", 64),
        "factor": rope.get("factor"),
        "original_length": rope.get("original_max_position_embeddings"),
        "low_freq_factor": rope.get("low_freq_factor"),
        "high_freq_factor": rope.get("high_freq_factor"),
    }


def rotary_embedding(config: Any) -> Any:
    """The module of transformers that holds the frequencies of a configuration."""
    name = type(config).__module__.replace("configuration_", "modeling_")
    module = importlib.import_module(name)
    for label, found in inspect.getmembers(module, inspect.isclass):
        if label.endswith("RotaryEmbedding") and found.__module__ == name and "Vision" not in label:
            try:
                made_from: Any = found
                return made_from(config)
            except (AttributeError, TypeError):
                continue  # that of another part of the model
    raise AssertionError(f"{name} has no rotary embedding")


def test_methods_are_found_in_calls() -> None:
    found = {name for each in FAMILIES for name in each.methods}
    assert {"rotary", "rotary+yarn", "rotary+llama3", "t5", "alibi", "temperature", "none"} <= found
    written = {match for each in FAMILIES for match in re.findall(r"situs\.(\w+)\(", each.encoding)}
    helpers = {"Axial", "Sections"}
    assert len(written - helpers) == len(found), "a class in a call is no registered encoding or scaling"


def test_no_model_type_is_named_twice() -> None:
    names = [name for each in FAMILIES for name in each.types]
    assert len(names) == len(set(names))
