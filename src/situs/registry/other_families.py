"""Released models without rotary: rows of ``situs.registry.families``."""

from __future__ import annotations

from situs.registry.family import Family

OTHERS = (
    Family(
        "T5, mT5, Flan-T5, Switch, Pix2Struct, UMT5, LongT5",
        "",
        "situs.T5Bias(num_heads=8)",
        note="encoders; decoders: bidirectional=False, and none in cross-attention, but scale=1.0; all layers share "
        "one encoding, but in UMT5 each has its own; the softmax scale is 1 in all, which the encoding declares",
    ),
    Family("MPNet", "", "situs.T5Bias(num_heads=12, softmax_scale=None)"),
    Family("BLOOM, MPT", "", "situs.ALiBi(num_heads=8)", "causal=True"),
    Family(
        "Falcon with ALiBi",
        "",
        "situs.ALiBi(num_heads=8, factor=1 / 8)",
        "causal=True",
        note="configurations with alibi true; factor is 1 / sqrt(head_dim). The others: "
        "situs.Rotary(head_dim=head_dim)",
    ),
    Family("DeBERTa v1", "", "situs.Deberta(dim=768, num_heads=12, head_dim=64)"),
    Family(
        "DeBERTa v2 and v3, SEW-D",
        "",
        "situs.Deberta(dim=768, num_heads=12, head_dim=64, buckets=256, layer_norm=True)",
        note="with share_att_key true, the attention's own projections serve: share_att_key=True, and "
        "encoding.tie(query=..., key=...)",
    ),
    Family("XLNet, Transformer-XL", "", "situs.TransformerXL(dim=1024, num_heads=16, head_dim=64)"),
    Family(
        "wav2vec2-conformer, SeamlessM4T, Parakeet, FastSpeech 2 conformer",
        "",
        'situs.TransformerXL(dim=512, num_heads=8, head_dim=64, layout="interleaved")',
    ),
    Family(
        "Gemma 3n's audio",
        "",
        'situs.TransformerXL(dim=512, num_heads=8, head_dim=64, spacing="inclusive", biases=False)',
    ),
    Family(
        "WavLM",
        "",
        "situs.GatedBias(num_heads=8)",
        "features={'bias_gate': bias_gate}",
        note="all layers share the table of the first: encoding.bias_by_offset = first.bias_by_offset; bias_gate is "
        "gate_a * (gate_b * gru_rel_pos_const - 1) + 2 of a layer, (batch, heads, tokens, 1); "
        "situs.GatedBias(num_heads=8, dim=512) computes it from hidden states, with gru_rel_pos_linear's eight rows "
        "added up by fours",
    ),
    Family("wav2vec2-bert", "", "situs.Shaw(num_heads=8, head_dim=64, max_distance=64, max_ahead=8, values=False)"),
    Family("VITS", "", 'situs.Shaw(num_heads=2, head_dim=96, max_distance=4, beyond="nothing")'),
    Family(
        "SpeechT5, Granite Speech",
        "",
        'situs.Shaw(num_heads=8, head_dim=64, max_distance=160, values=False, rows="query_minus_key")',
    ),
    Family(
        "UDOP, LayoutLMv3",
        "",
        "situs.Boxes(num_heads=8)",
        note="positions=encoding.positions(boxes), of tokens' boxes on the page: places in the text and boxes are "
        "coordinates of one position; UDOP: anchor='centre', and softmax_scale=1.0; LayoutLMv3: factor=1 / "
        "sqrt(head_dim)",
    ),
    Family(
        "SAM, ViTDet, SegGPT",
        "",
        "situs.ViTDet(num_heads=12, head_dim=64)",
        "positions=situs.Positions.grid(4, 6)",
    ),
    Family("Swin, Donut", "", "situs.SwinBias(num_heads=4, window=(7, 7))", "positions=situs.Positions.grid(4, 6)"),
    Family(
        "Swin v2",
        "",
        'situs.SwinBias(num_heads=4, window=(8, 8), version="v2")',
        "positions=situs.Positions.grid(4, 6)",
    ),
    Family(
        "BEiT, Data2Vec vision",
        "",
        "situs.SwinBias(num_heads=12, window=(14, 14), cls=True)",
        "positions=situs.Positions.grid(4, 6, prefix=1)",
    ),
    Family(
        "LeViT",
        "",
        "situs.SwinBias(num_heads=4, window=(14, 14), signed=False)",
        "positions=situs.Positions.grid(4, 6)",
        note="encoding.table is attention_biases.T, of the distances |dy| and |dx|; layers that subsample: "
        "positions=situs.Positions.grid(...) of every second cell, key_positions of all",
    ),
    Family(
        "CrossFormer",
        "",
        'situs.MLPBias(num_heads=4, axes=2, width=16, depth=3, norm=True, activation="relu")',
        "positions=situs.Positions.grid(4, 6)",
        note="within a group of patches; width is that of pos_proj, and the output's bias is left out, since softmax "
        "cancels it",
    ),
    Family(
        "x-transformers with dynamic_pos_bias",
        "",
        "situs.MLPBias(num_heads=8, width=128)",
        "causal=True",
        note="width is dim // 4; depth, log_distance and norm are dynamic_pos_bias_mlp_depth, "
        "dynamic_pos_bias_log_distance and dynamic_pos_bias_norm; the output's bias is left out, since softmax cancels "
        "it",
    ),
    Family(
        "GPT-2, BERT, CLIP's text and others with a table",
        "",
        "situs.Learned(dim=768, max_length=1024)",
        note="x = encoding(x), before the first layer; max_length counts the rows of the table",
    ),
    Family(
        "RoBERTa, BART, OPT",
        "",
        "situs.Learned(dim=768, max_length=1026, offset=2)",
        note="max_length counts all rows of the table, the first two too, which are not for positions; RoBERTa: "
        "padding_row=1",
    ),
    Family(
        "ViT, CLIP, DINOv2",
        "",
        "situs.LearnedGrid(dim=768, size=(14, 14), prefix=1)",
        note="x = encoding(x, situs.Positions.grid(14, 14, prefix=1)); prefix counts [CLS]; encoding.resize makes a "
        "table for another size",
    ),
    Family(
        "M2M-100, XGLM, Speech2Text",
        "",
        'situs.Sinusoidal(dim=512, layout="concatenated", spacing="inclusive", offset=2, padding="zeros")',
    ),
    Family("MusicGen", "", 'situs.Sinusoidal(dim=512, layout="concatenated", spacing="inclusive", cosines_first=True)'),
    Family(
        "Forgetting Transformer (FoX)",
        "",
        "situs.Forgetting(num_heads=8)",
        "causal=True, features={'gate': gate}",
        note="gate is what the layer's forget projection makes of the hidden states, (batch, heads, tokens, 1), "
        "before the sigmoid; situs.Attention(..., encoding=situs.Forgetting(num_heads=8, dim=512)) computes it by "
        "itself",
    ),
)
