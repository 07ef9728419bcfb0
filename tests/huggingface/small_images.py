"""Small models of transformers that take images, with random weights, tables and norms."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import torch

from tests.huggingface.small_models import hf, randomised

SIDE = 32  # pixels
SIZES: dict[str, Any] = {
    "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 48,
}  # fmt: skip
PATCHES: dict[str, Any] = {**SIZES, "image_size": SIDE, "patch_size": 4}
BEIT = {**PATCHES, "use_relative_position_bias": True, "hidden_dropout_prob": 0.0, "drop_path_rate": 0.0}
SAM: dict[str, Any] = {
    "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "image_size": SIDE, "patch_size": 4,
    "window_size": 3, "global_attn_indexes": [1], "mlp_dim": 48, "output_channels": 16, "initializer_range": 0.02,
}  # fmt: skip
WINDOWS: dict[str, Any] = {
    "image_size": SIDE, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4,
    "drop_path_rate": 0.0,
}  # fmt: skip


def sam(way: str) -> Any:
    """An image encoder of SAM, with windows in one layer."""
    return hf.SamVisionModel(hf.SamVisionConfig(**SAM, attn_implementation=way))


def maskformer() -> Any:
    """The backbone of a MaskFormer."""
    file = import_module("transformers.models.maskformer.modeling_maskformer_swin")
    return file.MaskFormerSwinModel(hf.MaskFormerSwinConfig(**WINDOWS))


IMAGES: dict[str, Callable[[], Any]] = {
    "vit": lambda: hf.ViTModel(hf.ViTConfig(**PATCHES)),
    "beit": lambda: hf.BeitModel(hf.BeitConfig(**BEIT)),
    "beit, one table": lambda: hf.BeitModel(
        hf.BeitConfig(**{**BEIT, "use_relative_position_bias": False}, use_shared_relative_position_bias=True)
    ),
    "sam": lambda: sam("sdpa"),
    "sam, eager": lambda: sam("eager"),
    "sam hq": lambda: hf.SamHQVisionModel(hf.SamHQVisionConfig(**SAM)),
    "vitdet": lambda: hf.VitDetModel(
        hf.VitDetConfig(
            hidden_size=32, num_attention_heads=4, num_hidden_layers=2, image_size=SIDE, pretrain_image_size=SIDE,
            patch_size=4, mlp_ratio=2, window_block_indices=[0], window_size=3, use_relative_position_embeddings=True,
        )
    ),
    "swin": lambda: hf.SwinModel(hf.SwinConfig(**WINDOWS)),
    "swin v2": lambda: hf.Swinv2Model(hf.Swinv2Config(**WINDOWS)),
    "swin2sr": lambda: hf.Swin2SRModel(
        hf.Swin2SRConfig(
            image_size=SIDE, patch_size=1, embed_dim=16, depths=[2], num_heads=[2], window_size=4, drop_path_rate=0.0
        )
    ),
    "donut": lambda: hf.DonutSwinModel(hf.DonutSwinConfig(**WINDOWS)),
    "maskformer": maskformer,
}  # fmt: skip


def made_image(name: str, dtype: torch.dtype = torch.float32) -> Any:
    """A model whose weights, biases, tables and norms are all random."""
    return randomised(IMAGES[name], dtype)


def images(dtype: torch.dtype = torch.float32, *, side: int = SIDE) -> dict[str, torch.Tensor]:
    """What a model is called with for two images."""
    pixels = torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(side))
    return {"pixel_values": pixels.to(dtype)}


def layer_of(model: str, cls: str) -> Any:
    """A layer of SAM's kind, of 8 x 8 cells."""
    config = SimpleNamespace(
        hidden_size=32, num_attention_heads=4, image_size=SIDE, patch_size=4, attention_dropout=0.0, qkv_bias=True,
        use_rel_pos=True, use_relative_position_embeddings=True,
    )  # fmt: skip
    made = getattr(import_module(f"transformers.models.{model}.modeling_{model}"), cls)
    match model:
        case "seggpt":
            return randomised(lambda: made(config))
        case "vitdet":
            return randomised(lambda: made(config, (8, 8)))
    return randomised(lambda: made(config, 0))
