"""What there is, known before any of it is loaded: every encoding and every scaling of rotary, by name.

``situs list`` and ``situs --help`` read it, and so need no torch. `make names` writes it from the files in encodings/,
where each is defined, and tests compare the two.
"""

from __future__ import annotations

from typing import NamedTuple


class Listed(NamedTuple):
    """Hold where an encoding or a scaling is defined, and what people ask about it first."""

    module: str
    cls: str
    place: str
    learned: bool
    """Whether it has parameters, made with its defaults."""
    paper: str
    formula: str


# names: begin
# fmt: off
ENCODINGS: dict[str, Listed] = {
    "alibi": Listed(
        "situs.encodings.alibi", "ALiBi", "score", False,
        "Press et al. 2022, Train Short, Test Long: Attention with Linear Biases Enables Input Length "
        "Extrapolation, arXiv:2108.12409",
        "q_i . k_j / sqrt(d) - m_h |i - j|",
    ),
    "boxes": Listed(
        "situs.encodings.boxes", "Boxes", "score", True,
        "Xu et al. 2021, LayoutLMv2: Multi-modal Pre-training for Visually-rich Document Understanding, "
        "arXiv:2012.14740",
        "q_i . k_j / sqrt(d) + text[bucket(j - i), h] + x[bucket(x_j - x_i), h] + y[bucket(y_j - y_i), h]",
    ),
    "cope": Listed(
        "situs.encodings.cope", "CoPE", "score", True,
        "Golovneva et al. 2024, Contextual Position Encoding: Learning to Count What's Important, "
        "arXiv:2405.18719",
        "(q_i . k_j + q_i . e[p_ij]) / sqrt(d), p_ij = sum of sigmoid(q_i . k_l / sqrt(d)) over l from j to i",
    ),
    "deberta": Listed(
        "situs.encodings.deberta", "Deberta", "score", True,
        "He et al. 2021, DeBERTa: Decoding-enhanced BERT with Disentangled Attention, arXiv:2006.03654",
        "(q_i . k_j + q_i . K[d(i, j)] + k_j . Q[d(i, j)]) / sqrt(3 d)",
    ),
    "fire": Listed(
        "situs.encodings.fire", "Fire", "score", True,
        "Li et al. 2024, Functional Interpolation for Relative Positions Improves Long Context Transformers, "
        "arXiv:2310.04418",
        "q_i . k_j / sqrt(d) + f_h(log(1 + c |i - j|) / log(1 + c max(L, i)))",
    ),
    "forgetting": Listed(
        "situs.encodings.forgetting", "Forgetting", "score", True,
        "Lin et al. 2025, Forgetting Transformer: Softmax Attention with a Forget Gate, arXiv:2503.02130",
        "q_i . k_j / sqrt(d) + sum of log sigmoid(f_l) over l from j + 1 to i, f_l = W x_l + b",
    ),
    "gated": Listed(
        "situs.encodings.gated", "GatedBias", "score", True,
        "Chen et al. 2022, WavLM: Large-Scale Self-Supervised Pre-Training for Full Stack Speech Processing, "
        "arXiv:2110.13900",
        "q_i . k_j / sqrt(d) + g_h,i table[bucket(j - i), h], g_h,i = 2 - a + a b c_h, a, b = sigmoid(W x_h,i"
        " + w)",
    ),
    "kerple": Listed(
        "situs.encodings.kerple", "Kerple", "score", True,
        "Chi et al. 2022, KERPLE: Kernelized Relative Positional Embedding for Length Extrapolation, "
        "arXiv:2205.09921",
        "q_i . k_j / sqrt(d) - r1_h log(1 + r2_h |i - j|)",
    ),
    "learned": Listed(
        "situs.encodings.learned", "Learned", "input", True,
        "Gehring et al. 2017, Convolutional Sequence to Sequence Learning, arXiv:1705.03122",
        "x_n + table[n + offset]",
    ),
    "learned_grid": Listed(
        "situs.encodings.learned_grid", "LearnedGrid", "input", True,
        "Dosovitskiy et al. 2020, An Image is Worth 16x16 Words, arXiv:2010.11929",
        "x_n + table[prefix + row * width + column]",
    ),
    "lerope": Listed(
        "situs.encodings.lerope", "LeRoPE", "query and key", True,
        "Mistral AI 2026, Mistral Large 4 (released code, no paper)",
        "q'_m = R(m) q_m, k'_n = R(n) k_n; R(m) rotates pair i by m base^(-2i/d) exp(a_i)",
    ),
    "mlp": Listed(
        "situs.encodings.mlp", "MLPBias", "score", True,
        "Wang et al. 2021, CrossFormer: A Versatile Vision Transformer Hinging on Cross-scale Attention, "
        "arXiv:2108.00154; x-transformers (released code)",
        "q_i . k_j / sqrt(d) + MLP_h(i - j)",
    ),
    "none": Listed(
        "situs.encodings.nope", "NoPE", "nowhere", False,
        "Kazemnejad et al. 2023, The Impact of Positional Encoding on Length Generalization, arXiv:2305.19466",
        "score[i, j] = q_i . k_j / sqrt(d)",
    ),
    "pope": Listed(
        "situs.encodings.pope", "PoPE", "query and key", True,
        "Gopalakrishnan et al. 2025, Decoupling the \"What\" and \"Where\" With Polar Coordinate Positional "
        "Embeddings, arXiv:2509.10534",
        "sum_c softplus(q_ic) softplus(k_jc) cos((j - i) base^(-c/d) + delta_hc)",
    ),
    "projected": Listed(
        "situs.encodings.projected", "ProjectedBias", "score", True,
        "Inkling (released code, no paper)",
        "q_i . k_j / d + W x_i . P[:, i - j] for 0 <= i - j < distances",
    ),
    "rope_mixed": Listed(
        "situs.encodings.rope_mixed", "RoPEMixed", "query and key", True,
        "Heo et al. 2024, Rotary Position Embedding for Vision Transformer, arXiv:2403.13298",
        "q'_p = R(p) q_p, k'_p = R(p) k_p; R(y, x) rotates pair i of head h by y f^y_hi + x f^x_hi",
    ),
    "rotary": Listed(
        "situs.encodings.rotary", "Rotary", "query and key", False,
        "Su et al. 2021, RoFormer: Enhanced Transformer with Rotary Position Embedding, arXiv:2104.09864",
        "q'_m = R(m) q_m, k'_n = R(n) k_n; R(m) rotates pair i by m base^(-2i/d)",
    ),
    "rotary_value": Listed(
        "situs.encodings.rotary_value", "RotaryValue", "value", False,
        "DeepSeek-AI 2026, DeepSeek-V4 (released code); Su et al. 2021, RoFormer, arXiv:2104.09864 (released "
        "code)",
        "o_i = R(-i) sum_j a_ij R(j) v_j",
    ),
    "sandwich": Listed(
        "situs.encodings.sandwich", "Sandwich", "score", False,
        "Chi et al. 2023, Dissecting Transformer Length Extrapolation via the Lens of Receptive Field "
        "Analysis, arXiv:2212.10356",
        "q_i . k_j / sqrt(d) + (H / 8h) sum_k cos((i - j) / base^(2k / D))",
    ),
    "shaw": Listed(
        "situs.encodings.shaw", "Shaw", "score and value", True,
        "Shaw et al. 2018, Self-Attention with Relative Position Representations, arXiv:1803.02155",
        "q_i . (k_j + a[clip(j - i)]) / sqrt(d), and values v_j + r[clip(j - i)]",
    ),
    "sinusoidal": Listed(
        "situs.encodings.sinusoidal", "Sinusoidal", "input", False,
        "Vaswani et al. 2017, Attention Is All You Need, arXiv:1706.03762",
        "x_n + p_n; p_n[2i] = sin(n base^(-2i/d)), p_n[2i+1] = cos(n base^(-2i/d))",
    ),
    "swin": Listed(
        "situs.encodings.swin", "SwinBias", "score", True,
        "Liu et al. 2021, Swin Transformer: Hierarchical Vision Transformer using Shifted Windows, "
        "arXiv:2103.14030; v2: arXiv:2111.09883",
        "q_i . k_j / sqrt(d) + table[i - j, h], i and j cells of a window",
    ),
    "t5": Listed(
        "situs.encodings.t5", "T5Bias", "score", True,
        "Raffel et al. 2020, Exploring the Limits of Transfer Learning with a Unified Text-to-Text "
        "Transformer, arXiv:1910.10683",
        "q_i . k_j + table[bucket(j - i), h]",
    ),
    "temperature": Listed(
        "situs.encodings.temperature", "Temperature", "query", False,
        "Nakanishi 2025, Scalable-Softmax Is Superior for Attention, arXiv:2501.19399; Llama 4 (released "
        "code)",
        "q'_i = t(i) q_i; t(i) = 1 + a log(1 + floor((i + 1) / L))",
    ),
    "transformer_xl": Listed(
        "situs.encodings.transformer_xl", "TransformerXL", "score", True,
        "Dai et al. 2019, Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context, "
        "arXiv:1901.02860",
        "(q_i . k_j + q_i . W r_{i-j} + u . k_j + v . W r_{i-j}) / sqrt(d)",
    ),
    "tupe": Listed(
        "situs.encodings.tupe", "Tupe", "score", True,
        "Ke et al. 2021, Rethinking Positional Encoding in Language Pre-training, arXiv:2006.15595",
        "q_i . k_j / sqrt(2 d) + reset(p_i U_q . p_j U_k / sqrt(2 d) + b[j - i])",
    ),
    "vitdet": Listed(
        "situs.encodings.vitdet", "ViTDet", "score", True,
        "Li et al. 2022, MViTv2: Improved Multiscale Vision Transformers for Classification and Detection, "
        "arXiv:2112.01526",
        "q_i . k_j / sqrt(d) + q_i . R_h[y_i - y_j] + q_i . R_w[x_i - x_j]",
    ),
    "xpos": Listed(
        "situs.encodings.xpos", "XPos", "query and key", False,
        "Sun et al. 2022, A Length-Extrapolatable Transformer, arXiv:2212.10554",
        "q'_m = z^(m/B) R(m) q_m, k'_n = z^(-n/B) R(n) k_n; z_i = (2i/d + g)/(1 + g)",
    ),
}

