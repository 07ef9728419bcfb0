"""Attention of released speech models with relative positions, and ours on the same queries, keys and values."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    GraniteSpeechEncoderConfig,
    SpeechT5Config,
    VitsConfig,
    Wav2Vec2BertConfig,
    Wav2Vec2ConformerConfig,
)
from transformers.models.gemma3n.configuration_gemma3n import Gemma3nAudioConfig
from transformers.models.gemma3n.modeling_gemma3n import Gemma3nAudioAttention
from transformers.models.granite_speech.modeling_granite_speech import (
    GraniteSpeechConformerAttention,
    GraniteSpeechCTCEncoder,
)
from transformers.models.speecht5.modeling_speecht5 import SpeechT5Attention, SpeechT5RelativePositionalEncoding
from transformers.models.vits.modeling_vits import VitsAttention
from transformers.models.wav2vec2_bert.modeling_wav2vec2_bert import Wav2Vec2BertSelfAttention
from transformers.models.wav2vec2_conformer.modeling_wav2vec2_conformer import (
    Wav2Vec2ConformerRelPositionalEmbedding,
    Wav2Vec2ConformerSelfAttention,
)

from situs import Positions, Shaw, TransformerXL, attend
from tests.parity.attention_probe import Projections, as_heads, enliven
from tests.parity.score_models import TOLERANCE, assert_same, padded
from tests.parity.wide_transformers import WIDE_TOLERANCE, in_float64

HEADS, HEAD_DIM, LENGTH = 4, 8, 50
WIDTH = HEADS * HEAD_DIM
SIZES: dict[str, Any] = {"hidden_size": WIDTH, "num_attention_heads": HEADS}

with_and_without_padding = pytest.mark.parametrize("side", [None, "left", "right"])


def lively(module: nn.Module) -> Any:
    """The module in float64, with weights that matter: tables of about unit size too."""
    enliven(module.double().eval())
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if "emb" in name or "pe_k" in name or "pos_bias" in name or "per_dim" in name:
                parameter.normal_()
    return module


def heard(rows: int = 2, length: int = LENGTH) -> Tensor:
    return torch.randn(rows, length, WIDTH, dtype=torch.float64)


def masks(side: str | None, length: int = LENGTH) -> tuple[Tensor | None, Positions | None]:
    """What transformers adds to the scores, and our positions."""
    if side is None:
        return None, None
    real = padded(length, length - 9, side).bool()
    added = torch.zeros(2, 1, length, length, dtype=torch.float64).masked_fill(~real[:, None, None], -1e30)
    return added, Positions.from_mask(real)


def shaw(table: Tensor, **options: Any) -> Shaw:
    encoding = Shaw(num_heads=HEADS, head_dim=HEAD_DIM, values=False, **options).double()
    encoding.load_state_dict({"key_table": table[None]})
    return encoding


@with_and_without_padding
@pytest.mark.parametrize("farthest", [5, 160], ids=["clipped", "released"])
def test_speecht5_stores_query_minus_key(side: str | None, farthest: int) -> None:
    config = SpeechT5Config(**SIZES, encoder_attention_heads=HEADS, encoder_max_relative_position=farthest)
    layer = lively(SpeechT5Attention(config.hidden_size, HEADS))
    table = lively(SpeechT5RelativePositionalEncoding(HEAD_DIM, farthest))
    x, (mask, positions) = heard(), masks(side)
    probe = Projections("", HEAD_DIM, output="out_proj")
    seen = probe(layer, lambda: layer(x, attention_mask=mask, position_bias=table(x)))
    ours = shaw(table.pe_k.weight, max_distance=farthest - 1, max_ahead=farthest, rows="query_minus_key")
    assert_same(seen, ours, positions=positions)


@with_and_without_padding
@pytest.mark.parametrize("bounds", [(6, 2), (64, 8)], ids=["narrow", "released"])
def test_wav2vec2_bert_looks_farther_back_than_ahead(side: str | None, bounds: tuple[int, int]) -> None:
    config = Wav2Vec2BertConfig(
        **SIZES, left_max_position_embeddings=bounds[0], right_max_position_embeddings=bounds[1]
    )
    config._attn_implementation = "eager"
    layer = lively(Wav2Vec2BertSelfAttention(config))
    x, (mask, positions) = heard(), masks(side)
    seen = _linear(layer, lambda: layer(x, attention_mask=mask))
    assert_same(seen, shaw(layer.distance_embedding.weight, max_distance=bounds[0], max_ahead=bounds[1]),
                positions=positions)  # fmt: skip


@with_and_without_padding
@pytest.mark.parametrize("length", [3, LENGTH], ids=["shorter than the window", "longer"])
def test_vits_has_nothing_beyond_its_window_for_keys_and_values(side: str | None, length: int) -> None:
    layer = lively(VitsAttention(VitsConfig(**SIZES, window_size=4)))
    length = length if side is None else LENGTH
    x, (mask, positions) = heard(length=length), masks(side)
    seen = Projections("", HEAD_DIM, output="out_proj")(layer, lambda: layer(x, attention_mask=mask))
    ours = Shaw(num_heads=HEADS, head_dim=HEAD_DIM, max_distance=4, beyond="nothing").double()
    ours.load_state_dict({"key_table": layer.emb_rel_k, "value_table": layer.emb_rel_v})
    # transformers lets padded queries see, whose outputs are not compared
    assert_same(seen, ours, positions=positions)


@pytest.mark.parametrize("length", [24, 31])
def test_granites_blocks_are_packed_documents(length: int) -> None:
    context = 8
    config = GraniteSpeechEncoderConfig(
        hidden_dim=WIDTH, num_heads=HEADS, dim_head=HEAD_DIM, context_size=context, max_pos_emb=12, num_layers=1,
        input_dim=4, output_dim=4,
    )  # fmt: skip
    distances = GraniteSpeechCTCEncoder(config).attention_dists
    layer = lively(GraniteSpeechConformerAttention(config))
    x = heard(length=length)
    kept: dict[str, Tensor] = {}
    layer.to_out.register_forward_pre_hook(lambda module, given: kept.update(out=given[0]))
    layer(x, attention_dists=distances)
    normed = layer.pre_norm(x)
    query, (key, value) = layer.to_q(normed), layer.to_kv(normed).chunk(2, -1)
    blocks = Positions.packed([context] * (length // context) + [length % context] * (length % context > 0))
    ours = shaw(layer.rel_pos_emb.weight, max_distance=12, rows="query_minus_key")
    out = attend(*(as_heads(each, HEAD_DIM) for each in (query, key, value)), encoding=ours, positions=blocks)
    torch.testing.assert_close(out, as_heads(kept["out"][:, :length], HEAD_DIM), rtol=0.0, atol=TOLERANCE)


@with_and_without_padding
@pytest.mark.parametrize("kind", ["wav2vec2-conformer", "wav2vec2-bert"])
def test_conformers_interleave_sines_and_cosines(side: str | None, kind: str) -> None:
    options: dict[str, Any] = {**SIZES, "position_embeddings_type": "relative", "max_source_positions": 20}
    if kind == "wav2vec2-bert":
        config, attention = Wav2Vec2BertConfig(**options), Wav2Vec2BertSelfAttention
    else:
        config, attention = Wav2Vec2ConformerConfig(**options), Wav2Vec2ConformerSelfAttention  # type: ignore[assignment]
    config._attn_implementation = "eager"
    layer = lively(attention(config))
    with in_float64(Wav2Vec2ConformerRelPositionalEmbedding):
        waves = Wav2Vec2ConformerRelPositionalEmbedding(config)(heard())
    x, (mask, positions) = heard(), masks(side)
    seen = _linear(layer, lambda: layer(x, attention_mask=mask, relative_position_embeddings=waves))
    ours = TransformerXL(dim=WIDTH, num_heads=HEADS, head_dim=HEAD_DIM, layout="interleaved").double()
    weights = {
        "projection": layer.linear_pos.weight,
        "content_bias": layer.pos_bias_u,
        "position_bias": layer.pos_bias_v,
    }
    ours.load_state_dict(weights)
    assert_same(seen, ours, positions=positions, tolerance=WIDE_TOLERANCE)


@pytest.mark.parametrize(("left", "right"), [(5, 0), (3, 2)], ids=["causal", "with frames ahead"])
@pytest.mark.parametrize("length", [12, 31])
def test_gemma_3ns_chunks_are_a_sliding_window(left: int, right: int, length: int) -> None:
    """Its softcap, which is no matter of positions, is set so high that it changes nothing."""
    config = Gemma3nAudioConfig(
        hidden_size=WIDTH, conf_num_attention_heads=HEADS, conf_attention_chunk_size=6,
        conf_attention_context_left=left, conf_attention_context_right=right, conf_attention_logit_cap=1e6,
    )  # fmt: skip
    with in_float64(Gemma3nAudioAttention), torch.no_grad():
        layer = lively(Gemma3nAudioAttention(config))
        x = heard(length=length)
        silent = padded(length, length - 4, "right") == 0
        theirs = layer(x, silent)
        query, key, value = (as_heads(each(x), HEAD_DIM) for each in (layer.q_proj, layer.k_proj, layer.v_proj))
        query = query * layer.q_scale * nn.functional.softplus(layer.per_dim_scale)
    ours = TransformerXL(dim=WIDTH, num_heads=HEADS, head_dim=HEAD_DIM, spacing="inclusive", biases=False).double()
    ours.load_state_dict({"projection": layer.relative_position_embedding.pos_proj.weight})
    told: dict[str, Any] = {"encoding": ours, "scale": 1.0, "positions": Positions.from_mask(~silent)}
    if right:
        offsets = torch.arange(length) - torch.arange(length)[:, None]
        told["mask"] = (offsets >= 1 - left) & (offsets <= right)
    else:
        told |= {"causal": True, "window": left}
    with torch.no_grad():
        out, plain = (attend(query, key, value, **{**told, "encoding": each}) for each in (ours, None))
    error, effect = (((each.transpose(1, 2) - theirs)[~silent]).abs().max() for each in (out, plain))
    assert float(effect) > 0.05
    assert float(error) <= WIDE_TOLERANCE


def _linear(layer: nn.Module, run: Any) -> Any:
    names = {"query": "linear_q", "key": "linear_k", "value": "linear_v", "output": "linear_out"}
    return Projections("", HEAD_DIM, **names)(layer, run)
