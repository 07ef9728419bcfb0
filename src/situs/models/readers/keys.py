"""The names of settings: those that speak of positions, and the sizes that positions depend on.

A configuration holds many settings that nothing here reads. One that speaks of positions must be read or refused:
`POSITIONS` names all that transformers has, `is_positional` tells by its name whether an unknown one might.
"""

from __future__ import annotations

import re

_SIZES = """
    hidden_size num_attention_heads num_key_value_heads head_dim num_hidden_layers d_model n_embd n_head n_heads n_layer
    n_layers dim num_heads num_layers d_kv d_head kv_channels multi_query new_decoder_architecture num_kv_heads
    encoder_layers decoder_layers encoder_attention_heads decoder_attention_heads num_decoder_layers
    encoder_num_hidden_layers decoder_num_hidden_layers encoder_num_attention_heads decoder_num_attention_heads
    encoder_num_key_value_heads decoder_num_key_value_heads
    attention_head_dim attention_head_size embed_dim hidden_dim depth patch_size image_size spatial_merge_size
    temporal_patch_size qk_rope_head_dim qk_nope_head_dim qk_head_dim v_head_dim kv_lora_rank global_head_dim
    num_global_key_value_heads swa_head_dim swa_v_head_dim swa_num_attention_heads swa_num_key_value_heads
    num_attention_heads_per_layer attention_hidden_size tie_word_embeddings is_encoder_decoder vocab_size
    pad_token_id num_position_embeddings pos_emb_height pos_emb_width pos_emb_time position_embedding_size
    fullatt_block_indexes pretrain_image_size num_register_tokens memory_attention_hidden_size
    memory_attention_num_layers memory_attention_num_attention_heads memory_attention_downsample_rate
    memory_attention_rope_feat_sizes memory_attention_rope_k_sizes descriptor_dim num_key_value_attention_heads
    num_first_full_attention_layers num_last_full_attention_layers embedding_size input_embedding_size emb_dim
    scale_embedding attention_heads is_decoder causal num_patches num_conv_pos_embeddings conv_pos_kernel_size
    num_blocks projection_dim head_ratio intra_bottleneck_size layers n_cls_tokens depths patch_embeds_hidden_size
    spec_size block_sizes block_repeats num_encoder_layers num_encoder_attention_heads num_decoder_attention_heads
    speech_encoder_layers speech_encoder_attention_heads conf_num_attention_heads conf_num_hidden_layers dim_head
    d_latents qk_channels num_self_attends_per_block num_self_attention_heads channel_shrink_ratio subsample_layers
    attention_type context_size mem_len same_length separate_cls num_conv_pos_embedding_groups first_k_dense_replace
    max_image_size
    """

_POSITIONS = """
    rope_parameters rope_scaling rope_theta rotary_emb_base rotary_embedding_base rope_embedding_base global_rope_theta
    local_rope_theta rope_local_base_freq swa_rope_theta rope_theta_local rope_theta_global layer_rope_theta
    compress_rope_theta memory_attention_rope_theta partial_rotary_factor partial_rotary_factors rotary_pct rope_pct
    rotary_emb_fraction rotary_dim rope_interleave rotary_value use_rotary_embedding use_mem_rope no_rope_layers
    no_rope_layer_interval rope_scaling_layers nope_layer_interval situs_pairing
    max_position_embeddings n_positions n_ctx max_seq_len max_sequence_length seq_length model_max_length
    max_source_positions max_target_positions original_max_position_embeddings max_encoder_position_embeddings
    max_decoder_position_embeddings
    layer_types layers_block_type sliding_window sliding_window_size sliding_window_pattern _sliding_window_pattern
    use_sliding_window max_window_layers attention_window_size attention_chunk_size full_attention_interval
    global_attn_every_n_layers local_attention attn_layer_period attn_layer_offset attn_layer_indices block_types
    layer_group_size full_attn_idxs compress_ratios dual_chunk_attention_config offset_alibi
    hybrid_override_pattern attn_layers axial_pos_embds axial_pos_shape axial_pos_embds_dim local_attn_chunk_length
    local_num_chunks_before local_num_chunks_after lsh_attn_chunk_length
    prefix_dense_sliding_window_pattern attention_window attention_windows window_size
    attn_temperature_tuning floor_scale attn_scale log_scaling_n_floor log_scaling_alpha
    query_pre_attn_scalar attention_multiplier attn_logit_softcapping attn_logit_cap use_qk_norm
    scale_attn_weights
    position_embedding_type position_embeddings_type alibi alibi_bias_max attn_config relative_attention
    relative_attention_num_buckets relative_attention_max_distance num_buckets max_bucket_distance max_distance
    position_bias_num_buckets position_bias_max_distance relative_max_distance rel_pos_bins max_rel_pos rel_2d_pos_bins
    max_rel_2d_pos relative_bias_args position_buckets max_relative_positions pos_att_type share_att_key norm_rel_ebd
    position_biased_input clamp_len bi_data attn_type left_max_position_embeddings right_max_position_embeddings
    max_pos_emb d_rel rel_extent encoder_max_relative_position has_relative_attention_bias max_2d_position_embeddings
    use_relative_position_bias use_absolute_position_embeddings use_shared_relative_position_bias
    use_bidirectional_attention is_causal per_layer_config pos_embed_shift pos_embed_jitter pos_embed_rescale
    sinusoidal_pos_embds sinusoidal_embeddings use_learned_position_embeddings scale_attn_by_inverse_layer_idx
    rotary static_position_embeddings extra_pos_embeddings encoder_attention_type local_radius learned_pos_emb
    local_layer_ids has_spatial_attention_bias default_num_lookahead_tokens conf_attention_chunk_size
    conf_attention_context_left conf_attention_context_right conf_attention_logit_cap attention_context_left
    attention_context_right attention_logit_cap speech_encoder_chunk_size speech_encoder_left_chunk_num
    t2u_max_position_embeddings use_absolute_embeddings pretrained_window_sizes use_rel_pos use_abs_pos
    global_attn_indexes window_block_indices use_relative_position_embeddings
    """

SIZES = frozenset(_SIZES.split())
POSITIONS = frozenset(_POSITIONS.split())

_POSITIONAL = re.compile(
    r"rope|rotary|rotate|alibi|(^|_)nope($|_)|relative_(att|pos|bias|max)|position_(bias|embedding|emb)|pos_emb|"
    r"positional|sliding|(^|_)window|layer_types|yarn|mscale|(^|_)theta($|_)|temperature_tuning|max_seq"
)
_OTHERWISE = re.compile(
    r"dropout|noise|kernel|_token|token_id|num_conv_pos|conv_pos|mel_|fft|stft|hop|positionwise|window_kernel|n_window|"
    r"mlp_layer_types|mtp_layer_types|_attention_heads|keep_window|positional_dropout|audio_window"
)


def is_positional(key: str) -> bool:
    """Whether a setting speaks of positions by its name."""
    named = _POSITIONAL.search(key) and not _OTHERWISE.search(key)
    return key in POSITIONS or bool(named and key not in SIZES)
