"""Models of pages, whose tokens have boxes: LayoutLM, LiLT, UDOP; and models of table B that have tables alone."""

from __future__ import annotations

from collections.abc import Callable

from situs.models.calls import Call
from situs.models.positions import ModelPositions, Note
from situs.models.readers.facts import Facts
from situs.models.readers.families import Family
from situs.models.readers.sizes import CHANNELS, few, layer_count
from situs.models.readers.stack import bert_table, bucket_sizes, equal_heads, refused, roberta_table, stacked, t5_bias
from situs.models.readers.view import View, require_count, require_number, told
from situs.models.sources.strict import ConfigError

Reader = Callable[[View, str, Family, Facts], ModelPositions]

ROBERTA = ("layoutlmv3", "lilt", "clap_text_model")
"""Whose tables begin behind the row of padding."""

AXES = {"1d": (1, 128), "horizontal": (100, 100), "vertical": (100, 100)}
"""UDOP's biases: steps to a unit of the coordinate, and the farthest distance in steps."""


def read_page(view: View, model_type: str, family: Family, facts: Facts) -> ModelPositions:
    """A table of the text, tables of boxes, and in LayoutLMv2 and v3 biases of both."""
    heads = equal_heads(view)
    dim = view.require("hidden_size", reason=CHANNELS)
    table, lengths = (roberta_table if model_type in ROBERTA else bert_table)(view, dim)
    count = layer_count(view, "num_hidden_layers")
    notes = []
    if model_type != "clap_text_model":
        rows = view.require("max_2d_position_embeddings", reason="it counts places across and down a page")
        about = f"edges, height and width of boxes have learned tables of {rows} rows too, which are not in the text"
        notes.append(Note("max_2d_position_embeddings", about))
    if model_type == "lilt":
        ratio = view.require("channel_shrink_ratio", reason="it divides the channels of the layout")
        about = f"scores of the layout, whose heads have {heads.dim // ratio} channels, are added to those of the text"
        notes.append(Note("channel_shrink_ratio", f"{about}, which are not read"))
    bias = (
        _boxes(view, heads.queries, heads.dim, model_type, notes) if model_type in ("layoutlmv2", "layoutlmv3") else []
    )
    layers = stacked(count, heads, *bias, causal=False)
    return ModelPositions(model_type, input=(table,), layers=layers, lengths=lengths, notes=tuple(notes))


def _boxes(view: View, heads: int, dim: int, model_type: str, notes: list[Note]) -> list[Call]:
    """The biases of places in the text and on the page, where both are switched on."""
    third = model_type == "layoutlmv3"
    text, page = (view.flag(f"has_{name}_attention_bias", default=True) for name in ("relative", "spatial"))
    if third and page and not text:
        about = "true changes nothing: transformers adds it beside has_relative_attention_bias alone"
        notes.append(Note("has_spatial_attention_bias", about))
        page = False
    sizes = [bucket_sizes(view, ("rel_pos_bins",), ("max_rel_pos",))] * text
    sizes += [bucket_sizes(view, ("rel_2d_pos_bins",), ("max_rel_2d_pos",))] * 2 * page
    if not sizes:
        return []
    rows, far = zip(*sizes, strict=True)
    notes.append(Note("", "all layers share the tables; positions are encoding.positions(boxes)"))
    return [Call.of("Boxes", num_heads=heads, num_buckets=rows, max_distance=far, factor=dim**-0.5 if third else None)]


def read_udop(view: View, model_type: str, family: Family, facts: Facts) -> ModelPositions:
    """UDOP: biases of the text and of boxes in the encoder, T5's in the decoder."""
    heads = equal_heads(view, dim=view.require("d_kv", reason=CHANNELS))
    behind = layer_count(view, "num_hidden_layers")
    ahead = layer_count(view, "num_decoder_layers") if view.get("num_decoder_layers") is not None else behind
    boxes = _udop(view, heads.queries)
    rows = view.require("max_2d_position_embeddings", reason="it counts places across and down a page")
    t5 = t5_bias(view, heads.queries, ("relative_attention_num_buckets",), ("relative_attention_max_distance",),
                 bidirectional=False)  # fmt: skip
    page = Note("max_2d_position_embeddings", f"edges of boxes have learned tables of {rows} rows too")
    where = Note("", "positions are encoding.positions(boxes, anchor='centre'), of boxes that are shares of the page")
    encoder = ModelPositions(
        model_type, layers=stacked(behind, heads, *boxes, causal=False, scale=1.0), notes=(page, where)
    )
    decoder = ModelPositions(model_type, layers=stacked(ahead, heads, t5, causal=True, scale=1.0))
    note = Note("", "attention from decoder to encoder has no bias, and the same softmax scale of 1")
    return ModelPositions(model_type, submodels={"encoder": encoder, "decoder": decoder}, notes=(note,))


