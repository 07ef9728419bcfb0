"""Models that rotate without rope parameters: GPT-J, CodeGen, RoFormer, ESM and CLVP."""

from __future__ import annotations

from situs.models.calls import Call
from situs.models.positions import Heads, Layer, Lengths, ModelPositions, Note
from situs.models.readers.facts import Facts
from situs.models.readers.families import Family
from situs.models.readers.sizes import CHANNELS, HEADS, layer_count, shared
from situs.models.readers.stack import roberta_table
from situs.models.readers.view import View, told
from situs.models.sources.strict import ConfigError

ROTATED = "it counts the channels that are rotated"
BASE = "it is the base of the frequencies"


def read_gptj(view: View, model_type: str, family: Family, facts: Facts) -> ModelPositions:
    """Read GPT-J and CodeGen: neighbours of the first rotary_dim channels, from a table that ends."""
    heads, count = _heads(view), layer_count(view, "num_hidden_layers", "n_layer")
    rotated = view.require("rotary_dim", reason=ROTATED, least=2)
    if rotated % 2 or rotated > heads.dim:
        raise ConfigError(
            f"{view.name('rotary_dim')} must be even and at most {heads.dim}, the channels of a head, since pairs are "
            f"rotated; got {rotated}."
        )
    call = Call.of(
        "Rotary", head_dim=heads.dim, base=10000.0, rotary_dim=rotated if rotated < heads.dim else None,
        pairing="interleaved",
    )  # fmt: skip
    length = view.require("max_position_embeddings", "n_positions", reason="it counts tokens")
    layer = Layer("full", (call,), heads, scale=heads.dim**-0.5)
    return ModelPositions(model_type, layers=(layer,) * count, lengths=_ending(length))


def read_roformer(view: View, model_type: str, family: Family, facts: Facts) -> ModelPositions:
    """Read RoFormer: neighbours of all channels, of values too where rotary_value says so."""
    heads, count = _heads(view), layer_count(view, "num_hidden_layers")
    call = Call.of("Rotary", head_dim=heads.dim, base=10000.0, pairing="interleaved")
    calls: tuple[Call, ...] = (call,)
    if view.flag("rotary_value"):
        calls += (Call.of("RotaryValue", head_dim=heads.dim, base=10000.0, pairing="interleaved", rotate_back=False),)
    length = view.require("max_position_embeddings", reason="it counts tokens")
    layer = Layer("full", calls, heads, causal=view.flag("is_decoder"), scale=heads.dim**-0.5)
    return ModelPositions(model_type, layers=(layer,) * count, lengths=_ending(length))


def read_esm(view: View, model_type: str, family: Family, facts: Facts) -> ModelPositions:
    """Read ESM: rotary, or RoBERTa's learned table, by position_embedding_type."""
    heads, count = _heads(view), layer_count(view, "num_hidden_layers")
    kinds = ("absolute", "rotary")
    kind = view.choice(
        "position_embedding_type", choices=kinds, reason="positions are a table or rotations", default="absolute"
    )
    base = view.number("rope_theta", reason=BASE, default=10000.0, above=0)
    causal = view.flag("is_decoder")
    if kind == "rotary":
        length = view.require("max_position_embeddings", reason="it counts tokens")
        call = Call.of("Rotary", head_dim=heads.dim, base=base)
        layer = Layer("full", (call,), heads, causal=causal, scale=heads.dim**-0.5)
        return ModelPositions(model_type, layers=(layer,) * count, lengths=Lengths(length))
    table, lengths = roberta_table(view, view.require("hidden_size", reason=CHANNELS))
    layer = Layer("full", (), heads, causal=causal, scale=heads.dim**-0.5)
    return ModelPositions(model_type, input=(table,), layers=(layer,) * count, lengths=lengths)


def read_clvp(view: View, model_type: str, family: Family, facts: Facts) -> ModelPositions:
    """Read CLVP's encoders: the first channels of queries, keys and values, as many as its projection says."""
    heads, count = _heads(view), layer_count(view, "num_hidden_layers")
    rotated = max(view.require("projection_dim", reason=CHANNELS) // (heads.queries * 2), 32)
    calls: tuple[Call, ...] = ()
    if view.flag("use_rotary_embedding", default=True):
        if rotated % 2 or rotated > heads.dim:
            raise ConfigError(
                f"{view.name('projection_dim')} must rotate an even number of at most {heads.dim} channels, those of a "
                f"head, and rotates 32 or more; got {told(view.get('projection_dim'))}, of which {rotated} are rotated."
            )
        part = rotated if rotated < heads.dim else None
        calls = (
            Call.of("Rotary", head_dim=heads.dim, base=10000.0, rotary_dim=part),
            Call.of("RotaryValue", head_dim=heads.dim, base=10000.0, rotary_dim=part, rotate_back=False),
        )
    notes = (Note("", "values are rotated with queries and keys, and the output is not rotated back"),) if calls else ()
    layer = Layer("full", calls, heads, causal=False, scale=heads.dim**-0.5)
    return ModelPositions(model_type, layers=(layer,) * count, notes=notes)


def _heads(view: View) -> Heads:
    queries = view.require("num_attention_heads", "n_head", reason=HEADS)
    dim = shared(view, ("hidden_size", "n_embd"), queries)
    return Heads(queries, queries, dim, dim)


def _ending(length: int) -> Lengths:
    return Lengths(length, limit=length, reason=f"its table of sines and cosines is made for {length:,} tokens")


READERS = {
    "gptj": read_gptj,
    "codegen": read_gptj,
    "roformer": read_roformer,
    "esm": read_esm,
    "clvp_encoder": read_clvp,
}
