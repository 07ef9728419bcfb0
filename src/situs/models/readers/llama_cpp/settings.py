"""Models as llama.cpp runs them: settings of a GGUF file -> positions.

Settings have the architecture's name before them (``qwen3.rope.freq_base``), and mean what `ARCHITECTURES` says of it.
Pairs are those of the file's own weights: where they are neighbours, llama.cpp's converter has moved the channels of
models that pair halves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from situs.models.calls import Call
from situs.models.positions import Heads, Lengths, ModelPositions, Note
from situs.models.readers.llama_cpp.architectures import ARCHITECTURES, LEFT_OUT
from situs.models.readers.llama_cpp.rotation import CHANNELS, TOKENS
from situs.models.readers.llama_cpp.stack import HEADS, read_blocks, read_stack
from situs.models.readers.stack import stacked
from situs.models.readers.view import View, told
from situs.models.sources.strict import ConfigError
from situs.registry.spelling import did_you_mean

_KEYS = """
    rope.dimension_count rope.dimension_count_swa rope.dimension_sections rope.freq_base rope.freq_base_swa
    rope.scale_linear rope.scaling.type rope.scaling.factor rope.scaling.alpha rope.scaling.attn_factor
    rope.scaling.original_context_length rope.scaling.finetuned rope.scaling.yarn_log_multiplier
    rope.scaling.yarn_ext_factor rope.scaling.yarn_attn_factor rope.scaling.yarn_beta_fast rope.scaling.yarn_beta_slow
    attention.max_alibi_bias attention.relative_buckets_count attention.sliding_window
    attention.sliding_window_pattern attention.rope_pattern attention.temperature_length attention.temperature_scale
    attention.compress_rope_freq_base attention.scale attention.output_scale attention.causal attention.recurrent_layers
    full_attention_interval attn_logit_softcapping
    """
KEYS = frozenset(_KEYS.split())
"""Settings of llama.cpp that speak of positions."""
FARTHEST = 128  # distance of T5, from which on all share a bucket
_POSITIONAL = re.compile(r"^rope\.|rope_|sliding|window|alibi|temperature_|relative_bucket|position|yarn")


def read_gguf(keys: Mapping[str, Any], tensors: Mapping[str, Any]) -> ModelPositions:
    """Read what llama.cpp does with positions.

    tensors: by name, with the numbers of those that divide frequencies.
    """
    name = keys.get("general.architecture")
    if not isinstance(name, str):
        raise ConfigError(
            f"general.architecture must name an architecture, since settings mean different things by it; got "
            f"{told(name)}.{_part(keys)}"
        )
    if name in LEFT_OUT:
        raise ConfigError(f"general.architecture must be one that is read, and {name} is not, since {LEFT_OUT[name]}.")
    if name not in ARCHITECTURES:
        raise ConfigError(
            f"general.architecture must be one of llama.cpp's, since nothing else tells how pairs are laid out; got "
            f"{told(name)}.{did_you_mean(name, ARCHITECTURES)}"
        )
    architecture, start = ARCHITECTURES[name], f"{name}."
    view = View({key.removeprefix(start): each for key, each in keys.items() if key.startswith(start)}, path=name)
    if "block_count" not in view and _part(keys):
        raise ConfigError(f"{view.name('block_count')} must be given, since it counts layers; got none.{_part(keys)}")
    found = _read_t5(view, name) if architecture.buckets else read_stack(view, name, architecture, tensors)
    held = {key: each for key, each in keys.items() if not key.startswith("tokenizer.")}
    notes = (*found.notes, *_unread(view, name))
    return replace(found, verified=architecture.checked, notes=notes, config=held)


def _part(keys: Mapping[str, Any]) -> str:
    """What to say of a file that is one of several, of which the first has the settings."""
    number, count = keys.get("split.no"), keys.get("split.count")
    if type(number) is not int or type(count) is not int or not 0 < number < count:
        return ""
    return f" This is file {number + 1} of {count}: read the first."


def _unread(view: View, name: str) -> Iterator[Note]:
    """Refuse what speaks of positions and is not understood; tell what is understood and changes nothing."""
    for key, value in view.unread().items():
        if value is False or (key not in KEYS and not _POSITIONAL.search(key)):
            continue
        if key not in KEYS:
            raise ConfigError(
                f"{view.name(key)} must be a setting that is understood, since it speaks of positions; got "
                f"{told(value)}.{did_you_mean(key, sorted(KEYS))}"
            )
        yield Note(view.name(key), f"{told(value)} changes nothing: llama.cpp does not read it for {name}")


def _read_t5(view: View, name: str) -> ModelPositions:
    """T5: llama.cpp has 128 for the farthest distance, whatever a model was trained with."""
    blocks = read_blocks(view, "block_count")
    behind = read_blocks(view, "decoder_block_count") if view.says("decoder_block_count") else blocks
    queries = view.require("attention.head_count", reason=HEADS)
    width = view.require("embedding_length", reason=CHANNELS)
    dim = view.count("attention.key_length", reason=CHANNELS) or width // queries
    heads = Heads(queries, queries, dim, view.count("attention.value_length", reason=CHANNELS) or dim)
    buckets = "attention.relative_buckets_count"
    rows = view.require(buckets, reason="offsets share a number of buckets, near and far", least=4)
    if rows >= 2 * FARTHEST:
        raise ConfigError(
            f"{view.name(buckets)} must be less than {2 * FARTHEST}, since all distances from {FARTHEST} on share a "
            f"bucket; got {rows}."
        )
    length = view.require("context_length", reason=TOKENS)
    lengths = Lengths(length, served=length)
    stacks = {}
    for part, count, causal in (("encoder", blocks, False), ("decoder", behind, True)):
        bias = Call.of(
            "T5Bias",
            num_heads=queries,
            num_buckets=rows,
            max_distance=FARTHEST,
            bidirectional=False if causal else None,
        )
        layers = stacked(count, heads, bias, causal=causal, scale=1.0)
        stacks[part] = ModelPositions(name, layers=layers, lengths=lengths)
    if name == "t5encoder":
        return stacks["encoder"]
    return ModelPositions(name, lengths=lengths, submodels=stacks)
