"""Attention with positions as it is done elsewhere, on the vectors that Situs is given.

materialised       the encoding's term for every score, made in the call, as the mask of scaled_dot_product_attention
gather             content-based terms from a vector for every pair of places, as they are often written
FlexAttention      torch's own, compiled, through impl="flex"
transformers       the attention modules of T5, BLOOM, MPT and DeBERTa v2, built from a configuration
x-transformers     its modules for the biases of T5 and ALiBi, and its Attend on scaled_dot_product_attention

Projections of contents are left out on both sides: modules are handed queries, keys and values by projections that
return what they hold, and give back what their heads made.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

import situs

HEADS, HEAD_DIM = 8, 64
MATERIALISED, GATHER, FLEX, X_TRANSFORMERS = "materialised", "gather", "FlexAttention", "x-transformers"
T5, T5_LATER = "transformers T5", "transformers T5, later layers"
BLOOM, MPT, DEBERTA = "transformers BLOOM", "transformers MPT", "transformers DeBERTa"
SDPA = torch.nn.functional.scaled_dot_product_attention

Run = Callable[[], object]
Vectors = tuple[Tensor, Tensor, Tensor]


def peers(vectors: Vectors, encoding: situs.Encoding, causal: bool) -> dict[str, Callable[[], Run]]:
    """For each peer that has this encoding, what prepares its call; the call alone is measured."""
    query, key, value = vectors
    dense = not (isinstance(encoding, situs.ValueEncoding) and encoding.acts_on_values)
    found: dict[str, Callable[[], Run]] = {}
    if dense:
        found[MATERIALISED] = lambda: partial(materialised, query, key, value, encoding, causal)
    if isinstance(encoding, situs.OffsetScore) and dense and not causal:
        found[GATHER] = lambda: partial(gathered, query, key, value, encoding)
    if isinstance(encoding, situs.BiasEncoding):
        found[FLEX] = lambda: _flex(vectors, encoding, causal)
    if isinstance(encoding, situs.T5Bias):
        found[T5] = lambda: _t5(vectors, encoding, causal, later=False)
        found[T5_LATER] = lambda: _t5(vectors, encoding, causal, later=True)
    if isinstance(encoding, situs.T5Bias | situs.ALiBi):
        found[X_TRANSFORMERS] = lambda: _x_transformers(vectors, encoding, causal)
    if isinstance(encoding, situs.ALiBi) and causal:
        found[BLOOM], found[MPT] = lambda: _bloom(vectors), lambda: _mpt(vectors)
    if isinstance(encoding, situs.Deberta) and not causal:
        found[DEBERTA] = lambda: _deberta(vectors, encoding)
    return found


def materialised(query: Tensor, key: Tensor, value: Tensor, encoding: situs.Encoding, causal: bool = False) -> Tensor:
    """A term for every score, as a mask."""
    hidden = torch.ones(query.shape[2], query.shape[2], dtype=torch.bool).triu_(1) if causal else None
    if isinstance(encoding, situs.BiasEncoding):
        term = encoding(situs.Positions.range(query.shape[2]))
    else:
        term = encoding(query, key, visible=None if hidden is None else ~hidden[None, None])
    if hidden is not None:
        term = term.masked_fill(hidden, -torch.inf)
    return SDPA(query, key, value, attn_mask=term.to(query.dtype), scale=encoding.scale_for(HEAD_DIM))


def gathered(query: Tensor, key: Tensor, value: Tensor, encoding: situs.OffsetScore) -> Tensor:
    """Vectors for every pair of places, once where heads share them, else one head after another lest they fill the
    memory."""
    places = torch.arange(query.shape[2])
    offsets = places - places[:, None]
    lowest = int(offsets.min())
    vectors = encoding.vectors(torch.arange(lowest, -lowest + 1), query.dtype)
    scores = query @ key.transpose(-2, -1)
    for table, against in ((vectors.for_query, query), (vectors.for_key, key)):
        subscripts = "hid,ijd->hij" if against is query else "hjd,ijd->hij"
        for number, rows in enumerate(() if table is None else table):
            heads = slice(None) if table is not None and len(table) == 1 else slice(number, number + 1)
            scores[0, heads] += torch.einsum(subscripts, against[0, heads], rows[offsets - lowest])
    if vectors.alone is not None:
        scores = scores + vectors.alone[:, offsets - lowest]
    if vectors.for_every_key is not None:
        scores = scores + (key @ vectors.for_every_key.unsqueeze(-1)).transpose(-2, -1)
    return (scores * encoding.scale_for(HEAD_DIM)).softmax(-1) @ value


def _flex(vectors: Vectors, encoding: situs.Encoding, causal: bool) -> Run:
    """Compiled before the clock starts, and forgotten after, since few programs of one function are kept."""
    torch.compiler.reset()
    run: Run = partial(situs.attend, *vectors, encoding=encoding, causal=causal, impl="flex")
    run()
    return run


class _Given(torch.nn.Module):
    """A projection whose result is known."""

    def __init__(self, result: Tensor) -> None:
        super().__init__()
        self.result = result

    def forward(self, hidden: Tensor) -> Tensor:
        return self.result


def _joined(heads: Tensor) -> Tensor:
    """(1, heads, sequence, head_dim) as a projection leaves it, (1, sequence, dim)."""
    return heads.transpose(1, 2).flatten(2)


def _split(joined: Tensor) -> Tensor:
    """Back again, as a view."""
    split: Tensor = joined.unflatten(-1, (HEADS, HEAD_DIM))
    return split.transpose(1, 2)


def _hand(layer: Any, names: tuple[str, ...], vectors: Vectors) -> None:
    for name, tensor in zip(names, vectors, strict=True):
        setattr(layer, name, _Given(_joined(tensor)))


def _t5(vectors: Vectors, encoding: situs.T5Bias, causal: bool, *, later: bool) -> Run:
    """T5's module on scaled_dot_product_attention. The first layer makes the bias; later ones are handed it."""
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    config = T5Config(d_model=HEADS * HEAD_DIM, d_kv=HEAD_DIM, num_heads=HEADS, dropout_rate=0.0)
    config._attn_implementation = "sdpa"
    layer: Any = T5Attention(config, has_relative_attention_bias=True, is_causal=causal).eval()
    layer.relative_attention_bias.weight.data.copy_(encoding.table)
    _hand(layer, ("q", "k", "v"), vectors)
    layer.o = torch.nn.Identity()
    hidden, length = _joined(vectors[0]), vectors[0].shape[2]
    bias = layer.compute_bias(length, length) if later else None
    return lambda: _split(layer(hidden, position_bias=bias)[0])


