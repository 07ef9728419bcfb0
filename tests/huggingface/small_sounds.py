"""Small models of transformers that take sounds, with random weights, tables and norms."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

from tests.huggingface.small_models import randomised

hf: Any = import_module("transformers")
seamless: Any = import_module("transformers.models.seamless_m4t.modeling_seamless_m4t")
seamless_v2: Any = import_module("transformers.models.seamless_m4t_v2.modeling_seamless_m4t_v2")
WIDTH = 16  # features of a frame
SIZES: dict[str, Any] = {
    "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 48, "layerdrop": 0.0,
}  # fmt: skip
WAVES: dict[str, Any] = {
    "conv_dim": (16, 16), "conv_stride": (5, 4), "conv_kernel": (10, 8), "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2, "apply_spec_augment": False,
}  # fmt: skip
FEATURES: dict[str, Any] = {
    **SIZES, "feature_projection_input_dim": WIDTH, "apply_spec_augment": False, "conv_depthwise_kernel_size": 5,
    "left_max_position_embeddings": 6, "right_max_position_embeddings": 2,
}  # fmt: skip
SEAMLESS: dict[str, Any] = {
    "hidden_size": 32, "feature_projection_input_dim": WIDTH, "speech_encoder_layers": 2,
    "speech_encoder_attention_heads": 4, "speech_encoder_intermediate_size": 48, "speech_encoder_layerdrop": 0.0,
    "conv_depthwise_kernel_size": 5, "adaptor_kernel_size": 3, "adaptor_stride": 2, "adaptor_dropout": 0.0,
}  # fmt: skip
SPEECHT5: dict[str, Any] = {
    "vocab_size": 50, "hidden_size": 32, "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 48,
    "encoder_layerdrop": 0.0, "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 48,
    "decoder_layerdrop": 0.0, "encoder_max_relative_position": 9, "attention_dropout": 0.0,
}  # fmt: skip


def conformer(positions: str) -> Any:
    """A wav2vec2-conformer."""
    sizes = {**SIZES, **WAVES, "conv_depthwise_kernel_size": 5, "max_source_positions": 3000}
    return hf.Wav2Vec2ConformerModel(hf.Wav2Vec2ConformerConfig(**sizes, position_embeddings_type=positions))


def bert(positions: str, **more: Any) -> Any:
    """A wav2vec2-BERT."""
    config = hf.Wav2Vec2BertConfig(**FEATURES, position_embeddings_type=positions, max_source_positions=3000, **more)
    return hf.Wav2Vec2BertModel(config)


def wavlm(**more: Any) -> Any:
    """A WavLM."""
    sizes = {**SIZES, **WAVES, "num_buckets": 16, "max_bucket_distance": 40, "attention_dropout": 0.0}
    return hf.WavLMModel(hf.WavLMConfig(**sizes, **more))


SOUNDS: dict[str, Callable[[], Any]] = {
    "sew-d": lambda: hf.SEWDModel(
        hf.SEWDConfig(**{**SIZES, **WAVES}, position_buckets=8, max_position_embeddings=3000, squeeze_factor=1)
    ),
    "wav2vec2-conformer": lambda: conformer("relative"),
    "wav2vec2-conformer, rotary": lambda: conformer("rotary"),
    "wav2vec2-bert": lambda: bert("relative_key"),
    "wav2vec2-bert, sinusoids": lambda: bert("relative"),
    "wav2vec2-bert, adapter": lambda: bert("relative_key", add_adapter=True),
    "seamless": lambda: seamless.SeamlessM4TSpeechEncoder(
        hf.SeamlessM4TConfig(**SEAMLESS, position_embeddings_type="relative", max_source_positions=3000)
    ),
    "seamless v2": lambda: seamless_v2.SeamlessM4Tv2SpeechEncoder(
        hf.SeamlessM4Tv2Config(**SEAMLESS, left_max_position_embeddings=6, right_max_position_embeddings=2)
    ),
    "seamless v2, chunks": lambda: seamless_v2.SeamlessM4Tv2SpeechEncoder(
        hf.SeamlessM4Tv2Config(
            **{**SEAMLESS, "add_adapter": False}, speech_encoder_chunk_size=16, speech_encoder_left_chunk_num=1
        )
    ),
    "wavlm": lambda: wavlm(),
    "wavlm, norms first": lambda: wavlm(do_stable_layer_norm=True, feat_extract_norm="layer"),
    "parakeet": lambda: hf.ParakeetEncoder(
        hf.ParakeetEncoderConfig(
            **SIZES, num_mel_bins=WIDTH, subsampling_conv_channels=8, attention_dropout=0.0, dropout=0.0,
            activation_dropout=0.0,
        )
    ),
    "speecht5": lambda: hf.SpeechT5ForSpeechToText(hf.SpeechT5Config(**{**WAVES, **SPEECHT5})),
}  # fmt: skip


def made_sound(name: str, dtype: torch.dtype = torch.float32) -> Any:
    """A model whose weights, biases, tables and norms are all random."""
    return randomised(SOUNDS[name], dtype)


def sounds(name: str, frames: int, *, padded: bool = False, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    """What a model is called with for two sounds of so many frames; padding hides a third of the second."""
    torch.manual_seed(frames)
    if name.startswith(("speecht5", "sew-d", "wavlm", "wav2vec2-conformer")):
        length = samples(frames)
        found = {"input_values": torch.randn(2, length).to(dtype)}
        short = samples(frames - frames // 3)
    else:
        step = 8 if name == "parakeet" else 1
        length, short = step * frames, step * (frames - frames // 3)
        found = {"input_features": torch.randn(2, length, WIDTH).to(dtype)}
    if padded:
        found["attention_mask"] = (torch.arange(length) < torch.tensor([[length], [short]])).long()
    if name == "speecht5":
        found["decoder_input_ids"] = torch.randint(4, 50, (2, 5))
    return found


def samples(frames: int) -> int:
    """How many samples two convolutions make so many frames of."""
    return 5 * (4 * (frames - 1) + 8 - 1) + 10
