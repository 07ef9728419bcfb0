"""Layers with every kind of encoding, and tokens for them."""

import torch
from torch import Tensor

import situs
from situs import Attention, Encoding

DIM, HEADS, HEAD_DIM, LENGTH = 32, 4, 8, 13


YARN = situs.YaRN(factor=4.0, original_length=8, mscale=0.7, mscale_all_dim=1.0)


def made(name: str) -> list[Encoding]:
    each: dict[str, list[Encoding]] = {
        "none": [],
        "rotary": [situs.Rotary(head_dim=HEAD_DIM)],
        "yarn": [situs.Rotary(head_dim=HEAD_DIM, scaling=YARN)],
        "dynamic": [situs.Rotary(head_dim=HEAD_DIM, scaling=situs.DynamicNTKScaling(original_length=8, factor=2.0))],
        "xpos": [situs.XPos(head_dim=HEAD_DIM)],
        "xpos middle": [situs.XPos(head_dim=HEAD_DIM, centre="middle")],
        "t5": [situs.T5Bias(num_heads=HEADS, bidirectional=False, init_std=1.0)],
        "alibi": [situs.ALiBi(num_heads=HEADS)],
        "fire": [situs.Fire(num_heads=HEADS, threshold=4.0)],
        "shaw": [situs.Shaw(num_heads=HEADS, head_dim=HEAD_DIM, max_distance=3)],
        "transformer_xl": [situs.TransformerXL(dim=12, num_heads=HEADS, head_dim=HEAD_DIM, init_std=0.5)],
        "tupe": [situs.Tupe(dim=12, num_heads=HEADS, head_dim=HEAD_DIM, init_std=0.5)],
        "deberta": [situs.Deberta(dim=12, num_heads=HEADS, head_dim=HEAD_DIM, init_std=0.5)],
        "cope": [situs.CoPE(num_heads=HEADS, head_dim=HEAD_DIM, init_std=1.0)],
        "rotary and t5": [situs.Rotary(head_dim=HEAD_DIM), situs.T5Bias(num_heads=HEADS, softmax_scale=None)],
        "rotary and shaw": [situs.Rotary(head_dim=HEAD_DIM), situs.Shaw(num_heads=HEADS, head_dim=HEAD_DIM)],
    }  # fmt: skip
    return each[name]


NAMES = [
    "none", "rotary", "yarn", "xpos", "t5", "alibi", "fire", "shaw", "transformer_xl", "tupe", "deberta", "cope",
    "rotary and t5", "rotary and shaw",
]  # fmt: skip


def layer_with(name: str, **options: bool | int) -> Attention:
    torch.manual_seed(1)
    return Attention(dim=DIM, num_heads=HEADS, encoding=made(name), **options).double().eval()  # type: ignore[arg-type]


def tokens(batch: int = 2, length: int = LENGTH) -> Tensor:
    return torch.randn(batch, length, DIM, dtype=torch.float64)