SCALINGS: dict[str, Listed] = {
    "linear": Listed(
        "situs.encodings.scaling", "LinearScaling", "query and key", False,
        "Chen et al. 2023, Extending Context Window of Large Language Models via Positional Interpolation, "
        "arXiv:2306.15595",
        "w_i / s",
    ),
    "ntk": Listed(
        "situs.encodings.scaling", "NTKScaling", "query and key", False,
        "bloc97 2023, NTK-Aware Scaled RoPE (a post, no paper)",
        "(base s^(d/(d-2)))^(-2i/d)",
    ),
    "dynamic_ntk": Listed(
        "situs.encodings.scaling", "DynamicNTKScaling", "query and key", False,
        "emozilla 2023, Dynamically Scaled RoPE (a post, no paper)",
        "ntk with the factor s L / L0 - (s - 1) where L > L0, plain where not",
    ),
    "ntk_by_parts": Listed(
        "situs.encodings.scaling", "NTKByPartsScaling", "query and key", False,
        "Peng et al. 2024, YaRN: Efficient Context Window Extension of Large Language Models, "
        "arXiv:2309.00071, section 3.2",
        "(1 - g_i) w_i / s + g_i w_i; g_i rises from 0 to 1 with the turns of the pair within L0",
    ),
    "yarn": Listed(
        "situs.encodings.scaling", "YaRN", "query and key", False,
        "Peng et al. 2024, YaRN: Efficient Context Window Extension of Large Language Models, "
        "arXiv:2309.00071",
        "ntk_by_parts, and cosines and sines times 0.1 ln(s) + 1",
    ),
    "longrope": Listed(
        "situs.encodings.scaling", "LongRoPE", "query and key", False,
        "Ding et al. 2024, LongRoPE: Extending LLM Context Window Beyond 2 Million Tokens, arXiv:2402.13753",
        "w_i / long_factors[i] where L > L0, w_i / short_factors[i] where not; cosines and sines times sqrt(1"
        " + ln(s) / ln(L0))",
    ),
    "llama3": Listed(
        "situs.encodings.scaling", "Llama3Scaling", "query and key", False,
        "Llama team 2024, The Llama 3 Herd of Models, arXiv:2407.21783",
        "(1 - g_i) w_i / s + g_i w_i; g_i rises from 0 to 1 between low_frequency_factor and "
        "high_frequency_factor turns within L0",
    ),
    "proportional": Listed(
        "situs.encodings.scaling", "ProportionalScaling", "query and key", False,
        "Gemma team (released code, no paper)",
        "w_i / s for the first fraction of the pairs, 0 for the others",
    ),
    "selfextend": Listed(
        "situs.encodings.bands", "SelfExtend", "query and key", False,
        "Jin et al. 2024, LLM Maybe LongLM: Self-Extend LLM Context Window Without Tuning, arXiv:2401.01325",
        "w_i; distance i - j below the window, i // G - j // G + W - W // G from it on",
    ),
    "rerope": Listed(
        "situs.encodings.bands", "ReRoPE", "query and key", False,
        "Su 2023, Rectified Rotary Position Embeddings (a post, no paper)",
        "w_i; distance i - j below the window, W + leak (i - j - W) from it on",
    ),
    "dualchunk": Listed(
        "situs.encodings.bands", "DualChunk", "query and key", False,
        "An et al. 2024, Training-Free Long-Context Scaling of Large Language Models, arXiv:2402.17463",
        "w_i; distance i - j within a chunk of s = C - local tokens, min(i % s + s, C) - j % s to the chunk "
        "before, C - j % s to earlier ones",
    ),
}
# fmt: on
# names: end
