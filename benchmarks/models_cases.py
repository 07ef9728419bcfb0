"""Models that are measured whole, and at which lengths: two layers, width 512, 8 heads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

hf: Any = import_module("transformers")  # whose configurations take more than their signatures say
UNMODIFIED, ACCELERATED, LLAMA, FULL_LLAMA = "unmodified", "accelerated", "llama", "full llama"
TORCH_ONLY, WITHOUT = "torch only", "without attention"
FORWARD, BACKWARD, DECODE = "forward", "forward and backward", "decode"
STEPS, BEHIND = 256, 2048

TEXT: dict[str, Any] = {
    "vocab_size": 1000, "hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 2,
    "intermediate_size": 2048, "max_position_embeddings": 4100, "pad_token_id": 0,
}  # fmt: skip
T5: dict[str, Any] = {
    "vocab_size": 1000, "d_model": 512, "d_kv": 64, "num_heads": 8, "num_layers": 2, "num_decoder_layers": 2,
    "d_ff": 2048, "decoder_start_token_id": 0, "pad_token_id": 0,
}  # fmt: skip
DEBERTA = {**TEXT, "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "max_relative_positions": 512}
# a layer has two networks, so half as much of each
CONFORMER: dict[str, Any] = {
    "hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 2, "intermediate_size": 1024,
}  # fmt: skip
FAMILIES: dict[str, Callable[[], Any]] = {
    # three matrices instead of two, so a third less of each
    LLAMA: lambda: hf.LlamaModel(hf.LlamaConfig(**{**TEXT, "intermediate_size": 1376})),
    "t5": lambda: hf.T5EncoderModel(hf.T5Config(**T5)),
    # three matrices instead of two, as Llama has
    "mt5": lambda: hf.MT5EncoderModel(hf.MT5Config(**{**T5, "d_ff": 1376})),
    "bloom": lambda: hf.BloomModel(hf.BloomConfig(vocab_size=1000, hidden_size=512, n_head=8, n_layer=2)),
    "mpt": lambda: hf.MptModel(hf.MptConfig(vocab_size=1000, d_model=512, n_heads=8, n_layers=2, max_seq_len=4100)),
    "falcon": lambda: hf.FalconModel(
        hf.FalconConfig(
            vocab_size=1000, hidden_size=512, num_attention_heads=8, num_hidden_layers=2, alibi=True, multi_query=False
        )
    ),
    "mpnet": lambda: hf.MPNetModel(hf.MPNetConfig(**TEXT, bos_token_id=1, eos_token_id=2)),
    "deberta v2": lambda: hf.DebertaV2Model(hf.DebertaV2Config(**DEBERTA)),
    "deberta v3": lambda: hf.DebertaV2Model(
        hf.DebertaV2Config(**DEBERTA, share_att_key=True, position_buckets=256, norm_rel_ebd="layer_norm")
    ),
    "xlnet": lambda: hf.XLNetModel(hf.XLNetConfig(vocab_size=1000, d_model=512, n_head=8, n_layer=2, d_inner=2048)),
    "inkling": lambda: hf.InklingTextModel(
        hf.InklingTextConfig(
            **{**TEXT, "intermediate_size": 1376}, num_key_value_heads=8, head_dim=64, swa_num_attention_heads=8,
            swa_num_key_value_heads=8, swa_head_dim=64, local_layer_ids=[0], mlp_layer_types=["dense", "dense"],
        )
    ),
    "wav2vec2-bert": lambda: hf.Wav2Vec2BertModel(hf.Wav2Vec2BertConfig(**CONFORMER)),
    "conformer": lambda: hf.Wav2Vec2BertModel(
        hf.Wav2Vec2BertConfig(**CONFORMER, position_embeddings_type="relative")
    ),
}  # fmt: skip
DECODERS = ("bloom", "mpt", "falcon", "inkling", LLAMA)
# these see all tokens, Llama only those before: they stand beside a Llama without the causal rule too
SEE_ALL = ("t5", "mt5", "mpnet", "deberta v2", "deberta v3", "xlnet", "wav2vec2-bert", "conformer")


def full_llama() -> Any:
    """Llama without the causal rule."""
    model = FAMILIES[LLAMA]()
    for layer in model.layers:
        layer.self_attn.is_causal = False
    return model


@dataclass(frozen=True)
class Row:
    """One family at one length: what everyone took, and held beyond the results."""

    family: str
    work: str
    length: int
    dtype: str
    threads: int
    milliseconds: dict[str, float]
    quartiles: dict[str, tuple[float, float]]
    extra_mib: dict[str, float]
    accelerate_ms: float
    """What ``accelerate`` itself took, without its self-test."""

    @property
    def case(self) -> str:
        """The case in words."""
        return f"{self.family} {self.length}, {self.dtype}, {self.threads} thread{'s' * (self.threads > 1)}"


@dataclass(frozen=True)
class Case:
    """What is measured of which families, at which lengths."""

    work: str
    families: tuple[str, ...]
    lengths: tuple[int, ...]
    dtypes: tuple[str, ...] = ("float32",)


def cases(mode: str) -> Iterator[Case]:
    """Everything that a mode measures."""
    others = tuple(name for name in FAMILIES if name != LLAMA)
    if mode == "quick":
        yield Case(FORWARD, ("t5", "deberta v2"), (128,))
        yield Case(BACKWARD, ("bloom",), (64,))
        yield Case(DECODE, ("mpt",), (64,))
        return
    yield Case(FORWARD, others, (128, 512, 2048, 4096), ("float32",))
    yield Case(BACKWARD, ("t5", "bloom", "deberta v2"), (2048,))
    yield Case(DECODE, DECODERS, (BEHIND,))
    yield Case(FORWARD, others, (2048, 4096) if mode == "full" else (2048,), ("bfloat16",))
