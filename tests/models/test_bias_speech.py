"""Models of speech with relative positions: what their configurations are read as, and transformers' layers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from tests.models.bias_layers import assert_attends, lively, made, read_config
from tests.models.hugging_face import modeling_of
from tests.parity.attention_probe import Projections, SeenAttention, as_heads
from tests.parity.wide_transformers import in_float64

pytestmark = pytest.mark.once

HEADS, DIM, LENGTH = 3, 8, 50
WIDTH = HEADS * DIM
SIZES: dict[str, Any] = {"hidden_size": WIDTH, "num_attention_heads": HEADS, "num_hidden_layers": 2}
LINEAR = {"query": "linear_q", "key": "linear_k", "value": "linear_v", "output": "linear_out"}


def config_of(model_type: str, **options: Any) -> Any:
    config: Any = CONFIG_MAPPING[model_type](**options)
    config._attn_implementation = "eager"
    return config


def heard(length: int = LENGTH) -> Tensor:
    return torch.randn(2, length, WIDTH)


def waves(projection: Tensor, first: Tensor, second: Tensor) -> dict[str, Tensor]:
    return {"projection": projection, "content_bias": first, "position_bias": second}


@pytest.mark.parametrize("sizes", [(320, 800), (8, 20)], ids=str)
@torch.no_grad()
def test_wavlm(sizes: tuple[int, int]) -> None:
    config = config_of("wavlm", **SIZES, intermediate_size=16, num_buckets=sizes[0], max_bucket_distance=sizes[1],
                       num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2)  # fmt: skip
    found = read_config(config)
    module = modeling_of(config)
    with in_float64(module.WavLMEncoder):
        encoder = lively(module.WavLMEncoder(config))
        caught: list[Any] = []
        theirs = encoder.layers[1].attention
        theirs.register_forward_hook(lambda module, given, out: caught.append((given[0], out[0])))
        encoder(heard())
        ((x, out),) = caught
        theirs.gru_rel_pos_const.normal_()
        gate = theirs.gru_rel_pos_linear
        layer = found.layers[1]
        encodings: Any = made(layer, {
            "bias_by_offset.table": encoder.layers[0].attention.rel_attn_embed.weight,
            "projection.weight": gate.weight.view(2, 4, -1).sum(1), "projection.bias": gate.bias.view(2, 4).sum(1),
            "strength": theirs.gru_rel_pos_const.flatten(),
        })  # fmt: skip
        bias = encoder.layers[0].attention.compute_bias(LENGTH, LENGTH).unsqueeze(0).repeat(2, 1, 1, 1)
        theirs.out_proj.weight.copy_(torch.eye(WIDTH))
        theirs.out_proj.bias.zero_()
        out = theirs(x, position_bias=bias.view(2 * HEADS, LENGTH, LENGTH))[0]
        query, key, value = (as_heads(getattr(theirs, f"{name}_proj")(x), DIM) for name in "qkv")
        seen = SeenAttention(query, key, value, as_heads(out, DIM))
        assert_attends(seen, layer, encodings, features=encodings[0].project(x))


@torch.no_grad()
def test_parakeet() -> None:
    config = config_of("parakeet_encoder", **SIZES)
    module = modeling_of(config)
    with in_float64(module.ParakeetEncoderAttention):
        theirs = lively(module.ParakeetEncoderAttention(config, 0))
        places = module.ParakeetEncoderRelPositionalEncoding(config)(heard())
        seen = Projections("", DIM)(theirs, lambda: theirs(heard(), places))
        layer = read_config(config).layers[0]
        state = waves(theirs.relative_k_proj.weight, theirs.bias_u, theirs.bias_v)
        assert_attends(seen, layer, made(layer, state))


@torch.no_grad()
def test_nemotrons_frames_see_chunks() -> None:
    config = config_of("nemotron_asr_streaming_encoder", **SIZES, sliding_window=7, default_num_lookahead_tokens=2)
    module = modeling_of(config)
    with in_float64(module.NemotronAsrStreamingEncoderAttention):
        theirs = lively(module.NemotronAsrStreamingEncoderAttention(config, 0))
        places = module.NemotronAsrStreamingEncoderRelPositionalEncoding(config)(heard())
        sees = module.chunked_limited_mask_function(6, 2)
        at = torch.arange(LENGTH)
        mask = sees(0, 0, at[:, None], at[None])
        chunks = at[:, None] // 3 - at[None] // 3
        assert torch.equal(mask, (chunks >= 0) & (chunks <= 2))
        seen = Projections("", DIM)(theirs, lambda: theirs(heard(), places, attention_mask=mask[None, None]))
        found = read_config(config)
        layer = found.layers[0]
        assert (layer.kind, found.lengths.limit) == ("chunked", 5000)
        assert "its chunk of 3 frames and the 2 chunks before it" in str(found.notes[0])
        state = waves(theirs.relative_k_proj.weight, theirs.bias_u, theirs.bias_v)
        assert_attends(seen, layer, made(layer, state), mask=mask)


@pytest.mark.thin(6)
@pytest.mark.parametrize("name", ["encoder", "decoder"])
@torch.no_grad()
def test_fastspeech(name: str) -> None:
    options = {
        "encoder_num_attention_heads": 3,
        "decoder_num_attention_heads": 2,
        "encoder_layers": 1,
        "decoder_layers": 2,
    }
    config = config_of("fastspeech2_conformer", hidden_size=WIDTH, **options, max_source_positions=20)
    module = modeling_of(config)
    with in_float64(module.FastSpeech2ConformerAttention):
        own = getattr(config, f"{name}_config")
        theirs = lively(module.FastSpeech2ConformerAttention(config, own))
        _, places = module.FastSpeech2ConformerRelPositionalEncoding(config, own).eval()(heard())
        layers = read_config(config).submodels[name].layers
        assert len(layers) == options[f"{name}_layers"]
        dim = WIDTH // options[f"{name}_num_attention_heads"]
        seen = Projections("", dim, **LINEAR)(theirs, lambda: theirs(heard(), pos_emb=places))
        state = waves(theirs.linear_pos.weight, theirs.pos_bias_u, theirs.pos_bias_v)
        assert_attends(seen, layers[0], made(layers[0], state))


@torch.no_grad()
def test_gemma_3ns_sound() -> None:
    config = config_of("gemma3n_audio", hidden_size=WIDTH, conf_num_attention_heads=HEADS, conf_attention_chunk_size=6,
                       conf_attention_context_left=5, conf_attention_logit_cap=3.0,
                       conf_num_hidden_layers=2)  # fmt: skip
    module = modeling_of(config)
    with in_float64(module.Gemma3nAudioAttention):
        theirs = lively(module.Gemma3nAudioAttention(config))
        x = heard(31)
        out = theirs(x, torch.zeros(2, 31, dtype=torch.bool))
        query, key, value = (as_heads(getattr(theirs, f"{name}_proj")(x), DIM) for name in "qkv")
        query = query * theirs.q_scale * nn.functional.softplus(theirs.per_dim_scale)
        layer = read_config(config).layers[0]
        encodings = made(layer, {"projection": theirs.relative_position_embedding.pos_proj.weight})
        assert_attends(SeenAttention(query, key, value, out.transpose(1, 2)), layer, encodings)


@torch.no_grad()
def test_gemma_4s_sound() -> None:
    config = config_of("gemma4_audio", **SIZES, attention_chunk_size=5, attention_context_left=6,
                       attention_logit_cap=3.0, use_clipped_linears=False, output_proj_dims=8)  # fmt: skip
    module = modeling_of(config)
    with in_float64(module.Gemma4AudioModel):
        model = lively(module.Gemma4AudioModel(config))
        theirs = next(each for each in model.modules() if isinstance(each, module.Gemma4AudioAttention))
        kept: dict[str, Any] = {}
        theirs.register_forward_pre_hook(lambda module, given, options: kept.update(options), with_kwargs=True)
        theirs.post.register_forward_pre_hook(lambda module, given: kept.update(out=given[0]))
        model(torch.randn(1, 120, 128), torch.ones(1, 120, dtype=torch.bool))
        x = kept["hidden_states"]
        query, key, value = (as_heads(getattr(theirs, f"{name}_proj")(x), DIM) for name in "qkv")
        query = query * theirs.q_scale * nn.functional.softplus(theirs.per_dim_scale)
        layer = read_config(config).layers[0]
        encodings = made(layer, {"projection": theirs.relative_k_proj.weight})
        seen = SeenAttention(query, key * theirs.k_scale, value, as_heads(kept["out"], DIM))
        assert_attends(seen, layer, encodings)


@torch.no_grad()
def test_granites_blocks() -> None:
    config = config_of("granite_speech_encoder", hidden_dim=WIDTH, num_heads=HEADS, dim_head=DIM, context_size=8,
                       max_pos_emb=12, num_layers=2, input_dim=4, output_dim=4)  # fmt: skip
    module = modeling_of(config)
    with in_float64(module.GraniteSpeechConformerAttention):
        distances = module.GraniteSpeechCTCEncoder(config).attention_dists
        theirs = lively(module.GraniteSpeechConformerAttention(config))
        kept: dict[str, Tensor] = {}
        theirs.to_out.register_forward_pre_hook(lambda module, given: kept.update(out=given[0]))
        x = heard(31)
        theirs(x, attention_dists=distances)
        normed = theirs.pre_norm(x)
        query, (key, value) = theirs.to_q(normed), theirs.to_kv(normed).chunk(2, -1)
        seen = SeenAttention(*(as_heads(each, DIM) for each in (query, key, value, kept["out"][:, :31])))
        layer = read_config(config).layers[0]
        assert_attends(seen, layer, made(layer, {"key_table": theirs.rel_pos_emb.weight[None]}))


@torch.no_grad()
def test_granite_5s_blocks() -> None:
    config = config_of("granite_speech5_encoder", **SIZES, context_size=8, max_position_embeddings=12)
    module = modeling_of(config)
    with in_float64(module.GraniteSpeech5EncoderAttention):
        encoder = module.GraniteSpeech5Encoder(config)
        theirs = lively(module.GraniteSpeech5EncoderAttention(config, 0))
        x = heard(32)
        places = next(each for name, each in encoder.named_buffers() if each.shape == (8, 8))
        seen = Projections("", DIM)(theirs, lambda: theirs(x, places))
        layer = read_config(config).layers[0]
        assert_attends(seen, layer, made(layer, {"key_table": theirs.rel_pos_emb.weight[None]}))


@torch.no_grad()
def test_vits() -> None:
    config = config_of("vits", **SIZES, window_size=4)
    module = modeling_of(config)
    with in_float64(module.VitsAttention):
        theirs = lively(module.VitsAttention(config))
        theirs.emb_rel_k.normal_()
        theirs.emb_rel_v.normal_()
        seen = Projections("", DIM, output="out_proj")(theirs, lambda: theirs(heard()))
        layer = read_config(config).layers[0]
        assert_attends(seen, layer, made(layer, {"key_table": theirs.emb_rel_k, "value_table": theirs.emb_rel_v}))
    assert not read_config(config_of("vits", **SIZES, window_size=0)).layers[0].calls


@pytest.mark.parametrize(
    ("model_type", "kind"),
    [("wav2vec2-bert", "relative_key"), ("wav2vec2-bert", "relative"), ("wav2vec2-conformer", "relative")],
)
@torch.no_grad()
def test_wav2vec2(model_type: str, kind: str) -> None:
    bert = model_type == "wav2vec2-bert"
    bounds = {"left_max_position_embeddings": 6, "right_max_position_embeddings": 2} if bert else {}
    config = config_of(model_type, **SIZES, position_embeddings_type=kind, max_source_positions=20, **bounds)
    module, name = modeling_of(config), "Wav2Vec2Bert" if bert else "Wav2Vec2Conformer"
    attention = getattr(module, f"{name}SelfAttention")
    with in_float64(attention):
        theirs = lively(attention(config))
        layer = read_config(config).layers[0]
        if kind == "relative":
            places = getattr(module, f"{name}RelPositionalEmbedding")(config)(heard())
            seen = Projections("", DIM, **LINEAR)(theirs, lambda: theirs(heard(), relative_position_embeddings=places))
            state = waves(theirs.linear_pos.weight, theirs.pos_bias_u, theirs.pos_bias_v)
        else:
            seen = Projections("", DIM, **LINEAR)(theirs, lambda: theirs(heard()))
            state = {"key_table": theirs.distance_embedding.weight[None]}
        assert_attends(seen, layer, made(layer, state))


@pytest.mark.parametrize("version", [1, 2])
@torch.no_grad()
def test_seamless(version: int) -> None:
    name = "seamless_m4t" if version == 1 else "seamless_m4t_v2"
    bounds = {} if version == 1 else {"left_max_position_embeddings": 6, "right_max_position_embeddings": 2}
    config = config_of(name, hidden_size=WIDTH, speech_encoder_layers=2, speech_encoder_attention_heads=3,
                       encoder_layers=3, encoder_attention_heads=2, decoder_layers=1, decoder_attention_heads=4,
                       **bounds)  # fmt: skip
    module = modeling_of(config)
    found = read_config(config)
    assert {name: len(each.layers) for name, each in found.submodels.items()} == {
        "encoder": 3,
        "decoder": 1,
        "speech": 2,
    }
    before = "SeamlessM4T" if version == 1 else "SeamlessM4Tv2"
    attention = getattr(module, f"{before}ConformerSelfAttention")
    with in_float64(attention):
        theirs = lively(attention(config))
        layer = found.submodels["speech"].layers[0]
        if version == 1:
            places = module.SeamlessM4TConformerRelPositionalEmbedding(config)(heard())
            seen = Projections("", DIM, **LINEAR)(theirs, lambda: theirs(heard(), relative_position_embeddings=places))
            state = waves(theirs.linear_pos.weight, theirs.pos_bias_u, theirs.pos_bias_v)
        else:
            seen = Projections("", DIM, **LINEAR)(theirs, lambda: theirs(heard()))
            state = {"key_table": theirs.distance_embedding.weight[None]}
        assert_attends(seen, layer, made(layer, state))
        text = getattr(module, f"{before}Encoder")(config).embed_positions
        ids = torch.randint(3, 30, (2, LENGTH))
        (waves_of_text,) = (call.build() for call in found.submodels["encoder"].input)
        ours = waves_of_text(torch.zeros(2, LENGTH, WIDTH))
        torch.testing.assert_close(ours, text(input_ids=ids), rtol=0, atol=1e-9)
