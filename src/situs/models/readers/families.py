"""The table of families: what a model type does otherwise than most, one row for each exception.

Most models rotate halves of their leading channels in every layer and attend causally: `Family()` is that rule, which
reads model types that are not in the table too. All types that are in it are compared with transformers by the tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from situs.models.readers.schedule import Behind, Cycle, Every, Indices, Listed, Numbered, Pattern, Period, Rule, Same

Rotates = Literal["all", "sliding", "sliding, or all without a window", "no_rope_layers", "layer_rope_theta", "none"]


_ALIKE = Same()


@dataclass(frozen=True)
class Family:
    """Hold what is particular to some model types.

    interleaved: whether neighbouring channels are pairs; or the setting that says so.
    partial: whether rope_type default honours partial_rotary_factor.
    latent: whether attention is latent: rotated channels are the last qk_rope_head_dim of a head.
    learned: whether frequencies are multiplied by learned numbers.
    rotated: the setting that counts the channels that are rotated, where it is read.
    wide: channels of a head in layers of full attention, where global_head_dim is left out.
    layers: the setting that counts layers, and how many each of it is.
    inner: whether settings of attention stand in an object of their own.
    schedule: which layers slide, where layer_types is not written.
    rotates: which layers rotate at all.
    when: the setting that switches rotation on, with the value that does.
    by_type: whether rope parameters are given by type of layer.
    labels: names that rope parameters have instead of those of layer types.
    bases: for rope parameters by layer type, the older settings that hold their bases.
    scaled: the types of layers that the older rope_scaling is for.
    magnitude: the attention_factor of an older rope_scaling of YaRN that says none.
    alpha: whether rope_type dynamic raises the base by a power of alpha, at every length.
    rope_types: those that the model type has, where they are not all.
    per_layer: whether the older settings list a base and a share for each layer.
    scale: of the softmax: a number, or the setting that holds it or the reciprocal of its square.
    scale_by: what the channels of a head are divided by in a scale that goes by them.
    sinks: whether layers have sinks, all or sliding ones.
    sliding_keys: how many times as many heads of keys sliding layers have.
    normed_by: the setting that switches the norm on, in layers that rotate.
    scaled_layers: the setting that lists the layers whose frequencies are scaled.
    window: the settings that hold the window.
    spans: what it counts: the keys that a query sees, itself included; half of them; or how far it sees to each side.
    compresses: whether keys are values too, and layers cache the window alone and an entry for several tokens.
    longest: the setting that says how long texts are where max_position_embeddings says less.
    """

    interleaved: bool | str = False
    partial: bool = False
    latent: bool = False
    reverse: bool = False
    learned: bool = False
    rotated: str | None = None
    wide: int | None = None
    layers: tuple[str, int] = ("num_hidden_layers", 1)
    inner: bool = False
    schedule: Rule = _ALIKE
    rotates: Rotates = "all"
    when: tuple[str, Any] | None = None
    by_type: bool = False
    labels: tuple[tuple[str, str], ...] = ()
    bases: tuple[tuple[str, tuple[str, ...]], ...] = ()
    scaled: tuple[str, ...] = ("full_attention",)
    magnitude: float | None = None
    alpha: bool = False
    rope_types: tuple[str, ...] = ()
    per_layer: bool = False
    window: tuple[str, ...] = ("sliding_window",)
    spans: Literal["keys", "half", "half of each side", "each side"] = "keys"
    scale: tuple[str, Literal["factor", "square"]] | float | None = None
    scale_by: int = 1
    softcap: str | None = None
    sinks: bool | Literal["sliding"] = False
    sliding_keys: int = 1
    causal: bool = True
    temperature: Literal["llama4", "ministral3", "beam", "learned"] | None = None
    norm: Literal["before", "after"] | None = None
    normed_by: str | None = None
    scaled_layers: str | None = None
    sections: tuple[Literal["contiguous", "interleaved", "ernie"], tuple[int, ...]] | None = None
    values: Literal["rotated", "rotated and back"] | None = None
    compresses: bool = False
    longest: str | None = None


GENERAL = Family()

_GEMMA = (("full_attention", ("rope_theta",)), ("sliding_attention", ("rope_local_base_freq",)))
_MODERN = (("full_attention", ("global_rope_theta",)), ("sliding_attention", ("local_rope_theta",)))
_BOTH = (("full_attention", ("rope_theta",)), ("sliding_attention", ("rope_theta",)))
_PATTERN = ("sliding_window_pattern", "_sliding_window_pattern")
_EVERY_SIXTH = Every(6, _PATTERN)


def _rows(*rows: tuple[str, Mapping[str, Any]]) -> dict[str, Family]:
    found: dict[str, Family] = {}
    for names, settings in rows:
        for name in names.split():
            found[name] = replace(found.get(name, GENERAL), **settings)
    return found


FAMILIES = _rows(
    # as most
    (
        "apertus arcee aria_text bitnet chameleon csm csm_depth_decoder_model deepseek_ocr2_text dia_decoder "
        "diffllama doge emu3_text_model evolla falcon_h1 flex_olmo gemma gradium_phonon_tts higgs_audio_v2 "
        "hrm_text hy_v3 idefics jais2 jetmoe kyutai_speech_to_text llama mimi mimi_decoder mimi_encoder mistral "
        "mixtral mllama_text_model moshi olmo olmo2 olmoe phimoe pocket_tts pocket_tts_audio_tokenizer "
        "pocket_tts_audio_tokenizer_decoder pocket_tts_audio_tokenizer_encoder qwen2_5_omni_dit qwen3_moe "
        "qwen3_omni_moe_talker_text seed_oss starcoder2 timesfm2_5 voxtral_realtime_encoder voxtral_realtime_text",
        {},
    ),
    # how pairs are laid out
    (
        "blt_global_transformer blt_local_decoder blt_local_encoder blt_patcher cohere cohere2 cohere2_moe deepseek_v2 "
        "deepseek_v4 ernie4_5 ernie4_5_moe ernie4_5_vl_moe_text glm glm4 glm4v_text glm_ocr_text helium llama4_text "
        "mistral_large4_text moonshine moonshine_streaming openai_privacy_filter pe_audio_encoder "
        "pe_audio_video_encoder pe_video_encoder bailing_hybrid glm_moe_dsa longcat_flash deepseek_v32 axk2",
        {"interleaved": True},
    ),
    ("deepseek_v3 axk1 glm4_moe_lite mistral4 youtu", {"interleaved": "rope_interleave"}),
    ("nanochat", {"reverse": True}),
    ("minimax_m2", {"rotated": "rotary_dim"}),
    ("dbrx", {"inner": True}),
    ("cohere", {"longest": "model_max_length"}),
    ("molmo2_text", {"scaled_layers": "rope_scaling_layers"}),
    ("longcat_flash", {"layers": ("num_layers", 2)}),
    # how many channels are rotated
    (
        "bamba glm glm4 glm4_moe glm4_moe_lite glm4v_moe_text glm4v_text glm_image_text glm_ocr_text glmasr_encoder "
        "gpt_neox gpt_neox_japanese laguna mimo_v2_flash minimax_m2 minimax_m3_vl_text mistral4 moonshine "
        "moonshine_streaming nemotron nemotron3_5_transcribe_asr_audio nemotron3_5_transcribe_word_timestamp "
        "nemotron3_diarization_audio neomme persimmon phi phi3 phi4_multimodal qwen3_5_moe_text qwen3_5_text "
        "qwen3_next qwen4_exp_text recurrent_gemma solar_open stablelm step3p5 zaya",
        {"partial": True},
    ),
    (
        "axk1 axk2 bailing_hybrid deepseek_v2 deepseek_v3 deepseek_v32 glm4_moe_lite glm_moe_dsa hy_v4 kimi_linear "
        "longcat_flash minicpm3 mistral4 mistral_large4_text youtu",
        {"latent": True},
    ),
    # which layers attend how
    ("afmoe", {"schedule": Every(4, ("global_attn_every_n_layers",)), "rotates": "sliding"}),
    ("beam", {"schedule": Every(6, also=(-1,)), "by_type": True, "temperature": "beam"}),
    ("cohere2", {"schedule": Every(4, ("sliding_window_pattern",)), "rotates": "sliding"}),
    (
        "cohere2_moe",
        {"schedule": Every(4, ("sliding_window_pattern",), before="first_k_dense_replace"), "rotates": "sliding"},
    ),
    ("cwm granite_swa granitemoe_swa", {"schedule": Every(4, at=0)}),
    (
        "qwen2 qwen3 qwen2_moe qwen2_vl_text qwen2_5_vl_text qwen2_5_omni_text qwen2_5_omni_talker "
        "deepseek_ocr2_encoder qwen3_omni_moe_talker_code_predictor",
        {"schedule": Behind()},
    ),
    ("dots1", {"schedule": Behind(switch="")}),
    (
        "exaone4 exaone_moe",
        {"schedule": Every(4, ("sliding_window_pattern",)), "rotates": "sliding, or all without a window"},
    ),
    ("flint", {"schedule": Every(4, at=1, also=(0, -1)), "rotates": "sliding", "sinks": True}),
    ("kolibri1", {"schedule": Every(5), "rotates": "sliding, or all without a window"}),
    (
        "gemma2 t5_gemma_module vaultgemma",
        {
            "schedule": Every(2),
            "scale": ("query_pre_attn_scalar", "square"),
            "softcap": "attn_logit_softcapping",
        },
    ),
    (
        "gemma3_text t5gemma2_text t5gemma2_decoder",
        {
            "schedule": _EVERY_SIXTH,
            "by_type": True,
            "bases": _GEMMA,
            "scale": ("query_pre_attn_scalar", "square"),
            "softcap": "attn_logit_softcapping",
        },
    ),
    ("gemma3n_text", {"schedule": Every(5), "by_type": True, "bases": _GEMMA, "scale": 1.0}),
    (
        "gemma4_text gemma4_unified_text diffusion_gemma_text",
        {"schedule": Every(6, also=(-1,)), "by_type": True, "scale": 1.0},
    ),
    (
        "embedding_gemma2_text",
        {"schedule": Every(6, _PATTERN, also=(-1,)), "by_type": True, "scale": 1.0, "causal": False},
    ),
    ("gemma4_text gemma4_unified_text diffusion_gemma_text embedding_gemma2_text", {"wide": 512}),
    ("gpt_oss", {"schedule": Every(2), "sinks": True}),
    ("laguna mellum step3p5", {"schedule": Same("full_attention"), "by_type": True}),
    ("step3p5", {"scale": ("query_pre_attn_scalar", "square"), "per_layer": True}),
    (
        "mimo_v2_flash",
        {"schedule": Every(6, also=(0,)), "by_type": True, "window": ("sliding_window", "sliding_window_size")},
    ),
    ("mimo_v2_flash", {"sinks": "sliding", "sliding_keys": 2}),
    ("minimax", {"schedule": Every(2, rest="linear_attention", at=0)}),
    ("ministral", {"schedule": Same("sliding_attention")}),
    (
        "modernbert modernbert-decoder",
        {
            "schedule": Every(3, ("global_attn_every_n_layers",), at=0),
            "by_type": True,
            "bases": _MODERN,
            "window": ("local_attention",),
            "spans": "half of each side",
        },
    ),
    ("modernbert-decoder", {"spans": "half"}),
    ("embedding_gemma2_text neomme ultrabert", {"spans": "each side"}),
    ("muse_glimmer_text", {"schedule": Every(4, at=0, backwards=True), "rotates": "layer_rope_theta"}),
    ("muse_spark_text", {"schedule": Every(4, at=0, backwards=True), "rotates": "layer_rope_theta"}),
    ("muse_glimmer_assistant", {"schedule": Same("sliding_attention")}),
    ("neomme", {"schedule": Every(6, also=(-1,)), "by_type": True, "causal": False}),
    ("olmo3", {"schedule": Every(4), "by_type": True, "bases": _BOTH}),
    (
        "olmo_hybrid qwen3_next qwen3_5_text qwen3_5_moe_text",
        {"schedule": Every(4, ("full_attention_interval",), rest="linear_attention")},
    ),
    (
        "qwen4_exp_text",
        {"schedule": Every(4, ("full_attention_interval",), one="indexed_attention", rest="linear_attention")},
    ),
    ("ultrabert", {"schedule": Every(3), "by_type": True, "causal": False}),
    ("zaya", {"schedule": Same("hybrid"), "by_type": True}),
    ("unlimited_ocr_text", {"schedule": Same("reference_sliding_attention")}),
    ("axk2 deepseek_v32 glm_moe_dsa hy_v4", {"schedule": Same("indexed_attention")}),
    ("bailing_hybrid", {"schedule": Every(6, ("layer_group_size",), rest="linear_attention")}),
    ("lfm2 lfm2_moe", {"schedule": Indices("full_attn_idxs", "conv")}),
    ("bamba", {"schedule": Indices("attn_layer_indices", "linear_attention", without="linear_attention")}),
    ("jamba", {"schedule": Period(), "rotates": "none"}),
    (
        "recurrent_gemma",
        {
            "schedule": Cycle("block_types", (("recurrent", "linear_attention"), ("attention", "sliding_attention"))),
            "window": ("attention_window_size",),
        },
    ),
    ("minimax_m3_vl_text", {"schedule": Same("full_attention")}),
    # which layers rotate
    ("smollm3", {"rotates": "no_rope_layers", "schedule": Same("full_attention")}),
    (
        "llama4_text",
        {
            "rotates": "no_rope_layers",
            "schedule": Every(4, ("no_rope_layer_interval",), rest="chunked_attention"),
            "temperature": "llama4",
            "norm": "after",
            "normed_by": "use_qk_norm",
        },
    ),
    ("granite_swa granitemoe_swa", {"rotates": "layer_rope_theta", "sinks": True}),
    ("granitemoehybrid", {"when": ("position_embedding_type", "rope"), "schedule": Same("linear_attention")}),
    ("zamba2", {"when": ("use_mem_rope", True)}),
    ("moshi_depth", {"rotates": "none"}),
    ("zamba", {"rotates": "none", "schedule": Same("hybrid", ("attn_layer_period", "attn_layer_offset"))}),
    ("glm5_next_text", {"latent": True, "rotates": "none"}),
    ("glm5_next_text", {"schedule": Every(4, one="indexed_attention", rest="linear_attention")}),
    (
        "nemotron_h",
        {
            "rotates": "none",
            "schedule": Pattern(
                "hybrid_override_pattern",
                (("M", "linear_attention"), ("E", "moe"), ("*", "full_attention"), ("-", "mlp")),
                ("linear_attention", "moe", "full_attention", "mlp"),
            ),
        },
    ),
    ("kimi_linear", {"rotates": "none", "schedule": Numbered("linear_attn_config", "full_attn_layers")}),
    # what else scores get
    ("zamba zamba2", {"scale_by": 2}),
    ("granite granitemoe granitemoeshared granitemoehybrid granite_swa granitemoe_swa granite4_vision_text hyperclovax",
     {"scale": ("attention_multiplier", "factor")}),
    ("ministral3 mistral4", {"temperature": "ministral3"}),
    ("hy_v4 openai_privacy_filter", {"sinks": True}),
    ("hunyuan_v1_dense hunyuan_v1_moe hunyuan_vl_text", {"norm": "after", "alpha": True}),
    ("phi3 phi4_multimodal", {"rope_types": ("default", "longrope")}),
    (
        "deepseek_v4",
        {
            "schedule": Listed(
                "compress_ratios",
                ((0, "sliding_attention"), (4, "compressed_sparse_attention"), (128, "heavily_compressed_attention")),
                Every(2, one="compressed_sparse_attention", rest="heavily_compressed_attention", at=1, behind=2),
            ),
            "by_type": True,
            "partial": True,
            "labels": (
                ("sliding_attention", "main"),
                ("compressed_sparse_attention", "compress"),
                ("heavily_compressed_attention", "compress"),
            ),
            "bases": (
                ("sliding_attention", ("rope_theta",)),
                ("compressed_sparse_attention", ("compress_rope_theta",)),
                ("heavily_compressed_attention", ("compress_rope_theta",)),
            ),
            "scaled": ("compressed_sparse_attention", "heavily_compressed_attention"),
            "magnitude": 1.0,
            "rotated": "qk_rope_head_dim",
            "values": "rotated and back",
            "sinks": True,
            "compresses": True,
        },
    ),
    (
        "mistral_large4_text",
        {"learned": True, "temperature": "learned", "rotates": "no_rope_layers", "schedule": Same("indexed_attention")},
    ),
    ("cohere_compass_text", {"schedule": Same("full_attention"), "by_type": True}),
    ("hunyuan_vl_text", {"sections": ("contiguous", ())}),
    # which see what comes later
    (
        "dia_encoder esmc eurobert gte jina_embeddings_v3 lasr_encoder glmasr_encoder modernbert nomic_bert "
        "muse_glimmer_assistant nemotron3_5_transcribe_asr_audio nemotron3_5_transcribe_word_timestamp "
        "nemotron3_diarization_audio openai_privacy_filter pe_audio_encoder pe_audio_video_encoder pe_video_encoder "
        "t5gemma2_text xcodec2 neucodec",
        {"causal": False},
    ),
    # coordinates of images beside text
    (
        "qwen2_vl_text qwen2_5_vl_text qwen2_5_omni_text qwen2_5_omni_talker paddleocr_vl_text",
        {"sections": ("contiguous", (16, 24, 24))},
    ),
    ("glm4v_text glm4v_moe_text glm_ocr_text glm_image_text", {"sections": ("contiguous", (8, 12, 12))}),
    (
        "qwen3_vl_text qwen3_vl_moe_text qwen3_omni_moe_text cosmos3_edge_text cohere_compass_text",
        {"sections": ("interleaved", (24, 20, 20))},
    ),
    ("qwen3_5_text qwen3_5_moe_text qwen4_exp_text", {"sections": ("interleaved", (11, 11, 10))}),
    ("ernie4_5_vl_moe_text", {"sections": ("ernie", (22, 22, 20))}),
)  # fmt: skip


def family_of(model_type: str) -> Family:
    """What is particular to a model type; the general rule where nothing is."""
    return FAMILIES.get(model_type, GENERAL)
