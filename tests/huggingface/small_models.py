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
GPTJ = {"vocab_size": WORDS, "n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 3000, "rotary_dim": 4,
        "bos_token_id": 1, "eos_token_id": 1}  # fmt: skip
ENCODER = {**TEXT, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
INKLING: dict[str, Any] = {
    **GROUPED, "swa_num_attention_heads": 4, "swa_num_key_value_heads": 2, "swa_head_dim": 8, "sliding_window_size": 12,
    "d_rel": 6, "rel_extent": 20, "local_layer_ids": [0], "mlp_layer_types": ["dense", "dense"],
    "logits_mup_width_multiplier": 1.0,
}  # fmt: skip

REPLACED: dict[str, Callable[[], Any]] = {
    "t5": lambda: hf.T5ForConditionalGeneration(hf.T5Config(**SEQ2SEQ)),
    "t5 encoder": lambda: hf.T5EncoderModel(hf.T5Config(**SEQ2SEQ)),
    "mt5": lambda: hf.MT5ForConditionalGeneration(hf.MT5Config(**SEQ2SEQ)),
    "umt5": lambda: hf.UMT5ForConditionalGeneration(hf.UMT5Config(**SEQ2SEQ)),
    "switch": lambda: hf.SwitchTransformersForConditionalGeneration(
        hf.SwitchTransformersConfig(**SEQ2SEQ, num_experts=2, expert_capacity=3000)
    ),
    "longt5": lambda: hf.LongT5ForConditionalGeneration(hf.LongT5Config(**SEQ2SEQ, local_radius=5)),
    "longt5, summaries": lambda: hf.LongT5ForConditionalGeneration(
        hf.LongT5Config(
            **SEQ2SEQ, local_radius=5, encoder_attention_type="transient-global", global_block_size=4
        )
    ),
    "udop": lambda: hf.UdopForConditionalGeneration(hf.UdopConfig(**SEQ2SEQ, max_2d_position_embeddings=64)),
    "pix2struct text": lambda: hf.Pix2StructTextModel(
        hf.Pix2StructTextConfig(
            vocab_size=WORDS, hidden_size=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, dropout_rate=0.0,
            initializer_range=0.02,
        )
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
    "gpt-j": lambda: hf.GPTJForCausalLM(hf.GPTJConfig(**GPTJ)),
    "codegen": lambda: hf.CodeGenForCausalLM(hf.CodeGenConfig(**GPTJ)),
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
    "layoutlmv3": lambda: hf.LayoutLMv3Model(
        hf.LayoutLMv3Config(**ENCODER, visual_embed=False, coordinate_size=6, shape_size=4)
    ),
    "inkling": lambda: hf.InklingForCausalLM(hf.InklingTextConfig(**INKLING, log_scaling_n_floor=16)),
    "inkling, no temperature": lambda: hf.InklingForCausalLM(hf.InklingTextConfig(**INKLING)),
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
    "bart": lambda: hf.BartForConditionalGeneration(
        hf.BartConfig(
            vocab_size=WORDS, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=3000,
            pad_token_id=0, eos_token_id=1, decoder_start_token_id=1, dropout=0.0, forced_eos_token_id=None,
        )
    ),
    "gpt2": lambda: hf.GPT2LMHeadModel(
        hf.GPT2Config(
            vocab_size=WORDS, n_embd=32, n_head=4, n_layer=2, n_positions=3000, bos_token_id=1, eos_token_id=1
        )
    ),
    "opt": lambda: hf.OPTForCausalLM(hf.OPTConfig(**TEXT, ffn_dim=48, word_embed_proj_dim=32, dropout=0.0)),
}  # fmt: skip
EVERY = {**REPLACED, **ASKING}
DECODERS = [name for name in EVERY if name.startswith(
    ("bloom", "mpt", "falcon", "llama", "mistral", "qwen", "gemma", "gpt", "phi", "opt", "inkling", "codegen")
)]  # fmt: skip
PAIRED = ["t5", "mt5", "umt5", "switch", "longt5", "longt5, summaries", "udop", "bart"]
"""With an encoder and a decoder."""


def made(name: str, dtype: torch.dtype = torch.float32) -> Any:
    """A model whose weights, biases, tables and norms are all random."""
    return randomised(EVERY[name], dtype)


def randomised(make: Callable[[], Any], dtype: torch.dtype = torch.float32) -> Any:
    """A model made after a seed, with something random added to all of its parameters."""
    torch.manual_seed(0)
    model = make()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval().to(dtype)


def without_dropout(model: Any) -> Any:
    """The same model, training, with nothing dropped out."""
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model.train()


def gradients(model: Any, given: dict[str, Any], real: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
    """Those of all weights, of the mean of squares of outputs where tokens are real."""
    model.zero_grad()
    torch.manual_seed(0)
    out = model(**given)[0]
    ((out if real is None else out[real]) ** 2).mean().backward()
    return {name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None}


def expect_same_gradients(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """Raise unless gradients differ by a ten thousandth of the largest at most."""
    assert found.keys() == expected.keys()
    largest = max(float(each.abs().max()) for each in expected.values())
    for name, each in expected.items():
        torch.testing.assert_close(found[name], each, atol=1e-4 * largest, rtol=1e-4, msg=name)


def expect_close(found: torch.Tensor, expected: torch.Tensor, within: float) -> None:
    """Raise unless two outputs differ by so much of the largest at most."""
    assert float((found - expected).abs().max()) <= within * float(expected.abs().max())


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
    if model.config.model_type in ("udop", "layoutlmv3"):
        found["bbox"] = boxes(ids, model.config.model_type)
    return found


def outputs(model: Any, ids: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    """Logits or hidden states, of real tokens where a mask tells them."""
    with torch.no_grad():
        found: torch.Tensor = model(**given(model, ids, mask))[0]
    return found if mask is None or model.config.is_encoder_decoder else found[mask.bool()]


def boxes(ids: torch.Tensor, model_type: str) -> torch.Tensor:
    """The box of each word on a page: left, top, right, bottom, in thousandths, or in shares of it for UDOP."""
    corners = torch.randint(0, 1000, (*ids.shape, 2, 2), generator=torch.Generator().manual_seed(ids.shape[1]))
    thousandths = corners.sort(-2).values.flatten(-2)
    return thousandths / 1000 if model_type == "udop" else thousandths


def prompt(model: Any, ids: torch.Tensor, mask: torch.Tensor) -> dict[str, Any]:
    """What a text is generated from."""
    return {name: each for name, each in given(model, ids, mask).items() if name != "decoder_input_ids"}
