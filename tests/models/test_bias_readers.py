"""Readers of models with relative biases: how many are compared with transformers, defaults, and what is refused."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from situs.models.positions import ModelPositions
from situs.models.readers.biases import LEFT_OUT, READERS
from situs.models.sources.strict import ConfigError
from tests.models import test_bias_documents, test_bias_images, test_bias_text
from tests.models.bias_layers import read_dict

pytestmark = pytest.mark.once

TABLE = [
    "beit", "bloom", "clap_audio_model", "clap_text_model", "cpmant", "data2vec-vision", "deberta", "deberta-v2",
    "deepseek_ocr2_sam_vision_model", "donut-swin", "fastspeech2_conformer", "funnel", "gemma3n_audio",
    "gemma4_audio", "got_ocr2_vision", "granite_speech5_encoder", "granite_speech_encoder", "inkling_text",
    "layoutlm", "layoutlmv2", "layoutlmv3", "lilt", "longt5", "maskformer-swin", "mpnet", "mpt", "mt5",
    "nemotron_asr_streaming_encoder", "parakeet_encoder", "perceiver", "pix2struct_text_model", "pop2piano",
    "pp_doclayout_v2", "pp_formulanet_vision", "prophetnet", "sam_hq_vision_model", "sam_vision_model",
    "seamless_m4t_v2", "seggpt", "sew-d", "slanext_vision", "swin", "swin2sr", "swinv2", "switch_transformers",
    "t5", "udop", "umt5", "unlimited_ocr_sam_vision_model", "unlimited_ocr_vision_encoder", "vitdet", "vits",
    "wavlm", "xlnet",
]  # fmt: skip
"""Model types of transformers with relative biases or terms, and those listed among them that have tables alone."""

COMPARED = {
    *test_bias_text.T5_MODELS, *test_bias_text.ALIBI, *test_bias_text.DEBERTA, *test_bias_documents.TABLES,
    *test_bias_images.SWINS, *test_bias_images.SAMS, "pix2struct_text_model", "mpnet", "xlnet", "funnel",
    "inkling_text", "layoutlmv2", "perceiver", "beit", "data2vec-vision", "unlimited_ocr_vision_encoder", "wavlm",
    "parakeet_encoder", "nemotron_asr_streaming_encoder", "fastspeech2_conformer", "gemma3n_audio", "gemma4_audio",
    "granite_speech_encoder", "granite_speech5_encoder", "vits", "wav2vec2-bert", "wav2vec2-conformer",
    "seamless_m4t", "seamless_m4t_v2",
}  # fmt: skip
"""Those whose layers are compared with transformers' own, each in a test of its name or family."""

BESIDE = {"falcon", "seamless_m4t", "wav2vec2-bert", "wav2vec2-conformer"}
"""Read here though they rotate, or can."""


def test_51_of_54_model_types_are_compared_and_the_others_are_refused() -> None:
    assert len(TABLE) == 54
    assert set(TABLE) - COMPARED == set(LEFT_OUT)
    assert len(set(TABLE) & COMPARED) == 51
    assert set(READERS) == set(TABLE) | BESIDE
    assert BESIDE <= COMPARED


@pytest.mark.thin(6)
@pytest.mark.parametrize("model_type", sorted(set(READERS) - set(LEFT_OUT)))
def test_what_is_left_out_is_as_transformers_has_it(model_type: str) -> None:
    config: dict[str, Any] = json.loads(CONFIG_MAPPING[model_type]().to_json_string(use_diff=False))
    (whole, unread), (bare, _) = read_dict(config), read_dict({"model_type": model_type})
    assert not unread or model_type == "falcon"
    assert_equal(whole, bare)
    json.loads(whole.to_json())


def assert_equal(one: ModelPositions, other: ModelPositions) -> None:
    assert (one.input, one.layers, one.lengths) == (other.input, other.layers, other.lengths)
    assert list(one.submodels) == list(other.submodels)
    for name, each in one.submodels.items():
        assert_equal(each, other.submodels[name])


