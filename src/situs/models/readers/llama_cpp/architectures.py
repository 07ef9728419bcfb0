"""The table of llama.cpp's architectures: what each does otherwise than most, one row for each exception.

Rules are those of llama.cpp of August 2026 (b21e4de7, 22 August): ``llama_model_rope_type``, the settings that each
architecture loads, and the graph that it builds. `Architecture()` is what most do: all layers attend to all tokens,
rotate the first channels of a head, and multiply scores by 1 / sqrt(head_dim).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

Rope = Literal["norm", "neox", "mrope", "imrope", "none"]
"""norm pairs neighbours, neox halves; mrope and imrope are halves whose pairs go by several coordinates, in blocks or
in turns."""


@dataclass(frozen=True)
class Architecture:
    """Hold what is particular to some architectures.

    rope: how pairs are laid out; sections: whether it is mrope where sections are given.
    checked: whether its settings and graph were read; if not, it is read as most are.
    slides: what layers with a window see: so many keys up to themselves, those of their chunk, or half to each side.
    when: where layers slide: where a window is given, always, or in models of 64 layers.
    period: every so many layers one does not slide, the last of them, or the first where ``first``; 0 for none, None
        where a list tells.
    lists: whether a list of layers is read; if not, a list changes nothing and the period holds.
    window: in keys, where none is given; fixed: whether it holds whatever is given.
    sliding_base: of frequencies in layers with a window: the setting, else that of the others or 10,000; or always that
        of the others.
    sliding_scaled: whether a scaling serves layers with a window too.
    rotates: which layers do: all; those with a window; the same, or all where there is none; all but every fourth,
        counted from 1 or from 0; those that a list or a switch names; those of models of 32 layers.
    rotated_by: what the channels that are rotated are divided by in layers without a window.
    factors: whether tensors divide frequencies: in all layers, in those without a window, or in none though they are
        loaded; None where a file that has them is not loaded.
    yarn: the settings of YaRN that are read: its betas and the weight of its logarithm, that weight tenfold, or all
        but it.
    scale: of the softmax: by the head's channels; the setting attention.scale before that; by the rotated channels; 1;
        Gemma's, which has another in its largest model; or Grok's setting.
    latent: whether keys are latent, so that the last channels are rotated; and whether the scale has YaRN's factor.
    states: which layers have a state instead of attention: those without heads of keys, all, or by a period, of which
        ``interval`` is the default; "none" for layers that do nothing instead.
    nextn: whether layers that predict further tokens are counted among the blocks.
    table: whether the input has a learned table; alibi: slopes' largest power, or the setting that holds it.
    """

    rope: Rope
    sections: bool = False
    checked: bool = True
    slides: Literal["keys", "chunks", "sides"] | None = None
    when: Literal["given", "always", "64 layers"] = "given"
    period: int | None = None
    first: bool = False
    lists: bool = False
    window: int | None = None
    fixed: bool = False
    sliding_base: Literal["given or same", "given or 10000", "same"] = "given or same"
    sliding_scaled: bool = True
    rotates: Literal[
        "all", "sliding", "sliding, or all without a window", "but every 4th", "but every 4th from 0", "rope_pattern",
        "finetuned", "32 layers",
    ] = "all"  # fmt: skip
    rotated_by: int = 1
    factors: Literal["all", "full", "unused"] | None = None
    yarn: Literal["betas and weight", "weight", "all"] | None = None
    beta_fast: float = 32.0
    scale: Literal["head", "setting", "rotated", "one", "gemma2", "gemma3", "grok"] = "head"
    softcap: float | None = None
    latent: Literal["scaled", "plain"] | None = None
    states: Literal["heads", "all", "interval", "none"] | None = None
    interval: int = 4
    nextn: bool = False
    causal: bool = True
    temperature: Literal["llama4", "original length", "length"] | None = None
    sinks: bool = False
    norm: Literal["after"] | None = None
    table: bool = False
    alibi: float | Literal["setting"] | None = None
    buckets: bool = False


_KINDS: dict[Rope, str] = {
    "none": "gpt2 mpt refact bloom mamba mamba2 jamba jina-bert-v2 t5 t5encoder jais rwkv6 rwkv6qwen2 rwkv7 arwkv7 "
    "nemotron_h nemotron_h_moe kimi-linear kimi-k3",
    "norm": "llama llada llama4 deci baichuan starcoder internlm2 minicpm xverse command-r cohere2 cohere2moe "
    "olmo arctic deepseek deepseek2 deepseek2-ocr deepseek32 muse-glimmer plm chatglm granite granitemoe "
    "granitehybrid granite_swa chameleon bailingmoe neo-bert smollm3 arcee ernie4_5 ernie4_5-moe "
    "mistral3 mistral4 llama-embed maincoder glm-dsa nanbeige glm4",
    "neox": "falcon falcon-h1 grok dbrx bert jina-bert-v3 modern-bert nomic-bert nomic-bert-moe eurobert "
    "stablelm bitnet qwen qwen2 dream qwen2moe qwen3 qwen3moe llada-moe rnd1 olmo2 olmoe phi2 phi3 "
    "phimoe plamo plamo2 plamo3 gemma gemma2 gemma3 gemma3n gemma4 gemma-embedding starcoder2 openelm "
    "gptneox codeshell orion nemotron exaone exaone4 exaone-moe minicpm3 bailingmoe2 dots1 hunyuan-moe "
    "jais2 gpt-oss hunyuan-dense hy_v3 lfm2 lfm2moe smallthinker seed_oss grovemoe apertus minimax-01 "
    "minimax-m2 minimax-m3 cogvlm pangu-embedded afmoe laguna qwen3next mimo2 step35 talkie mellum "
    "glm4moe hunyuan_vl",
    "mrope": "qwen2vl paddleocr",
    "imrope": "qwen3vl qwen3vlmoe qwen35 qwen35moe",
}

LEFT_OUT = {
    "clip": "it holds an encoder of images, which has no layers of text",
    "wavtokenizer-dec": "it decodes sound by convolutions",
    "gptj": "llama.cpp has no graph for it",
    "gemma4-assistant": "it drafts with the keys of another model",
    "eagle3": "it drafts with the states of another model",
    "dflash": "it drafts with the states of another model",
    "deepseek4": "it attends to compressed keys beside a window, which are rotated with values",
    "dots3note": "its latent keys have other sizes in layers that slide",
    "bailingmoe3": "its latent keys stand beside states with gates of their own",
    "graniteswitch": "adapters are chosen by a layer of its own",
    "qwen3tts": "it speaks, with two stacks in one file",
    "pockettts": "it speaks, with several stacks in one file",
}
"""Architectures that are not read, with the reason."""

_ROWS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    # not read line by line
    (
        "kimi-k3 plamo2 rwkv6qwen2 arwkv7 cogvlm minimax-01 minimax-m3 deepseek2-ocr talkie refact hunyuan_vl",
        {"checked": False},
    ),
    # what layers see
    ("afmoe olmo2 laguna mellum", {"slides": "keys", "period": 4}),
    ("gemma3", {"slides": "keys", "period": 6}),
    ("plamo3", {"slides": "keys", "period": 8}),
    ("modern-bert", {"slides": "sides", "period": 3, "first": True}),
    ("lfm2", {"slides": "keys", "period": 0}),
    ("smallthinker", {"slides": "keys", "period": 4, "first": True, "window": 4096, "fixed": True}),
    ("cohere2 cohere2moe muse-glimmer", {"slides": "keys", "when": "always", "period": 4}),
    ("exaone-moe", {"slides": "keys", "when": "always", "period": 4, "window": 128}),
    ("exaone4", {"slides": "keys", "when": "64 layers", "period": 4, "window": 4096}),
    ("gemma2", {"slides": "keys", "when": "always", "period": 2, "window": 4096}),
    ("gpt-oss", {"slides": "keys", "when": "always", "period": 2}),
    ("gemma3n", {"slides": "keys", "when": "always", "period": 5}),
    ("gemma-embedding", {"slides": "sides", "when": "always", "period": 6}),
    ("gemma4 granite_swa mimo2 step35", {"slides": "keys", "when": "always"}),
    ("llama4", {"slides": "chunks", "when": "always", "period": 4, "window": 8192, "fixed": True}),
    ("laguna cohere2moe", {"first": True}),
    ("cohere2moe mellum muse-glimmer gemma4 granite_swa mimo2 step35", {"lists": True}),
    (
        "gemma3 gemma3n gemma4 gemma-embedding mimo2 modern-bert plamo3 step35",
        {"sliding_base": "given or 10000", "sliding_scaled": False},
    ),
    ("cohere2 cohere2moe exaone4 exaone-moe granite_swa olmo2 mellum lfm2", {"sliding_base": "same"}),
    ("laguna olmo2 mellum muse-glimmer", {"sliding_scaled": False}),
    ("dream llada llada-moe rnd1 gemma-embedding", {"causal": False}),
    ("gpt-oss granite_swa mimo2", {"sinks": True}),
    # which layers rotate, and how
    ("cohere2 cohere2moe exaone-moe muse-glimmer", {"rotates": "sliding"}),
    ("exaone4", {"rotates": "sliding, or all without a window"}),
    ("afmoe llama4 smollm3", {"rotates": "but every 4th"}),
    ("smallthinker", {"rotates": "but every 4th from 0"}),
    ("granite_swa", {"rotates": "rope_pattern"}),
    ("granite granitemoe granitehybrid", {"rotates": "finetuned"}),
    ("baichuan", {"rotates": "32 layers"}),
    ("step35", {"rotated_by": 2}),
    ("glm4 glm4moe hunyuan_vl", {"sections": True}),
    (
        "apertus arcee deci exaone exaone4 exaone-moe granite granitemoe granitehybrid granite_swa llama llama-embed "
        "llama4 minicpm minicpm3 mistral3 nanbeige phi3 phimoe",
        {"factors": "all"},
    ),
    ("gemma4 step35", {"factors": "full"}),
    ("cogvlm falcon-h1 llada pangu-embedded refact", {"factors": "unused"}),
    ("mistral3", {"yarn": "betas and weight"}),
    ("deepseek2 deepseek32 mistral4", {"yarn": "weight"}),
    ("grok", {"yarn": "all", "beta_fast": 8.0}),
    # what scores are multiplied by
    ("granite granitemoe granitehybrid granite_swa", {"scale": "setting"}),
    ("bailingmoe gpt-oss", {"scale": "rotated"}),
    ("gemma3n gemma4 t5 t5encoder", {"scale": "one"}),
    ("gemma2", {"scale": "gemma2", "softcap": 50.0}),
    ("gemma3", {"scale": "gemma3"}),
    ("grok", {"scale": "grok", "softcap": 30.0}),
    ("llama4", {"temperature": "llama4"}),
    ("mistral3", {"temperature": "original length"}),
    ("deepseek2 mistral4", {"temperature": "length"}),
    ("llama4 hunyuan-dense hunyuan-moe hunyuan_vl talkie", {"norm": "after"}),
    # latent attention, states
    ("deepseek2 deepseek32 glm-dsa mistral4", {"latent": "scaled"}),
    ("minicpm3 plm kimi-linear kimi-k3", {"latent": "plain"}),
    ("mamba mamba2 rwkv6 rwkv6qwen2 rwkv7 arwkv7", {"states": "all"}),
    ("jamba granitehybrid lfm2 lfm2moe kimi-linear kimi-k3 plamo2 nemotron_h nemotron_h_moe", {"states": "heads"}),
    ("qwen3next qwen35 qwen35moe", {"states": "interval"}),
    ("minimax-01", {"states": "interval", "interval": 8}),
    ("deci", {"states": "none"}),
    (
        "bailingmoe2 cohere2moe deepseek2 deepseek32 exaone4 exaone-moe glm4 glm4moe glm-dsa hy_v3 mimo2 mistral4 "
        "nemotron_h nemotron_h_moe qwen3next qwen35 qwen35moe step35",
        {"nextn": True},
    ),
    # positions that are no rotations
    ("gpt2 starcoder bert", {"table": True, "rope": "none"}),
    ("bloom refact jina-bert-v2", {"alibi": 8.0}),
    ("mpt jais", {"alibi": "setting"}),
    ("t5 t5encoder", {"buckets": True}),
)


def _table() -> dict[str, Architecture]:
    found = {name: Architecture(rope) for rope, names in _KINDS.items() for name in names.split()}
    for names, settings in _ROWS:
        for name in names.split():
            found[name] = replace(found[name], **settings)
    return found


ARCHITECTURES = _table()
