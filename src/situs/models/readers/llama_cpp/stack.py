"""Stacks of layers as llama.cpp builds them: heads, scales, temperatures, and tables before them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from situs.models.calls import Call
from situs.models.positions import Heads, Layer, Lengths, ModelPositions
from situs.models.readers.llama_cpp.architectures import Architecture
from situs.models.readers.llama_cpp.layers import attending, rotating, sliding, window_of
from situs.models.readers.llama_cpp.rotation import CHANNELS, TOKENS, Stack, rotation_of
from situs.models.readers.llama_cpp.scaling import Scaled
from situs.models.readers.view import View
from situs.models.sources.strict import ConfigError

MOST = 512  # layers, for which llama.cpp has room
HEADS = "it counts heads"


def read_blocks(view: View, key: str) -> int:
    """A number of layers that llama.cpp has room for."""
    blocks = view.require(key, reason="it counts layers")
    if blocks > MOST:
        raise ConfigError(
            f"{view.name(key)} must be at most {MOST}, since llama.cpp has room for that many layers; got {blocks:,}."
        )
    return blocks


def read_stack(view: View, name: str, architecture: Architecture, tensors: Mapping[str, Any]) -> ModelPositions:
    """Read the layers of a file."""
    blocks = read_blocks(view, "block_count")
    ahead = (view.count("nextn_predict_layers", reason="it counts layers", least=0) or 0) if architecture.nextn else 0
    if ahead >= blocks:
        raise ConfigError(
            f"{view.name('nextn_predict_layers')} must be less than {blocks}, since it counts some of the layers; got "
            f"{ahead}."
        )
    length = view.require("context_length", reason=TOKENS)
    width = view.require("embedding_length", reason=CHANNELS)
    queries = counts(view, "attention.head_count", [0] * blocks)
    keys = counts(view, "attention.head_count_kv", queries)
    window = window_of(view, architecture, blocks - ahead)
    stack = Stack(view, name, architecture, tensors, blocks - ahead, length, width, queries, keys, window)
    causal = architecture.causal and view.flag("attention.causal", default=True)
    slides = sliding(view, architecture, stack.layers, window)
    attends = attending(view, architecture, stack.layers, keys, queries)
    turns = rotating(view, architecture, stack.layers, slides)
    ropes: dict[bool, tuple[Call | None, Scaled]] = {}
    layers: list[Layer] = []
    for index, (kind, local) in enumerate(zip(attends, slides, strict=True)):
        if kind != "full":
            layers.append(Layer(kind))
            continue
        heads = _heads(stack, index, local)
        if local not in ropes:
            ropes[local] = rotation_of(stack, heads, local)
        rotary, scaled = ropes[local]
        layers.append(_layer(stack, heads, local, rotary if turns[index] else None, scaled, index, causal))
    found = [scaled for _, scaled in ropes.values()]
    original = next((each.original for each in found if each.original is not None), None)
    notes = dict.fromkeys(note for each in found for note in each.notes)
    table, lengths = _input(stack, original)
    return ModelPositions(name, input=table, layers=tuple(layers), lengths=lengths, notes=tuple(notes))


def counts(view: View, key: str, default: list[int]) -> list[int]:
    """A number for each block, which is one for all or a list."""
    value, blocks = view.get(key), len(default)
    if value is None:
        return default
    if not isinstance(value, list):
        return [view.require(key, reason=HEADS, least=0)] * blocks
    if len(value) != blocks:
        raise ConfigError(f"{view.name(key)} must be one number, or {blocks}, one for each layer; got {len(value)}.")
    each = View({str(index): count for index, count in enumerate(value)}, path=view.name(key))
    return [each.require(str(index), reason=HEADS, least=0) for index in range(blocks)]


def _heads(stack: Stack, index: int, slides: bool) -> Heads:
    view, queries = stack.view, stack.queries[index]
    first = next(each for each in stack.queries if each)
    dim = view.count("attention.key_length", reason=CHANNELS) or stack.width // first
    values = view.count("attention.value_length", reason=CHANNELS) or stack.width // first
    if slides:
        dim = view.count("attention.key_length_swa", reason=CHANNELS) or dim
        values = view.count("attention.value_length_swa", reason=CHANNELS) or values
    whole = view.count("attention.key_length_mla", reason=CHANNELS) if stack.architecture.latent else None
    if whole is not None:
        own = view.count("attention.value_length_mla", reason=CHANNELS) or whole
        return Heads(queries, queries, whole, own, dim)
    keys = queries if stack.architecture.latent else stack.keys[index]
    latent = view.count("attention.kv_lora_rank", reason=CHANNELS) if stack.architecture.latent else None
    rotated = view.count("rope.dimension_count", reason=CHANNELS) or 0
    return Heads(queries, keys, dim, values, None if latent is None else latent + rotated)


def _layer(
    stack: Stack, heads: Heads, slides: bool, rotary: Call | None, scaled: Scaled, index: int, causal: bool
) -> Layer:
    architecture = stack.architecture
    calls = [] if rotary is None else [rotary]
    calls += _temperature(stack, rotary)
    power = _alibi(stack)
    if power:
        calls.append(Call.of("ALiBi", num_heads=heads.queries, bias_max=None if power == 8 else power))
    chunks, window = architecture.slides == "chunks", stack.window if slides else None
    if architecture.slides == "sides" and window is not None:
        window = window // 2 + 1
    sinks = architecture.sinks
    if sinks and stack.tensors:
        sinks = f"blk.{index}.attn_sinks.weight" in stack.tensors
    cap = architecture.softcap and stack.view.number(
        "attn_logit_softcapping", reason="it bounds scores", default=architecture.softcap, above=0
    )
    return Layer(
        "full" if not slides else "chunked" if chunks else "sliding",
        tuple(calls),
        heads,
        window=None if chunks else window,
        chunk=window if chunks else None,
        causal=causal,
        scale=_scale(stack, heads) * scaled.softmax,
        softcap=cap,
        sinks=sinks,
        norm=None if rotary is None and architecture.temperature else architecture.norm,
    )


def _temperature(stack: Stack, rotary: Call | None) -> list[Call]:
    view, kind = stack.view, stack.architecture.temperature
    if kind == "llama4":
        fixed = Call.of("Temperature", dialect="llama4", original_length=8192, factor=0.1)
        return [fixed] if rotary is None else []
    if kind is None:
        return []
    factor = view.number("attention.temperature_scale", reason="queries are multiplied by its logarithm", default=0.0)
    key = "attention.temperature_length" if kind == "length" else "rope.scaling.original_context_length"
    start = view.count(key, reason=TOKENS, least=0) or (0 if kind == "length" else stack.length)
    if not factor or not start:
        return []
    return [Call.of("Temperature", dialect="ministral3", original_length=start, factor=factor)]


def _alibi(stack: Stack) -> float | None:
    if stack.architecture.alibi == "setting":
        return stack.view.number("attention.max_alibi_bias", reason="slopes follow from it", default=0.0, least=0)
    if stack.name == "baichuan" and stack.layers == 40:
        return 8.0
    return stack.architecture.alibi


def _scale(stack: Stack, heads: Heads) -> float:
    view, kind = stack.view, stack.architecture.scale
    if kind == "one":
        return 1.0
    if kind == "grok":
        given = view.number("attention.output_scale", reason="scores are scaled by it", above=0)
        return 128**-0.5 if given is None else given
    if kind == "setting":
        given = view.number("attention.scale", reason="scores are scaled by it", default=0.0, least=0)
        if given:
            return given
    largest = {"gemma2": 46, "gemma3": 62}.get(kind)
    if stack.layers == largest:
        return float((stack.width // heads.queries) ** -0.5)
    if kind == "rotated":
        return float((view.count("rope.dimension_count", reason=CHANNELS) or heads.dim) ** -0.5)
    return float(heads.dim**-0.5)


def _input(stack: Stack, original: int | None) -> tuple[tuple[Call, ...], Lengths]:
    """A learned table, where there is one, and how long a text may be."""
    length = stack.length
    lengths = Lengths(length, original, served=length)
    if not stack.architecture.table and not (stack.name == "mpt" and "position_embd.weight" in stack.tensors):
        return (), lengths
    reason = f"the table of positions has {length} rows"
    return (Call.of("Learned", dim=stack.width, max_length=length),), Lengths(length, None, length, reason, length)
