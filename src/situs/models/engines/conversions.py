"""The table of llama.cpp's converter: the architecture of each model type, and what of its settings is written.

Rules are those of llama.cpp of August 2026 (b21e4de7, 22 August), ``conversion/``. `Conversion` as it is made is what
most classes do: they write the base, the rotated channels and linear or YaRN scaling, and no window.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal


@dataclass(frozen=True)
class Conversion:
    """Hold what llama.cpp's converter writes for some model types.

    architecture: whose rules hold then.
    base, rotated, head_dim: whether these are written; if not, llama.cpp takes 10,000, all channels, equal shares.
    scaling: which are written: linear and YaRN; none; or any factor as a linear one.
    tensors: the scaling whose divisors are written as a tensor.
    window: whether it is; layers: how those that slide are told: by a list, a period or not at all.
    weight: what mscale_all_dim is multiplied by where it is written.
    causal: whether it is written that tokens see what follows.
    length: what is written for the longest text: a number, the setting seq_length or else the width, or the declared.
    """

    architecture: str
    base: bool = True
    rotated: bool = True
    head_dim: bool = True
    scaling: Literal["written", "none", "as linear"] = "written"
    tensors: Literal["llama3", "longrope", "proportional"] | None = None
    window: bool = False
    layers: Literal["list", "period"] | None = None
    weight: float | None = None
    causal: bool = False
    length: int | Literal["seq_length"] | None = None


_NOTHING = {"base": False, "scaling": "none"}

_ROWS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("llama mistral mixtral", {"architecture": "llama", "tensors": "llama3"}),
    ("arcee smollm3 granite granitemoe afmoe apertus", {"tensors": "llama3"}),
    ("granitemoeshared", {"architecture": "granitemoe", "tensors": "llama3"}),
    ("granite_swa granitemoe_swa", {"architecture": "granite_swa", "tensors": "llama3"}),
    ("granite_swa granitemoe_swa", {"window": True, "layers": "list"}),
    ("granitemoehybrid bamba", {"architecture": "granitehybrid", "tensors": "llama3"}),
    (
        "granite granitemoe granitemoeshared granite_swa granitemoe_swa granitemoehybrid",
        {"head_dim": False, "rotated": False},
    ),
    ("bamba", {"head_dim": False}),
    ("llama4_text", {"architecture": "llama4", "tensors": "llama3"}),
    ("ministral3", {"architecture": "mistral3", "tensors": "llama3", "weight": 1.0}),
    ("afmoe cohere2 gpt_oss gemma3n_text olmo3 exaone4 exaone_moe laguna mellum", {"window": True}),
    ("gemma3n_text olmo3 exaone4 exaone_moe mellum", {"layers": "list"}),
    ("bitnet cohere cohere2 cohere2_moe eurobert modernbert exaone_moe", {"scaling": "none"}),
    ("cohere", {"architecture": "command-r"}),
    ("cohere2_moe", {"architecture": "cohere2moe", "window": True, "layers": "list"}),
    ("eurobert modernbert", {"causal": True}),
    ("modernbert", {"architecture": "modern-bert", "window": True, "layers": "period"}),
    ("exaone4", {"tensors": "llama3"}),
    ("exaone_moe", {"architecture": "exaone-moe", "tensors": "llama3"}),
    ("dbrx", {"scaling": "none", "rotated": False, "head_dim": False}),
    ("falcon", {**_NOTHING, "rotated": False, "head_dim": False, "length": 2048}),
    ("falcon_h1", {"architecture": "falcon-h1", "scaling": "none", "rotated": False}),
    ("gemma gemma2", {**_NOTHING, "rotated": False}),
    ("gemma2", {"window": True}),
    ("gemma3_text", {"architecture": "gemma3", "window": True}),
    ("gemma3n_text", {"architecture": "gemma3n"}),
    (
        "gemma4_text gemma4_unified_text",
        {"architecture": "gemma4", "window": True, "layers": "list", "tensors": "proportional"},
    ),
    ("glm", {**_NOTHING, "architecture": "chatglm", "length": "seq_length"}),
    ("glm4v_text glm_ocr_text", {"architecture": "glm4"}),
    ("glm4_moe solar_open glm4v_moe_text", {"architecture": "glm4moe"}),
    ("gpt_neox", {**_NOTHING, "architecture": "gptneox"}),
    ("phi", {**_NOTHING, "architecture": "phi2"}),
    ("stablelm", _NOTHING),
    ("minicpm3", {**_NOTHING, "tensors": "longrope"}),
    ("phi3", {"scaling": "none", "tensors": "longrope"}),
    ("gpt_oss", {"architecture": "gpt-oss"}),
    ("deepseek_v2 deepseek_v3 youtu glm4_moe_lite", {"architecture": "deepseek2", "weight": 0.1}),
    ("deepseek_v32", {"architecture": "deepseek32", "weight": 0.1}),
    ("glm_moe_dsa", {"architecture": "glm-dsa", "weight": 0.1}),
    ("mistral4", {"weight": 0.1}),
    ("deepseek_v4", {"architecture": "deepseek4"}),
    ("ernie4_5_moe", {"architecture": "ernie4_5-moe"}),
    ("hunyuan_v1_dense", {"architecture": "hunyuan-dense"}),
    ("hunyuan_v1_moe", {"architecture": "hunyuan-moe"}),
    ("hunyuan_vl_text", {"architecture": "hunyuan_vl"}),
    ("lfm2_moe", {"architecture": "lfm2moe"}),
    ("mimo_v2_flash", {"architecture": "mimo2", "window": True, "layers": "list"}),
    ("minimax_m2", {"architecture": "minimax-m2"}),
    ("muse_glimmer_text", {"architecture": "muse-glimmer", "window": True, "layers": "list"}),
    ("nemotron", {"scaling": "as linear"}),
    ("olmo3", {"architecture": "olmo2"}),
    ("paddleocr_vl_text", {"architecture": "paddleocr"}),
    ("qwen2_moe", {"architecture": "qwen2moe"}),
    ("qwen2_vl_text qwen2_5_vl_text", {"architecture": "qwen2vl"}),
    ("qwen3_moe", {"architecture": "qwen3moe"}),
    ("qwen3_next", {"architecture": "qwen3next"}),
    ("qwen3_vl_text", {"architecture": "qwen3vl"}),
    ("qwen3_vl_moe_text", {"architecture": "qwen3vlmoe"}),
    ("qwen3_5_text", {"architecture": "qwen35"}),
    ("qwen3_5_moe_text", {"architecture": "qwen35moe"}),
    ("step3p5", {"architecture": "step35", "window": True, "layers": "list", "rotated": False, "tensors": "llama3"}),
    ("chameleon dots1 ernie4_5 glm4 hy_v3 jais2 lfm2 olmo olmo2 olmoe qwen2 qwen3 seed_oss starcoder2", {}),
)  # fmt: skip


def _table() -> dict[str, Conversion]:
    found: dict[str, Conversion] = {}
    for names, settings in _ROWS:
        for name in names.split():
            found[name] = replace(found.get(name, Conversion(name)), **settings)
    return found


CONVERSIONS = _table()
"""Of model types that rotate."""

_ALIKE = """
    bert bloom camembert distilbert falcon_mamba gpt2 gpt_bigcode jamba kimi_linear mamba mamba2 mpt mt5 roberta t5 umt5
    xlm-roberta
    """
ALIKE = frozenset(_ALIKE.split())
"""Model types that do not rotate, which llama.cpp runs as transformers does."""

_BUNDLES = """
    audioflamingo3 exaone4_5 gemma3 gemma3n gemma4 gemma4_unified glm4v glm4v_moe glm_ocr hunyuan_vl janus llama4 llava
    minicpmv4_6 minimax_m3_vl mistral3 muse_glimmer paddleocr_vl qwen2_5_vl qwen2_audio qwen2_vl qwen3_5 qwen3_5_moe
    qwen3_asr qwen3_vl qwen3_vl_moe shieldgemma2 step3p7 voxtral
    """
BUNDLES = frozenset(_BUNDLES.split())
"""Models of several parts whose text llama.cpp's converter takes."""
