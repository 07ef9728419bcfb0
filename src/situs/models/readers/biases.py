"""Models of text whose scores have biases or terms of relative positions: T5, ALiBi, DeBERTa, LayoutLM, XLNet, Inkling.

`READERS` has those of images and of speech too. What Situs has no encoding for is refused: `LEFT_OUT` says why.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

from situs.models.calls import Call
from situs.models.positions import Heads, Layer, Lengths, ModelPositions, Note
from situs.models.readers.bias_documents import DOCUMENT_READERS
from situs.models.readers.bias_images import IMAGE_READERS
from situs.models.readers.bias_speech import SPEECH_READERS
from situs.models.readers.facts import Facts
from situs.models.readers.families import Family
from situs.models.readers.keys import is_positional
from situs.models.readers.rotary import read_rotary
from situs.models.readers.schedule import KINDS, Every, layer_types
from situs.models.readers.sizes import CHANNELS, few, layer_count
from situs.models.readers.stack import (
    OWN,
    SHARED,
    TOKENS,
    bert_table,
    equal_heads,
    refused,
    roberta_table,
    stacked,
    t5_bias,
)
from situs.models.readers.view import View, told
from situs.models.sources.strict import ConfigError

Reader = Callable[[View, str, Family, Facts], ModelPositions]

T5_BUCKETS = (("relative_attention_num_buckets",), ("relative_attention_max_distance",))
CROSS = Note("", "attention from decoder to encoder has no bias, and the same softmax scale of 1")
LEFT_OUT = {
    "cpmant": "pairs of tokens from two segments, its prompt and its text, have a learned number that goes by the "
    "segments, not by positions",
    "pp_doclayout_v2": "boxes meet by sinusoids of the logarithms of their ratios, which are no offsets",
    "prophetnet": "its decoder has streams that predict several tokens ahead, each with buckets of its own",
}
"""Model types whose scores Situs has no encoding for, with the reason."""


def read_t5(view: View, model_type: str, family: Family, facts: Facts) -> ModelPositions:
    """T5 and its kind: encoder and decoder, each with buckets of its own and a softmax scale of 1."""
    heads = equal_heads(view, dim=view.require("d_kv", reason=CHANNELS))
    behind = layer_count(view, "num_hidden_layers")
    ahead = layer_count(view, "num_decoder_layers") if view.get("num_decoder_layers") is not None else behind
    window = _local(view) if model_type == "longt5" else None
    length = Lengths(view.count("n_positions", reason=TOKENS))
    table = OWN if model_type == "umt5" else SHARED
    stacks = {}
    for name, count, causal in (("encoder", behind, False), ("decoder", ahead, True)):
        bias = t5_bias(view, heads.queries, *T5_BUCKETS, bidirectional=not causal)
        layers = stacked(count, heads, bias, causal=causal, scale=1.0, window=None if causal else window)
        stacks[name] = ModelPositions(model_type, layers=layers, lengths=length, notes=(table,))
    return ModelPositions(model_type, lengths=length, submodels=stacks, notes=(CROSS,))


def _local(view: View) -> int:
    """The window of LongT5's encoder, of which a token sees as much ahead as behind."""
    kind = view.choice("encoder_attention_type", choices=("local", "transient-global"), reason="encoders have these")
    if kind == "transient-global":
        raise refused(
            view, "encoder_attention_type", "local",
            "transient-global attention adds a key for every block of tokens, with buckets of its own",
        )  # fmt: skip
    return view.require("local_radius", reason=TOKENS) + 1


def read_t5_decoder(view: View, model_type: str, family: Family, facts: Facts) -> ModelPositions:
    """A decoder as T5's, which a model of images hands its keys to (Pix2Struct)."""
    heads = equal_heads(view, dim=view.require("d_kv", reason=CHANNELS))
    count = layer_count(view, "num_hidden_layers")
    bias = t5_bias(view, heads.queries, *T5_BUCKETS, bidirectional=False)
    layers = stacked(count, heads, bias, causal=view.flag("is_decoder", default=True), scale=1.0)
    return ModelPositions(model_type, layers=layers, notes=(SHARED, CROSS))