def test_released_settings_are_read() -> None:
    """Of microsoft/deberta-v3-base, google-t5/t5-base, mosaicml/mpt-7b and microsoft/beit-base-patch16-224."""
    v3 = {
        "model_type": "deberta-v2", "attention_probs_dropout_prob": 0.1, "hidden_size": 768, "layer_norm_eps": 1e-7,
        "max_position_embeddings": 512, "max_relative_positions": -1, "norm_rel_ebd": "layer_norm",
        "num_attention_heads": 12, "num_hidden_layers": 12, "pos_att_type": "p2c|c2p", "position_biased_input": False,
        "position_buckets": 256, "relative_attention": True, "share_att_key": True, "type_vocab_size": 0,
    }  # fmt: skip
    (found, unread) = read_dict(v3)
    assert not unread
    assert repr(found.layers[0].calls[0]) == (
        "Deberta(dim=768, num_heads=12, head_dim=64, max_distance=512, buckets=256, terms=('p2c', 'c2p'), "
        "share_att_key=True, layer_norm=True)"
    )
    assert (found.input, found.lengths.declared, found.lengths.limit) == ((), 512, None)
    t5 = {"model_type": "t5", "d_ff": 3072, "d_kv": 64, "d_model": 768, "n_positions": 512, "num_heads": 12,
          "num_layers": 12, "relative_attention_num_buckets": 32}  # fmt: skip
    found, unread = read_dict(t5)
    assert not unread
    assert [found.submodels[name].layers[11].scale for name in ("encoder", "decoder")] == [1.0, 1.0]
    attention = {"alibi": True, "alibi_bias_max": 8, "attn_impl": "torch", "attn_pdrop": 0, "clip_qkv": None,
                 "attn_type": "multihead_attention", "attn_uses_sequence_id": False, "prefix_lm": False, "qk_ln": False,
                 "softmax_scale": None}  # fmt: skip
    mpt = {"model_type": "mpt", "attn_config": attention, "d_model": 4096, "n_heads": 32, "n_layers": 32,
           "learned_pos_emb": True, "max_seq_len": 2048}  # fmt: skip
    found, unread = read_dict(mpt)
    assert not unread
    assert (repr(found.layers[31].calls[0]), found.lengths.limit) == ("ALiBi(num_heads=32)", 2048)
    beit = {"model_type": "beit", "image_size": 224, "patch_size": 16, "use_relative_position_bias": True}
    found, _ = read_dict(beit)
    assert repr(found.layers[0].calls[0]) == "SwinBias(num_heads=12, window=(14, 14), cls=True)"


