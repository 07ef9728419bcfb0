"""Configurations of many families, drawn by hypothesis: sizes, schedules and rope parameters in every spelling."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from situs.models import ConfigError, ModelPositions, read
from situs.models.calls import Call
from situs.models.numbers import rotation_call
from situs.models.readers.facts import Facts, facts_of
from situs.models.readers.families import FAMILIES
from situs.models.readers.schedule import layer_types
from situs.models.readers.view import View

BASES = st.sampled_from([1e4, 5e5, 1e6, 12345.5])
FACTORS = st.sampled_from([1.0, 2.0, 4.0, 32.0, 1.5])
LENGTHS = st.sampled_from([2048, 4096, 40960])
TYPES = sorted(FAMILIES)
KINDS_OF_ROPE = ("default", "linear", "dynamic", "yarn", "longrope", "llama3")


def read_or_none(config: dict[str, Any]) -> ModelPositions | None:
    """What a configuration is read as; None where it is refused."""
    try:
        return read(config)
    except ConfigError:
        return None


def labels_of(config: dict[str, Any]) -> list[str]:
    """What rope parameters by type of layer are called."""
    family, facts = FAMILIES[config["model_type"]], facts_of(config["model_type"]) or Facts()
    types = layer_types(View(config, defaults=facts.keys), config["num_hidden_layers"], family.schedule)
    return sorted({dict(family.labels).get(each, each) for each in types})


def pairs_of(model: ModelPositions) -> int:
    """How many pairs of channels are rotated; 0 where none are."""
    calls = [call for call in map(rotation_call, model.layers) if call is not None]
    return (calls[0].option("rotary_dim") or calls[0].option("head_dim")) // 2 if calls else 0


@st.composite
def scalings(draw: st.DrawFn, pairs: int, length: int, kinds: tuple[str, ...] = KINDS_OF_ROPE) -> dict[str, Any]:
    """Rope parameters of any type, without a base."""
    kind = draw(st.sampled_from(kinds))
    found: dict[str, Any] = {"rope_type": kind}
    if kind == "default":
        return found
    found["factor"] = draw(FACTORS)
    if kind in ("yarn", "longrope", "llama3"):
        found["original_max_position_embeddings"] = draw(LENGTHS)
    if kind == "yarn":
        more = {"beta_fast": 16.0, "beta_slow": 2, "truncate": False, "attention_factor": 1.25, "mscale": 0.7,
                "mscale_all_dim": 1.0}  # fmt: skip
        found |= {key: more[key] for key in sorted(draw(st.sets(st.sampled_from(sorted(more)))))}
    if kind == "llama3":
        found |= {"low_freq_factor": 1.0, "high_freq_factor": draw(st.sampled_from([4.0, 8]))}
    if kind == "longrope":
        found |= {"short_factor": [1.0] * pairs, "long_factor": [1.0 + each / 3 for each in range(pairs)]}
        if draw(st.booleans()):
            del found["factor"]
            found["original_max_position_embeddings"] = min(found["original_max_position_embeddings"], length)
    return found


@st.composite
def configurations(draw: st.DrawFn, types: list[str] = TYPES) -> dict[str, Any]:
    """Settings of a rotary model: some are refused, since not every model type has everything."""
    model_type = draw(st.sampled_from(types))
    config: dict[str, Any] = {"model_type": model_type, "num_hidden_layers": draw(st.integers(1, 7))}
    config["max_position_embeddings"] = draw(LENGTHS)
    if draw(st.booleans()):
        config["sliding_window"] = draw(st.sampled_from([8, 128]))
    plain = read_or_none(config)
    if plain is None or not plain.layers:
        return config
    family, pairs = FAMILIES[model_type], pairs_of(plain)
    parameters = scalings(pairs, config["max_position_embeddings"])
    spelling = draw(st.sampled_from(["silent", "older", "today"]))
    if spelling == "older":
        own = draw(parameters)
        for _, keys in family.bases or (("", ("rope_theta",)),):
            config[keys[0]] = draw(BASES)
        config |= {} if own == {"rope_type": "default"} else {"rope_scaling": own}
    elif spelling == "today" and family.by_type:
        config["rope_parameters"] = {
            label: draw(st.sampled_from([None, {**draw(parameters), "rope_theta": draw(BASES)}]))
            for label in labels_of(config)
        }
    elif spelling == "today":
        config["rope_parameters"] = {**draw(parameters), "rope_theta": draw(BASES)}
    return config


@st.composite
def scaling_calls(draw: st.DrawFn, pairs: int) -> Call | None:
    """A scaling of rotary as Situs has it, or none."""
    length, factor = draw(LENGTHS), draw(FACTORS)
    return draw(
        st.sampled_from([
            None,
            Call.of("LinearScaling", factor=factor),
            Call.of("NTKScaling", factor=factor),
            Call.of("YaRN", factor=factor, original_length=length),
            Call.of("YaRN", original_length=length, target_length=round(length * factor), beta_fast=16.0),
            Call.of("NTKByPartsScaling", factor=factor, original_length=length),
            Call.of("Llama3Scaling", factor=factor, original_length=length, low_frequency_factor=1.0,
                    high_frequency_factor=4.0),
            Call.of("LongRoPE", factor=factor, original_length=length, short_factors=(1.0,) * pairs,
                    long_factors=tuple(1.0 + each for each in range(pairs))),
        ])
    )  # fmt: skip