def read_mpnet(view: View, model_type: str, family: Family, facts: Facts) -> ModelPositions:
    """MPNet: T5's bias beside a table, and the usual softmax scale. Its buckets are always 32, up to 128."""
    heads = equal_heads(view)
    key = "relative_attention_num_buckets"
    rows = view.require(key, reason="it sizes a table of which 32 rows are used")
    if rows < 32:
        raise refused(view, key, "32 or more", "MPNet looks up buckets 0 .. 31 whatever it says")
    notes = [SHARED]
    if rows > 32:
        notes.append(Note(view.name(key), f"{rows} rows, of which MPNet reads the first 32"))
    table, lengths = roberta_table(view, view.require("hidden_size", reason=CHANNELS), padding=1)
    bias = Call("T5Bias", (("num_heads", heads.queries), ("softmax_scale", None)))
    layers = stacked(layer_count(view, "num_hidden_layers"), heads, bias, causal=False)
    return ModelPositions(model_type, input=(table,), layers=layers, lengths=lengths, notes=tuple(notes))


def read_alibi(view: View, model_type: str, family: Family, facts: Facts) -> ModelPositions:
    """BLOOM and MPT: a slope for each head, and nothing else."""
    if model_type == "bloom" and view.says("n_embed"):  # an older name, which goes before the other
        heads = equal_heads(View({**view.config, "hidden_size": view.get("n_embed")}, path=view.path,
                                 defaults=view.defaults, renamed=view.renamed))  # fmt: skip
    else:
        heads = equal_heads(view)
    count = layer_count(view, "num_hidden_layers")
    scale: float | None = None
    notes: list[Note] = []
    lengths = Lengths(view.count("seq_length", reason=TOKENS))
    if model_type == "mpt":
        length = view.require("max_seq_len", reason=TOKENS)
        lengths = Lengths(length, limit=length, reason=f"transformers makes a bias for {length:,} keys")
        scale, notes = _mpt(view)
    layers = stacked(count, heads, Call.of("ALiBi", num_heads=heads.queries), causal=True, scale=scale)
    return ModelPositions(model_type, layers=layers, lengths=lengths, notes=tuple(notes))


def _mpt(view: View) -> tuple[float | None, list[Note]]:
    """The softmax scale of MPT, and what transformers does not read of it."""
    notes = []
    if view.says("learned_pos_emb") and view.flag("learned_pos_emb"):
        notes.append(Note(view.name("learned_pos_emb"), "true changes nothing: there is ALiBi instead of a table"))
    view.get("learned_pos_emb")
    part = view.part("attn_config")
    if part is None:
        return None, notes
    if not part.flag("alibi", default=True):
        raise refused(part, "alibi", "true", "transformers adds ALiBi's bias whatever it says", " Remove it.")
    most = part.number("alibi_bias_max", reason="slopes follow from it", above=0, default=8)
    if most != 8:
        raise refused(
            part, "alibi_bias_max", "8", "transformers makes the slopes of 8 whatever it says, and the model was "
            "trained with others",
        )  # fmt: skip
    kinds = ("multihead_attention", "multiquery_attention")
    if part.choice("attn_type", choices=kinds, reason="MPT has these") == kinds[1]:
        raise refused(part, "attn_type", "multihead_attention", "transformers makes as many keys as queries")
    if part.flag("prefix_lm"):
        raise refused(part, "prefix_lm", "false", "transformers has no attention of a prefix to what follows it")
    for key, value in part.unread().items():
        if is_positional(key) and value is not False:
            raise ConfigError(
                f"{part.name(key)} must be a setting that is understood, since it speaks of positions; got "
                f"{told(value)}."
            )
    return part.number("softmax_scale", reason="scores are multiplied by it", above=0), notes


def read_falcon_alibi(view: View, model_type: str, family: Family, facts: Facts) -> ModelPositions:
    """Falcon with ALiBi, whose slopes are divided by sqrt(head_dim) together with the scores."""
    heads = equal_heads(view)
    for key in ("rope_parameters", "rope_theta"):  # which say nothing here
        view.get(key)
    heads = replace(heads, keys=_falcon_keys(view, heads.queries))
    length = view.count("max_position_embeddings", reason=TOKENS)
    bias = Call.of("ALiBi", num_heads=heads.queries, factor=heads.dim**-0.5)
    layers = stacked(layer_count(view, "num_hidden_layers"), heads, bias, causal=True)
    notes = (
        Note("alibi", "transformers multiplies slopes rounded to bfloat16 by the key's index, which merges neighbours "
             "from position 257 on; Situs does not round"),
        Note("alibi", "transformers adds the bias twice where attn_implementation is eager; this is sdpa's"),
    )  # fmt: skip
    return ModelPositions(model_type, layers=layers, lengths=Lengths(length), notes=notes)


