"""Models of images whose scores have biases or terms of two-dimensional offsets: Swin, BEiT, SAM, ViTDet, SegGPT.

Windows are rows of a batch, so that a layer's positions are the cells of one window: ``Positions.grid(height, width)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from situs.models.calls import Call
from situs.models.positions import Heads, Kind, Layer, ModelPositions, Note
from situs.models.readers.facts import Facts
from situs.models.readers.families import Family
from situs.models.readers.sizes import CHANNELS, few, layer_count
from situs.models.readers.stack import equal_heads, refused
from situs.models.readers.view import View

Reader = Callable[[View, str, Family, Facts], ModelPositions]
CELLS = "an image has that many cells each way"


@dataclass(frozen=True)
class Swin:
    """Hold how one kind of Swin differs: names of settings, and what happens from stage to stage."""

    width: str = "embed_dim"
    image: str = "image_size"
    halved: bool = True
    """Whether a stage has half of the cells each way, and twice the channels, of the one before."""
    network: bool = False
    """Whether the bias comes from a network, and scores are cosines: version 2."""
    absolute: bool = False
    """Whether a table of the input works: others make it a row too long for their patches, and fail."""


SWINS = {
    "swin": Swin(absolute=True),
    "donut-swin": Swin(),
    "maskformer-swin": Swin(),
    "clap_audio_model": Swin(width="patch_embeds_hidden_size", image="spec_size"),
    "swinv2": Swin(network=True),
    "swin2sr": Swin(network=True, halved=False),
}


@dataclass(frozen=True)
class Cells:
    """Hold the names that a model of SAM's kind has for its settings.

    whole: the setting that lists layers which see the whole image; in ViTDet those with windows are listed.
    learned: the image whose cells have rows in the table of the input.
    """

    relative: str = "use_rel_pos"
    absolute: str | None = "use_abs_pos"
    whole: str | None = "global_attn_indexes"
    windows: str | None = None
    learned: str = "image_size"


SAMS = {
    "sam_vision_model": Cells(),
    "sam_hq_vision_model": Cells(),
    "got_ocr2_vision": Cells(),
    "deepseek_ocr2_sam_vision_model": Cells(),
    "unlimited_ocr_sam_vision_model": Cells(),
    "slanext_vision": Cells(),
    "pp_formulanet_vision": Cells(),
    "vitdet": Cells(
        relative="use_relative_position_embeddings",
        absolute="use_absolute_position_embeddings",
        whole=None,
        windows="window_block_indices",
        learned="pretrain_image_size",
    ),
    "seggpt": Cells(
        relative="use_relative_position_embeddings", absolute=None, whole=None, learned="pretrain_image_size"
    ),
}


def grid(view: View, image: str = "image_size", patch: str = "patch_size") -> tuple[int, int]:
    """Patches of an image, down and across; a patch at the edge that is not whole is left out."""
    (height, width), (down, across) = _pair(view, image), _pair(view, patch)
    if height < down or width < across:
        raise refused(view, image, f"at least {down} x {across}", "a patch is that large")
    return height // down, width // across


def _pair(view: View, key: str) -> tuple[int, int]:
    given = view.get(key)
    sides = given if isinstance(given, (list, tuple)) else (given, given)
    if len(sides) != 2 or any(type(each) is not int or each < 1 for each in sides):
        raise refused(view, key, "a whole number, or two of them", "it is the height and width of an image")
    return sides[0], sides[1]


def _list(view: View, key: str, reason: str, *, least: int = 1, length: int | None = None) -> tuple[int, ...]:
    listed = view.get(key)
    if not isinstance(listed, (list, tuple)) or any(type(each) is not int or each < least for each in listed):
        raise refused(view, key, "a list of whole numbers", reason)
    if length is not None and len(listed) != length:
        raise refused(view, key, f"a list of {length} numbers", reason)
    return tuple(listed)


def read_swin(view: View, model_type: str, family: Family, facts: Facts) -> ModelPositions:
    """Swin of either version: a bias within windows, in stages."""
    row = SWINS[model_type]
    depths = _list(view, "depths", "it counts layers of each stage")
    few(view.name("depths"), sum(depths))
    view.get("num_hidden_layers")
    many = _list(view, "num_attention_heads", "it counts heads of each stage", length=len(depths))
    width = view.require(row.width, reason=CHANNELS)
    side = view.require("window_size", reason="it counts cells of a window each way")
    cells = grid(view, row.image)
    trained = (0,) * len(depths)
    if model_type == "swinv2":
        trained = _list(view, "pretrained_window_sizes", "each stage was trained with one", least=0)[: len(depths)]
        if len(trained) < len(depths):
            raise refused(view, "pretrained_window_sizes", f"a list of {len(depths)} numbers", "each stage has one")
    layers: list[Layer] = []
    for stage, (depth, heads, before) in enumerate(zip(depths, many, trained, strict=True)):
        times = 2**stage if row.halved else 1
        if (width * times) % heads:
            rule = f"numbers that divide {width * times} in stage {stage}"
            raise refused(view, "num_attention_heads", rule, "heads share its channels")
        dim = width * times // heads
        # version 2 makes windows as small as a stage's image is high
        cell = min(side, max(1, cells[0] // times)) if row.network else side
        window = cell, cell
        bias = Call.of("SwinBias", num_heads=heads, window=window, version="v2" if row.network else None,
                       trained_window=(before, before) if before else None)  # fmt: skip
        layer = Layer("chunked", (bias,), Heads(heads, heads, dim, dim), causal=False,
                      scale=1.0 if row.network else dim**-0.5)  # fmt: skip
        layers += [layer] * depth
    notes = [Note("", f"windows are rows of a batch; those of every second layer are shifted by {side // 2} cells")]
    if row.network:
        about = "queries and keys are normalised, and queries multiplied by a learned factor: the softmax scale is 1"
        notes.append(Note("", f"{about} after that"))
    tables: tuple[Call, ...] = ()
    if model_type != "clap_audio_model" and view.flag("use_absolute_embeddings"):
        if not row.absolute:
            raise refused(
                view, "use_absolute_embeddings", "false",
                "transformers makes the table a row longer than there are patches, and fails",
            )  # fmt: skip
        tables = (Call.of("LearnedGrid", dim=width, size=cells),)
    return ModelPositions(model_type, input=tables, layers=tuple(layers), notes=tuple(notes))


def read_beit(view: View, model_type: str, family: Family, facts: Facts) -> ModelPositions:
    """BEiT and Data2Vec of images: Swin's table over the whole image, with rows for [CLS]."""
    heads, cells = equal_heads(view), grid(view)
    own, shared = (view.flag(f"use_{name}relative_position_bias") for name in ("", "shared_"))
    if (own or shared) and cells[0] != cells[1]:
        raise refused(
            view, "image_size", "as high as wide", "transformers exchanges height and width of the table of others"
        )
    bias = Call.of("SwinBias", num_heads=heads.queries, window=cells, cls=True)
    calls, notes = (bias,) * (own + shared), []
    if shared:
        notes.append(Note("use_shared_relative_position_bias", "all layers share a table"))
    if own:
        notes.append(Note("use_relative_position_bias", "each layer has a table of its own"))
    tables: tuple[Call, ...] = ()
    if view.flag("use_absolute_position_embeddings"):
        dim = view.require("hidden_size", reason=CHANNELS)
        tables = (Call.of("LearnedGrid", dim=dim, size=cells, prefix=1),)
    count = layer_count(view, "num_hidden_layers")
    layers = (Layer("full", calls, heads, causal=False, scale=heads.dim**-0.5),) * count
    return ModelPositions(model_type, input=tables, layers=layers, notes=tuple(notes))