def _bloom(vectors: Vectors) -> Run:
    """BLOOM's module; mask and biases are made once for all layers, so before the clock starts."""
    from transformers import BloomConfig
    from transformers.models.bloom.modeling_bloom import BloomAttention, build_alibi_tensor

    length, dtype = vectors[0].shape[2], vectors[0].dtype
    config = BloomConfig(hidden_size=HEADS * HEAD_DIM, n_head=HEADS, hidden_dropout=0.0, attention_dropout=0.0)
    layer: Any = BloomAttention(config, layer_idx=0).eval()
    layer.query_key_value = _Given(torch.stack(vectors, 3).transpose(1, 2).flatten(2))
    layer.dense = torch.nn.Identity()
    alibi = build_alibi_tensor(torch.ones(1, length), HEADS, dtype)
    mask = torch.full((1, 1, length, length), torch.finfo(dtype).min, dtype=dtype).triu_(1)
    hidden, residual = _joined(vectors[0]), torch.zeros(1, dtype=dtype)
    return lambda: _split(layer(hidden, residual, alibi, mask)[0])


def _mpt(vectors: Vectors) -> Run:
    """MPT's module; mask and biases are made before, as for BLOOM."""
    from transformers import MptConfig
    from transformers.models.mpt.modeling_mpt import MptAttention, build_mpt_alibi_tensor

    length = vectors[0].shape[2]
    layer: Any = MptAttention(MptConfig(d_model=HEADS * HEAD_DIM, n_heads=HEADS), layer_idx=0).eval()
    layer.Wqkv = _Given(torch.cat([_joined(each) for each in vectors], -1))
    layer.out_proj = torch.nn.Identity()
    alibi = build_mpt_alibi_tensor(HEADS, length)
    mask = torch.ones(1, 1, length, length, dtype=torch.bool).triu_(1)
    hidden = _joined(vectors[0])
    return lambda: _split(layer(hidden, alibi, attention_mask=mask)[0])


def _deberta(vectors: Vectors, encoding: situs.Deberta) -> Run:
    """DeBERTa v2's module; the table of offsets is made once for all layers, so before the clock starts, while the
    projections of positions are part of the call on both sides."""
    from transformers import DebertaV2Config
    from transformers.models.deberta_v2 import modeling_deberta_v2 as modeling

    length, dim = vectors[0].shape[2], HEADS * HEAD_DIM
    config = DebertaV2Config(
        hidden_size=dim, num_attention_heads=HEADS, relative_attention=True, pos_att_type=["c2p", "p2c"],
        max_relative_positions=encoding.max_distance, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    layer: Any = modeling.DisentangledSelfAttention(config).eval()
    assert encoding.query_projection is not None
    assert encoding.key_projection is not None
    layer.pos_query_proj.load_state_dict(encoding.query_projection.state_dict())
    layer.pos_key_proj.load_state_dict(encoding.key_projection.state_dict())
    _hand(layer, ("query_proj", "key_proj", "value_proj"), vectors)
    hidden, mask, table = _joined(vectors[0]), torch.ones(1, 1, length, length), encoding.table.detach()
    offsets = modeling.build_relative_position(hidden, hidden, max_position=encoding.max_distance)
    return lambda: _split(layer(hidden, mask, relative_pos=offsets, rel_embeddings=table)[0])


def _x_transformers(vectors: Vectors, encoding: situs.T5Bias | situs.ALiBi, causal: bool) -> Run:
    """x-transformers' bias and its Attend with ``flash=True``. It makes ALiBi's bias once and keeps it, T5's in every
    call."""
    from x_transformers.attend import Attend
    from x_transformers.x_transformers import AlibiPositionalBias, RelativePositionBias

    query, key, value = vectors
    length = query.shape[2]
    bias: Any = RelativePositionBias(scale=1.0, heads=HEADS)
    if isinstance(encoding, situs.T5Bias):
        bias.relative_attention_bias.weight.data.copy_(encoding.table)
    else:
        bias = AlibiPositionalBias(heads=HEADS)
        bias(length, length)
    attend: Any = Attend(causal=causal, flash=True, heads=HEADS, scale=encoding.scale_for(HEAD_DIM)).eval()
    return lambda: attend(query, key, value, attn_bias=bias(length, length))[0]