def read_falcon(view: View, model_type: str, family: Family, facts: Facts) -> ModelPositions:
    """Falcon, which rotates unless alibi is set."""
    if view.flag("alibi"):
        return read_falcon_alibi(view, model_type, family, facts)
    model = read_rotary(view, model_type, family, facts)
    keys = _falcon_keys(view, view.require("num_attention_heads", reason="it counts heads"))
    shared = {layer: layer if layer.heads is None else replace(layer, heads=replace(layer.heads, keys=keys))
              for layer in dict.fromkeys(model.layers)}  # fmt: skip
    return replace(model, layers=tuple(shared[layer] for layer in model.layers))


def _falcon_keys(view: View, queries: int) -> int:
    """How many heads keys have: one for all queries, unless settings say otherwise."""
    many = view.count("num_kv_heads", reason="it counts heads") or queries
    return many if view.flag("new_decoder_architecture") or not view.flag("multi_query", default=True) else 1


def read_deberta(view: View, model_type: str, family: Family, facts: Facts) -> ModelPositions:
    """DeBERTa of all versions, and SEW-D, which is one of them behind a convolution."""
    first = model_type == "deberta"
    dim = view.require("hidden_size", reason=CHANNELS)
    own = None if first else view.count("attention_head_size", reason=CHANNELS)
    heads = equal_heads(view, dim=own)
    terms = _terms(view)
    length = view.require("max_position_embeddings", reason=TOKENS)
    view.get("max_relative_positions")  # which says nothing where positions are not relative
    notes: list[Note] = []
    tables: list[Call] = []
    lengths = Lengths(length)
    if model_type == "sew-d":
        _convolution(view, notes)
    elif view.flag("position_biased_input", default=True):
        width = view.count("embedding_size", reason=CHANNELS) or dim
        table, lengths = bert_table(view, width)
        tables.append(table)
    calls = []
    if view.flag("relative_attention") and terms:
        calls.append(_disentangled(view, heads, dim, terms, length, first=first))
        notes.append(Note("", "all layers share the table; each has projections of its own"))
        if calls[0].option("share_att_key"):
            notes.append(Note("share_att_key", "the attention's own projections serve: encoding.tie(query=, key=)"))
    if not first and (view.count("conv_kernel_size", reason="it counts tokens", default=0, least=0) or 0) > 0:
        notes.append(Note("conv_kernel_size", "a convolution beside the first layer tells order too"))
    scale = (heads.dim * (1 + len(terms))) ** -0.5
    layers = stacked(layer_count(view, "num_hidden_layers"), heads, *calls, causal=False, scale=scale)
    return ModelPositions(model_type, input=tuple(tables), layers=layers, lengths=lengths, notes=tuple(notes))


def _terms(view: View) -> tuple[str, ...]:
    """pos_att_type, a list or words with | between them."""
    given = view.get("pos_att_type", default=[])
    words = [each.strip() for each in given.lower().split("|")] if isinstance(given, str) else given
    if not isinstance(words, (list, tuple)) or any(each not in ("c2p", "p2c") for each in words):
        raise refused(view, "pos_att_type", "a list of c2p and p2c", "transformers has these terms alone")
    if len(set(words)) < len(words):
        raise refused(view, "pos_att_type", "a list without repeats", "each term is added once")
    return tuple(words)


