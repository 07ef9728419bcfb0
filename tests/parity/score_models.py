"""Released attentions with position terms in their scores, as tiny random models, and the encoding of each.

Queries, keys, values and the outputs of the heads are caught in a run of the whole model; the encoding takes its
weights from the model. Nothing of the released attention is rewritten here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from transformers import (
    DebertaConfig,
    DebertaModel,
    DebertaV2Config,
    DebertaV2Model,
    SwinConfig,
    SwinModel,
    Swinv2Config,
    XLNetConfig,
    XLNetModel,
)

from situs import Deberta, Encoding, Positions, SwinBias, TransformerXL
from situs.attention import reference
from tests.parity.attention_probe import Projections, Run, SeenAttention, as_heads, enliven

HEADS = 4
VOCABULARY = 50
TOLERANCE = 1e-12  # of outputs of about unit size, in float64: some thousand roundings


def assert_same(
    seen: SeenAttention,
    encoding: Encoding,
    *,
    positions: Positions | None = None,
    scale: float | None = None,
    tolerance: float = TOLERANCE,
    **options: Any,
) -> None:
    """Our reference attention on what the layer saw gives what the layer made, at every real token; and without the
    encoding it does not."""
    given = (seen.query, seen.key, seen.value)
    ours = reference(*given, encoding=encoding, positions=positions, scale=scale, **options)
    plain_scale = encoding.softmax_scale if scale is None else scale
    unencoded = reference(*given, positions=positions, scale=plain_scale, **options)
    assert ours.shape == seen.output.shape
    real = torch.ones(ours.shape[0], ours.shape[2], dtype=torch.bool)
    if positions is not None and positions.valid is not None:
        real = positions.valid.expand_as(real)
    error, effect = ((each - seen.output).abs().amax((1, 3))[real].max() for each in (ours, unencoded))
    assert effect > 0.05, "the layer hardly depends on position, so agreement would prove nothing"
    assert error <= tolerance, f"off by {error:.2e}"


def padded(length: int, shorter: int, side: str) -> Tensor:
    """A mask of two rows, the second with padding."""
    real = torch.arange(length) < torch.tensor([[length], [shorter]])
    return (real if side == "right" else real.flip(1)).long()


def tokens(length: int, rows: int = 2) -> Tensor:
    """Random tokens, none of them padding."""
    return torch.randint(1, VOCABULARY, (rows, length))


def deberta_head_dim(terms: int) -> int:
    """A width for which ``head_dim (1 + terms)`` is a square: released code takes the root in float32 whatever the
    model, and only of squares is that exact."""
    return {1: 8, 2: 12}[terms]


def deberta_v1(terms: tuple[str, ...] = ("c2p", "p2c"), *, span: int = 16, head_dim: int | None = None) -> Any:
    """DeBERTa v1 in float64."""
    width = HEADS * (deberta_head_dim(len(terms)) if head_dim is None else head_dim)
    config = DebertaConfig(**_deberta_options(width, terms, span))
    return _lively(DebertaModel(config).double().eval())


def deberta_v2(
    terms: tuple[str, ...] = ("c2p", "p2c"),
    *,
    span: int = 16,
    buckets: int | None = None,
    share: bool = False,
    norm: bool = False,
    head_dim: int | None = None,
) -> Any:
    """DeBERTa v2 or v3 in float64."""
    width = HEADS * (deberta_head_dim(len(terms)) if head_dim is None else head_dim)
    own: dict[str, Any] = {
        "position_buckets": -1 if buckets is None else buckets,
        "share_att_key": share,
        "norm_rel_ebd": "layer_norm" if norm else "none",
    }
    config = DebertaV2Config(**_deberta_options(width, terms, span), **own)
    return _lively(DebertaV2Model(config).double().eval())


def _deberta_options(width: int, terms: tuple[str, ...], span: int) -> dict[str, Any]:
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": width,
        "num_hidden_layers": 1,
        "num_attention_heads": HEADS,
        "intermediate_size": 16,
        "max_position_embeddings": 512,
        "relative_attention": True,
        "max_relative_positions": span,
        "pos_att_type": list(terms),
        "position_biased_input": False,
    }


def _lively(model: nn.Module) -> nn.Module:
    enliven(model)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("q_bias", "v_bias", "LayerNorm.bias")):
                parameter.normal_(std=0.3)
            elif name.endswith("LayerNorm.weight"):
                parameter.normal_(1.0, 0.3)
            elif name.endswith("rel_embeddings.weight"):
                parameter.normal_()
    return model


def deberta_attention(model: Any) -> Any:
    """The attention of the model's only layer."""
    return model.encoder.layer[0].attention.self


