"""The model types of transformers 5.22 that rotate or have no positions, and those with relative biases."""

_ROTARY = """
    afmoe apertus arcee aria_text axk1 axk2 bailing_hybrid bamba beam bitnet blt blt_global_transformer
    blt_local_decoder blt_local_encoder blt_patcher chameleon clvp_encoder codegen cohere cohere2 cohere2_moe
    cohere_compass_text cohere_compass_vision cosmos3_edge_text csm csm_depth_decoder_model cwm dbrx
    deepseek_ocr2_text deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v4 dia_decoder dia_encoder diffllama
    diffusion_gemma_text dinov3_vit doge dots1 edgetam_video efficientloftr embedding_gemma2_text emu3_text_model
    eomt_dinov3 ernie4_5 ernie4_5_moe ernie4_5_vl_moe_text ernie4_5_vl_moe_vision esm esmc esmfold2 eurobert evolla
    exaone4 exaone4_5_vision exaone_moe falcon falcon_h1 flex_olmo flint gemma gemma2 gemma3_text gemma3n_text
    gemma4_text gemma4_unified_text gemma4_vision glm glm4 glm4_moe glm4_moe_lite glm4v_moe_text glm4v_moe_vision
    glm4v_text glm4v_vision glm5_next_text glm5_next_vision glm_image_text glm_moe_dsa glm_ocr_text glm_ocr_vision
    glmasr_encoder gpt_neox gpt_neox_japanese gpt_oss gptj gradium_phonon_tts granite granite4_vision_text
    granite_swa granitemoe granitemoe_swa granitemoehybrid granitemoeshared gte helium higgs_audio_v2 hrm_text
    hunyuan_v1_dense hunyuan_v1_moe hunyuan_vl_text hy_v3 hy_v4 hyperclovax idefics jais2 jamba jetmoe
    jina_embeddings_v3 kimi_k25_vision kimi_linear kolibri1 kyutai_speech_to_text laguna lasr_encoder lfm2 lfm2_moe
    lightglue llama llama4_text llama4_vision_model longcat_flash mellum mimi mimi_decoder mimi_encoder
    mimo_v2_flash minicpm3 minimax minimax_m2 minimax_m3_vl_text minimax_m3_vl_vision ministral ministral3 mistral
    mistral4 mistral_large4_text mixtral mlcd_vision_model mllama_text_model modernbert modernbert-decoder
    molmo2_text moonshine moonshine_streaming moshi moshi_depth muse_glimmer_assistant muse_glimmer_text
    muse_glimmer_vision muse_spark_text muse_spark_vision musicflamingo nanochat nemotron
    nemotron3_5_transcribe_asr_audio nemotron3_5_transcribe_word_timestamp nemotron3_diarization_audio nemotron_h
    neomme neucodec nomic_bert olmo olmo2 olmo3 olmo_hybrid olmoe openai_privacy_filter paddleocr_vl_text
    paddleocr_vl_vision pe_audio_encoder pe_audio_video_encoder pe_video_encoder persimmon phi phi3 phi4_multimodal
    phimoe pixtral pocket_tts pocket_tts_audio_tokenizer pocket_tts_audio_tokenizer_decoder
    pocket_tts_audio_tokenizer_encoder qwen2 qwen2_5_omni_dit qwen2_5_omni_talker qwen2_5_omni_text
    qwen2_5_omni_vision_encoder qwen2_5_vl_text qwen2_5_vl_vision qwen2_moe qwen2_vl_text qwen2_vl_vision qwen3
    qwen3_5_moe_text qwen3_5_moe_vision qwen3_5_text qwen3_5_vision qwen3_moe qwen3_next
    qwen3_omni_moe_talker_code_predictor qwen3_omni_moe_talker_text qwen3_omni_moe_text
    qwen3_omni_moe_vision_encoder qwen3_vl_moe_text qwen3_vl_moe_vision qwen3_vl_text qwen3_vl_vision qwen4_exp_text
    qwen4_exp_vision recurrent_gemma reformer roformer sam2_video sam3_tracker_video sam3_vit_model sapiens2
    seamless_m4t seed_oss smollm3 solar_open stablelm starcoder2 step3p5 step3p5_vision t5_gemma_module
    t5gemma2_decoder t5gemma2_text timesfm2_5 ultrabert unlimited_ocr_text vaultgemma video_llama_3_vision vjepa2
    voxtral_realtime_encoder voxtral_realtime_text wav2vec2-bert wav2vec2-conformer xcodec2 youtu zamba zamba2 zaya
    """
_BIASES = """
    beit bloom clap_audio_model clap_text_model cpmant data2vec-vision deberta deberta-v2
    deepseek_ocr2_sam_vision_model donut-swin fastspeech2_conformer funnel gemma3n_audio gemma4_audio
    got_ocr2_vision granite_speech5_encoder granite_speech_encoder inkling_text layoutlm layoutlmv2 layoutlmv3 lilt
    longt5 maskformer-swin mpnet mpt mt5 nemotron_asr_streaming_encoder parakeet_encoder perceiver
    pix2struct_text_model pop2piano pp_doclayout_v2 pp_formulanet_vision prophetnet sam_hq_vision_model
    sam_vision_model seamless_m4t_v2 seggpt sew-d slanext_vision swin swin2sr swinv2 switch_transformers t5 udop
    umt5 unlimited_ocr_sam_vision_model unlimited_ocr_vision_encoder vitdet vits wavlm xlnet
    """

ROTARY = frozenset(_ROTARY.split())
BIASES = frozenset(_BIASES.split())
