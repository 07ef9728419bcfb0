"""Which call of Situs stands for the positions of a released model: a row per mechanism, with the models that have it.

Read by ``situs show`` and by docs/which-call.md; needs no torch. Calls are Python; tests run all of them, and compare
the frequencies of each model type with those of transformers. Names in calls stand for what a ``config.json`` says:

    head_dim, rotary_dim            channels of a head, and those that are rotated (head_dim x partial_rotary_factor)
    qk_head_dim, qk_rope_head_dim   the same for latent attention
    rope_theta                      base of the frequencies
    factor, original_length, ...    of a scaling
    sinks                           a layer's parameter
    relative, gate, bias_gate       features of its tokens
"""

from __future__ import annotations

from situs.registry.family import Family as Family
from situs.registry.other_families import OTHERS
from situs.registry.spelling import fold

FAMILIES = (
    Family(
        "Llama, Mistral, Qwen 2 and 3, Gemma, OLMo, Granite, StarCoder 2 and most others",
        "arcee aria_text bitnet chameleon csm csm_depth_decoder_model deepseek_ocr2_text dia_decoder dia_encoder "
        "diffllama dots1 emu3_text_model esmc eurobert falcon_h1 flex_olmo gemma gradium_phonon_tts granite "
        "granitemoe granitemoeshared gte hrm_text hy_v3 hyperclovax idefics jais2 jetmoe kyutai_speech_to_text "
        "lasr_encoder lfm2 lfm2_moe llama mimi minimax ministral mistral mixtral "
        "mllama_text_model moshi neucodec olmo olmo2 olmoe pocket_tts qwen2 qwen2_moe qwen3 qwen3_moe seed_oss "
        "starcoder2 timesfm2_5 unlimited_ocr_text voxtral_realtime_encoder voxtral_realtime_text xcodec2",
        "situs.Rotary(head_dim=head_dim, base=rope_theta)",
        note="sliding layers: window=sliding_window; Granite and HyperCLOVA X: scale=attention_multiplier; TimesFM 2.5 "
        "multiplies queries by a learned scale of its own: scale=1.0",
    ),
    Family(
        "Llama 3.1 to 3.3, Apertus, CWM",
        "apertus cwm higgs_audio_v2",
        "situs.Rotary(head_dim=head_dim, base=rope_theta, scaling=situs.Llama3Scaling(factor=factor, "
        "original_length=original_length, low_frequency_factor=low_freq_factor, "
        "high_frequency_factor=high_freq_factor))",
        note="also model type llama with rope_type llama3; original_length is original_max_position_embeddings",
    ),
    Family(
        "Any rotary model with rope_type yarn, such as Qwen 3 beyond 32,768",
        "",
        "situs.Rotary(head_dim=head_dim, base=rope_theta, scaling=situs.YaRN(factor=4.0, original_length=32768))",
        note="original_length is original_max_position_embeddings; beta_fast, beta_slow, truncate, attention_factor, "
        "mscale and mscale_all_dim have the same names; with mscale_all_dim, and without latent attention: "
        'mscale_dialect="ministral3"',
    ),
    Family(
        "Any rotary model with rope_type linear or dynamic",
        "",
        "situs.Rotary(head_dim=head_dim, base=rope_theta, scaling=situs.LinearScaling(factor=2.0))",
        note="linear; for dynamic, scaling=situs.DynamicNTKScaling(factor=2.0, original_length=4096), where "
        "original_length is max_position_embeddings",
    ),
    Family(
        "GPT-NeoX, Pythia, Phi, Phi-2, StableLM, Nemotron, Persimmon, GLM 4.5, MiniMax M2, Bamba",
        "bamba glmasr_encoder gpt_neox gpt_neox_japanese minimax_m2 nemotron nemotron3_5_transcribe_asr_audio "
        "nemotron3_diarization_audio olmo_hybrid persimmon phi qwen3_next recurrent_gemma solar_open stablelm",
        "situs.Rotary(head_dim=head_dim, rotary_dim=rotary_dim, base=rope_theta)",
    ),
    Family(
        "Cohere Command R, ERNIE 4.5, Helium, BLT",
        "blt_global_transformer blt_local_decoder blt_local_encoder blt_patcher cohere ernie4_5 ernie4_5_moe helium",
        'situs.Rotary(head_dim=head_dim, base=rope_theta, pairing="interleaved")',
    ),
    Family(
        "GPT-J, CodeGen",
        "",
        'situs.Rotary(head_dim=256, rotary_dim=64, pairing="interleaved")',
        note="model types gptj and codegen, whose base is fixed at 10,000",
    ),
    Family(
        "GLM 4, Moonshine",
        "glm glm4 moonshine",
        'situs.Rotary(head_dim=head_dim, rotary_dim=rotary_dim, base=rope_theta, pairing="interleaved")',
    ),
    Family(
        "DeepSeek V2 and V3, Kimi K2, GLM 4.7 Flash, LongCat, Youtu",
        "deepseek_v2 deepseek_v3 deepseek_v32 glm4_moe_lite glm_moe_dsa longcat_flash youtu axk1",
        'situs.Rotary(head_dim=qk_head_dim, rotary_dim=qk_rope_head_dim, channels="trailing", base=rope_theta, '
        'pairing="interleaved")',
        note="q and k of a head are the part without positions and the rotated one, joined; all heads share the "
        "rotated part of k, and encoding.join_keys gives keys that are joined and rotated; with rope_type yarn: "
        "scaling=situs.YaRN(factor=40.0, original_length=4096, mscale=1.0, mscale_all_dim=1.0), whose factor of the "
        'softmax scale attend multiplies by; with rope_interleave false: pairing="halves"',
    ),
    Family(
        "MiniCPM 3, Hunyuan V4",
        "minicpm3 hy_v4",
        'situs.Rotary(head_dim=qk_head_dim, rotary_dim=qk_rope_head_dim, channels="trailing", base=rope_theta)',
        note="keys as for DeepSeek V3; Hunyuan V4: sinks=sinks",
    ),
    Family(
        "DeepSeek V4",
        "",
        '[situs.Rotary(head_dim=128, rotary_dim=64, channels="trailing", pairing="interleaved"), '
        'situs.RotaryValue(head_dim=128, rotary_dim=64, channels="trailing", pairing="interleaved")]',
        "causal=True, sinks=sinks",
        note="model type deepseek_v4: one vector is key and value, so that values are rotated too, and the output is "
        "rotated back",
    ),
    Family(
        "Mistral 4",
        "",
        '[situs.Rotary(head_dim=128, rotary_dim=64, channels="trailing", pairing="interleaved", '
        "scaling=situs.YaRN(factor=128.0, original_length=8192, mscale=1.0, mscale_all_dim=1.0)), "
        'situs.Temperature(dialect="ministral3", original_length=8192, factor=0.1)]',
        note="model type mistral4; keys as for DeepSeek V3; original_length is original_max_position_embeddings, the "
        "temperature's factor llama_4_scaling_beta",
    ),
    Family(
        "Ministral 3",
        "",
        "[situs.Rotary(head_dim=128, base=1e6, scaling=situs.YaRN(factor=16.0, original_length=16384, mscale=1.0, "
        'mscale_all_dim=1.0, mscale_dialect="ministral3")), situs.Temperature(dialect="ministral3", '
        "original_length=16384, factor=0.1)]",
        note="model type ministral3; its mscales change cosines and sines, not the softmax; original_length is "
        "original_max_position_embeddings, the temperature's factor llama_4_scaling_beta",
    ),
    Family(
        "Mistral Large 4",
        "",
        '[situs.LeRoPE(head_dim=128, rotary_dim=64, channels="trailing", scaling=situs.YaRN(factor=2048.0, '
        'original_length=512, attention_factor=1.0)), situs.Temperature(dialect="ssmax", num_heads=8)]',
        note="model type mistral_large4_text, layers with rotary; the others have Temperature alone; keys as for "
        "DeepSeek V3; its top-k selection of keys is a mask",
    ),
    Family(
        "GPT-OSS",
        "gpt_oss",
        "situs.Rotary(head_dim=head_dim, base=rope_theta, scaling=situs.YaRN(factor=32.0, original_length=4096, "
        "truncate=False))",
        "causal=True, window=128, sinks=sinks",
        note="sliding layers; full ones: no window; sinks is a layer's parameter, a number for each head",
    ),
    Family(
        "OpenAI Privacy Filter",
        "openai_privacy_filter",
        'situs.Rotary(head_dim=head_dim, base=rope_theta, pairing="interleaved", scaling=situs.YaRN(factor=32.0, '
        "original_length=4096, truncate=False))",
        "causal=False, window=129, sinks=sinks",
        note="window is sliding_window + 1: without causal=True it counts to both sides",
    ),
    Family(
        "Granite with sliding windows",
        "granite_swa granitemoe_swa",
        "situs.Rotary(head_dim=head_dim, base=rope_theta)",
        "causal=True, window=128, sinks=sinks",
        note="sliding layers; full ones: no window; layers whose layer_rope_theta is 0: situs.NoPE(); "
        "scale=attention_multiplier",
    ),
    Family(
        "Gemma 2, VaultGemma",
        "gemma2 vaultgemma t5_gemma_module",
        "situs.Rotary(head_dim=head_dim, base=rope_theta)",
        "causal=True, softcap=50.0, window=4096",
        note="sliding layers; full ones: no window; scale=query_pre_attn_scalar**-0.5; encoders of T5Gemma: "
        "window=sliding_window + 1, which without causal=True counts to both sides",
    ),
    Family(
        "Gemma 3, T5Gemma 2, OLMo 3",
        "",
        "situs.Rotary(head_dim=256, base=10000.0)",
        "causal=True, window=512",
        note="sliding layers of model types gemma3_text, t5gemma2_text and olmo3; full ones: no window; "
        "rope_parameters has a base and a scaling for each of both (Gemma 3's full layers: base=1e6); Gemma 3 and "
        "T5Gemma 2: scale=query_pre_attn_scalar**-0.5; encoders of T5Gemma 2 see sliding_window // 2 keys ahead "
        "and (sliding_window - 1) // 2 back: where these differ, mask= instead of window=",
    ),
    Family(
        "ModernBERT",
        "",
        "situs.Rotary(head_dim=64, base=10000.0)",
        "causal=False, window=65",
        note="sliding layers of model type modernbert, where window is local_attention // 2 + 1: without causal=True "
        "it counts to both sides; full ones: base=160000.0, no window",
    ),
    Family(
        "Gemma 4",
        "",
        "situs.Rotary(head_dim=512, base=1e6, scaling=situs.ProportionalScaling(fraction=0.25))",
        "causal=True, scale=1.0",
        note="full layers of model type gemma4_text, where head_dim is global_head_dim and fraction "
        "partial_rotary_factor; sliding ones: situs.Rotary(head_dim=256), window=512; the softmax scale is 1 in all",
    ),
    Family(
        "Gemma 4's vision",
        "",
        'situs.Rotary(head_dim=64, base=100.0, split=situs.Axial(axes=2, halves="axis"))',
        note="model type gemma4_vision, whose positions are (x, y) and whose softmax scale is 1: "
        "positions=situs.Positions.explicit(situs.Positions.grid(4, 6).ids.flip(-1)), scale=1.0",
    ),
    Family(
        "Llama 4, layers with rotary",
        "llama4_text",
        'situs.Rotary(head_dim=head_dim, base=rope_theta, pairing="interleaved")',
        "causal=True, chunk=8192",
        note="chunk is attention_chunk_size; with rope_type llama3: scaling=situs.Llama3Scaling(...); with "
        "use_qk_norm, queries and keys are normalised, without weights, in these layers alone: before the rotation or "
        "behind it is the same",
    ),
    Family(
        "Llama 4, layers without rotary",
        "",
        'situs.Temperature(dialect="llama4", original_length=8192, factor=0.1)',
        note="layers that no_rope_layers marks with 0, where attn_temperature_tuning is on; original_length is "
        "floor_scale, factor attn_scale; no chunk; transformers counts padding on the left as positions here, Situs "
        "does not",
    ),
    Family(
        "Beam, full layers",
        "",
        'situs.Temperature(dialect="power", original_length=2048, factor=0.1)',
        note="sliding layers: situs.Rotary(head_dim=128), window=512",
    ),
    Family(
        "Inkling",
        "",
        "situs.ProjectedBias(num_heads=8, rank=16, distances=1024, softmax_scale=1 / 64)",
        "causal=True, window=1024, features={'relative': relative}",
        note="sliding layers, where distances and window are sliding_window_size; full ones, without window: "
        "[situs.ProjectedBias(..., distances=rel_extent, tempered=True), situs.Temperature(dialect='inkling', "
        "original_length=log_scaling_n_floor, factor=log_scaling_alpha)], or the first alone if log_scaling_n_floor is "
        "not set; relative is what r_proj makes of the hidden states, (batch, heads, tokens, d_rel), rank is d_rel, "
        "softmax_scale 1 / head_dim; encoding.profiles is the checkpoint's rel_logits_proj.proj",
    ),
    Family(
        "Cohere 2, EXAONE 4, AFMoE, SmolLM 3, Kolibri, Flint: rotary on some layers",
        "",
        "situs.Rotary(head_dim=128, base=50000.0)",
        note="the other layers, most often the full ones: situs.NoPE(); for all layers at once: "
        "situs.schedule(['rotary', 'rotary', 'rotary', 'none'], num_layers=32, head_dim=128); Cohere 2: "
        'pairing="interleaved"',
    ),
    Family("Jamba, Nemotron H, Kimi Linear, Zamba: no positions", "", "situs.NoPE()"),
    Family(
        "Phi-3 and Phi-4 with 128k",
        "",
        "situs.Rotary(head_dim=96, scaling=situs.LongRoPE(factor=32.0, original_length=4096, short_factors=[1.0] * "
        "48, long_factors=[2.0] * 48))",
        note="model types phi3 and phimoe with rope_type longrope: short_factors and long_factors are the lists "
        "short_factor and long_factor, factor is max_position_embeddings / original_max_position_embeddings; Phi-MoE: "
        "short_mscale and long_mscale too",
    ),
    Family(
        "Hunyuan",
        "hunyuan_v1_dense hunyuan_v1_moe",
        "situs.Rotary(head_dim=head_dim, base=rope_theta)",
        note="with alpha: scaling=situs.NTKScaling(factor=alpha); queries and keys are normalised after the rotation: "
        'situs.Attention(qk_norm="after")',
    ),
    Family("nanochat", "nanochat", "situs.Rotary(head_dim=head_dim, base=rope_theta, reverse=True)"),
    Family(
        "Qwen2-VL, Qwen2.5-VL and Omni, PaddleOCR-VL",
        "paddleocr_vl_text qwen2_5_omni_text qwen2_5_vl_text qwen2_vl_text",
        "situs.Rotary(head_dim=head_dim, base=rope_theta, split=situs.Sections(sizes=(16, 24, 24)))",
        "causal=True, positions=situs.Positions.mixed([4, situs.Vision(1, 4, 6)])",
    ),
    Family(
        "Qwen3-VL, Qwen3-Omni",
        "qwen3_vl_text qwen3_vl_moe_text cosmos3_edge_text",
        "situs.Rotary(head_dim=head_dim, base=rope_theta, split=situs.Sections(sizes=(24, 20, 20), "
        'order="interleaved"))',
        "causal=True, positions=situs.Positions.mixed([4, situs.Vision(1, 4, 6)])",
    ),
    Family(
        "ERNIE 4.5 VL",
        "ernie4_5_vl_moe_text",
        'situs.Rotary(head_dim=head_dim, base=rope_theta, pairing="interleaved", split=situs.Sections(sizes=(20, 22, '
        '22), order="time_last"))',
        "causal=True, positions=situs.Positions.mixed([4, situs.Vision(1, 4, 6)])",
    ),
    Family(
        "Hunyuan VL",
        "hunyuan_vl_text",
        "situs.Rotary(head_dim=128, base=rope_theta, split=situs.Sections(sizes=(16, 16, 16, 16)))",
        note="sizes are xdrope_section; positions=situs.Positions.explicit(ids), where ids are (batch, tokens, 4): "
        "token, column, row, image; alpha and norms as for Hunyuan",
    ),
    Family(
        "Vision encoders of Qwen-VL, GLM-V, ERNIE, PaddleOCR, VideoLLaMA 3",
        "",
        "situs.Rotary(head_dim=80, split=situs.Axial(axes=2))",
        "positions=situs.Positions.grid(4, 6)",
        note="not Kimi K2.5's, whose pairs are column and row in turns: channels of its queries and keys have to be "
        "put into this order first",
    ),
    Family(
        "Pixtral",
        "",
        'situs.Rotary(head_dim=64, split=situs.Axial(axes=2, ladder="shared"))',
        "positions=situs.Positions.grid(4, 6)",
    ),
    Family(
        "Flux, Qwen-Image, HunyuanVideo",
        "",
        'situs.Rotary(head_dim=128, pairing="interleaved", split=situs.Axial(dims=(16, 56, 56)))',
        "positions=situs.Positions.grid(1, 4, 6, centred=(False, True, True))",
        note="Flux and HunyuanVideo count from 0: no centred; Wan: dims=(44, 42, 42)",
    ),
    Family(
        "DINOv3",
        "",
        "situs.Rotary(head_dim=64, base=100.0, split=situs.Axial(axes=2))",
        "positions=situs.Positions.grid(4, 6, normalised='each').scaled(6.283185307179586).prefixed(5)",
        note="of 4 x 6 patches; angles are those of 2 pi times the coordinates; 5 tokens, [CLS] and "
        "num_register_tokens registers, have no position",
    ),
    Family(
        "rope-vit, timm's RoPE-Mixed",
        "",
        "situs.RoPEMixed(head_dim=64, num_heads=8)",
        "positions=situs.Positions.grid(4, 6)",
    ),
    Family(
        "RoFormer",
        "",
        'situs.Rotary(head_dim=64, pairing="interleaved")',
        note="with rotary_value true, and CLVP: [situs.Rotary(...), situs.RotaryValue(..., rotate_back=False)], with "
        "the same options",
    ),
    *OTHERS,
)
"""Of several rows that name a model, each is for some of its layers."""


def methods_of(model: str) -> tuple[str, ...]:
    """List the encodings of a model, by its name, its model type, or what begins with one of them; none if unknown.

    >>> methods_of("gpt_oss"), methods_of("Llama 4"), methods_of("dinov3_vit"), methods_of("cake")
    (('rotary+yarn',), ('rotary', 'temperature'), ('rotary',), ())
    """
    wanted = fold(model)
    matched: dict[int, dict[str, None]] = {0: {}}  # length of what a row's name shares with the model's -> its methods
    for family in FAMILIES:
        names = map(fold, (*family.types, *family.models.replace(" and ", ", ").split(", ")))
        length = max(
            (len(name) for name in names if wanted == name or (len(name) > 3 and wanted.startswith(name))), default=0
        )
        if length:
            matched.setdefault(length, {}).update(dict.fromkeys(family.methods))
    found = matched[max(matched)]
    scaled = any(name.startswith("rotary+") for name in found)
    return tuple(name for name in found if not (scaled and name == "rotary"))
