"""Reformer: a table of positions that is made of two, and layers that see chunks or hashes.

    row i of the table = (rows[i // width], columns[i % width]),    axial_pos_shape = (height, width)

`Learned` holds the table whole; a checkpoint holds its two parts.
"""

from __future__ import annotations

from situs.models.calls import Call
from situs.models.positions import Heads, Layer, Lengths, ModelPositions, Note
from situs.models.readers.facts import Facts
from situs.models.readers.families import Family
from situs.models.readers.sizes import CHANNELS, HEADS, few
from situs.models.readers.stack import TOKENS, refused
from situs.models.readers.view import View
from situs.models.sources.strict import ConfigError

KINDS = ("local", "lsh")


def read_reformer(view: View, model_type: str, family: Family, facts: Facts) -> ModelPositions:
    """Read Reformer's table and the kind of each of its layers."""
    queries, dim = (view.require(key, reason=why) for key, why in
                    (("num_attention_heads", HEADS), ("attention_head_size", CHANNELS)))  # fmt: skip
    listed = view.get("attn_layers")
    if not isinstance(listed, list) or not listed or any(each not in KINDS for each in listed):
        raise refused(view, "attn_layers", f"a list of {' and '.join(KINDS)}", "layers see chunks or hashes")
    few(view.name("attn_layers"), len(listed))
    length = view.require("max_position_embeddings", reason=TOKENS)
    table, rows, notes = _table(view, length)
    heads, causal = Heads(queries, queries, dim, dim), view.flag("is_decoder")
    layers = {
        "local": Layer("chunked", (), heads, causal=causal, scale=dim**-0.5),
        "lsh": Layer("full", (), heads, causal=causal, scale=dim**-0.5),
    }
    notes += [_local(view)] * ("local" in listed)
    if "lsh" in listed:
        view.count("lsh_attn_chunk_length", reason=TOKENS)
        about = "layers of lsh take keys from queries, normalised, and see those of their own hash: Situs has none such"
        notes.append(Note("attn_layers", about))
    usable = min(length, rows)
    lengths = Lengths(length, limit=usable, reason=f"the table of positions has rows for {usable:,} tokens")
    found = tuple(layers[each] for each in listed)
    return ModelPositions(model_type, input=(table,), layers=found, lengths=lengths, notes=tuple(notes))


def _table(view: View, length: int) -> tuple[Call, int, list[Note]]:
    width = view.require("hidden_size", reason=CHANNELS)
    shape, dims = (view.numbers(key, reason="it sizes a part of the table", length=2)
                   for key in ("axial_pos_shape", "axial_pos_embds_dim"))  # fmt: skip
    if not view.flag("axial_pos_embds", default=True):
        return Call.of("Learned", dim=width, max_length=length), length, []
    if shape is None or dims is None or sum(dims) != width or min(*shape, *dims) < 1:
        raise ConfigError(
            f"{view.name('axial_pos_embds_dim')} must add up to hidden_size={width}, since both parts of the table lie "
            f"side by side; got {dims and [int(each) for each in dims]}."
        )
    height, across = map(int, shape)
    about = f"row i is row i // {across} of the first part beside row i % {across} of the second, of {dims[0]:g} and "
    note = Note("axial_pos_shape", f"{about}{dims[1]:g} channels")
    return Call.of("Learned", dim=width, max_length=height * across), height * across, [note]


def _local(view: View) -> Note:
    chunk = view.require("local_attn_chunk_length", reason=TOKENS)
    before, after = (view.count(f"local_num_chunks_{side}", reason="it counts chunks", default=0, least=0)
                     for side in ("before", "after"))  # fmt: skip
    return Note(
        "attn_layers",
        f"tokens of local layers see their chunk of {chunk}, {before} before and {after} behind it, by a mask; the "
        f"first chunk follows on the last; all of a text that is no longer than a chunk",
    )


READERS = {"reformer": read_reformer}
