"""Tiny models that read images, and prompts for them: text among pictures and videos."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLForConditionalGeneration,
    Qwen3VLForConditionalGeneration,
)

from situs import Axial, Positions, Rotary, Sections, Vision
from tests.parity.attention_probe import Projections, Run, SeenAttention, enliven, watch
from tests.parity.released_models import HEAD_DIM, SIZES, VOCABULARY

IMAGE, VIDEO = VOCABULARY - 2, VOCABULARY - 1
MERGE = 2  # patches a side that become one token
PATCH_NUMBERS = 3 * 2 * 4 * 4  # channels, frames of a patch, its height and width

Row = Sequence[int | Vision]
"""Tokens of text, and pictures; one of more than one frame is a video."""


@dataclass(frozen=True)
class MultimodalModel:
    """An architecture, and the encodings that should match its text model and its vision tower."""

    name: str
    architecture: Any
    sections: Sections
    layer: Projections
    text: dict[str, Any]
    vision: dict[str, Any]

    def __str__(self) -> str:
        return self.name

    @property
    def encoding(self) -> Rotary:
        return Rotary(head_dim=HEAD_DIM, base=1e6, split=self.sections)

    @property
    def vision_encoding(self) -> Rotary:
        return Rotary(head_dim=HEAD_DIM, split=Axial(axes=2))

    def build(self) -> Any:
        rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": list(self.sections.sizes)}
        text = {**SIZES, "rope_parameters": rope, **self.text}
        vision = {"depth": 1, "num_heads": 2, "patch_size": 4, "spatial_merge_size": MERGE, **self.vision}
        config = self.architecture.config_class(
            text_config=deepcopy(text),
            vision_config=deepcopy(vision),
            image_token_id=IMAGE,
            video_token_id=VIDEO,
            attn_implementation="eager",
        )
        return enliven(self.architecture(config).to(torch.get_default_dtype()).eval())


LAYER = "model.language_model.layers.0.self_attn"
QWEN2 = MultimodalModel(
    "qwen2-vl",
    Qwen2VLForConditionalGeneration,
    Sections(sizes=(2, 3, 3)),
    Projections(LAYER, HEAD_DIM),
    {},
    {"embed_dim": 2 * HEAD_DIM, "hidden_size": 64},
)
QWEN25 = MultimodalModel(
    "qwen2.5-vl",
    Qwen2_5_VLForConditionalGeneration,
    Sections(sizes=(2, 3, 3)),
    Projections(LAYER, HEAD_DIM),
    {},
    {"hidden_size": 2 * HEAD_DIM, "out_hidden_size": 64, "intermediate_size": 32, "fullatt_block_indexes": [0]},
)
QWEN3 = MultimodalModel(
    "qwen3-vl",
    Qwen3VLForConditionalGeneration,
    Sections(sizes=(4, 2, 2), order="interleaved"),
    Projections(LAYER, HEAD_DIM, query="q_norm", key="k_norm"),
    {"head_dim": HEAD_DIM},
    {
        "hidden_size": 2 * HEAD_DIM,
        "out_hidden_size": 64,
        "intermediate_size": 32,
        "num_position_embeddings": 64,
        "deepstack_visual_indexes": [0],
    },
)


def prompt(rows: Sequence[Row]) -> tuple[dict[str, Tensor], Positions]:
    """What a processor would hand to the model for these rows, padded left, and our positions of them."""
    grids: dict[int, list[tuple[int, int, int]]] = {1: [], 2: []}
    kinds: list[list[int]] = []
    for row in rows:
        kinds.append([])
        for segment in row:
            if isinstance(segment, Vision):
                kind = 1 if segment.time == 1 else 2
                grids[kind].append((segment.time, MERGE * segment.height, MERGE * segment.width))
                kinds[-1] += [kind] * (segment.time * segment.height * segment.width)
            else:
                kinds[-1] += [0] * segment
    longest = max(map(len, kinds))
    types = torch.tensor([[0] * (longest - len(kind)) + kind for kind in kinds])
    mask = torch.tensor([[0] * (longest - len(kind)) + [1] * len(kind) for kind in kinds])
    text = torch.randint(1, IMAGE, types.shape)
    inputs = {
        "input_ids": torch.where(types == 1, IMAGE, torch.where(types == 2, VIDEO, text * mask)),
        "mm_token_type_ids": types.int(),
        "attention_mask": mask,
    }
    for kind, pixels, grid in ((1, "pixel_values", "image_grid_thw"), (2, "pixel_values_videos", "video_grid_thw")):
        if grids[kind]:
            inputs[grid] = torch.tensor(grids[kind])
            inputs[pixels] = torch.randn(int(inputs[grid].prod(-1).sum()), PATCH_NUMBERS)
    return inputs, Positions.batch([Positions.mixed(row) for row in rows], side="left")


def catch_vision(model: nn.Module, run: Run) -> SeenAttention:
    """The first layer of a vision tower, which has one row: patches of all pictures, one after another."""
    seen = watch(model.get_submodule("model.visual.blocks.0.attn"), run, returned=("qkv",), received="proj")
    query, key, value = seen["qkv"].unflatten(-1, (3, -1, HEAD_DIM)).permute(1, 2, 0, 3).unsqueeze(1)
    return SeenAttention(query, key, value, seen["proj"].unflatten(-1, (-1, HEAD_DIM)).transpose(0, 1).unsqueeze(0))