@torch.no_grad()
def seen_by_deberta(model: Any, run: Run) -> SeenAttention:
    """What the attention of either version was given and made."""
    layer = deberta_attention(model)
    caught: list[tuple[Tensor, Tensor]] = []
    handle = layer.register_forward_hook(lambda module, given, made: caught.append((given[0], made[0])))
    try:
        run()
    finally:
        handle.remove()
    ((hidden, made),) = caught
    width = layer.attention_head_size
    if hasattr(layer, "in_proj"):
        query, key, value = as_heads(layer.in_proj(hidden), 3 * width).chunk(3, -1)
        query = query + layer.q_bias.view(1, HEADS, 1, width)
        value = value + layer.v_bias.view(1, HEADS, 1, width)
    else:
        query, key, value = (
            as_heads(projection(hidden), width) for projection in (layer.query_proj, layer.key_proj, layer.value_proj)
        )
    return SeenAttention(query, key, value, as_heads(made, width))


@torch.no_grad()
def deberta_encoding(model: Any, **changes: Any) -> Deberta:
    """Our encoding with the model's options and weights; ``changes`` make it another one."""
    layer, config = deberta_attention(model), model.config
    shared = bool(getattr(layer, "share_att_key", False))
    buckets = getattr(layer, "position_buckets", -1)
    v1 = hasattr(layer, "in_proj")
    options: dict[str, Any] = {
        "dim": config.hidden_size,
        "num_heads": HEADS,
        "head_dim": layer.attention_head_size,
        "max_distance": layer.max_relative_positions,
        "buckets": None if buckets < 1 else buckets,
        "terms": tuple(config.pos_att_type),
        "share_att_key": shared,
        "key_bias": not v1,
        "layer_norm": hasattr(model.encoder, "LayerNorm"),
    }
    encoding = Deberta(**{**options, **changes}).double()
    encoding.table.copy_(model.encoder.rel_embeddings.weight)
    if encoding.norm is not None:
        encoding.norm.load_state_dict(model.encoder.LayerNorm.state_dict())
    if shared:
        return encoding.tie(query=layer.query_proj, key=layer.key_proj)
    names = ("pos_q_proj", "pos_proj") if v1 else ("pos_query_proj", "pos_key_proj")
    for ours, name in zip((encoding.query_projection, encoding.key_projection), names, strict=True):
        if ours is not None:
            ours.load_state_dict(getattr(layer, name).state_dict())
    return encoding


def xlnet(**options: Any) -> Any:
    """XLNet of two layers; in float64 where built and run within ``in_float64(XLNetModel)``."""
    config = XLNetConfig(
        **{
            "vocab_size": VOCABULARY,
            "d_model": 32,
            "n_layer": 2,
            "n_head": HEADS,
            "d_inner": 16,
            "use_mems_eval": True,
            **options,
        }
    )
    model: Any = XLNetModel(config)
    enliven(model.to(torch.get_default_dtype()).eval())
    nn.init.normal_(model.word_embedding.weight)
    return model