def read_sam(view: View, model_type: str, family: Family, facts: Facts) -> ModelPositions:
    """SAM, ViTDet and SegGPT: queries meet a vector for the offset down and one for the offset across."""
    row, heads, cells = SAMS[model_type], equal_heads(view), grid(view)
    count = layer_count(view, "num_hidden_layers")
    relative = view.flag(row.relative, default=True)
    side = view.count("window_size", reason="it counts cells of a window each way", default=0, least=0) or 0
    listed: frozenset[int] = frozenset()
    if row.windows is not None:
        listed = frozenset(_list(view, row.windows, "those layers have windows", least=0))
    elif row.whole is not None:
        listed = frozenset(range(count)) - set(_list(view, row.whole, "those layers see the whole image", least=0))
    made = {}
    for windowed in (False, True):
        window = (side, side) if windowed and side else cells
        term = Call.of("ViTDet", num_heads=heads.queries, head_dim=heads.dim, window=window)
        kind: Kind = "chunked" if windowed and side else "full"
        made[windowed] = Layer(kind, (term,) * relative, heads, causal=False, scale=heads.dim**-0.5)
    notes: list[Note] = []
    tables: tuple[Call, ...] = ()
    if listed and side:
        notes.append(Note("window_size", "windows are rows of a batch"))
    if row.absolute is None or view.flag(row.absolute, default=True):
        size = grid(view, row.learned)
        tables = (Call.of("LearnedGrid", dim=view.require("hidden_size", reason=CHANNELS), size=size),)
        if row.learned != "image_size":
            about = f"the table, whose first row is for [CLS] and not used, is resized to {cells[0]} x {cells[1]}"
            notes.append(Note(row.learned, f"{about}, bicubically"))
    return ModelPositions(
        model_type, input=tables, layers=tuple(made[layer in listed] for layer in range(count)), notes=tuple(notes)
    )


def read_clip(view: View, model_type: str, family: Family, facts: Facts) -> ModelPositions:
    """A table of the patches and of [CLS], and nothing else, as in CLIP."""
    heads, dim = equal_heads(view), view.require("hidden_size", reason=CHANNELS)
    layers = (Layer("full", (), heads, causal=False, scale=heads.dim**-0.5),)
    table = Call.of("LearnedGrid", dim=dim, size=grid(view), prefix=1)
    count = layer_count(view, "num_hidden_layers")
    return ModelPositions(model_type, input=(table,), layers=layers * count)


IMAGE_READERS: dict[str, Reader] = {
    **dict.fromkeys(SWINS, read_swin),
    **dict.fromkeys(("beit", "data2vec-vision"), read_beit),
    **dict.fromkeys(SAMS, read_sam),
    "unlimited_ocr_vision_encoder": read_clip,
}
