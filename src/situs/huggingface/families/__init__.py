"""The families of models whose attention Situs runs, one file for each way in which they tell positions.

A family is a class of methods that replace those of an attention class. Rows of the table say which class of which
model gets which; the files are imported when a model has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, TypeAlias

from torch import nn

Expects: TypeAlias = Mapping[str, tuple[str, ...]]
"""Methods, with the parameters that they must begin with."""


class Family(nn.Module):
    """Methods that take the place of an attention class' own."""

    expects: ClassVar[Expects]
    """Methods of the original that are replaced or called."""
    rotates: ClassVar[bool] = False
    """Whether queries and keys are rotated in float32, by cosines that are float32 in any model."""

    @classmethod
    def cannot(cls, module: Any) -> str | None:
        """Why a module must keep its own code; None if it need not."""
        return None

    @classmethod
    def methods(cls, before: type[nn.Module]) -> dict[str, Any]:
        """Make attributes of the class that stands in from the original."""
        return {}


class Known(NamedTuple):
    """A class of transformers, and the methods that it gets."""

    model: str
    cls: str
    file: str
    family: str


_KNOWN = (
    Known("t5", "T5Attention", "t5", "T5"),
    Known("mt5", "MT5Attention", "t5", "T5"),
    Known("pop2piano", "Pop2PianoAttention", "t5", "T5"),
    Known("switch_transformers", "SwitchTransformersAttention", "t5", "T5"),
    Known("umt5", "UMT5Attention", "t5", "UMT5"),
    Known("longt5", "LongT5Attention", "t5", "T5"),
    Known("longt5", "LongT5LocalAttention", "t5", "LongT5Local"),
    Known("pix2struct", "Pix2StructTextAttention", "t5", "Pix2Struct"),
    Known("udop", "UdopAttention", "t5", "T5"),
    Known("bloom", "BloomAttention", "alibi", "Bloom"),
    Known("mpt", "MptAttention", "alibi", "Mpt"),
    Known("mpt", "MptBlock", "alibi", "MptBlock"),
    Known("falcon", "FalconAttention", "alibi", "Falcon"),
    Known("mpnet", "MPNetSelfAttention", "mpnet", "MPNetLayer"),
    Known("mpnet", "MPNetEncoder", "mpnet", "MPNetTable"),
    Known("deberta_v2", "DisentangledSelfAttention", "deberta", "DebertaV2"),
    Known("deberta_v2", "DebertaV2Encoder", "deberta", "DebertaEncoder"),
    Known("deberta", "DisentangledSelfAttention", "deberta", "DebertaV1"),
    Known("deberta", "DebertaEncoder", "deberta", "DebertaEncoder"),
    Known("sew_d", "DisentangledSelfAttention", "deberta", "SEWD"),
    Known("sew_d", "SEWDTransformerEncoder", "deberta", "DebertaEncoder"),
    Known("xlnet", "XLNetRelativeAttention", "xlnet", "XLNet"),
    Known("gptj", "GPTJAttention", "gptj", "GPTJ"),
    Known("codegen", "CodeGenAttention", "gptj", "CodeGen"),
    Known("inkling", "InklingRelativeLogits", "inkling", "Inkling"),
    Known("wav2vec2_conformer", "Wav2Vec2ConformerSelfAttention", "conformer", "Conformer"),
    Known("wav2vec2_bert", "Wav2Vec2BertSelfAttention", "conformer", "Conformer"),
    Known("seamless_m4t", "SeamlessM4TConformerSelfAttention", "conformer", "Conformer"),
    Known("seamless_m4t_v2", "SeamlessM4Tv2ConformerSelfAttention", "conformer", "ConformerOfKeys"),
    Known("seamless_m4t_v2", "SeamlessM4Tv2ConformerEncoder", "conformer", "ChunkedEncoder"),
    Known("parakeet", "ParakeetEncoderAttention", "conformer", "Parakeet"),
    Known("speecht5", "SpeechT5Attention", "speecht5", "SpeechT5"),
    Known("speecht5", "SpeechT5RelativePositionalEncoding", "speecht5", "SpeechT5Table"),
    Known("wavlm", "WavLMAttention", "wavlm", "WavLM"),
    Known("layoutlmv3", "LayoutLMv3SelfAttention", "layoutlmv3", "LayoutLMv3"),
    Known("layoutlmv3", "LayoutLMv3Encoder", "layoutlmv3", "LayoutLMv3Encoder"),
)
FAMILIES: Mapping[str, Known] = MappingProxyType({f"{each.model}_{each.cls}": each for each in _KNOWN})
"""By the name of the class that stands in."""