def _disentangled(view: View, heads: Heads, dim: int, terms: tuple[str, ...], length: int, *, first: bool) -> Call:
    given = view.count("max_relative_positions", reason="distances beyond it share a row", default=-1, least=-(2**53))
    far = length if given is None or given < 1 else given
    buckets = None
    norms: list[str] = []
    if not first:
        buckets = view.count("position_buckets", reason="far distances share buckets", default=-1, least=-(2**53))
        buckets = None if buckets is None or buckets < 1 else buckets
        words = view.get("norm_rel_ebd", default="none")
        if not isinstance(words, str):
            raise refused(view, "norm_rel_ebd", "a word", "it says whether the table is normalised")
        norms = [each.strip() for each in words.lower().split("|")]
    if buckets is not None and (buckets % 2 or not 4 <= buckets < 2 * (far - 1)):
        raise refused(
            view, "position_buckets", f"even and lie in 4 .. {2 * far - 3}",
            "half of them hold a single distance below max_relative_positions - 1",
        )  # fmt: skip
    if "layer_norm" in norms and view.number("layer_norm_eps", reason="norms divide by it", default=1e-7) != 1e-7:
        raise refused(view, "layer_norm_eps", "1e-07", "Situs normalises the table with that")
    return Call.of(
        "Deberta",
        dim=dim,
        num_heads=heads.queries,
        head_dim=heads.dim,
        max_distance=far,
        buckets=buckets,
        terms=terms,
        share_att_key=(not first and view.flag("share_att_key")) or None,
        key_bias=False if first else None,
        layer_norm="layer_norm" in norms or None,
    )


def _convolution(view: View, notes: list[Note]) -> None:
    width = view.require("num_conv_pos_embeddings", reason="it counts frames")
    view.count("num_conv_pos_embedding_groups", reason="it counts groups of channels")
    notes.append(Note("num_conv_pos_embeddings", f"a convolution over {width} frames is added to the input"))


def read_xlnet(view: View, model_type: str, family: Family, facts: Facts) -> ModelPositions:
    """XLNet: Transformer-XL's term, in both directions or in one."""
    heads = equal_heads(view)
    if (view.count("d_head", reason=CHANNELS) or heads.dim) != heads.dim:
        raise refused(view, "d_head", f"{heads.dim}, or left out", "heads share d_model's channels")
    kind = view.choice("attn_type", choices=("bi", "uni"), reason="XLNet attends in both directions or in one")
    for key, reason in (("bi_data", "half of the batch would be read backwards"),
                        ("same_length", "tokens would see a number of others that depends on the memory")):  # fmt: skip
        if view.flag(key):
            raise refused(view, key, "false", reason)
    bound = view.count("clamp_len", reason="distances beyond it count as it", default=-1, least=-(2**53))
    dim = view.require("hidden_size", reason=CHANNELS)
    term = Call.of("TransformerXL", dim=dim, num_heads=heads.queries, head_dim=heads.dim,
                   clamp_len=bound if bound and bound > 0 else None)  # fmt: skip
    memory = view.count("mem_len", reason=TOKENS, least=0)
    notes = [Note("", "a learned term of segments, which is no position encoding, is added to the scores")]
    if memory:
        notes.append(Note("mem_len", f"{memory} earlier tokens are kept as keys and values"))
    count = layer_count(view, "num_hidden_layers")
    layers = stacked(count, heads, term, causal=kind == "uni")
    return ModelPositions(model_type, layers=layers, notes=tuple(notes))


def read_funnel(view: View, model_type: str, family: Family, facts: Facts) -> ModelPositions:
    """Funnel: Transformer-XL's term in blocks, between which tokens are pooled, and in a decoder of all tokens."""
    sizes = _counts(view, "block_sizes")
    repeats = _counts(view, "block_repeats") if view.says("block_repeats") else (1,) * len(sizes)
    if len(repeats) != len(sizes):
        raise refused(view, "block_repeats", f"a list of {len(sizes)}", "each block of block_sizes is repeated")
    heads = equal_heads(view, dim=view.require("d_head", reason=CHANNELS))
    dim = view.require("hidden_size", reason=CHANNELS)
    # both compute the same numbers
    view.choice("attention_type", choices=("relative_shift", "factorized"), reason="Funnel has these")
    term = Call.of("TransformerXL", dim=dim, num_heads=heads.queries, head_dim=heads.dim)
    notes = [Note("", "a learned term of token types, which is no position encoding, is added to the scores")]
    if view.flag("separate_cls", default=True):
        notes.append(Note("separate_cls", "the first token has no position: Positions.explicit(ids, placed=...)"))
    if len(sizes) > 1:
        about = (
            "the first layer of a block attends from every second token to all; positions are those of the whole text"
        )
        notes.append(Note("block_sizes", about))
    count = few(view.name("block_sizes"), sum(size * repeat for size, repeat in zip(sizes, repeats, strict=True)))
    stacks = {"encoder": count, "decoder": layer_count(view, "num_decoder_layers", least=0)}
    submodels = {
        name: ModelPositions(model_type, layers=stacked(each, heads, term, causal=False))
        for name, each in stacks.items()
        if each
    }
    return ModelPositions(model_type, submodels=submodels, notes=tuple(notes))


