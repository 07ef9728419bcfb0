"""Small models of transformers with random weights, tables and norms: one for each kind of attention that is served."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

hf: Any = import_module("transformers")  # whose configurations take more than their signatures say
WORDS = 99
SEQ2SEQ: dict[str, Any] = {
    "vocab_size": WORDS, "d_model": 32, "d_kv": 8, "num_heads": 4, "d_ff": 48, "num_layers": 2,
    "num_decoder_layers": 2,
    "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1, "dropout_rate": 0.0,
}  # fmt: skip
TEXT: dict[str, Any] = {
    "vocab_size": WORDS, "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 48,
    "max_position_embeddings": 3000, "pad_token_id": 0,
}  # fmt: skip
GROUPED = {**TEXT, "num_key_value_heads": 2, "head_dim": 8}
DEBERTA = {**TEXT, "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "hidden_dropout_prob": 0.0,
           "attention_probs_dropout_prob": 0.0}  # fmt: skip
FALCON = {"vocab_size": WORDS, "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2}
ENCODER = {**TEXT, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}

REPLACED: dict[str, Callable[[], Any]] = {
    "t5": lambda: hf.T5ForConditionalGeneration(hf.T5Config(**SEQ2SEQ)),
    "t5 encoder": lambda: hf.T5EncoderModel(hf.T5Config(**SEQ2SEQ)),
    "mt5": lambda: hf.MT5ForConditionalGeneration(hf.MT5Config(**SEQ2SEQ)),
    "umt5": lambda: hf.UMT5ForConditionalGeneration(hf.UMT5Config(**SEQ2SEQ)),
    "switch": lambda: hf.SwitchTransformersForConditionalGeneration(
        hf.SwitchTransformersConfig(**SEQ2SEQ, num_experts=2, expert_capacity=3000)
    ),
    "bloom": lambda: hf.BloomForCausalLM(hf.BloomConfig(vocab_size=WORDS, hidden_size=32, n_head=4, n_layer=2)),
    "bloom, six heads": lambda: hf.BloomForCausalLM(
        hf.BloomConfig(vocab_size=WORDS, hidden_size=48, n_head=6, n_layer=2)
    ),
    "mpt": lambda: hf.MptForCausalLM(
        hf.MptConfig(vocab_size=WORDS, d_model=32, n_heads=4, n_layers=2, max_seq_len=3000)
    ),
    "falcon": lambda: hf.FalconForCausalLM(hf.FalconConfig(**FALCON, alibi=True, multi_query=False)),
    "falcon, one key": lambda: hf.FalconForCausalLM(hf.FalconConfig(**FALCON, alibi=True, multi_query=True)),
    "falcon, rotary": lambda: hf.FalconForCausalLM(
        hf.FalconConfig(**FALCON, alibi=False, new_decoder_architecture=True, num_kv_heads=2)
    ),
    "mpnet": lambda: hf.MPNetForMaskedLM(hf.MPNetConfig(**ENCODER, bos_token_id=1, eos_token_id=2)),
    "deberta": lambda: hf.DebertaForMaskedLM(hf.DebertaConfig(**DEBERTA, max_relative_positions=20)),
    "deberta v2": lambda: hf.DebertaV2ForMaskedLM(hf.DebertaV2Config(**DEBERTA, max_relative_positions=20)),
    "deberta v3": lambda: hf.DebertaV2ForMaskedLM(
        hf.DebertaV2Config(
            **DEBERTA, share_att_key=True, position_buckets=16, norm_rel_ebd="layer_norm", conv_kernel_size=3,
            max_relative_positions=-1,
        )
    ),
    "xlnet": lambda: hf.XLNetLMHeadModel(
        hf.XLNetConfig(vocab_size=WORDS, d_model=32, n_head=4, n_layer=2, d_inner=48, dropout=0.0, pad_token_id=0)
    ),
}  # fmt: skip
ASKING: dict[str, Callable[[], Any]] = {
    "llama": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**GROUPED)),
    "mistral": lambda: hf.MistralForCausalLM(hf.MistralConfig(**GROUPED, sliding_window=5)),
    "qwen3": lambda: hf.Qwen3ForCausalLM(hf.Qwen3Config(**GROUPED)),
    "gemma 2": lambda: hf.Gemma2ForCausalLM(hf.Gemma2Config(**GROUPED, sliding_window=5)),
    "gemma 3": lambda: hf.Gemma3ForCausalLM(hf.Gemma3TextConfig(**GROUPED, sliding_window=5)),
    "gpt-neox": lambda: hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(**TEXT)),
    "phi": lambda: hf.PhiForCausalLM(hf.PhiConfig(**TEXT)),
    "gpt-oss": lambda: hf.GptOssForCausalLM(
        hf.GptOssConfig(**GROUPED, num_local_experts=2, num_experts_per_tok=1, sliding_window=6)
    ),
    "modernbert": lambda: hf.ModernBertForMaskedLM(
        hf.ModernBertConfig(
            **TEXT, local_attention=8, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2,
            embedding_dropout=0.0, mlp_dropout=0.0,
        )
    ),
    "bert": lambda: hf.BertForMaskedLM(hf.BertConfig(**ENCODER)),
}  # fmt: skip
EVERY = {**REPLACED, **ASKING}
DECODERS = [name for name in EVERY if name.startswith(
    ("bloom", "mpt", "falcon", "llama", "mistral", "qwen", "gemma", "gpt", "phi")
)]  # fmt: skip
PAIRED = ["t5", "mt5", "umt5", "switch"]
"""With an encoder and a decoder."""


def made(name: str, dtype: torch.dtype = torch.float32) -> Any:
    """A model whose weights, biases, tables and norms are all random."""
    torch.manual_seed(0)
    model = EVERY[name]()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval().to(dtype)


def texts(rows: int, tokens: int) -> torch.Tensor:
    """Random words, none of them special."""
    return torch.randint(4, WORDS, (rows, tokens), generator=torch.Generator().manual_seed(tokens))


def padding(ids: torch.Tensor, side: str) -> torch.Tensor:
    """A mask under which the second text is shorter by a third."""
    mask = torch.ones_like(ids)
    short = ids.shape[1] // 3
    mask[1, -short:] = 0
    return mask if side == "right" else mask.flip(1)


def given(model: Any, ids: torch.Tensor, mask: torch.Tensor | None = None) -> dict[str, Any]:
    """What a model is called with; a decoder beside an encoder reads the same text."""
    found: dict[str, Any] = {"input_ids": ids} if mask is None else {"input_ids": ids, "attention_mask": mask}
    if model.config.is_encoder_decoder:
        found["decoder_input_ids"] = ids
    return found
