"""The rows of models whose positions are a table at the input: what each does otherwise than BERT or ViT.

`Tokens()` is BERT's rule: a learned table with a row for each of max_position_embeddings tokens, padding counted.
`Patches()` is ViT's: a row for the class token, then one for each patch. A row here says what is otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal


@dataclass(frozen=True)
class Tokens:
    """Hold what is particular to stacks of tokens that have a table.

    width, depth, heads, length: the settings that hold these sizes; table: that of the table's channels, if another.
    more: rows of a learned table beside those of max_position_embeddings.
    offset: the row of the first token; "padding" for the one behind pad_token_id.
    padding: what padding gets: a row of its own before the first token's, zeros, or a position as tokens do; a row of
        zeros is that of pad_token_id, which must lie before the first token's.
    counted: whether positions count padding too, tokens alone, or tokens of each chunk of sound.
    scaled: the setting by which tokens are multiplied by the root of the width, with its default; "" for always.
    halved: whether head_ratio divides the heads, as a convolution does the other part.
    sines: options of `Sinusoidal`, where the table is not learned; ends: whether that table ends all the same.
    """

    width: tuple[str, ...] = ("hidden_size",)
    depth: tuple[str, ...] = ("num_hidden_layers",)
    heads: tuple[str, ...] = ("num_attention_heads",)
    length: tuple[str, ...] = ("max_position_embeddings",)
    table: tuple[str, ...] = ()
    causal: bool = False
    more: int = 0
    offset: int | Literal["padding"] = 0
    padding: Literal["row", "zeros", "row of zeros", "position"] = "position"
    counted: Literal["all", "tokens", "chunks"] = "all"
    sines: tuple[tuple[str, Any], ...] | None = None
    ends: bool = True
    scaled: tuple[str, bool] | None = None
    halved: bool = False
    scale: Literal["plain", "one", "gpt2"] = "plain"
    layers: Literal["full", "none", "gpt_neo", "longformer"] = "full"
    notes: tuple[str, ...] = ()


RESTARTS = "positions start again in each chunk of 2 n_window frames, of which 13 tokens are made"

_ROBERTA = Tokens(offset="padding", padding="row", counted="tokens")
_CAUSAL = Tokens(causal=True)
_FAIRSEQ = (("layout", "concatenated"), ("spacing", "inclusive"))
_GPT2 = Tokens(
    width=("hidden_size", "n_embd"),
    depth=("num_hidden_layers", "n_layer"),
    heads=("num_attention_heads", "n_head"),
    length=("max_position_embeddings", "n_positions"),
    causal=True,
)
_OPT = Tokens(causal=True, more=2, offset=2, padding="row", counted="tokens")
_EMBEDDED = Tokens(table=("embedding_size",))
_XLM = Tokens(
    width=("hidden_size", "emb_dim"), depth=("num_hidden_layers", "n_layers"),
    heads=("num_attention_heads", "n_heads"),
)  # fmt: skip
_WHISPER = Tokens(
    width=("d_model", "hidden_size"), depth=("encoder_layers", "num_hidden_layers"),
    heads=("encoder_attention_heads", "num_attention_heads"), length=("max_source_positions",),
)  # fmt: skip
_AUDIO = replace(_WHISPER, sines=_FAIRSEQ)


def _all(names: str, row: Tokens) -> dict[str, Tokens]:
    return dict.fromkeys(names.split(), row)


TOKENS: dict[str, Tokens] = {
    **_all(
        "bert bert-generation ernie megatron-bert roc_bert splinter squeezebert visual_bert align_text_model "
        "chinese_clip_text_model flava_text_model siglip_text_model siglip2_text_model instructblip_qformer "
        "instructblipvideo_qformer blip_text_model",
        Tokens(),
    ),
    **_all("albert electra", _EMBEDDED),
    "convbert": replace(_EMBEDDED, halved=True),
    "mobilebert": Tokens(("true_hidden_size", "intra_bottleneck_size"), table=("hidden_size",)),
    "rembert": Tokens(table=("input_embedding_size",)),
    "distilbert": Tokens(("dim",), ("n_layers",), ("n_heads",)),
    "fnet": Tokens(layers="none"),
    "big_bird": Tokens(notes=("attention_type block_sparse attends within blocks: Situs has the positions alone",)),
    **_all("mra nystromformer yoso", Tokens(more=2, offset=2)),
    **_all(
        "roberta roberta-prelayernorm camembert xlm-roberta xlm-roberta-xl xmod data2vec-text ibert markuplm luke "
        "altclip_text_model bridgetower_text_model",
        _ROBERTA,
    ),
    "longformer": replace(_ROBERTA, layers="longformer"),
    **_all(
        "clip_text_model clipseg_text_model metaclip_2_text_model owlvit_text_model owlv2_text_model "
        "groupvit_text_model xclip_text_model aimv2_text_model",
        _CAUSAL,
    ),
    "gpt2": replace(_GPT2, scale="gpt2"),
    "gpt_bigcode": replace(_GPT2, scale="gpt2"),
    "imagegpt": replace(_GPT2, scale="gpt2"),
    "openai-gpt": _GPT2,
    "gpt_neo": Tokens(
        depth=("num_hidden_layers", "num_layers"), heads=("num_attention_heads", "num_heads"), causal=True,
        scale="one", layers="gpt_neo",
    ),
    "ctrl": replace(_GPT2, sines=(("layout", "concatenated"),), scaled=("", True)),
    "opt": _OPT,
    "biogpt": Tokens(causal=True, more=2, offset=2, scaled=("scale_embedding", True)),
    "xglm": Tokens(
        ("d_model", "hidden_size"), ("num_layers", "num_hidden_layers"), ("attention_heads", "num_attention_heads"),
        causal=True, offset=2, padding="row of zeros", sines=_FAIRSEQ, ends=False, scaled=("scale_embedding", True),
    ),
    **_all(
        "kosmos_2_text_model kosmos_2_5_text_model",
        Tokens(
            ("embed_dim", "hidden_size"), ("layers", "num_hidden_layers"), ("attention_heads", "num_attention_heads"),
            causal=True, offset="padding", padding="zeros", counted="tokens", sines=_FAIRSEQ, ends=False,
            scaled=("scale_embedding", True),
        ),
    ),
    "clvp_decoder": Tokens(causal=True),
    **_all("xlm flaubert", _XLM),
    "tipsv2_text_model": Tokens(sines=_FAIRSEQ),
    "trocr": Tokens(
        ("d_model", "hidden_size"), ("decoder_layers", "num_hidden_layers"),
        ("decoder_attention_heads", "num_attention_heads"), causal=True, more=2, offset=2,
        scaled=("scale_embedding", False),
    ),
    **_all(
        "musicgen_decoder musicgen_melody_decoder",
        Tokens(
            causal=True, sines=(*_FAIRSEQ, ("cosines_first", True)), ends=False, scaled=("scale_embedding", False),
        ),
    ),
    **_all("audioflamingo3_encoder qwen2_audio_encoder voxtral_encoder moss_transcribe_diarize_audio", _WHISPER),
    **_all("qwen2_5_omni_audio_encoder qwen3_omni_moe_audio_encoder", _AUDIO),
    "qwen3_asr_encoder": replace(
        _AUDIO, length=("max_position_embeddings",), counted="chunks",
        notes=(RESTARTS,),
    ),
}  # fmt: skip

SIDES: dict[str, dict[str, Any]] = {
    side: {
        "width": ("d_model", "hidden_size"),
        "depth": (f"{side}_layers",),
        "heads": (f"{side}_attention_heads",),
    }
    for side in ("encoder", "decoder")
}
"""The names of sizes on both sides of an encoder-decoder."""


@dataclass(frozen=True)
class Both:
    """Hold the rows of an encoder and a decoder, whose sizes have the names of `SIDES`."""

    encoder: Tokens
    decoder: Tokens


def _both(row: Tokens, **decoder: Any) -> Both:
    sides = {side: replace(row, **SIDES[side]) for side in SIDES}
    return Both(sides["encoder"], replace(sides["decoder"], causal=True, **decoder))


_BART = _both(Tokens(more=2, offset=2, scaled=("scale_embedding", False)))
_M2M = _both(Tokens(offset="padding", padding="zeros", counted="tokens", sines=_FAIRSEQ, ends=False,
                    scaled=("scale_embedding", True)))  # fmt: skip
_MARIAN = _both(Tokens(sines=(("layout", "concatenated"),), scaled=("scale_embedding", False)))

BOTH: dict[str, Both] = {
    **dict.fromkeys(("bart", "mbart", "plbart", "mvp"), _BART),
    **dict.fromkeys(("blenderbot", "blenderbot-small"), _both(Tokens(scaled=("scale_embedding", False)))),
    "bigbird_pegasus": _both(
        Tokens(
            scaled=("scale_embedding", True),
            notes=("attention_type block_sparse attends within blocks: Situs has the positions alone",),
        ),
        notes=(),
    ),
    "led": Both(
        replace(_both(Tokens(length=("max_encoder_position_embeddings",), layers="longformer")).encoder),
        _both(Tokens(length=("max_decoder_position_embeddings",))).decoder,
    ),
    **dict.fromkeys(("m2m_100", "nllb-moe"), _M2M),
    "fsmt": _M2M,
    "speech_to_text": Both(
        replace(_M2M.encoder, length=("max_source_positions",)),
        replace(_M2M.decoder, length=("max_target_positions",)),
    ),
    **dict.fromkeys(("marian", "pegasus"), _MARIAN),
    "pegasus_x": _both(Tokens(sines=_FAIRSEQ, ends=False, scaled=("scale_embedding", True))),
    "whisper": Both(
        replace(_both(_AUDIO).encoder),
        replace(_both(Tokens(length=("max_target_positions",), scaled=("scale_embedding", False))).decoder),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Patches:
    """Hold what is particular to stacks of patches that have a table.

    prefix: rows before those of the patches; or the setting that counts them.
    size: how the grid is told: by the size of an image and of its patches, by the setting that counts patches, or by
        the bins and frames of a spectrogram.
    image: the setting that holds the size of an image.
    dim: channels of a head, where no setting counts heads.
    when: the setting that switches the table on.
    otherwise: the setting that replaces the table by sines of both coordinates.
    also: settings of windows, which the notes tell of.
    """

    prefix: int | str = 1
    width: tuple[str, ...] = ("hidden_size",)
    depth: tuple[str, ...] = ("num_hidden_layers",)
    heads: tuple[str, ...] = ("num_attention_heads",)
    size: Literal["image", "num_patches", "num_position_embeddings", "spectrogram"] = "image"
    image: str = "image_size"
    dim: int | None = None
    when: str = ""
    otherwise: str = ""
    also: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


_REGISTERS = "registers come behind the class token and have no row"
_FIRST = "the first row is of a class token that the model does not have"
_BUCKETS = "an image of another size takes the rows nearest to where its patches lie, not rows between them"

PATCHES: dict[str, Patches] = {
    **dict.fromkeys(
        (
            "vit", "vit_msn", "dinov2", "clip_vision_model", "altclip_vision_model", "chinese_clip_vision_model",
            "clipseg_vision_model", "metaclip_2_vision_model", "blip_vision_model", "blip_2_vision_model",
            "instructblip_vision_model", "instructblipvideo_vision_model", "flava_image_model", "git_vision_model",
            "kosmos_2_vision_model", "owlvit_vision_model", "owlv2_vision_model", "xclip_vision_model", "mgp-str",
        ),
        Patches(),
    ),
    "vit_mae": Patches(notes=("the table is that of sines and cosines, which a checkpoint holds",)),
    "dinov2_with_registers": Patches(notes=(_REGISTERS,)),
    "tipsv2_vision_model": Patches(notes=(_REGISTERS,)),
    "deit": Patches(prefix=2),
    "pixio": Patches(prefix="n_cls_tokens"),
    "internvl_vision": Patches(when="use_absolute_position_embeddings"),
    "qianfan_ocr_vision": Patches(when="use_absolute_position_embeddings"),
    **dict.fromkeys(
        (
            "siglip_vision_model", "ijepa", "groupvit_vision_model", "ovis2_vision", "janus_vision_model",
            "phi4_multimodal_vision",
        ),
        Patches(prefix=0),
    ),
    **dict.fromkeys(
        (
            "idefics2_vision", "idefics3_vision", "smolvlm_vision", "minicpm_ocr_vision", "minicpmv4_6_vision",
            "minicpmv4_7_vision",
        ),
        Patches(prefix=0, notes=(_BUCKETS,)),
    ),
    **dict.fromkeys(("eomt", "videomt"), Patches(prefix=0, notes=("the class token and registers have no row",))),
    "aimv2_vision_model": Patches(prefix=0, otherwise="is_native"),
    "audio-spectrogram-transformer": Patches(prefix=2, size="spectrogram"),
    "bridgetower_vision_model": Patches(dim=64),
    "glm_image_vision": Patches(
        prefix=0, depth=("num_hidden_layers", "depth"), heads=("num_attention_heads", "num_heads"),
        notes=("an image of another size has rows between those of the table, bilinear from edge to edge",),
    ),
    "hunyuan_vl_vision": Patches(image="max_image_size", notes=(_FIRST,)),
    "lw_detr_vit": Patches(
        image="pretrain_image_size", when="use_absolute_position_embeddings",
        notes=(_FIRST, "layers of window_block_indices attend within windows, others to all"),
        also=("num_windows", "num_windows_side", "window_block_indices"),
    ),
    "molmo2_vision": Patches(prefix=0, size="num_position_embeddings"),
    "rf_detr_dinov2": Patches(
        notes=("images are cut into num_windows by num_windows, each with a class token",),
        also=("num_windows", "window_block_indexes", "window_block_indices"),
    ),
    "siglip2_vision_model": Patches(prefix=0, size="num_patches"),
    "cosmos3_edge_vision": Patches(prefix=0, size="num_patches"),
}  # fmt: skip

RECURRENT = ("mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm")
"""Models without attention, whose state keeps tokens in order."""

CONVOLVED = {
    **dict.fromkeys(("wav2vec2", "hubert", "sew", "unispeech", "unispeech-sat"), "num_conv_pos_embeddings"),
    "data2vec-audio": "conv_pos_kernel_size",
}
"""Speech models with a convolution at the input, and the setting that holds its span."""