def _counts(view: View, key: str) -> tuple[int, ...]:
    listed = view.get(key)
    if not isinstance(listed, (list, tuple)) or not listed or any(type(each) is not int or each < 1 for each in listed):
        raise refused(view, key, "a list of whole numbers", "it counts layers of each block")
    return tuple(listed)


def read_inkling(view: View, model_type: str, family: Family, facts: Facts) -> ModelPositions:
    """Inkling: a bias that each token mixes out of profiles, and a temperature on full layers."""
    count = layer_count(view, "num_hidden_layers")
    local = view.get("local_layer_ids")
    types = layer_types(view, count, Every(6, one="hybrid", rest="hybrid_sliding"))
    if local is not None and not view.says("layer_types"):
        if not isinstance(local, (list, tuple)) or any(type(each) is not int for each in local):
            raise refused(view, "local_layer_ids", "a list of layers, by number", "those slide")
        types = ["hybrid_sliding" if layer in local else "hybrid" for layer in range(count)]
    kinds = {"full": _inkling_layer(view, sliding=False), "sliding": _inkling_layer(view, sliding=True)}
    for index, each in enumerate(types):
        if KINDS[each] not in kinds:
            raise ConfigError(
                f"{view.name('layer_types')}[{index}] must be hybrid or hybrid_sliding, since Inkling has these; got "
                f"{told(each)}."
            )
    length = view.count("max_position_embeddings", reason=TOKENS)
    note = Note("", "features={'relative': ...} are what a layer's r_proj makes of its hidden states")
    layers = tuple(kinds[KINDS[each]] for each in types)
    return ModelPositions(model_type, layers=layers, lengths=Lengths(length), notes=(note,))


def _inkling_layer(view: View, *, sliding: bool) -> Layer:
    before = "swa_" if sliding else ""
    names = [f"{before}{name}" for name in ("num_attention_heads", "num_key_value_heads", "head_dim")]
    queries, keys, dim = (view.require(name, reason="it sizes attention") for name in names)
    window = view.require("sliding_window", reason="it counts the keys that a query sees")
    extent = view.require("rel_extent", reason="it counts distances that have a bias")
    rank = view.require("d_rel", reason="it counts profiles of distance")
    floor = view.count("log_scaling_n_floor", reason="a temperature grows from there on")
    factor = view.number("log_scaling_alpha", reason="queries are multiplied by its logarithm", default=0.1)
    tempered = floor is not None and not sliding
    bias = Call.of("ProjectedBias", num_heads=queries, distances=window if sliding else extent, rank=rank,
                   tempered=tempered or None, softmax_scale=1 / dim)  # fmt: skip
    heat = [Call.of("Temperature", dialect="inkling", original_length=floor, factor=factor)] if tempered else []
    return Layer("sliding" if sliding else "full", (bias, *heat), Heads(queries, keys, dim, dim),
                 window=window if sliding else None, scale=1 / dim)  # fmt: skip


def refuse(view: View, model_type: str, family: Family, facts: Facts, *, why: str) -> ModelPositions:
    """Refuse a model type whose scores Situs has no encoding for."""
    raise ConfigError(
        f"{view.name('model_type')} must be one whose scores Situs has an encoding for, since {why}; got "
        f"{told(model_type)}."
    )


READERS: dict[str, Reader] = {
    **dict.fromkeys(["t5", "mt5", "umt5", "switch_transformers", "longt5", "pop2piano"], read_t5),
    "pix2struct_text_model": read_t5_decoder,
    "mpnet": read_mpnet,
    "bloom": read_alibi,
    "mpt": read_alibi,
    "falcon": read_falcon,
    "deberta": read_deberta,
    "deberta-v2": read_deberta,
    "sew-d": read_deberta,
    "xlnet": read_xlnet,
    "funnel": read_funnel,
    "inkling_text": read_inkling,
    **DOCUMENT_READERS,
    **IMAGE_READERS,
    **SPEECH_READERS,
    **{model_type: functools.partial(refuse, why=why) for model_type, why in LEFT_OUT.items()},
}
"""Of every model type of this table, who reads it."""