def _udop(view: View, heads: int) -> list[Call]:
    """relative_bias_args: a list of objects, of the text, across and down."""
    name, listed = view.name("relative_bias_args"), view.get("relative_bias_args")
    if not isinstance(listed, (list, tuple)) or not all(isinstance(each, dict) for each in listed):
        raise refused(view, "relative_bias_args", "a list of objects", "each is a bias")
    kinds = [each.get("type") for each in listed]
    if kinds != [each for each in AXES if each in kinds]:
        raise ConfigError(
            f"{name} must have types among {', '.join(AXES)}, in that order and each once, since coordinates of a "
            f"position are in that order; got {told(kinds)}."
        )
    if not listed:
        return []
    axes = []
    for index, each in enumerate(listed):
        usual_steps, usual_far = AXES[each["type"]]
        known = {"type", "num_heads", "relative_attention_num_buckets", "scaling_factor", "max_distance"}
        silent = {"augmentation", "level", "expand"}  # of training, and of no effect
        for key in sorted(set(each) - known - silent):
            usual = {"bidirectional": True, "prefix_bucket": False}.get(key)
            if usual is None or each[key] is not usual:
                raise ConfigError(
                    f"{name}[{index}].{key} must be left out, since Situs has no such buckets; got {told(each[key])}."
                )
        part = f"{name}[{index}]"
        rows = require_count(f"{part}.relative_attention_num_buckets", each.get("relative_attention_num_buckets", 32),
                             "offsets share buckets", least=4)  # fmt: skip
        far = require_count(f"{part}.max_distance", each.get("max_distance", usual_far), "all beyond share a bucket",
                            least=rows // 4 + 1)  # fmt: skip
        steps = require_number(
            f"{part}.scaling_factor", each.get("scaling_factor", usual_steps), "offsets are counted in it"
        )
        if (steps != 1) == (each["type"] == "1d") or steps < 1:
            raise ConfigError(
                f"{part}.scaling_factor must be {'1' if each['type'] == '1d' else 'more than 1'}, since transformers "
                f"refuses others; got {told(each['scaling_factor'])}."
            )
        axes.append((rows, far, steps))
    buckets, distances, steps_to = zip(*axes, strict=True)
    return [
        Call.of(
            "Boxes",
            num_heads=heads,
            num_buckets=buckets,
            max_distance=distances,
            resolution=steps_to,
            softmax_scale=1.0,
        )
    ]


def read_perceiver(view: View, model_type: str, family: Family, facts: Facts) -> ModelPositions:
    """Perceiver, of text: a table of its tokens; latents have no positions."""
    table, lengths = bert_table(view, view.require("d_model", reason=CHANNELS))
    wide = "qk_channels" if view.get("qk_channels") is not None else "d_latents"
    width = view.require(wide, reason=CHANNELS)
    queries = view.require("num_self_attention_heads", reason="it counts heads")
    if width % queries:
        raise refused(view, wide, f"a multiple of num_self_attention_heads={queries}", "heads share its channels")
    heads = equal_heads(view, layers="num_self_attention_heads", dim=width // queries)
    blocks = view.require("num_blocks", reason="it counts blocks")
    count = few(view.name("num_blocks"), blocks * layer_count(view, "num_self_attends_per_block"))
    note = Note(
        "",
        "positions of images and sound depend on the class of the model, which no setting tells: this is text; layers "
        "attend among latents, which have no positions",
    )
    layers = stacked(count, heads, causal=False)
    return ModelPositions(model_type, input=(table,), layers=layers, lengths=lengths, notes=(note,))


DOCUMENT_READERS: dict[str, Reader] = {
    **dict.fromkeys(["layoutlm", "layoutlmv2", "layoutlmv3", "lilt", "clap_text_model"], read_page),
    "udop": read_udop,
    "perceiver": read_perceiver,
}
