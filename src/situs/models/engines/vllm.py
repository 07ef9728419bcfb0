"""A configuration as vLLM serves it: its own rotations, windows and lengths.

Rules are those of vLLM of August 2026 (a014e35f, 22 August): ``get_rope``, ``_get_and_verify_max_len``, and the models
of ``NATIVE``. Other model types run with transformers' own code, if at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from situs.models.calls import Call
from situs.models.engines.merging import magnitude, merged, with_main, yarn_magnitude
from situs.models.engines.vllm_lengths import served_length
from situs.models.positions import Layer, ModelPositions, Note
from situs.models.readers.ladders import CHUNKS, Chunks, dual_chunks
from situs.models.readers.view import View
from situs.models.sources.strict import ConfigError

_NATIVE = """
    afmoe apertus arcee axk1 bert bloom chameleon cohere cohere2 cohere2_moe cwm dbrx deepseek_v2 deepseek_v3
    deepseek_v32 ernie4_5 ernie4_5_moe exaone4 falcon falcon_h1 falcon_mamba flex_olmo gemma gemma2
    gemma3_text gemma3n_text gemma4_text gemma4_unified_text glm glm4 glm4_moe glm4_moe_lite glm4v_text glm4v_moe_text
    glm_moe_dsa glm_ocr_text gpt2 gpt_neox gpt_oss gptj granite granite_swa granitemoe granitemoe_swa
    granitemoehybrid granitemoeshared hunyuan_v1_dense hunyuan_v1_moe hy_v3 hyperclovax jais2 jamba laguna
    lfm2 lfm2_moe llama llama4_text mamba mamba2 mellum minicpm3 minimax_m2 ministral3 mistral mixtral modernbert mpt
    nemotron olmo3 olmo_hybrid olmoe opt paddleocr_vl_text phi phi3 phimoe qwen2 qwen2_5_vl_text qwen2_moe
    qwen2_vl_text qwen3 qwen3_5_moe_text qwen3_5_text qwen3_moe qwen3_next qwen3_vl_moe_text qwen3_vl_text roberta
    seed_oss stablelm xlm-roberta zamba2
    """
NATIVE = frozenset(_NATIVE.split())
"""Model types of text that vLLM has a model of its own for, whose rotation was read."""

LATENT = frozenset(["axk1", "deepseek_v2", "deepseek_v3", "deepseek_v32", "glm4_moe_lite", "glm_moe_dsa"])
"""Those that rotate by DeepSeek's YaRN, which reads mscale and mscale_all_dim, but not truncate."""

_BY_LAYER = """
    afmoe apertus cohere2 cohere2_moe cwm exaone4 gemma2 gemma3_text gemma3n_text gemma4_text
    gemma4_unified_text gpt_oss granite_swa granitemoe_swa laguna llama mellum ministral3 mistral modernbert olmo3
    """
