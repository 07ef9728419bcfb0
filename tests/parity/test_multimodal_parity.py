"""Positions of text among pictures, M-RoPE and two-dimensional rotary against Qwen's and Mistral's models."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from transformers import PixtralVisionConfig, PixtralVisionModel
from transformers.models.qwen2_vl import modeling_qwen2_vl
from transformers.models.qwen3_vl import modeling_qwen3_vl
from transformers.vision_utils import get_vision_position_ids

from situs import Axial, Positions, Rotary, Sections, Vision
from situs.functional import multimodal_coordinates
from tests.parity.attention_probe import Projections, assert_same_attention, enliven
from tests.parity.multimodal_models import MERGE, QWEN2, QWEN3, QWEN25, MultimodalModel, Row, catch_vision, prompt
from tests.parity.released_models import HEAD_DIM
from tests.parity.wide_transformers import WIDE_TOLERANCE, in_float64

ROWS: list[Row] = [
    [5, Vision(1, 3, 4), 6, Vision(1, 2, 5), 3],
    [2, Vision(3, 4, 3), 9],
    [4, Vision(1, 1, 1), 2],
]

each_model = pytest.mark.parametrize("model", [QWEN2, QWEN3], ids=str)
each_precision = pytest.mark.parametrize("precision", ["as released", "in float64"])


def within(precision: str, *sources: Any) -> Any:
    return in_float64(*sources) if precision == "in float64" else nullcontext()


def by_frame(row: Row) -> Row:
    """Qwen3-VL writes a time stamp before each frame, so its videos are pictures."""
    split: list[int | Vision] = []
    for segment in row:
        if isinstance(segment, Vision) and segment.time > 1:
            for _ in range(segment.time):
                split += [Vision(1, segment.height, segment.width), 2]
        else:
            split.append(segment)
    return split


# ---------------------------------------------------------------------- positions


@pytest.mark.parametrize("model", [QWEN2, QWEN25], ids=str)
def test_positions_of_images_and_videos_in_a_padded_batch_equal_ours(model: MultimodalModel) -> None:
    step = 1.0 if model is QWEN2 else 4.0  # Qwen2.5-VL spaces frames by their time: 4 positions a second
    rows: list[Row] = [
        [2, Vision(1, 3, 4), 6, Vision(2, 3, 6, step), 3],
        [5, Vision(2, 5, 4, step), 2, Vision(1, 2, 2), 4],
    ]
    inputs, ours = prompt(rows)
    theirs, deltas = model.build().model.get_rope_index(**inputs)
    assert ours.valid is not None
    assert torch.equal(ours.ids[ours.valid], theirs.permute(1, 2, 0)[ours.valid])
    assert deltas.flatten().tolist() == [multimodal_coordinates(row)[1] for row in rows]


@pytest.mark.parametrize("step", [0.3, 0.5, 1.7, 4.0])
def test_frames_spaced_by_a_fraction_fall_on_the_same_positions_as_ours(step: float) -> None:
    row: Row = [3, Vision(5, 20, 22, step), 4]
    inputs, ours = prompt([row])
    seconds = torch.tensor([step / 2], dtype=torch.float64)
    model = QWEN25.build()
    model.config.vision_config.tokens_per_second = 2
    theirs, _ = model.model.get_rope_index(**inputs, second_per_grid_ts=seconds)
    assert torch.equal(ours.ids, theirs.permute(1, 2, 0))


def test_text_after_a_video_longer_than_wide_starts_past_all_of_it_unlike_in_transformers() -> None:
    """The paper has text start one past the largest position so far, and so had Qwen's release. transformers 5 counts
    height and width only, so a video of more frames than that has later text share its frames' positions."""
    inputs, ours = prompt([[2, Vision(9, 2, 3), 4]])
    theirs, _ = QWEN2.build().model.get_rope_index(**inputs)
    video, text = slice(2, 2 + 54), slice(2 + 54, None)
    assert torch.equal(ours.ids[0, video], theirs[:, 0, video].T)
    assert ours.ids[0, text, 0].tolist() == [11, 12, 13, 14]
    assert theirs[0, 0, text].tolist() == [5, 6, 7, 8]


# ---------------------------------------------------------------------- attention


@each_model
@each_precision
def test_attention_over_text_and_pictures_equals_ours_in_a_padded_batch(model: MultimodalModel, precision: str) -> None:
    with within(precision, model.architecture):
        network = model.build()
        inputs, positions = prompt(ROWS if model is QWEN2 else [by_frame(row) for row in ROWS])
        seen = model.layer(network, lambda: network(**inputs))
    assert_same_attention(seen, model.encoding, positions=positions)


