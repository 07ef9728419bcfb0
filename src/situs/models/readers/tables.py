"""Models whose positions are a table at the input, learned or of sines; and those that rotate by a fixed base.

The rows of `table_rows` say what each has; the functions here make calls and layers of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from situs.models.calls import Call
from situs.models.positions import Heads, Layer, Lengths, ModelPositions, Note
from situs.models.readers.facts import Facts
from situs.models.readers.families import Family
from situs.models.readers.sizes import CHANNELS, HEADS, grid_of, layer_count, shared
from situs.models.readers.stack import COUNTS_PADDING
from situs.models.readers.table_rows import BOTH, CONVOLVED, PATCHES, RECURRENT, TOKENS, Patches, Tokens
from situs.models.readers.view import View, told
from situs.models.sources.strict import ConfigError

TABLE, SPANS = "it sizes the table of positions", "it counts tokens"


def read_tokens(view: View, model_type: str, family: Family, facts: Facts) -> ModelPositions:
    """Read a stack of tokens whose positions are a table."""
    return _stack(view, model_type, TOKENS[model_type])


def read_both(view: View, model_type: str, family: Family, facts: Facts) -> ModelPositions:
    """Read an encoder and a decoder, each with a table."""
    rows = BOTH[model_type]
    parts = {"encoder": rows.encoder, "decoder": rows.decoder}
    submodels = {side: _stack(view, f"{model_type} {side}", row) for side, row in parts.items()}
    notes = (Note("", "towards the encoder, the decoder attends without positions"),)
    return ModelPositions(model_type, submodels=submodels, notes=notes)


def _stack(view: View, model_type: str, row: Tokens) -> ModelPositions:
    _require_absolute(view, model_type)
    if not view.flag("use_learned_position_embeddings", default=True):
        raise ConfigError(
            f"{view.name('use_learned_position_embeddings')} must be true, since {model_type} is read with a learned "
            f"table alone; got false."
        )
    length = view.require(*row.length, reason=TABLE)
    width = view.require(*(row.table or row.width), reason=CHANNELS)
    notes = [Note("", note) for note in row.notes]
    scaled = row.scaled is not None and (not row.scaled[0] or view.flag(row.scaled[0], default=row.scaled[1]))
    call = _table(view, row, length, width, scaled)
    if scaled and row.sines is None:
        notes.append(
            Note(row.scaled[0] if row.scaled else "", f"tokens are multiplied by {math.sqrt(width):.6g} before")
        )
    if row.counted == "all":
        notes.append(COUNTS_PADDING)
    for key in ("sinusoidal_pos_embds", "sinusoidal_embeddings"):
        if view.flag(key):
            notes.append(Note(key, "fills the table at first; what it holds then is the checkpoint's"))
    layers, more = _layers(view, row)
    return ModelPositions(
        model_type, input=(call,), layers=tuple(layers), lengths=_lengths(call, row, length), notes=(*notes, *more)
    )


def _require_absolute(view: View, model_type: str) -> None:
    """Raise for the relative variants of BERT, which transformers 5 does not read any more."""
    kind = view.get("position_embedding_type")
    if kind not in (None, "absolute"):
        raise ConfigError(
            f"{view.name('position_embedding_type')} must be absolute, since transformers has {model_type} in no other "
            f"way and would ignore it; got {told(kind)}."
        )


def _table(view: View, row: Tokens, length: int, width: int, scaled: bool) -> Call:
    offset: int = 0 if row.offset == "padding" else row.offset
    padding_row = offset - 1 if row.padding == "row" else None
    if row.offset == "padding":
        padding_row = view.require("pad_token_id", reason="its row of the table is for padding", least=0)
        offset = padding_row + 1
    if row.padding == "row of zeros":
        pad = view.count("pad_token_id", reason="its row of the table is zeros", least=0)
        if pad is not None and pad >= offset:
            raise ConfigError(
                f"{view.name('pad_token_id')} must be below {offset}, since the row of that number is zeros and "
                f"would be that of a position; got {pad}."
            )
    if row.sines is not None:
        return Call.of(
            "Sinusoidal",
            dim=width,
            **dict(row.sines),
            offset=offset or None,
            padding="zeros" if row.padding == "zeros" else None,
            scale_embeddings=scaled or None,
        )
    rows = length + row.more
    if offset >= rows:
        raise ConfigError(
            f"{view.spelling(*row.length)} must be more than {offset - row.more}, since the first {offset} rows of the "
            f"table are for no position; got {length}."
        )
    return Call.of("Learned", dim=width, max_length=rows, offset=offset or None, padding_row=padding_row)


def _lengths(call: Call, row: Tokens, length: int) -> Lengths:
    if call.cls == "Learned":
        usable = call.option("max_length") - call.option("offset", 0)
        return Lengths(length, limit=usable, reason=f"the learned table has rows for {usable:,} tokens")
    if row.ends:
        return Lengths(length, limit=length, reason=f"the table of sines is made for {length:,} tokens")
    return Lengths(length)


def _layers(view: View, row: Tokens) -> tuple[list[Layer], list[Note]]:
    count = layer_count(view, *row.depth)
    if row.layers == "none":
        return [Layer("none")] * count, []
    queries = view.require(*row.heads, reason=HEADS)
    keys = 1 if view.flag("multi_query") else queries
    dim = shared(view, row.width, queries)
    if row.halved:
        queries = keys = max(queries // view.require("head_ratio", reason="heads are divided by it"), 1)
        dim = shared(view, row.width, queries) // 2
    heads = Heads(queries, keys, dim, dim)
    causal = row.causal or view.flag("is_decoder") or view.flag("causal")
    scales = _scales(view, row, heads.dim, count)
    plain = [Layer("full", (), heads, causal=causal, scale=scale) for scale in scales]
    if row.layers == "gpt_neo":
        window = view.require("window_size", reason=SPANS)
        names = _attention_layers(view, count)
        return [
            replace(each, kind="sliding", window=window) if name == "local" else each
            for each, name in zip(plain, names, strict=True)
        ], []
    if row.layers == "longformer":
        windows = _attention_windows(view, count)
        note = Note("attention_window", "tokens of global attention see all others, and are seen by them")
        return [
            replace(each, kind="sliding", window=window // 2 + 1) for each, window in zip(plain, windows, strict=True)
        ], [note]
    return plain, []


def _scales(view: View, row: Tokens, dim: int, count: int) -> list[float]:
    if row.scale == "one":
        return [1.0] * count
    if row.scale == "plain":
        return [dim**-0.5] * count
    scale = dim**-0.5 if view.flag("scale_attn_weights", default=True) else 1.0
    inverse = view.flag("scale_attn_by_inverse_layer_idx")
    return [scale / (layer + 1 if inverse else 1) for layer in range(count)]


def _attention_layers(view: View, count: int) -> list[str]:
    """GPT Neo's layers by name, of which lists are repeated: [[["global", "local"], 12]]."""
    listed, types = view.get("attention_layers"), view.get("attention_types")
    if listed is None:
        types = [[["global", "local"], (count + 1) // 2]] if types is None else types
        try:
            listed = [name for names, times in types for _ in range(min(int(times), count)) for name in names]
        except (TypeError, ValueError):
            listed = None
    known = isinstance(listed, list) and len(listed) == count and all(name in ("global", "local") for name in listed)
    if not known:
        raise ConfigError(
            f"{view.spelling('attention_layers', 'attention_types')} must name {count} layers, global or local, since "
            f"the model has that many; got {told(types if listed is None else listed)}."
        )
    return list(listed)


def _attention_windows(view: View, count: int) -> Sequence[int]:
    """Longformer's windows, half of which lies on each side: one for all layers, or one for each."""
    value = view.get("attention_window", default=512)
    given = value if isinstance(value, list) else [value] * count
    parts = View({str(index): each for index, each in enumerate(given)}, path=view.name("attention_window"))
    found = [parts.require(str(index), reason=SPANS, least=2) for index in range(len(given))]
    if len(found) != count or any(each % 2 for each in found):
        raise ConfigError(
            f"{view.name('attention_window')} must be an even number, or {count}, one for each layer, since half of it "
            f"lies on each side; got {told(value)}."
        )
    return found


def read_patches(view: View, model_type: str, family: Family, facts: Facts) -> ModelPositions:
    """Read a stack of patches whose positions are a learned table."""
    row = PATCHES[model_type]
    width, count = view.require(*row.width, reason=CHANNELS), layer_count(view, *row.depth)
    queries = max(width // row.dim, 1) if row.dim else view.require(*row.heads, reason=HEADS)
    dim = view.count("head_dim", reason=CHANNELS) or shared(view, row.width, queries)
    keys = view.count("num_key_value_heads", reason=HEADS) or queries
    heads = Heads(queries, keys, dim, dim)
    notes = [Note("", note) for note in row.notes]
    for key in row.also:
        view.get(key)
    if row.otherwise and view.flag(row.otherwise):
        raise ConfigError(
            f"{view.name(row.otherwise)} must be false, since {model_type} is read with a learned table alone; got "
            f"true."
        )
    tables: tuple[Call, ...] = ()
    if not row.when or view.flag(row.when, default=True):
        prefix = view.require(row.prefix, reason=SPANS, least=0) if isinstance(row.prefix, str) else row.prefix
        tables = (Call.of("LearnedGrid", dim=width, size=_grid(view, row), prefix=prefix or None),)
    layer = Layer("full", (), heads, causal=False, scale=heads.dim**-0.5)
    return ModelPositions(model_type, input=tables, layers=(layer,) * count, notes=tuple(notes))


def _grid(view: View, row: Patches) -> tuple[int, int]:
    if row.size == "image":
        return grid_of(view, row.image)
    if row.size == "spectrogram":
        return _spectrogram(view)
    count = view.require(row.size, reason=TABLE)
    side = math.isqrt(count)
    if side * side != count:
        raise ConfigError(f"{view.name(row.size)} must be a square, since it is read as one; got {count}.")
    return side, side


def _spectrogram(view: View) -> tuple[int, int]:
    """The patches of a spectrogram, which overlap."""
    patch = view.require("patch_size", reason="spectrograms are cut into patches")
    found = []
    for key, usual, step in (("num_mel_bins", 128, "frequency_stride"), ("max_length", 1024, "time_stride")):
        size = view.count(key, reason="it counts bins or frames", default=usual) or usual
        stride = view.count(step, reason="patches are so far apart", default=10) or 10
        if size < patch:
            raise ConfigError(
                f"{view.name(key)} must be at least patch_size={patch}, since patches are cut; got {size}."
            )
        found.append((size - patch) // stride + 1)
    return found[0], found[1]


def read_recurrent(view: View, model_type: str, family: Family, facts: Facts) -> ModelPositions:
    """Read a model that keeps tokens in order by a state."""
    count = layer_count(view, "num_hidden_layers", "num_blocks")
    for key in ("context_length", "max_position_embeddings"):
        view.get(key)
    return ModelPositions(model_type, layers=(Layer("linear"),) * count)


def read_convolved(view: View, model_type: str, family: Family, facts: Facts) -> ModelPositions:
    """Read a speech model whose positions come from a convolution at the input, which is no encoding of Situs."""
    count, queries = layer_count(view, "num_hidden_layers"), view.require("num_attention_heads", reason=HEADS)
    dim = shared(view, ("hidden_size",), queries)
    layer = Layer("full", (), Heads(queries, queries, dim, dim), causal=False, scale=dim**-0.5)
    span = view.require(CONVOLVED[model_type], reason="so many tokens are convolved")
    notes = (Note(CONVOLVED[model_type], f"positions come from a convolution over {span} tokens, which Situs has not"),)
    return ModelPositions(model_type, layers=(layer,) * count, notes=notes)


READERS = {
    **dict.fromkeys(TOKENS, read_tokens),
    **dict.fromkeys(BOTH, read_both),
    **dict.fromkeys(PATCHES, read_patches),
    **dict.fromkeys(RECURRENT, read_recurrent),
    **dict.fromkeys(CONVOLVED, read_convolved),
}
