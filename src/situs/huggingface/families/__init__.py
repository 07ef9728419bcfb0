"""The families of models whose attention Situs runs, one file for each way in which they tell positions.

A family is a class of methods that replace those of an attention class. Rows of the table say which class of which
model gets which; the files are imported when a model has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, TypeAlias

from torch import Tensor, nn

Expects: TypeAlias = Mapping[str, tuple[str, ...]]
"""Methods, with the parameters that they must begin with."""


class Family(nn.Module):
    """Methods that take the place of an attention class' own."""

    expects: ClassVar[Expects]
    """Methods of the original that are replaced or called."""
    runs: ClassVar[str] = "on situs.attend"
    """How a module runs with these."""
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

    @classmethod
    def sample(cls, module: Any) -> Tensor | None:
        """What the self-test runs a module on by itself, where inputs of its model are too large for a test; None where
        the model is run."""
        return None


class Known(NamedTuple):
    """A class of transformers, and the methods that it gets."""

    model: str
    cls: str
    file: str
    family: str
    modelling: str | None = None
    """The file of transformers that has it, where that is not called like the model."""


_KNOWN = (
    Known("t5", "T5Attention", "t5", "T5"),
    Known("mt5", "MT5Attention", "t5", "T5"),
    Known("pop2piano", "Pop2PianoAttention", "t5", "T5"),
    Known("switch_transformers", "SwitchTransformersAttention", "t5", "T5"),
    Known("umt5", "UMT5Attention", "t5", "UMT5"),
    Known("longt5", "LongT5Attention", "t5", "T5"),
    Known("longt5", "LongT5LocalAttention", "longt5", "LongT5Local"),
    Known("longt5", "LongT5TransientGlobalAttention", "longt5", "LongT5Global"),
    Known("pix2struct", "Pix2StructTextAttention", "t5", "Pix2Struct"),
    Known("udop", "UdopAttention", "t5", "T5"),
    Known("udop", "RelativePositionBiasAggregated", "udop", "UdopBias"),
    Known("bloom", "BloomAttention", "alibi", "Bloom"),
    Known("bloom", "BloomGelu", "alibi", "BloomGelu"),
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
    Known("inkling", "InklingAttention", "inkling", "InklingLayer"),
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
    Known("sam", "SamVisionAttention", "sam", "Sam"),
    Known("sam", "SamVisionSdpaAttention", "sam", "Sam"),
    Known("sam_hq", "SamHQVisionAttention", "sam", "Sam"),
    Known("sam_hq", "SamHQVisionSdpaAttention", "sam", "Sam"),
    Known("got_ocr2", "GotOcr2VisionAttention", "sam", "Sam"),
    Known("deepseek_ocr2", "DeepseekOcr2SamVisionAttention", "sam", "Sam"),
    Known("deepseek_ocr2", "DeepseekOcr2SamVisionSdpaAttention", "sam", "Sam"),
    Known("unlimited_ocr", "UnlimitedOcrSamVisionAttention", "sam", "Sam"),
    Known("unlimited_ocr", "UnlimitedOcrSamVisionSdpaAttention", "sam", "Sam"),
    Known("pp_formulanet", "PPFormulaNetVisionAttention", "sam", "Sam"),
    Known("slanext", "SLANeXtVisionAttention", "sam", "Sam"),
    Known("seggpt", "SegGptAttention", "sam", "Sam"),
    Known("vitdet", "VitDetAttention", "sam", "VitDet"),
    Known("swinv2", "Swinv2SelfAttention", "swin", "SwinV2"),
    Known("swin2sr", "Swin2SRSelfAttention", "swin", "SwinV2"),
    Known("donut", "DonutSwinSelfAttention", "swin", "Swin", "donut_swin"),
    Known("maskformer", "MaskFormerSwinSelfAttention", "swin", "Swin", "maskformer_swin"),
    Known("clap", "ClapAudioSelfAttention", "swin", "Swin"),
)
FAMILIES: Mapping[str, Known] = MappingProxyType({f"{each.model}_{each.cls}": each for each in _KNOWN})
"""By the name of the class that stands in."""
LEFT: Mapping[str, str] = MappingProxyType({
    "data2vec_Data2VecVisionSdpaSelfAttention": "torch's own attention takes its bias of all pairs as it is",
    "data2vec_Data2VecVisionSelfAttention": 'attn_implementation="sdpa" forms no weights',
})  # fmt: skip
"""Attention classes that would gain nothing, and why; by model and name, as in the table."""
