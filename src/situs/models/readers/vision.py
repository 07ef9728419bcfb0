"""Stacks that see images: settings -> layers that rotate by several coordinates, and tables of patches before them.

Most rotate halves of a head, of which the first pairs go by the row and the others by the column of a patch, each with
a ladder of its own: `Stack()` is that rule, and each row of the table says what is otherwise. Positions are no setting:
a note tells which coordinates a stack is given.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from situs.models.calls import Call
from situs.models.positions import Heads, Layer, Lengths, ModelPositions, Note
from situs.models.readers.facts import Facts
from situs.models.readers.families import Family
from situs.models.readers.rope import read_ladder
from situs.models.readers.schedule import Every, layer_types
from situs.models.readers.sizes import CHANNELS, HEADS, LAYERS, PIXELS, grid_of, layer_count, sides
from situs.models.readers.view import View, told
from situs.models.sources.strict import ConfigError

CELLS = "it counts patches"
BASE = "it is the base of the frequencies"

Table = Literal["image", "pretraining image", "rows", "height and width", "row of the class last", "columns and rows"]


@dataclass(frozen=True)
class Stack:
    """Hold what is particular to the layers of some model types.

    width, depth, heads, keys: the settings that hold these sizes.
    split: options of `Axial`; axes: how many coordinates a position has.
    interleaved: whether neighbouring channels are pairs.
    base: where the base of the frequencies is written.
    norm: whether queries and keys are normalised before they are rotated; or the setting that says so.
    table: how the learned table before the layers is sized; prefix: its rows before those of patches.
    resized: what makes of it a table for another grid.
    windows: which layers attend within windows.
    where: the coordinates that positions are.
    notes: what else there is to know.
    """

    width: tuple[str, ...] = ("hidden_size",)
    depth: tuple[str, ...] = ("num_hidden_layers", "depth")
    heads: tuple[str, ...] = ("num_attention_heads", "num_heads")
    keys: tuple[str, ...] = ("num_key_value_heads",)
    axes: int = 2
    split: tuple[tuple[str, Any], ...] = ()
    interleaved: bool = False
    base: Literal["rope_parameters", "rope_theta"] = "rope_parameters"
    rope_type: Literal["axial", "default"] = "axial"
    scale: float | None = None
    norm: str | bool = False
    table: Table | None = None
    prefix: int = 0
    resized: str = ""
    windows: Literal["fullatt_block_indexes", "global_attn_indexes", "layer_types"] | None = None
    where: str = "the row and the column of a patch, Positions.grid(height, width)"
    notes: tuple[str, ...] = ()


_BILINEAR = "encoding.resize(size, mode='bilinear', align_corners=True)"
_BICUBIC = "encoding.resize(size)"
_BACKWARDS = "the column and the row of a patch"
_MEMORY = Stack(
    width=("memory_attention_hidden_size",),
    depth=("memory_attention_num_layers",),
    heads=("memory_attention_num_attention_heads",),
    keys=(),
    interleaved=True,
    where=f"{_BACKWARDS} of memory_attention_rope_feat_sizes",
    notes=(
        "layers are those of the memory attention: in self-attention and towards the memory queries and keys are "
        "rotated alike; the pointers to objects at the end of the memory are not rotated",
    ),
)
_DINOV3 = Stack(
    rope_type="default",
    where=(
        "2 pi times the row and the column of a patch in -1 .. 1, "
        "Positions.grid(height, width, normalised='each').scaled(6.283185307179586)"
    ),
)
_MUSE = Stack(
    table="height and width",
    windows="layer_types",
    where=f"{_BACKWARDS}, counted from 1",
    resized="a bilinear interpolation that fades to zero at the borders",
)
_QWEN3 = Stack(table="rows", resized=_BILINEAR)
_QWEN25 = Stack(windows="fullatt_block_indexes")
_GLM4V = Stack(table="image", resized=_BICUBIC)

STACKS: dict[str, Stack] = {
    "qwen2_vl_vision": Stack(width=("embed_dim",)),
    **dict.fromkeys(("qwen2_5_vl_vision", "qwen2_5_omni_vision_encoder", "exaone4_5_vision"), _QWEN25),
    **dict.fromkeys(
        (
            "qwen3_vl_vision", "qwen3_vl_moe_vision", "qwen3_5_vision", "qwen3_5_moe_vision", "qwen4_exp_vision",
            "qwen3_omni_moe_vision_encoder", "cohere_compass_vision",
        ),
        _QWEN3,
    ),
    **dict.fromkeys(("glm4v_vision", "glm4v_moe_vision"), _GLM4V),
    **dict.fromkeys(("glm_ocr_vision", "glm5_next_vision", "ernie4_5_vl_moe_vision", "video_llama_3_vision"), Stack()),
    "paddleocr_vl_vision": Stack(table="image", resized=_BILINEAR),
    "kimi_k25_vision": Stack(
        table="height and width",
        resized=_BICUBIC,
        where=_BACKWARDS,
        notes=(
            "pairs of the column and of the row alternate in a checkpoint's heads: query and key channels of each half "
            "are put in the order 0, 2, 4 ..., 1, 3, 5 ... for this encoding",
            "of a clip of several frames, the second encoding of the input is that of the frame; an image has none",
        ),
    ),
    "minimax_m3_vl_vision": Stack(axes=3, where="the frame, the row and the column of a patch"),
    "mlcd_vision_model": Stack(
        notes=("the class token is rotated by angles that are a parameter of the checkpoint, class_pos_emb",),
    ),
    "step3p5_vision": Stack(
        width=("hidden_size", "width"),
        depth=("num_hidden_layers", "layers"),
        heads=("num_attention_heads", "heads"),
        table="image",
        resized="encoding.resize(size, mode='bilinear')",
    ),
    "muse_glimmer_vision": _MUSE,
    "muse_spark_vision": _MUSE,
    "gemma4_vision": Stack(
        split=(("halves", "axis"),),
        scale=1.0,
        norm=True,
        table="columns and rows",
        where=_BACKWARDS,
        notes=("the first encoding of the input is that of columns, the second that of rows",),
    ),
    "pixtral": Stack(split=(("ladder", "shared"),)),
    "llama4_vision_model": Stack(
        interleaved=True,
        rope_type="default",
        table="row of the class last",
        where=f"{_BACKWARDS}, counted from 1; the class token, which is the last, has no position",
    ),
    "sam2_video": _MEMORY,
    "sam3_tracker_video": _MEMORY,
    "edgetam_video": replace(_MEMORY, where=f"{_MEMORY.where}; of keys in the memory, memory_attention_rope_k_sizes"),
    "sam3_vit_model": Stack(
        interleaved=True,
        table="pretraining image",
        resized="the same rows again, as tiles",
        windows="global_attn_indexes",
        where=f"{_BACKWARDS}, in windows counted from their corner",
    ),
    "dinov3_vit": replace(_DINOV3, base="rope_theta"),
    "sapiens2": replace(_DINOV3, base="rope_theta", norm="use_qk_norm"),
    "eomt_dinov3": _DINOV3,
}  # fmt: skip


def read_stack(view: View, model_type: str, family: Family, facts: Facts) -> ModelPositions:
    """Read a stack of layers that rotate by the coordinates of a patch."""
    stack = STACKS[model_type]
    layers = layer_count(view, *stack.depth)
    heads = _heads(view, stack, layers)
    width = view.require(*stack.width, reason=CHANNELS)
    base = _base(view, stack, model_type, facts)
    whole = _rotary(stack, heads[0].dim, base)
    called = _called(view, stack, whole, layers)
    notes = [Note("", f"positions are {stack.where}"), *(Note("", each) for each in stack.notes)]
    notes += _prefix(view, stack) + _windows(view, stack, layers) + _memory(view, stack)
    tables = _tables(view, stack, width)
    norm = view.flag(stack.norm, default=True) if isinstance(stack.norm, str) else stack.norm
    if tables and stack.resized:
        notes.append(Note("", f"an image of another size has a table that is resized: {stack.resized}"))
    found = tuple(
        Layer("full", (call,), each, causal=False, scale=stack.scale or each.dim**-0.5, norm="before" if norm else None)
        for call, each in zip(called, heads, strict=True)
    )
    return ModelPositions(model_type, input=tables, layers=found, lengths=_lengths(view, stack), notes=tuple(notes))


def _heads(view: View, stack: Stack, layers: int) -> list[Heads]:
    """The sizes of each layer's attention."""
    width, queries = view.require(*stack.width, reason=CHANNELS), view.require(*stack.heads, reason=HEADS)
    share = view.count("memory_attention_downsample_rate", reason="channels are divided by it") or 1
    dim = view.count("head_dim", reason=CHANNELS) or width // (queries * share)
    if dim % (2 * stack.axes if stack.axes == 2 else 2):
        raise ConfigError(
            f"{view.spelling(*stack.width)} must give heads of a multiple of {2 * stack.axes} channels, since "
            f"{stack.axes} coordinates rotate whole pairs; got heads of {dim}."
        )
    keys = (view.count(*stack.keys, reason=HEADS) if stack.keys else None) or queries
    listed = view.numbers("num_key_value_heads_per_layer", reason=HEADS, length=layers)
    if listed is not None:
        return [Heads(queries, int(each), dim, dim) for each in listed]
    few = view.count("num_key_value_attention_heads", reason=HEADS)
    if few is not None:  # Sapiens 2: fewer keys than queries in the middle
        first = view.count("num_first_full_attention_layers", reason=LAYERS, least=0) or 0
        last = view.count("num_last_full_attention_layers", reason=LAYERS, least=0) or 0
        return [Heads(queries, few if first <= each < layers - last else queries, dim, dim) for each in range(layers)]
    return [Heads(queries, keys, dim, dim)] * layers


