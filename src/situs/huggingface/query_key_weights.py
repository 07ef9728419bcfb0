"""Which weights of a checkpoint end in queries and keys, and in which order their rows hold heads.

    q_proj, k_proj      heads one after another (Llama, Mistral, Qwen, Gemma, GPT-J ...)
    fused               queries, keys and values in one matrix, in an order of the model type's own (``FUSED``)
    q_b_proj            queries of latent attention; the rotated part of its key ends ``kv_a_proj_with_mqa``
    q_norm, k_norm      weights of norms on queries and keys, of one head or of all

Whatever else stands in an attention module has to be known as well: a weight that nobody knows might be one more that
has to be reordered.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Int64
from torch import Tensor

from situs.functional.pairing import pairing_permutation
from situs.functional.rotation import Pairing
from situs.models.positions import Heads, ModelPositions
from situs.models.sources.strict import ConfigError

QUERY = frozenset({"q_proj", "wq", "query", "q_b_proj"})
KEY = frozenset({"k_proj", "wk", "key"})
LATENT_KEY = "kv_a_proj_with_mqa"
FUSED_NAMES = frozenset({"qkv_proj", "query_key_value", "Wqkv"})
PROJECTIONS = QUERY | KEY | {LATENT_KEY} | FUSED_NAMES
NORMS = frozenset({"q_norm", "q_layernorm", "query_layernorm", "k_norm", "k_layernorm", "key_layernorm"})
OTHERS = frozenset({
    "v_proj", "wv", "value", "o_proj", "out_proj", "dense", "wo", "Wo", "kv_b_proj", "q_a_proj", "q_a_layernorm",
    "kv_a_layernorm", "rotary_emb", "bias", "masked_bias", "causal_mask", "embed_positions", "sinks", "v_norm",
    "gate_proj", "g_proj",
})  # fmt: skip
"""What stands beside queries and keys in an attention module, and stays as it is."""

FUSED: Mapping[str, str] = {
    "gpt_neox": "by head", "gpt_neox_japanese": "by head", "persimmon": "by head", "phi3": "in turn",
    "modernbert": "in turn", "falcon": "falcon", "codegen": "codegen",
}  # fmt: skip
"""How model types order queries, keys and values that are one matrix."""
CODEGEN_BLOCKS = 4  # its matrix is cut for as many processors as it was trained on

LAYER = re.compile(r"(?:^|\.)(?:layers|layer|h|blocks|block)\.(\d+)\.")
BESIDE_TEXT = re.compile(r"(?:^|\.)\w*(?:vision|visual|image|audio|speech)\w*\.")


@dataclass(frozen=True)
class Reordering:
    """Hold which row, or which channel of a norm, goes to each place."""

    order: Int64[Tensor, "rows"]
    axis: int


@dataclass(frozen=True)
class Rotated:
    """Hold how a layer's heads are rotated, and the pairing that its weights have."""

    heads: Heads
    width: int
    trailing: bool
    pairing: Pairing
    model_type: str
    settings: Mapping[str, object]

    def order(self, target: Pairing) -> Int64[Tensor, "head_dim"]:
        """The channel of a head that goes to each place."""
        channels: Literal["leading", "trailing"] = "trailing" if self.trailing else "leading"
        return pairing_permutation(
            self.heads.dim, source=self.pairing, target=target, rotary_dim=self.width, channels=channels
        )  # fmt: skip


def rotated_layers(model: ModelPositions, *, source: Pairing | None) -> dict[int, Rotated]:
    """How each layer that rotates does it. ``source`` is the pairing of the weights where it is not the
    configuration's."""
    main = model.main
    found: dict[int, Rotated] = {}
    for number, layer in enumerate(main.layers):
        calls = [call for call in layer.calls if call.cls in ("Rotary", "LeRoPE", "RotaryValue", "XPos", "PoPE")]
        if not calls:
            continue
        if len(calls) > 1 or calls[0].cls != "Rotary":
            names = " and ".join(call.cls for call in calls)
            raise ConfigError(
                f"layer {number} of {main.model_type} must rotate queries and keys alone, and in pairs of either kind, "
                f"since nothing else can be converted; it has {names}."
            )
        assert layer.heads is not None
        found[number] = Rotated(
            layer.heads,
            calls[0].option("rotary_dim") or layer.heads.dim,
            calls[0].option("channels") == "trailing",
            source or calls[0].option("pairing") or "halves",
            main.model_type,
            main.config,
        )
    return found


