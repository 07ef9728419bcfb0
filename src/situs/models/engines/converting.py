"""What llama.cpp's converter writes of a configuration: settings and tensors of a GGUF file that speak of positions.

It is made from what transformers resolves a file to, as the converter itself loads it by transformers' classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from situs.models.calls import Call
from situs.models.engines.conversions import Conversion
from situs.models.engines.merging import magnitude, shown_scaling
from situs.models.numbers import rotation_call
from situs.models.positions import Layer, Lengths, ModelPositions, Note
from situs.models.readers.facts import Facts, facts_of
from situs.models.readers.llama_cpp.architectures import ARCHITECTURES
from situs.models.readers.llama_cpp.scaling import FREQS, LONG, SHORT, llama3
from situs.models.readers.view import View
from situs.models.sources.strict import ConfigError

WIDTH = ("hidden_size", "d_model", "n_embd", "dim")
STILL = 1e30
"""What the converter divides frequencies by of pairs that are not rotated."""


def converted(part: ModelPositions, row: Conversion) -> tuple[dict[str, Any], dict[str, list[float]], list[Note]]:
    """What the converter writes: settings and tensors, with notes of what it does not."""
    facts = facts_of(part.model_type) or Facts()
    view = View(part.config, defaults=facts.keys, renamed=facts.renamed)
    attending = [layer for layer in part.layers if layer.heads is not None]
    full = next((layer for layer in attending if layer.kind == "full"), attending[0])
    rotating = [layer for layer in attending if rotation_call(layer) is not None]
    whole = next((layer for layer in rotating if layer.kind == "full"), rotating[0] if rotating else None)
    local = next((layer for layer in attending if layer.kind in ("sliding", "chunked")), None)
    width = view.require(*WIDTH, reason="it counts channels")
    settings: dict[str, Any] = {
        "block_count": len(part.layers),
        "embedding_length": width,
        "context_length": _length(view, row, part.lengths, width),
        **_heads(view, part.layers, full, row),
    }
    notes: list[Note] = []
    tensors: dict[str, list[float]] = {
        f"blk.{index}.attn_sinks.weight": [] for index, layer in enumerate(part.layers) if layer.sinks
    }
    if local is not None and row.window and local.window is not None:
        settings |= _window(part, local, row)
    if whole is not None:
        settings |= _rotation(whole, local, row)
        settings |= _scaling(part, whole, row, tensors, notes)
    settings |= _exceptions(view, part, full, row)
    if row.causal and not full.causal:
        settings["attention.causal"] = False
    prefixed = {f"{row.architecture}.{key}": each for key, each in settings.items() if each is not None}
    return {"general.architecture": row.architecture, **prefixed}, tensors, notes


def _length(view: View, row: Conversion, lengths: Lengths, width: int) -> int:
    if isinstance(row.length, int):
        return row.length
    if row.length == "seq_length":
        return view.count("seq_length", reason="it counts tokens") or width
    if lengths.declared is None:
        raise ConfigError(
            "max_position_embeddings must be given, since llama.cpp takes it for the size of its context; got none."
        )
    return lengths.declared


def _heads(view: View, layers: tuple[Layer, ...], full: Layer, row: Conversion) -> dict[str, Any]:
    heads, states = full.heads, ARCHITECTURES[row.architecture].states
    assert heads is not None
    queries = [0 if layer.heads is None else layer.heads.queries for layer in layers]
    keys = [0 if layer.heads is None else layer.heads.keys for layer in layers]
    if states == "interval":
        queries, keys = [heads.queries] * len(layers), [heads.keys] * len(layers)
    found: dict[str, Any] = {"attention.head_count": queries, "attention.head_count_kv": keys}
    if ARCHITECTURES[row.architecture].latent == "scaled":
        rank = view.require("kv_lora_rank", reason="it counts channels")
        rotated = view.require("qk_rope_head_dim", reason="it counts channels")
        return found | {
            "attention.key_length": rank + rotated, "attention.value_length": rank,
            "attention.key_length_mla": heads.dim, "attention.value_length_mla": heads.values,
        }  # fmt: skip
    if row.head_dim:
        found |= {"attention.key_length": heads.dim, "attention.value_length": heads.values}
        local = next((layer.heads for layer in layers if layer.kind == "sliding" and layer.heads is not None), None)
        if local is not None and local.dim != heads.dim:
            found |= {"attention.key_length_swa": local.dim, "attention.value_length_swa": local.values}
    return found


def _window(part: ModelPositions, local: Layer, row: Conversion) -> dict[str, Any]:
    architecture = ARCHITECTURES[row.architecture]
    window = local.window
    if architecture.slides == "sides" and window is not None:
        window = 2 * (window - 1)
    found: dict[str, Any] = {"attention.sliding_window": window}
    slides = [layer.kind == "sliding" for layer in part.layers]
    if row.layers == "list":
        found["attention.sliding_window_pattern"] = slides
    if row.layers == "period":
        whole = [index for index, each in enumerate(slides) if not each]
        found["attention.sliding_window_pattern"] = whole[1] - whole[0] if len(whole) > 1 else None
    return found


def _rotation(whole: Layer, local: Layer | None, row: Conversion) -> dict[str, Any]:
    call = rotation_call(whole)
    assert call is not None
    assert whole.heads is not None
    found: dict[str, Any] = {}
    if row.base:
        found["rope.freq_base"] = call.option("base")
    if row.rotated:
        found["rope.dimension_count"] = call.option("rotary_dim", whole.heads.dim)
    other = None if local is None else rotation_call(local)
    if other is not None and local is not None and local.heads is not None and ARCHITECTURES[row.architecture].slides:
        rotated = other.option("rotary_dim", local.heads.dim)
        if row.rotated and rotated != found["rope.dimension_count"]:
            found["rope.dimension_count_swa"] = rotated
        if row.base and ARCHITECTURES[row.architecture].sliding_base != "same":
            found["rope.freq_base_swa"] = other.option("base")
    split = call.option("split")
    if split is not None:
        sizes = split.option("sizes")
        found["rope.dimension_sections"] = [*sizes, *[0] * (4 - len(sizes))]
    return found


def _scaling(
    part: ModelPositions, whole: Layer, row: Conversion, tensors: dict[str, list[float]], notes: list[Note]
) -> dict[str, Any]:
    """What is written of a scaling, with a note where nothing is."""
    call = rotation_call(whole)
    assert call is not None
    assert whole.heads is not None
    scaling: Call | None = call.option("scaling")
    if scaling is None:
        return {}
    pairs = call.option("rotary_dim", whole.heads.dim) // 2
    factor, original = scaling.option("factor"), scaling.option("original_length")
    if scaling.cls == "Llama3Scaling" and row.tensors == "llama3":
        tensors[FREQS] = llama3(
            factor, call.option("base"), pairs,
            (original, scaling.option("low_frequency_factor"), scaling.option("high_frequency_factor")),
        )  # fmt: skip
        return {}
    if scaling.cls == "LongRoPE" and row.tensors == "longrope":
        tensors[LONG], tensors[SHORT] = list(scaling.option("long_factors")), list(scaling.option("short_factors"))
        length = part.lengths.declared or original
        times = magnitude(Call.of("LongRoPE", factor=length / original, original_length=original))
        found = {"rope.scaling.original_context_length": original}
        return found | ({"rope.scaling.attn_factor": times} if row.architecture == "phi3" else {})
    if scaling.cls == "ProportionalScaling" and row.tensors == "proportional":
        moving = int(scaling.option("fraction") * pairs)
        tensors[FREQS] = [1.0] * moving + [STILL] * (pairs - moving)
        return {}
    if scaling.cls == "NTKScaling" and row.architecture.startswith("hunyuan"):
        width = 2 * pairs
        return {
            "rope.freq_base": call.option("base") * factor ** (width / max(width - 2, 1)),
            "rope.scaling.type": "none",
            "context_length": 256 * 1024,
        }
    if row.scaling == "as linear" and factor is not None:
        return {"rope.scaling.type": "linear", "rope.scaling.factor": factor}
    if row.scaling == "written" and scaling.cls == "LinearScaling":
        return {"rope.scaling.type": "linear", "rope.scaling.factor": factor}
    if row.scaling == "written" and scaling.cls == "YaRN":
        if scaling.option("truncate") is False:
            notes.append(Note("truncate", "llama.cpp rounds the ends of the ramp to whole pairs whatever it says"))
        return _yarn(scaling, row)
    notes.append(Note("", f"llama.cpp's converter writes nothing of {shown_scaling(scaling)} for {part.model_type}"))
    return {}


def _yarn(scaling: Call, row: Conversion) -> dict[str, Any]:
    weight = scaling.option("mscale_all_dim")
    fast, slow = scaling.option("beta_fast"), scaling.option("beta_slow")
    return {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": scaling.option("factor"),
        "rope.scaling.original_context_length": scaling.option("original_length"),
        "rope.scaling.yarn_attn_factor": scaling.option("attention_factor"),
        "rope.scaling.yarn_beta_fast": None if fast == 32 else fast,
        "rope.scaling.yarn_beta_slow": None if slow == 1 else slow,
        "rope.scaling.yarn_log_multiplier": None if row.weight is None or weight is None else row.weight * weight,
    }


def _exceptions(view: View, part: ModelPositions, full: Layer, row: Conversion) -> Mapping[str, Any]:
    """Settings of single architectures."""
    name = row.architecture
    found: dict[str, Any] = {}
    if name == "gemma2":
        found["attn_logit_softcapping"] = full.softcap
    if ARCHITECTURES[name].scale == "setting":
        found["attention.scale"] = full.scale
    if name == "granitehybrid":
        found["rope.scaling.finetuned"] = part.model_type == "bamba" or all(each.heads for each in part.layers)
    if name == "granite_swa":
        found["attention.rope_pattern"] = view.get("no_rope_layers")
    if ARCHITECTURES[name].states == "interval":
        found["full_attention_interval"] = view.get("full_attention_interval")
    temperature = next((call for call in full.calls if call.cls == "Temperature"), None)
    if name == "mistral3" and temperature is not None:
        found["attention.temperature_scale"] = temperature.option("factor")
    return found