def _base(view: View, stack: Stack, model_type: str, facts: Facts) -> float:
    given = view.number("rope_theta", reason=BASE, default=facts.theta, above=0)
    written = None
    if stack.base == "rope_parameters":
        written = view.part("rope_parameters") or view.part("rope_scaling")
    if written is None:
        if given is None:
            raise ConfigError(f"{view.name('rope_theta')} must be given, since {BASE}; got none.")
        return given
    ladder = read_ladder(written, base=given, share=None, length=None, original=None)
    if ladder.scaling is not None or ladder.share not in (None, 1.0):
        raise ConfigError(
            f"{written.spelling('rope_type', 'type')} must be {stack.rope_type}, and without partial_rotary_factor, "
            f"since {model_type} rotates by coordinates of images in no other way; got {told(dict(written.config))}."
        )
    return ladder.base


def _rotary(stack: Stack, dim: int, base: float) -> Call:
    each = 2 * (dim // stack.axes // 2)  # the channels of a coordinate, in whole pairs
    rest = dim - each * stack.axes
    return Call.of(
        "Rotary",
        head_dim=dim,
        base=base,
        rotary_dim=dim - rest if rest else None,
        pairing="interleaved" if stack.interleaved else None,
        split=Call.of("Axial", axes=stack.axes, **dict(stack.split)),
    )


def _called(view: View, stack: Stack, whole: Call, layers: int) -> list[Call]:
    """The encoding of each layer: SAM 3 squeezes coordinates into the span of a window where it has no windows."""
    if stack.windows != "global_attn_indexes":
        return [whole] * layers
    window = view.require("window_size", reason=CELLS)
    factor = grid_of(view)[0] / window  # the width, which it reads as the first number
    if factor < 1:
        raise ConfigError(
            f"{view.name('window_size')} must be at most {grid_of(view)[0]}, the patches of image_size, since "
            f"coordinates are interpolated between those of a window; got {window}."
        )
    wide = whole.replace(scaling=Call.of("LinearScaling", factor=factor)) if factor > 1 else whole
    every = _listed(view, "global_attn_indexes", layers)
    return [wide if each in every else whole for each in range(layers)]


def _listed(view: View, key: str, layers: int) -> frozenset[int]:
    """Layers by number."""
    value = view.get(key)
    value = [] if value is None else value
    if not isinstance(value, Sequence) or not all(type(each) is int and 0 <= each < 2**31 for each in value):
        raise ConfigError(f"{view.name(key)} must be a list of layers, by number; got {told(value)}.")
    return frozenset(each for each in value if each < layers)


def _windows(view: View, stack: Stack, layers: int) -> list[Note]:
    """Windows are squares of an image and no run of tokens: layers are full, and a note tells which are not."""
    if stack.windows is None:
        return []
    if stack.windows == "layer_types":
        types = layer_types(view, layers, Every(4, also=(-1,), rest="window_attention"))
        full = frozenset(each for each, type_ in enumerate(types) if type_ == "full_attention")
        side = view.require("pos_emb_height", reason=CELLS)
    else:
        full = _listed(view, stack.windows, layers)
        side = view.require("window_size", reason="layers attend within windows")
        if stack.windows == "fullatt_block_indexes":  # pixels, in whole tokens of the text
            merged = view.require("spatial_merge_size", reason="so many patches make a token of the text")
            side = side // merged // view.require("patch_size", reason=PIXELS) * merged
    if len(full) == layers:
        return []
    rest = [each for each in range(layers) if each not in full]
    return [
        Note(
            stack.windows,
            f"{len(rest)} layers, from {rest[0]} on, attend within windows of {side} x {side} patches, which are no "
            f"sliding windows: pack each window as a sequence of its own",
        )
    ]


def _memory(view: View, stack: Stack) -> list[Note]:
    """The grids of SAM 2's memory, which are no sizes of an encoding."""
    for key in ("memory_attention_rope_feat_sizes", "memory_attention_rope_k_sizes"):
        sides(view, key, reason=CELLS)
    return []


def _prefix(view: View, stack: Stack) -> list[Note]:
    """Tokens before the patches that have no position, and what DINOv3 changes in training."""
    if stack.rope_type != "default" or stack.interleaved:
        return []
    count = 1 + (view.count("num_register_tokens", reason="it counts tokens", least=0) or 0)
    changed = [
        key
        for key in ("pos_embed_shift", "pos_embed_jitter", "pos_embed_rescale")
        if view.number(key, reason="coordinates are changed by it", above=0) is not None
    ]
    notes = [Note("", f"the first {count} tokens, of the class and registers, have no position: .prefixed({count})")]
    if changed:
        notes.append(Note(changed[0], "changes coordinates in training alone, as Positions.augmented does"))
    return notes


def _tables(view: View, stack: Stack, width: int) -> tuple[Call, ...]:
    """The learned tables before the first layer."""
    if stack.table is None:
        return ()
    if stack.table in ("image", "pretraining image"):
        image = "image_size" if stack.table == "image" else "pretrain_image_size"
        return (Call.of("LearnedGrid", dim=width, size=grid_of(view, image)),)
    if stack.table == "rows":
        rows = view.require("num_position_embeddings", reason=CELLS)
        side = math.isqrt(rows)
        if side * side != rows:
            raise ConfigError(
                f"{view.name('num_position_embeddings')} must be a square, since it is read as one; got {rows}."
            )
        return (Call.of("LearnedGrid", dim=width, size=(side, side)),)
    if stack.table == "row of the class last":
        height, across = grid_of(view)
        return (Call.of("Learned", dim=width, max_length=height * across + 1),)
    if stack.table == "columns and rows":
        rows = view.require("position_embedding_size", reason=CELLS)
        return (Call.of("Learned", dim=width, max_length=rows),) * 2
    size = view.require("pos_emb_height", reason=CELLS), view.require("pos_emb_width", reason=CELLS)
    grid = Call.of("LearnedGrid", dim=width, size=size)
    if view.count("pos_emb_time", reason="it counts frames") is None:
        return (grid,)
    return grid, Call.of("Sinusoidal", dim=width, layout="concatenated")


def _lengths(view: View, stack: Stack) -> Lengths:
    declared = view.count("max_position_embeddings", reason="it counts patches")
    frames = view.count("pos_emb_time", reason="it counts frames")
    if frames is not None:
        return Lengths(declared, limit=frames, reason="the table of frames ends; patches have no limit")
    if stack.table == "columns and rows":
        rows = view.count("position_embedding_size", reason=CELLS)
        return Lengths(declared, limit=rows, reason="the tables of rows and columns end")
    return Lengths(declared)


def read_projected(view: View, model_type: str, family: Family, facts: Facts) -> ModelPositions:
    """Read LightGlue, whose angles are learned projections of the coordinates of keypoints."""
    layers, queries = (
        layer_count(view, "num_hidden_layers"),
        view.require("num_attention_heads", reason=HEADS),
    )
    dim = view.require("descriptor_dim", "hidden_size", reason=CHANNELS) // queries
    keys = view.count("num_key_value_heads", reason=HEADS) or queries
    call = Call.of("RoPEMixed", head_dim=dim, num_heads=queries)
    layer = Layer("full", (call,), Heads(queries, keys, dim, dim), causal=False, scale=dim**-0.5)
    notes = (
        Note(
            "", "positions are the column and the row of a keypoint from the image's centre, the longer side in -1 .. 1"
        ),
        Note("", "frequencies are the checkpoint's projector, one for all heads and layers: weight.T[:, None]"),
        Note("", "attention between both images has no positions"),
    )
    return ModelPositions(model_type, layers=(layer,) * layers, notes=notes)


REFUSED = {
    "vjepa2": "it pairs neighbouring channels but gives both of a pair different angles, which is no rotation",
    "efficientloftr": "its heads have different frequencies, those of one ladder over all heads, in turns of rows and "
    "columns",
}


def refuse(view: View, model_type: str, family: Family, facts: Facts) -> ModelPositions:
    """Raise for a model type whose positions no encoding of Situs makes."""
    raise ConfigError(
        f"{view.name('model_type')} must be one whose positions Situs has an encoding for; got {told(model_type)}: "
        f"{REFUSED[model_type]}."
    )


READERS = {
    **dict.fromkeys(STACKS, read_stack),
    "lightglue": read_projected,
    **dict.fromkeys(REFUSED, refuse),
}