def reorderings(
    shapes: Mapping[str, Sequence[int]], model: ModelPositions, layers: Mapping[int, Rotated], target: Pairing
) -> dict[str, Reordering]:
    """Find the weights of queries and keys that a conversion reorders.

    shapes: of all weights of the checkpoint; a norm belongs to the projections beside it, whatever shard has them.

    Raises ConfigError for a weight within attention that is not known, or does not have the shape of its heads.
    """
    modules = _attention_modules(shapes, layers, len(model.main.layers), parts=bool(model.submodels))
    found: dict[str, Reordering] = {}
    for name, shape in shapes.items():
        module = next((each for each in _modules_of(name) if each in modules), None)
        if module is None:
            continue
        first, *rest = name.removeprefix(f"{module}.").split(".")
        if first in OTHERS or _is_left(name, first, rest):
            continue
        rotated = layers[modules[module]]
        norm = first in NORMS
        order = _norm_order(rotated, target, shape) if norm else _order(first, rotated, target)
        axis = len(shape) - 1 if norm else 0
        if len(order) != shape[axis]:
            raise ConfigError(
                f"{name} must have {len(order):,} rows, since the configuration gives its heads that many channels; "
                f"got shape {tuple(shape)}. Is this its configuration?"
            )
        found[name] = Reordering(order, axis)
    return found


def _attention_modules(
    names: Mapping[str, object], layers: Mapping[int, Rotated], count: int, *, parts: bool
) -> dict[str, int]:
    """The attention modules of layers that rotate, with the numbers of their layers; of the text where a model has
    several parts. Layers beyond as many as there are, which predict further tokens, are like the last that rotates."""
    found: dict[str, int] = {}
    last = max(layers)
    for name in names:
        number = LAYER.search(name)
        if number is None or (parts and BESIDE_TEXT.search(name)):
            continue
        index = int(number.group(1))
        words = name[number.end() :].split(".")
        at = next((place for place, word in enumerate(words) if word in PROJECTIONS), None)
        if at is not None and (index in layers or index >= count):
            found[name[: number.end()] + ".".join(words[:at])] = min(index, last)
    return {module.rstrip("."): index for module, index in found.items()}


def _modules_of(name: str) -> list[str]:
    """Every module that a weight stands in."""
    words = name.split(".")
    return [".".join(words[:end]) for end in range(len(words) - 1, 0, -1)]


def _is_left(name: str, first: str, rest: Sequence[str]) -> bool:
    """Whether a weight of queries or keys stays as it is, as LoRA's A does; raises where it is not known."""
    match rest:
        case ["weight" | "bias"] | ["base_layer", "weight" | "bias"] if first in PROJECTIONS | NORMS:
            return False
        case ["norms", _, "weight"] if first in NORMS:
            return False
        case ["lora_A", *_] if first in PROJECTIONS:
            return True
        case ["lora_B" | "lora_magnitude_vector", *_] if first in PROJECTIONS:
            return False
    raise ConfigError(
        f"{name} must be a weight that is known, since it stands beside queries and keys and might have to be "
        f"reordered with them; it is none of the projections, norms and adapters that Situs converts. Convert "
        f"checkpoints before they are quantised."
    )


def _order(module: str, rotated: Rotated, target: Pairing) -> Int64[Tensor, "rows"]:
    """The order of a projection's rows."""
    heads, head = rotated.heads, rotated.order(target)
    if module in QUERY:
        return _rows([head] * heads.queries)
    if module in KEY:
        return _rows([head] * heads.keys)
    if module == LATENT_KEY:
        width = rotated.width
        latent = heads.latent or width
        shared = pairing_permutation(width, source=rotated.pairing, target=target)
        return _rows([torch.arange(latent - width), shared])
    value = torch.arange(heads.values)
    grouped = [head] * (heads.queries // heads.keys)
    match _fused(rotated):
        case "by head":
            return _rows([head, head, value] * heads.queries)
        case "by group":
            return _rows([*grouped, head, value] * heads.keys)
        case "in turn":
            return _rows([head] * (heads.queries + heads.keys) + [value] * heads.keys)
        case _:  # CodeGen: values stand before keys
            each = heads.queries // CODEGEN_BLOCKS
            return _rows(([head] * each + [value] * each + [head] * each) * CODEGEN_BLOCKS)


def _fused(rotated: Rotated) -> str:
    """How queries, keys and values lie in one matrix."""
    layout = FUSED.get(rotated.model_type)
    if layout is None:
        raise ConfigError(
            f"model_type must be one of {', '.join(FUSED)} where queries, keys and values are one matrix, since each "
            f"orders them in its own way; got {rotated.model_type!r}."
        )
    if layout != "falcon":
        return layout
    if rotated.settings.get("new_decoder_architecture"):
        return "by group"
    return "in turn" if rotated.settings.get("multi_query", True) else "by head"


def _norm_order(rotated: Rotated, target: Pairing, shape: Sequence[int]) -> Int64[Tensor, "channels"]:
    """The order of a norm's channels: those of one head, or of all."""
    return _rows([rotated.order(target)] * max(shape[-1] // rotated.heads.dim, 1))


def _rows(blocks: Sequence[Int64[Tensor, "_"]]) -> Int64[Tensor, "rows"]:
    """Orders of blocks that follow each other, as one."""
    firsts = torch.tensor([0] + [len(block) for block in blocks[:-1]]).cumsum(0)
    return torch.cat([block + first for block, first in zip(blocks, firsts, strict=True)])