@torch.no_grad()
def seen_by_xlnet(model: Any, run: Run, *, layer: int = 1) -> list[SeenAttention]:
    """What a layer's attention was given and made, of each call: one, or two where there are two streams."""
    attention = model.layer[layer].rel_attn
    core, caught = attention.rel_attn_core, []

    def keep(query: Tensor, key: Tensor, value: Tensor, *others: Any, **options: Any) -> Tensor:
        made: Tensor = core(query, key, value, *others, **options)
        caught.append(SeenAttention(*(each.permute(1, 2, 0, 3) for each in (query, key, value, made))))
        return made

    with patch.object(attention, "rel_attn_core", keep):
        run()
    return caught


@torch.no_grad()
def xlnet_encoding(model: Any, *, layer: int = 1, **changes: Any) -> TransformerXL:
    """Our encoding with the layer's weights."""
    attention = model.layer[layer].rel_attn
    options: dict[str, Any] = {
        "dim": model.config.d_model,
        "num_heads": HEADS,
        "head_dim": attention.d_head,
        "clamp_len": model.clamp_len if model.clamp_len > 0 else None,
    }
    encoding = TransformerXL(**{**options, **changes}).to(attention.r.dtype)
    encoding.load_state_dict(
        {
            "projection": attention.r.reshape(model.config.d_model, -1).T,
            "content_bias": attention.r_w_bias,
            "position_bias": attention.r_r_bias,
        }
    )
    return encoding


SWIN_HEAD_DIM = 8


def swin(model_class: Any, *, window: int = 4, grid: int = 8, **options: Any) -> Any:
    """Swin of one stage, a plain and a shifted layer; in float64 where built and run within ``in_float64``."""
    config_class = SwinConfig if model_class is SwinModel else Swinv2Config
    config = config_class(
        **{
            "image_size": 2 * grid,
            "patch_size": 2,
            "embed_dim": HEADS * SWIN_HEAD_DIM,
            "depths": [2],
            "num_heads": [HEADS],
            "window_size": window,
            "drop_path_rate": 0.0,
            "attn_implementation": "eager",
            **options,
        }
    )
    return enliven(model_class(config).to(torch.get_default_dtype()).eval())


def swin_layer(model: Any, layer: int) -> Any:
    """A layer of the only stage: 0 is plain, 1 shifted."""
    return model.encoder.layers[0].blocks[layer]


def seen_by_swin(attention: Any, run: Run) -> SeenAttention:
    """What one window attention was given and made, windows being rows of the batch.

    In v2 queries and keys are normalised and queries carry the temperature, so the softmax scale is 1.
    """
    if not hasattr(attention, "self"):
        return Projections("", SWIN_HEAD_DIM)(attention, run)
    names = {"query": "self.query", "key": "self.key", "value": "self.value", "output": "output.dense"}
    seen = Projections("", SWIN_HEAD_DIM, **names)(attention, run)
    temperature = attention.self.logit_scale.detach().clamp(max=math.log(100)).exp()
    return replace(
        seen,
        query=nn.functional.normalize(seen.query, dim=-1) * temperature,
        key=nn.functional.normalize(seen.key, dim=-1),
    )


@torch.no_grad()
def swin_encoding(attention: Any, **changes: Any) -> SwinBias:
    """Our bias with the window and the weights of a released window attention."""
    if not hasattr(attention, "self"):
        bias = attention.relative_position_bias
        encoding = SwinBias(**{"num_heads": HEADS, "window": tuple(bias.window_size), **changes})
        encoding.to(bias.relative_position_bias_table.dtype).table.copy_(bias.relative_position_bias_table)
        return encoding
    layer = attention.self
    trained = tuple(layer.pretrained_window_size)
    options = {
        "num_heads": HEADS,
        "window": tuple(layer.window_size),
        "version": "v2",
        "trained_window": trained if trained[0] > 0 else None,
    }
    encoding = SwinBias(**{**options, **changes}).to(layer.logit_scale.dtype)
    encoding.hidden.load_state_dict(layer.continuous_position_bias_mlp[0].state_dict())
    encoding.out.load_state_dict(layer.continuous_position_bias_mlp[2].state_dict())
    return encoding


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """What frameworks set while they build a model to be loaded in half precision."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
