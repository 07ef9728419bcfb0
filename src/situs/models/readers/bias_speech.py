"""Models of speech whose scores have terms of relative positions: conformers, WavLM, VITS, Granite, SeamlessM4T v2."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from situs.models.calls import Call
from situs.models.positions import Layer, Lengths, ModelPositions, Note
from situs.models.readers.facts import Facts
from situs.models.readers.families import Family
from situs.models.readers.sizes import CHANNELS, layer_count
from situs.models.readers.stack import TOKENS, Options, bucket_sizes, equal_heads, refused, stacked
from situs.models.readers.view import View
from situs.models.sources.strict import ConfigError

Reader = Callable[[View, str, Family, Facts], ModelPositions]
WAVLM = (320, 800)


def read_wavlm(view: View, model_type: str, family: Family, facts: Facts) -> ModelPositions:
    """WavLM: T5's bias, which each token multiplies by a gate."""
    heads, dim = equal_heads(view), view.require("hidden_size", reason=CHANNELS)
    sizes = bucket_sizes(view, ("num_buckets",), ("max_bucket_distance",))
    options = None if sizes == WAVLM else Options(num_buckets=sizes[0], max_distance=sizes[1])
    bias = Call.of("GatedBias", num_heads=heads.queries, options=options, dim=dim)
    layers = stacked(layer_count(view, "num_hidden_layers"), heads, bias, causal=False)
    notes = Note("", "all layers share the table of the first; each has gates of its own"), _convolution(view)
    return ModelPositions(model_type, layers=layers, notes=notes)


def _convolution(view: View) -> Note:
    width = view.require("num_conv_pos_embeddings", reason="it counts frames")
    view.count("num_conv_pos_embedding_groups", reason="it counts groups of channels")
    return Note("num_conv_pos_embeddings", f"a convolution over {width} frames is added to the input")


@dataclass(frozen=True)
class Stack:
    """Hold the names of the settings of one stack of a conformer."""

    name: str
    layers: str = "num_hidden_layers"
    heads: str = "num_attention_heads"


CONFORMERS = {
    "parakeet_encoder": (Stack(""),),
    "nemotron_asr_streaming_encoder": (Stack(""),),
    "fastspeech2_conformer": (
        Stack("encoder", "encoder_layers", "encoder_num_attention_heads"),
        Stack("decoder", "decoder_layers", "decoder_num_attention_heads"),
    ),
}


def read_conformer(view: View, model_type: str, family: Family, facts: Facts) -> ModelPositions:
    """Transformer-XL's term, with sines and cosines in turn."""
    streams = model_type == "nemotron_asr_streaming_encoder"
    length = view.count("max_position_embeddings", "max_source_positions", reason=TOKENS)
    lengths, notes = Lengths(length), []
    if streams:
        lengths = Lengths(length, limit=length, reason=f"transformers refuses more than {length} frames")
        window = view.require("sliding_window", reason="it counts frames that a frame sees")
        ahead = view.require("default_num_lookahead_tokens", reason="it counts frames that a frame sees ahead", least=0)
        back = (window - 1) // (ahead + 1)
        notes.append(_chunks("sliding_window", ahead + 1, back))
    found = {}
    for row in CONFORMERS[model_type]:
        heads = equal_heads(view, layers=row.heads)
        layers = stacked(layer_count(view, row.layers), heads, _waves(view, heads.queries,
                         heads.dim), causal=False)  # fmt: skip
        kept = tuple(replace(each, kind="chunked") for each in layers) if streams else layers
        found[row.name] = ModelPositions(model_type, layers=kept, lengths=lengths, notes=tuple(notes))
    return found[""] if "" in found else ModelPositions(model_type, lengths=lengths, submodels=found)


def _chunks(key: str, frames: int, back: int) -> Note:
    before = "all" if back == -1 else f"the {back}"
    return Note(key, f"a frame sees its chunk of {frames} frames and {before} chunks before it, by a mask")


def _waves(view: View, heads: int, dim: int) -> Call:
    width = view.require("hidden_size", reason=CHANNELS)
    if width % 2:
        raise refused(view, "hidden_size", "even", "every frequency has a sine and a cosine")
    return Call.of("TransformerXL", dim=width, num_heads=heads, head_dim=dim, layout="interleaved")