@each_model
def test_attention_over_text_alone_equals_one_dimensional_rotary(model: MultimodalModel) -> None:
    with in_float64(model.architecture):
        network = model.build()
        ids = torch.randint(1, 40, (2, 50))
        seen = model.layer(network, lambda: network(ids))
    assert_same_attention(seen, model.encoding)
    assert_same_attention(seen, Rotary(head_dim=HEAD_DIM, base=1e6))


@each_model
def test_generating_after_pictures_equals_ours_on_the_whole_sequence(model: MultimodalModel) -> None:
    new = 4
    rows: list[Row] = [ROWS[0], ROWS[2]]
    with in_float64(model.architecture):
        network = model.build()
        inputs, _ = prompt(rows)
        seen = model.layer(network, lambda: network.generate(**inputs, max_new_tokens=new, do_sample=False))
    longer = [[*row, new - 1] for row in rows]  # the last new token is never fed back
    assert_same_attention(seen, model.encoding, positions=prompt(longer)[1])


@each_model
@each_precision
def test_attention_of_the_vision_tower_equals_axial_rotary(model: MultimodalModel, precision: str) -> None:
    with within(precision, model.architecture):
        network = model.build()
        inputs, _ = prompt([[2, Vision(1, 5, 3), 2, Vision(1, 4, 7), 2]])
        grids = inputs["image_grid_thw"]
        seen = catch_vision(network, lambda: network(**inputs))
    ids = get_vision_position_ids(grids, MERGE)  # patches that merge lie next to one another
    pictures = torch.arange(len(grids)).repeat_interleave(grids.prod(-1))
    positions = Positions.explicit(ids[None], documents=pictures[None])
    assert_same_attention(seen, model.vision_encoding, positions=positions, causal=False)


@each_precision
def test_attention_of_pixtral_equals_axial_rotary_with_a_shared_ladder(precision: str) -> None:
    config = PixtralVisionConfig(
        hidden_size=64, intermediate_size=32, num_hidden_layers=1, num_attention_heads=4, image_size=64, patch_size=4
    )
    config._attn_implementation = "eager"
    sizes = [(24, 36), (48, 12)]
    with within(precision, PixtralVisionModel):
        network: Any = PixtralVisionModel(config)
        enliven(network.to(torch.get_default_dtype()).eval())
        pixels = torch.randn(2, 3, 48, 36)
        layer = Projections("transformer.layers.0.attention", HEAD_DIM)
        seen = layer(network, lambda: network(pixels, image_sizes=torch.tensor(sizes)))
    positions = Positions.pack([Positions.grid(height // 4, width // 4) for height, width in sizes])
    encoding = Rotary(head_dim=HEAD_DIM, split=Axial(axes=2, ladder="shared"))
    assert_same_attention(seen, encoding, positions=positions, causal=False)


# ---------------------------------------------------------------------- far positions, at the released sizes


@pytest.mark.parametrize(
    ("module", "name", "split"),
    [
        (modeling_qwen2_vl, "Qwen2VL", Sections(sizes=(16, 24, 24))),
        (modeling_qwen3_vl, "Qwen3VLText", Sections(sizes=(24, 20, 20), order="interleaved")),
    ],
    ids=["qwen2-vl", "qwen3-vl"],
)
def test_rotation_by_three_far_coordinates_equals_ours(module: Any, name: str, split: Sections) -> None:
    ids = torch.randint(1 << 17, (3, 2, 64))
    with in_float64(getattr(module, f"{name}Model")):
        rope = {"rope_type": "default", "rope_theta": 5e6, "mrope_section": list(split.sizes)}
        config = getattr(module, f"{name.removesuffix('Text')}TextConfig")(
            hidden_size=512, num_attention_heads=4, rope_parameters=rope
        )
        x = torch.randn(2, 4, 64, 128)
        cos, sin = getattr(module, f"{name}RotaryEmbedding")(config)(x, ids)
        theirs, _ = module.apply_rotary_pos_emb(x, x, cos, sin)
    ours = Rotary(head_dim=128, base=5e6, split=split)(x, Positions.explicit(ids.permute(1, 2, 0)))
    torch.testing.assert_close(ours, theirs, rtol=0.0, atol=WIDE_TOLERANCE)
