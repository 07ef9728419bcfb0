"""Learned image tables at other resolutions: our ``resize`` against released models' interpolation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    Dinov2Config,
    Dinov2Model,
    SiglipVisionConfig,
    SiglipVisionModel,
    ViltConfig,
    ViltModel,
    ViTConfig,
    ViTModel,
)
from transformers.models.siglip2.modeling_siglip2 import Siglip2VisionEmbeddings
from transformers.vision_utils import get_vision_interpolation_indices_and_weights

from situs import LearnedGrid

DIM, PATCH, SIDE = 24, 4, 6
SIZES: dict[str, Any] = {
    "hidden_size": DIM,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 32,
    "image_size": SIDE * PATCH,
    "patch_size": PATCH,
}
OTHER_SIZES = [(9, 9), (4, 4), (5, 11), (13, 2), (6, 6), (4, 9)]  # the last has as many patches, but is not square

each_size = pytest.mark.parametrize("size", OTHER_SIZES, ids=lambda size: f"{size[0]}x{size[1]}")


def pixels(size: tuple[int, int]) -> Tensor:
    return torch.randn(2, 3, size[0] * PATCH, size[1] * PATCH)


def ours_from(table: Tensor, prefix: int) -> LearnedGrid:
    ours = LearnedGrid(dim=DIM, size=(SIDE, SIDE), prefix=prefix)
    ours.load_state_dict({"table": table.reshape(-1, DIM)})
    return ours


@each_size
@torch.no_grad()
def test_vit_at_another_resolution_equals_our_resized_table(size: tuple[int, int]) -> None:
    embeddings = ViTModel(ViTConfig(**SIZES)).eval().embeddings
    embeddings.position_embeddings.normal_()
    image = pixels(size)
    theirs = embeddings(image, interpolate_pos_encoding=True)
    tokens = torch.cat((embeddings.cls_token.expand(2, -1, -1), embeddings.patch_embeddings(image)), 1)
    ours = ours_from(embeddings.position_embeddings, 1).resize(size)
    torch.testing.assert_close(ours(tokens), theirs, rtol=0.0, atol=1e-6)


@each_size
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@torch.no_grad()
def test_dinov2_at_another_resolution_equals_our_resized_table(size: tuple[int, int], dtype: torch.dtype) -> None:
    embeddings = Dinov2Model(Dinov2Config(**SIZES)).eval().embeddings.to(dtype)
    embeddings.position_embeddings.normal_()
    image = pixels(size).to(dtype)
    tokens = torch.cat((embeddings.cls_token.expand(2, -1, -1), embeddings.patch_embeddings(image)), 1)
    theirs = embeddings.interpolate_pos_encoding(tokens, *image.shape[-2:])
    ours = ours_from(embeddings.position_embeddings, 1).to(dtype).resize(size)
    assert ours.table.dtype == dtype
    # both interpolate in float32 and round once
    torch.testing.assert_close(ours.table, theirs[0], rtol=0.0, atol=0.0 if dtype == torch.bfloat16 else 1e-6)


@each_size
@torch.no_grad()
def test_siglip_which_has_no_class_token_equals_our_resized_table(size: tuple[int, int]) -> None:
    embeddings = SiglipVisionModel(SiglipVisionConfig(**SIZES)).eval().embeddings
    image = pixels(size)
    theirs = embeddings(image, interpolate_pos_encoding=True)
    patches = embeddings.patch_embedding(image).flatten(2).transpose(1, 2)
    ours = ours_from(embeddings.position_embedding.weight, 0).resize(size)
    torch.testing.assert_close(ours(patches), theirs, rtol=0.0, atol=1e-6)


@each_size
@torch.no_grad()
def test_siglip2_which_resizes_bilinearly_with_antialiasing_equals_ours(size: tuple[int, int]) -> None:
    table = torch.randn(SIDE, SIDE, DIM)
    shapes: Any = torch.tensor([size])
    theirs = Siglip2VisionEmbeddings.resize_positional_embeddings(table, shapes, size[0] * size[1])
    ours = ours_from(table, 0).resize(size, mode="bilinear", antialias=True)
    torch.testing.assert_close(ours.table.detach(), theirs[0], rtol=0.0, atol=1e-6)


@torch.no_grad()
def test_vit_at_its_own_resolution_equals_our_table_bit_for_bit() -> None:
    embeddings = ViTModel(ViTConfig(**SIZES)).eval().embeddings
    image = pixels((SIDE, SIDE))
    tokens = torch.cat((embeddings.cls_token.expand(2, -1, -1), embeddings.patch_embeddings(image)), 1)
    ours = ours_from(embeddings.position_embeddings, 1).resize((SIDE, SIDE))
    assert torch.equal(ours(tokens), embeddings(image))


@pytest.mark.parametrize("size", [(9, 9), (5, 11), (6, 6)], ids=str)
@torch.no_grad()
def test_vilt_keeps_the_corner_patches(size: tuple[int, int]) -> None:
    config = ViltConfig(**SIZES, max_image_length=-1, vocab_size=10, modality_type_vocab_size=2)
    embeddings = ViltModel(config).eval().embeddings
    embeddings.position_embeddings.normal_()
    image = pixels(size)
    patches = embeddings.patch_embeddings(image).flatten(2).transpose(1, 2)
    theirs, *_ = embeddings.visual_embed(image, torch.ones(2, *image.shape[-2:], dtype=torch.long), max_image_length=-1)
    ours = ours_from(embeddings.position_embeddings, 1).resize(size, mode="bilinear", align_corners=True)
    tokens = torch.cat((embeddings.cls_token.expand(2, -1, -1), patches), 1)
    found = ours(tokens)[:, 1:]
    # it shuffles the patches, so that each of ours is one of theirs
    distances = (found[:, :, None] - theirs[:, None, 1:]).abs().amax(-1).amin(-1)
    assert float(distances.max()) <= 1e-6


def test_qwen3_vl_keeps_the_corner_patches() -> None:
    height, width = 4, 10
    indices, weights = get_vision_interpolation_indices_and_weights(
        torch.tensor([[1, height, width]]), SIDE, mode="bilinear", align_corners=True, spatial_merge_size=1
    )
    table = torch.rand(SIDE * SIDE, DIM)  # theirs reads at float32 places
    theirs = (table[indices] * weights[..., None]).sum(1)
    ours = ours_from(table, 0).resize((height, width), mode="bilinear", align_corners=True)
    torch.testing.assert_close(ours.table.detach(), theirs, rtol=0.0, atol=1e-6)
