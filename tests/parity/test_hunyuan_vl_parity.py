"""Hunyuan VL's text model and ours: four coordinates, a base enlarged by alpha, and norms behind the rotation."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache, HunYuanVLTextConfig
from transformers.models.hunyuan_vl.modeling_hunyuan_vl import (
    HunYuanVLModel,
    HunYuanVLRotaryEmbedding,
    HunYuanVLTextModel,
    apply_rotary_pos_emb,
)

import situs
from situs import Positions
from tests.parity.attention_probe import enliven
from tests.parity.wide_transformers import WIDE_TOLERANCE, in_float64

WIDTH, HEADS, KV_HEADS, HEAD_DIM, LENGTH = 64, 4, 2, 16, 24
FAR = 100_000
SECTIONS, ALPHA = (1, 2, 3, 2), 1000.0  # pairs for the token, the column, the row and the image; HunyuanOCR's alpha
IMAGE = slice(5, 20)
REAL = torch.arange(LENGTH) >= torch.tensor([[7], [0]])  # padded on the left


def settings(head_dim: int = HEAD_DIM, sections: tuple[int, ...] = SECTIONS) -> HunYuanVLTextConfig:
    config = HunYuanVLTextConfig(
        hidden_size=WIDTH, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=head_dim,
        num_hidden_layers=1, vocab_size=8, intermediate_size=8, max_position_embeddings=64,
        rope_parameters={
            "rope_type": "xdrope", "rope_theta": 10000.0, "alpha": ALPHA, "factor": 1.0,
            "xdrope_section": list(sections),
        },
    )  # fmt: skip
    config._attn_implementation = "eager"
    return config


def rotary() -> situs.Rotary:
    return situs.Rotary(head_dim=HEAD_DIM, scaling=situs.NTKScaling(factor=ALPHA), split=situs.Sections(sizes=SECTIONS))


def text_model() -> Any:
    model: Any = enliven(HunYuanVLTextModel(settings()).eval())
    attention = model.layers[0].self_attn
    with torch.no_grad():
        for norm in (attention.query_layernorm, attention.key_layernorm):
            norm.weight.uniform_(0.5, 2)
    return model


def ours_from(model: Any) -> situs.Attention:
    """Our layer with the weights of their first."""
    theirs = model.layers[0].self_attn
    layer = situs.Attention(
        dim=WIDTH, num_heads=HEADS, num_kv_heads=KV_HEADS, head_dim=HEAD_DIM, encoding=rotary(), qk_norm="after"
    ).to(theirs.q_proj.weight.dtype)
    for norm in (layer.query_norm, layer.key_norm):
        assert norm is not None
        norm.eps = theirs.query_layernorm.variance_epsilon
    names = {
        "query": "q_proj", "key": "k_proj", "value": "v_proj", "out": "o_proj",
        "query_norm": "query_layernorm", "key_norm": "key_layernorm",
    }  # fmt: skip
    layer.load_state_dict({f"{name}.weight": getattr(theirs, source).weight for name, source in names.items()})
    return layer.eval()


@torch.no_grad()
def seen(model: Any, chunks: list[int], ids: Tensor | None, real: Tensor) -> tuple[Tensor, Tensor]:
    """What enters and leaves the first attention layer in a run of the model, with a cache where chunks are several;
    ``ids`` are (axes, batch, sequence)."""
    parts: list[tuple[Tensor, Tensor]] = []
    handle = model.layers[0].self_attn.register_forward_hook(
        lambda module, given, named, out: parts.append((named["hidden_states"], out[0])), with_kwargs=True
    )
    tokens, cache, end = torch.randint(1, 8, real.shape), DynamicCache(config=model.config), 0
    for count in chunks:
        start, end = end, end + count
        model(
            tokens[:, start:end],
            attention_mask=real[:, :end].long(),
            position_ids=None if ids is None else ids[..., start:end],
            past_key_values=cache,
        )
    handle.remove()
    x, out = (torch.cat(each, 1) for each in zip(*parts, strict=True))
    return x, out


def text_ids(start: int) -> Tensor:
    return (start + REAL.cumsum(-1) - 1).clamp(min=0).expand(len(SECTIONS), -1, -1)


@torch.no_grad()
def test_attention_over_padded_text_equals_ours_in_float32() -> None:
    model = text_model()
    x, theirs = seen(model, [LENGTH], text_ids(0), REAL)
    ours = ours_from(model)(x, Positions.from_mask(REAL))
    assert (ours - theirs)[REAL].abs().max() < 1e-5


@torch.no_grad()
def test_attention_over_padded_text_equals_ours_far_out_and_with_a_cache() -> None:
    chunks = [15, 1, 8]
    with in_float64(HunYuanVLTextModel):
        model = text_model()
        x, theirs = seen(model, [LENGTH], text_ids(FAR), REAL)
        near, near_theirs = seen(model, chunks, text_ids(0), REAL)
        layer = ours_from(model)
        ours = layer(x, Positions.explicit(text_ids(FAR)[0], valid=REAL))
        assert (ours - theirs)[REAL].abs().max() < WIDE_TOLERANCE
        cache, positions = layer.make_cache(batch=2, max_length=LENGTH), Positions.from_mask(REAL)
        steps, end = [], 0
        for count in chunks:
            start, end = end, end + count
            steps.append(layer(near[:, start:end], positions[start:end], cache=cache))
    assert (torch.cat(steps, 1) - near_theirs)[REAL].abs().max() < WIDE_TOLERANCE


# ---------------------------------------------------------------------- images


def image_ids(start: int = 0) -> Tensor:
    """Coordinates (axes, 1, sequence) of 5 tokens of text, an image of 3 rows of 4 and a line's end, and text."""
    ids = torch.arange(LENGTH).expand(4, -1).clone()
    cells = torch.arange(15)
    ids[1:, IMAGE] = torch.stack((cells % 5, cells // 5, torch.zeros(15, dtype=torch.int64)))
    return (start + ids)[:, None]


def by_pairs(module: Any, table: Tensor) -> Tensor:
    """Lay sections over pairs, as the authors' code does: the list of sizes is repeated, once for each half."""
    sizes = 2 * list(module.mrope_section)
    parts = torch.cat((table, table), -1).split(sizes, -1)
    return torch.cat([part[index % len(SECTIONS)] for index, part in enumerate(parts)], -1)


def test_coordinates_of_an_image_are_the_token_column_row_and_image() -> None:
    kinds = torch.tensor([[0] * 5 + [1] * 15 + [0] * 4])
    released: Any = HunYuanVLModel
    model = SimpleNamespace(
        config=SimpleNamespace(text_config=settings(), vision_config=SimpleNamespace(spatial_merge_size=2)),
        get_vision_position_ids=partial(released.get_vision_position_ids, None),
    )
    grid = torch.tensor([[1, 6, 8]])
    theirs, _ = released.get_rope_index(model, kinds, kinds, grid)
    assert torch.equal(theirs, image_ids())


@torch.no_grad()
def test_attention_over_an_image_equals_ours_with_sections_over_pairs() -> None:
    real = torch.ones(1, LENGTH, dtype=torch.bool)
    layout = patch.object(HunYuanVLRotaryEmbedding, "recomposition_frequencies", by_pairs)
    with in_float64(HunYuanVLTextModel), layout:
        model = text_model()
        for start in (0, FAR):
            x, theirs = seen(model, [LENGTH], image_ids(start), real)
            ours = ours_from(model)(x, Positions.explicit(image_ids(start).permute(1, 2, 0)))
            assert (ours - theirs).abs().max() < WIDE_TOLERANCE


@pytest.mark.parametrize("wide", [True, False], ids=["float64, far", "float32"])
def test_transformers_rotates_the_two_channels_of_a_pair_by_different_coordinates(wide: bool) -> None:
    """It doubles each size instead of repeating the list, so that channels i and i + d / 2 lie in different sections:
    cosines and sines are those of the right frequencies, at the wrong coordinate. In an image that is no rotation."""
    ids = image_ids(FAR if wide else 0)
    if wide:
        with in_float64(HunYuanVLRotaryEmbedding):
            cos, sin = HunYuanVLRotaryEmbedding(settings())(torch.zeros(1), ids)
    else:
        cos, sin = HunYuanVLRotaryEmbedding(settings())(torch.zeros(1), ids)
    table = situs.Rotary(head_dim=HEAD_DIM, scaling=situs.NTKScaling(factor=ALPHA))
    axis = torch.arange(4).repeat_interleave(2 * torch.tensor(SECTIONS))
    assert (axis[:8] != axis[8:]).all()  # no pair has one coordinate
    assert not torch.equal(axis[:8], rotary().axis_of_pair)
    for channel in range(HEAD_DIM):
        ours = table.table(Positions.explicit(ids[axis[channel]]), dtype=torch.float64)
        for expected, theirs in ((ours.cos, cos), (ours.sin, sin)):
            error = (expected[:, 0, :, channel % 8] - theirs[..., channel]).abs().max()
            assert error < (WIDE_TOLERANCE if wide else 1e-6)


def test_moving_all_coordinates_changes_scores_of_an_image_in_transformers_and_not_ours() -> None:
    dim, sections = 128, (16,) * 4  # as released
    config = settings(dim, sections)
    released = situs.Rotary(head_dim=dim, scaling=situs.NTKScaling(factor=ALPHA), split=situs.Sections(sizes=sections))
    query, key = torch.randn(2, 1, 16, LENGTH, dim, dtype=torch.float64)

    def theirs(ids: Tensor) -> Any:
        with in_float64(HunYuanVLRotaryEmbedding):
            rotated = apply_rotary_pos_emb(query, key, *HunYuanVLRotaryEmbedding(config)(query, ids))
        return rotated[0] @ rotated[1].mT

    def ours(ids: Tensor) -> Any:
        rotated = released.both(query, key, Positions.explicit(ids.permute(1, 2, 0)))
        return rotated[0] @ rotated[1].mT

    changed, same = (scores(image_ids(37)) - scores(image_ids()) for scores in (theirs, ours))
    assert same.abs().max() < WIDE_TOLERANCE
    assert changed[..., 20:, 20:].abs().max() < WIDE_TOLERANCE  # text has one coordinate, four times over
    assert 0.44 < float(changed[..., IMAGE, IMAGE].std() / theirs(image_ids()).std()) < 0.52