REFUSED = [
    ({"model_type": "prophetnet"}, "model_type must be one whose scores Situs has an encoding for, since its decoder "
     "has streams that predict several tokens ahead, each with buckets of its own; got 'prophetnet'."),
    ({"model_type": "t5", "relative_attention_max_distance": 8}, "relative_attention_max_distance must be more than 8, "
     "since that many of relative_attention_num_buckets=32 hold a single distance; got 8."),
    ({"model_type": "t5", "relative_attention_num_buckets": 3}, "relative_attention_num_buckets must be 4 or more, "
     "since offsets share a number of buckets, near and far; got 3."),
    ({"model_type": "longt5", "encoder_attention_type": "transient-global"}, "encoder_attention_type must be local, "
     "since transient-global attention adds a key for every block of tokens, with buckets of its own; got "
     "'transient-global'."),
    ({"model_type": "mpnet", "relative_attention_num_buckets": 16}, "relative_attention_num_buckets must be 32 or "
     "more, "
     "since MPNet looks up buckets 0 .. 31 whatever it says; got 16."),
    ({"model_type": "mpt", "attn_config": {"alibi": False}}, "attn_config.alibi must be true, since transformers adds "
     "ALiBi's bias whatever it says; got false. Remove it."),
    ({"model_type": "mpt", "attn_config": {"alibi_bias_max": 2}}, "attn_config.alibi_bias_max must be 8, since "
     "transformers makes the slopes of 8 whatever it says, and the model was trained with others; got 2."),
    ({"model_type": "mpt", "attn_config": {"rope": True}}, "attn_config.rope must be a setting that is understood, "
     "since it speaks of positions; got true."),
    ({"model_type": "deberta", "pos_att_type": "c2p|p2p"}, "pos_att_type must be a list of c2p and p2c, since "
     "transformers has these terms alone; got 'c2p|p2p'."),
    ({"model_type": "sew-d", "position_buckets": 7}, "position_buckets must be even and lie in 4 .. 1021, since half "
     "of "
     "them hold a single distance below max_relative_positions - 1; got 7."),
    ({"model_type": "sew-d", "layer_norm_eps": 1e-5}, "layer_norm_eps must be 1e-07, since Situs normalises the table "
     "with that; got 1e-05."),
    ({"model_type": "xlnet", "bi_data": True}, "bi_data must be false, since half of the batch would be read "
     "backwards; "
     "got true."),
    ({"model_type": "xlnet", "attn_type": "both"}, "attn_type must be one of bi, uni, since XLNet attends in both "
     "directions or in one; got 'both'."),
    ({"model_type": "funnel", "block_sizes": 4}, "block_sizes must be a list of whole numbers, since it counts layers "
     "of each block; got 4."),
    ({"model_type": "inkling_text", "local_layer_ids": "all"}, "local_layer_ids must be a list of layers, by number, "
     "since those slide; got 'all'."),
    ({"model_type": "bloom", "n_head": 7}, "hidden_size must be a multiple of 7, since so many heads share its "
     "channels; got 64."),
    ({"model_type": "udop", "relative_bias_args": [{"type": "vertical"}, {"type": "1d"}]}, "relative_bias_args must "
     "have types among 1d, horizontal, vertical, in that order and each once, since coordinates of a position are in "
     "that order; got ['vertical', '1d']."),
    ({"model_type": "udop", "relative_bias_args": [{"type": "1d", "prefix_bucket": True}]},
     "relative_bias_args[0].prefix_bucket must be left out, since Situs has no such buckets; got true."),
    ({"model_type": "beit", "image_size": [224, 112], "use_relative_position_bias": True}, "image_size must be as high "
     "as wide, since transformers exchanges height and width of the table of others; got [224, 112]."),
    ({"model_type": "swin", "num_heads": [3, 6]}, "num_attention_heads must be a list of 4 numbers, since it counts "
     "heads of each stage; got [3, 6]."),
    ({"model_type": "sam_vision_model", "image_size": 8}, "image_size must be at least 16 x 16, since a patch is that "
     "large; got 8."),
    ({"model_type": "gemma3n_audio", "conf_attention_context_right": 2}, "conf_attention_context_right must be 0, "
     "since "
     "frames ahead would need a mask, not a window; got 2."),
    ({"model_type": "gemma4_audio", "attention_chunk_size": 20}, "attention_chunk_size must be 12 or 13, since "
     "transformers gives frames other distances than they have where it is not attention_context_left - 1; got 20."),
    ({"model_type": "granite_speech_encoder", "context_size": 600}, "context_size must be at most max_pos_emb=512, "
     "since "
     "transformers refuses more; got 600."),
    ({"model_type": "wav2vec2-bert", "position_embeddings_type": "rotary"}, "position_embeddings_type must be relative "
     "or relative_key, since hidden states are rotated before queries and keys are made of them, which rotates neither "
     "of these; got 'rotary'."),
]  # fmt: skip


@pytest.mark.parametrize(("config", "message"), REFUSED, ids=[str(config) for config, _ in REFUSED])
def test_what_cannot_be_read_is_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        read_dict(config)


@pytest.mark.once
def test_reading_needs_no_torch() -> None:
    code = "import sys, situs; print(situs.models.read({'model_type': 't5'}).model_type, 'torch' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ran.stdout == "t5 False\n"