def read_gemma_audio(view: View, model_type: str, family: Family, facts: Facts) -> ModelPositions:
    """Gemma 3n and 4 of sound: Transformer-XL's term without biases, in chunks that amount to a sliding window."""
    before = "conf_" if model_type == "gemma3n_audio" else ""
    heads = equal_heads(view, layers=f"{before}num_attention_heads")
    chunk = view.require(f"{before}attention_chunk_size", reason="it counts frames")
    left = view.require(f"{before}attention_context_left", reason="it counts frames")
    right = view.count(f"{before}attention_context_right", reason="it counts frames", default=0, least=0)
    if right:
        raise refused(view, f"{before}attention_context_right", "0", "frames ahead would need a mask, not a window")
    if not before and (chunk + left - 1) // 2 != left - 1:
        raise ConfigError(
            f"{view.name('attention_chunk_size')} must be {left - 1} or {left}, since transformers gives frames other "
            f"distances than they have where it is not attention_context_left - 1; got {chunk}."
        )
    cap = view.number(f"{before}attention_logit_cap", reason="it bounds scores", above=0)
    dim = view.require("hidden_size", reason=CHANNELS)
    term = Call.of("TransformerXL", dim=dim, num_heads=heads.queries, head_dim=heads.dim, spacing="inclusive",
                   biases=False)  # fmt: skip
    window = left if before else left - 1  # Gemma 4's mask leaves out the farthest frame of the context
    if window < 1:
        raise refused(view, "attention_context_left", "2 or more", "a frame sees one less, itself among them")
    layer = Layer("sliding", (term,), heads, window=window, causal=True, scale=1.0, softcap=cap)
    note = Note(
        "", "queries and keys have factors of their own, learned for each channel: the softmax scale is 1 after that"
    )
    count = layer_count(view, f"{before}num_hidden_layers")
    return ModelPositions(model_type, layers=(layer,) * count, notes=(note,))


def read_granite(view: View, model_type: str, family: Family, facts: Facts) -> ModelPositions:
    """Granite Speech: Shaw's vectors for queries, within blocks."""
    newer = model_type == "granite_speech5_encoder"
    own = view.count("head_dim" if newer else "dim_head", reason=CHANNELS)
    heads = equal_heads(view, dim=own)
    far = "max_position_embeddings" if newer else "max_pos_emb"
    farthest = view.require(far, reason="it counts offsets on each side")
    block = view.require("context_size", reason="it counts frames of a block")
    if block > farthest:
        raise ConfigError(
            f"{view.name('context_size')} must be at most {view.name(far)}={farthest}, since transformers refuses "
            f"more; got {block}."
        )
    if newer and (view.count("num_key_value_heads", reason="it counts heads") or heads.queries) != heads.queries:
        rule = f"{heads.queries}, or left out"
        raise refused(view, "num_key_value_heads", rule, "transformers makes as many keys as queries")
    term = Call.of("Shaw", num_heads=heads.queries, head_dim=heads.dim, max_distance=farthest, values=False,
                   rows="query_minus_key")  # fmt: skip
    layer = Layer("chunked", (term,), heads, chunk=block, causal=False, scale=heads.dim**-0.5)
    count = layer_count(view, "num_hidden_layers")
    notes: tuple[Note, ...] = ()
    if newer:
        halved = view.get("subsample_layers", default=[0, 1])
        if not isinstance(halved, (list, tuple)) or any(type(each) is not int for each in halved):
            raise refused(view, "subsample_layers", "a list of layers, by number", "those halve the frames")
        if halved:
            about = f"frames are halved in layers {', '.join(map(str, halved))}: positions count those that are left"
            notes = (Note("subsample_layers", about),)
    return ModelPositions(model_type, layers=(layer,) * count, notes=notes)


def read_vits(view: View, model_type: str, family: Family, facts: Facts) -> ModelPositions:
    """VITS: Shaw's vectors for queries and for values, and nothing beyond a window."""
    heads = equal_heads(view)
    window = view.count("window_size", reason="it counts offsets on each side", default=4, least=0)
    calls = []
    if window:
        calls.append(
            Call.of("Shaw", num_heads=heads.queries, head_dim=heads.dim, max_distance=window, beyond="nothing")
        )
    layers = stacked(layer_count(view, "num_hidden_layers"), heads, *calls, causal=False)
    return ModelPositions(model_type, layers=layers)


HIDDEN = "hidden states are rotated before queries and keys are made of them, which rotates neither of these"