BY_LAYER = frozenset(_BY_LAYER.split())
"""Those whose layers have windows of their own; others have one window for all, or none."""
CHUNKED = frozenset(["qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "qwen3_next"])
"""Those that rotate by dual_chunk_attention_config, and by no scaling then."""
ONE_KIND = frozenset({"qwen2", "qwen3"})
"""Those that vLLM refuses to run where some layers slide and others do not."""


def as_vllm(model: ModelPositions, folder: Path | None = None) -> ModelPositions:
    """What vLLM makes of a model that transformers reads so.

    folder: where other files of the model lie, which bound the length of models that embed.
    """
    part = model.main
    if {"encoder", "decoder"} <= model.submodels.keys() and model.model_type != "whisper":
        raise ConfigError(
            f"model_type must be a decoder or an encoder alone, since vLLM runs no pairs of them; got "
            f"'{model.model_type}'."
        )
    config = part.config or model.config
    served, why = served_length(config, part.model_type, folder)
    layers: tuple[Layer, ...] = part.layers
    if part.model_type in NATIVE:
        changed, notes = _changed(part, config, served)
        layers, differing = merged(part.layers, changed)
        notes += differing
    else:
        own = f"vLLM has no model of its own for {part.model_type}, or it was not checked"
        notes = [Note("", f"{own}: read as transformers runs it")]
    if why:
        notes.append(Note("", f"vLLM serves {served:,} tokens where it is not told otherwise: {why}"))
    lengths = replace(part.lengths, served=served)
    return with_main(model, replace(part, layers=layers, lengths=lengths, notes=(*part.notes, *notes)))


def _changed(part: ModelPositions, config: Mapping[str, Any], served: int) -> tuple[list[Layer], list[Note]]:
    """Layers with vLLM's rules, and notes of what it does not read."""
    name = part.model_type
    notes: list[Note] = []
    slides = [layer.kind == "sliding" for layer in part.layers]
    mixed = any(slides) and not all(slides)
    chunks = dual_chunks(View(config)) if name in CHUNKED else None
    if chunks is not None:
        notes += _about_chunks(chunks, part)
    if mixed and name in ONE_KIND:
        raise ConfigError(
            f"layer_types must be of one kind for vLLM, which runs no {name} of which some layers slide; got both."
        )
    found = []
    for index, layer in enumerate(part.layers):
        calls = tuple(
            call
            if call.cls != "Rotary"
            else call.replace(scaling=chunks.scaling)
            if chunks is not None
            else _rotated(_dealt(call, config, notes), part, served, notes)
            for call in layer.calls
        )
        if name == "ministral3":
            calls = _temperature(calls, config, notes)
        changed = replace(layer, calls=calls)
        if name in ("cohere2", "cohere2_moe") and layer.window is not None:
            changed = replace(changed, window=layer.window + 1)
        if name == "gpt_oss":
            window = _window(part.layers) if index % 2 == 0 else None
            changed = replace(changed, kind="full" if window is None else "sliding", window=window)
        elif mixed and name not in BY_LAYER and layer.kind == "sliding":
            changed = replace(changed, kind="full", window=None)
        found.append(changed)
    return found, list(dict.fromkeys(notes))


def _about_chunks(chunks: Chunks, part: ModelPositions) -> list[Note]:
    """What is not among the encodings where vLLM rotates by dual chunks."""
    told = [
        "vLLM's engine V1 has no attention for dual chunks and fails to load the model (vLLM issue 33470); V0 had one"
    ]
    if chunks.original is not None:
        told.append(
            f"in sequences longer than {chunks.original:,} tokens, queries are multiplied by 0.1 ln(length / "
            f"{chunks.original:,}) + 1; no encoding here does that"
        )
    scaled = any(call.option("scaling") is not None for layer in part.layers for call in layer.calls)
    told += ["vLLM reads no scaling beside it"] * scaled
    return [Note(CHUNKS, each) for each in told]


def _window(layers: tuple[Layer, ...]) -> int | None:
    return next((layer.window for layer in layers if layer.window is not None), None)


def _temperature(calls: tuple[Call, ...], config: Mapping[str, Any], notes: list[Note]) -> tuple[Call, ...]:
    """vLLM looks for the temperature of Ministral 3 in llama_4_scaling, where params.json has it translated to."""
    rest = tuple(call for call in calls if call.cls != "Temperature")
    given = config.get("llama_4_scaling")
    if isinstance(given, Mapping):
        part = View(given, path="llama_4_scaling")
        start = part.require("original_max_position_embeddings", reason="it counts tokens")
        factor = part.number("beta", reason="queries are multiplied by its logarithm", above=0)
        return (*rest, Call.of("Temperature", dialect="ministral3", original_length=start, factor=factor))
    if len(rest) < len(calls):
        notes.append(
            Note("llama_4_scaling_beta", "vLLM does not read it here, but at the top level as llama_4_scaling")
        )
    return rest


def _dealt(call: Call, config: Mapping[str, Any], notes: list[Note]) -> Call:
    """Pairs as vLLM deals them to coordinates: in turns where mrope_interleaved is true, else in blocks."""
    split: Call | None = call.option("split")
    rope = config.get("rope_parameters") or config.get("rope_scaling")
    if split is None or split.cls != "Sections" or not isinstance(rope, Mapping) or "mrope_section" not in rope:
        return call
    order = "interleaved" if rope.get("mrope_interleaved") else "contiguous"
    if split.option("order") not in ("interleaved", "contiguous") or split.option("order") == order:
        return call
    turns = "in turns" if order == "interleaved" else "in blocks"
    notes.append(Note("mrope_interleaved", f"vLLM deals pairs to coordinates {turns}, since it goes by this setting"))
    return call.replace(split=split.replace(order=order))


def _rotated(call: Call, part: ModelPositions, served: int, notes: list[Note]) -> Call:
    scaling: Call | None = call.option("scaling")
    if scaling is None:
        return call
    if scaling.cls == "YaRN":
        return call.replace(scaling=_yarn(call, scaling, part.model_type, notes))
    if scaling.cls == "DynamicNTKScaling":
        text = "vLLM makes one table, which ends at the declared length, with frequencies as trained"
        notes.append(Note("rope_type dynamic", text))
        return call.replace(scaling=None)
    if scaling.cls == "LongRoPE":
        return call.replace(scaling=_longrope(scaling, part, served, notes))
    if scaling.cls == "ProportionalScaling" and scaling.option("factor", 1.0) != 1:
        notes.append(Note("factor", "vLLM does not read it for rope_type proportional"))
        return call.replace(scaling=scaling.replace(factor=None))
    return call


def _yarn(call: Call, scaling: Call, name: str, notes: list[Note]) -> Call:
    """vLLM's YaRN, which computes its factor of cosines and sines by itself."""
    factor = scaling.option("factor")
    if scaling.option("attention_factor") is not None:
        notes.append(Note("attention_factor", "vLLM does not read it; it would read attn_factor"))
    if name in LATENT:
        weights = scaling.option("mscale", 1.0), scaling.option("mscale_all_dim", 0.0)
        one, other = (yarn_magnitude(factor, weight) for weight in weights)
        own = scaling.replace(attention_factor=None, truncate=None)
        if magnitude(own) != one / other:
            own = own.replace(attention_factor=one / other)
        if scaling.option("truncate") is False:
            notes.append(Note("truncate", f"vLLM does not read it for {name}"))
        return own
    unread = [key for key in ("mscale", "mscale_all_dim") if scaling.option(key) is not None]
    if unread:
        notes.append(Note(" and ".join(unread), f"vLLM does not read {'them' if unread[1:] else 'it'} for {name}"))
    own = scaling.replace(attention_factor=None, mscale=None, mscale_all_dim=None, mscale_dialect=None)
    if call.option("split") is not None:
        text = "vLLM measures turns within four times the original length where positions have several coordinates"
        notes.append(Note("rope_type yarn", text))
        own = own.replace(original_length=4 * scaling.option("original_length"))
    return own


def _longrope(scaling: Call, part: ModelPositions, served: int, notes: list[Note]) -> Call:
    """One list for all sequences, chosen by the length that is served."""
    original: int = scaling.option("original_length")
    kind = "long" if served > original else "short"
    notes.append(Note(f"{kind}_factor", f"serves all sequences: vLLM chooses by the length that it serves, {served:,}"))
    factors = scaling.option(f"{kind}_factors")
    mscale = scaling.option(f"{kind}_mscale")
    stretch = max((part.lengths.declared or original) / original, 1.0)
    return Call.of(
        "LongRoPE", factor=stretch, original_length=original, short_factors=factors, long_factors=factors,
        attention_factor=mscale,
    )  # fmt: skip