def read_wav2vec2(view: View, model_type: str, family: Family, facts: Facts) -> ModelPositions:
    """wav2vec2-BERT and -conformer, whose position_embeddings_type chooses a term."""
    heads = equal_heads(view)
    kinds = ("relative", "relative_key", "rotary") if model_type == "wav2vec2-bert" else ("relative", "rotary")
    key = "position_embeddings_type"
    kind = view.choice(key, choices=kinds, reason=f"{model_type} has these")
    if key in view.config and view.config[key] is None:
        kind = None
    for other in ("left_max_position_embeddings", "right_max_position_embeddings", "max_source_positions",
                  "rotary_embedding_base"):  # fmt: skip
        view.get(other)  # those of the other kinds
    if kind == "rotary":
        raise refused(view, key, "relative or relative_key", HIDDEN)
    calls = []
    if kind == "relative":
        calls.append(_waves(view, heads.queries, heads.dim))
    elif kind == "relative_key":
        calls.append(_vectors(view, heads.queries, heads.dim))
    notes = (_convolution(view),) if model_type == "wav2vec2-conformer" else ()
    layers = stacked(layer_count(view, "num_hidden_layers"), heads, *calls, causal=False)
    return ModelPositions(model_type, layers=layers, notes=notes)


def _vectors(view: View, heads: int, dim: int) -> Call:
    left = view.require("left_max_position_embeddings", reason="it counts offsets behind")
    right = view.require("right_max_position_embeddings", reason="it counts offsets ahead", least=0)
    return Call.of("Shaw", num_heads=heads, head_dim=dim, max_distance=left, max_ahead=right, values=False)


def read_seamless(view: View, model_type: str, family: Family, facts: Facts) -> ModelPositions:
    """SeamlessM4T: sinusoids for text; for speech Transformer-XL's term in the first version, Shaw's in the second."""
    dim = view.require("hidden_size", reason=CHANNELS)
    length = view.count("max_position_embeddings", reason=TOKENS)
    first = view.require("pad_token_id", reason="positions are counted from the one behind it", least=0) + 1
    waves = Call.of("Sinusoidal", dim=dim, layout="concatenated", spacing="inclusive", offset=first, padding="zeros")
    found = {}
    for name, causal in (("encoder", False), ("decoder", True)):
        heads = equal_heads(view, layers=f"{name}_attention_heads")
        layers = stacked(layer_count(view, f"{name}_layers"), heads, causal=causal)
        found[name] = ModelPositions(model_type, input=(waves,), layers=layers, lengths=Lengths(length))
    heads = equal_heads(view, layers="speech_encoder_attention_heads")
    first_version = model_type == "seamless_m4t"
    kind = view.get("position_embeddings_type")
    if first_version and kind == "rotary":
        raise refused(view, "position_embeddings_type", "relative", HIDDEN)
    calls = []
    if first_version and kind == "relative":
        calls.append(_waves(view, heads.queries, heads.dim))
    elif kind == "relative_key" and not first_version:
        calls.append(_vectors(view, heads.queries, heads.dim))
    for key in ("left_max_position_embeddings", "right_max_position_embeddings", "rotary_embedding_base",
                "max_source_positions"):  # fmt: skip
        view.get(key)  # those of the other kinds
    layers = stacked(layer_count(view, "speech_encoder_layers"), heads, *calls, causal=False)
    notes = []
    chunk = view.count("speech_encoder_chunk_size", reason="it counts frames")
    back = view.count("speech_encoder_left_chunk_num", reason="it counts chunks", default=-1, least=-1)
    if chunk is not None:
        notes.append(_chunks("speech_encoder_chunk_size", chunk, -1 if back is None else back))
    found["speech"] = ModelPositions(model_type, layers=layers, notes=tuple(notes))
    rows = view.count("t2u_max_position_embeddings", reason=TOKENS)
    note = Note("t2u_max_position_embeddings", f"{rows}: the model from text to units is not read")
    return ModelPositions(model_type, submodels=found, lengths=Lengths(length), notes=(note,))


SPEECH_READERS: dict[str, Reader] = {
    "wavlm": read_wavlm,
    **dict.fromkeys(CONFORMERS, read_conformer),
    **dict.fromkeys(("gemma3n_audio", "gemma4_audio"), read_gemma_audio),
    **dict.fromkeys(("granite_speech_encoder", "granite_speech5_encoder"), read_granite),
    "vits": read_vits,
    **dict.fromkeys(("wav2vec2-bert", "wav2vec2-conformer"), read_wav2vec2),
    **dict.fromkeys(("seamless_m4t", "seamless_m4t_v2"), read_seamless),
}
