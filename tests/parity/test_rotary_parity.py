"""The rotation alone: transformers' rotary module and apply function against ours, before and far past training.

As released, transformers forms angles in float32; how far off that may be is derived, pair by pair, in
``rounding_of``. Run in float64 (see ``wide_transformers``) it must agree with ours to float64's precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import CohereConfig, GlmConfig, GPTNeoXConfig, LlamaConfig
from transformers.models.cohere import modeling_cohere
from transformers.models.glm import modeling_glm
from transformers.models.gpt_neox import modeling_gpt_neox
from transformers.models.gptj import modeling_gptj
from transformers.models.llama import modeling_llama

import situs
from situs import LinearScaling, Llama3Scaling, Rotary
from tests.parity.wide_transformers import WIDE_TOLERANCE, in_float64

Turn = Callable[[Tensor, Tensor], Tensor]
LLAMA31 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def by_module(rotary: Any, config: Any, apply: Callable[..., Any]) -> Callable[[], Turn]:
    """How a model with a rotary module turns queries; built late, so that it may be built in float64."""

    def build() -> Turn:
        module = rotary(config)
        return lambda x, ids: apply(x, x, *module(x, ids))[0]

    return build


def gptj_turn() -> Turn:
    """GPT-J looks angles up in a table, and turns the first channels of (batch, sequence, heads, head_dim)."""
    table = modeling_gptj.create_sinusoidal_positions(1 << 17, 64)

    def turn(x: Tensor, ids: Tensor) -> Tensor:
        sin, cos = table[ids].to(x.dtype).chunk(2, -1)
        turned = modeling_gptj.apply_rotary_pos_emb(x[..., :64].transpose(1, 2), sin, cos)
        return torch.cat((turned.transpose(1, 2), x[..., 64:]), -1)

    return turn


@dataclass(frozen=True)
class Rotation:
    """A released rotation and ours."""

    name: str
    build: Callable[[], Turn]
    ours: Rotary
    source: Any

    def __str__(self) -> str:
        return self.name


def llama(**parameters: Any) -> Callable[[], Turn]:
    config = LlamaConfig(hidden_size=512, num_attention_heads=4, rope_parameters={"rope_theta": 10000.0, **parameters})
    return by_module(modeling_llama.LlamaRotaryEmbedding, config, modeling_llama.apply_rotary_pos_emb)


ROTATIONS = [
    Rotation("llama", llama(), Rotary(head_dim=128), modeling_llama.LlamaModel),
    Rotation(
        "llama with linear scaling",
        llama(rope_type="linear", factor=4.0),
        Rotary(head_dim=128, scaling=LinearScaling(factor=4.0)),
        modeling_llama.LlamaModel,
    ),
    Rotation(
        "llama 3.1",
        llama(rope_type="llama3", rope_theta=5e5, **LLAMA31),
        Rotary(head_dim=128, base=5e5, scaling=Llama3Scaling(factor=8.0, original_length=8192)),
        modeling_llama.LlamaModel,
    ),
    Rotation(
        "gpt-neox",
        by_module(
            modeling_gpt_neox.GPTNeoXRotaryEmbedding,
            GPTNeoXConfig(hidden_size=384, num_attention_heads=4),  # GPT-NeoX-20B's heads: 24 channels of 96 turn
            modeling_gpt_neox.apply_rotary_pos_emb,
        ),
        Rotary(head_dim=96, rotary_dim=24),
        modeling_gpt_neox.GPTNeoXModel,
    ),
    Rotation("gpt-j", gptj_turn, Rotary(head_dim=256, rotary_dim=64, pairing="interleaved"), modeling_gptj.GPTJModel),
    Rotation(
        "cohere",
        by_module(
            modeling_cohere.CohereRotaryEmbedding,
            CohereConfig(hidden_size=512, num_attention_heads=4, rope_parameters={"rope_theta": 8e6}),
            modeling_cohere.apply_rotary_pos_emb,
        ),
        Rotary(head_dim=128, base=8e6, pairing="interleaved"),
        modeling_cohere.CohereModel,
    ),
    Rotation(
        "glm",
        by_module(
            modeling_glm.GlmRotaryEmbedding,
            GlmConfig(head_dim=128, rope_parameters={"rope_theta": 10000.0, "partial_rotary_factor": 0.5}),
            modeling_glm.apply_rotary_pos_emb,
        ),
        Rotary(head_dim=128, rotary_dim=64, pairing="interleaved"),
        modeling_glm.GlmModel,
    ),
]
IDS = {
    "from 0": torch.arange(200).expand(2, -1),
    "past 512": torch.arange(500, 700).expand(2, -1),
    "past 65536": torch.arange(65_500, 65_700).expand(2, -1),
    "random": torch.randint(1 << 17, (2, 200), generator=torch.Generator().manual_seed(0)),
}

each_rotation = pytest.mark.parametrize("rotation", ROTATIONS, ids=str)
each_place = pytest.mark.parametrize("ids", IDS.values(), ids=IDS.keys())


def in_pairs(x: Tensor, rotary: Rotary) -> Tensor:
    """The channels that turn, (..., pairs, 2)."""
    turning = x[..., : rotary.rotary_dim]
    return torch.stack(
        turning.chunk(2, -1) if rotary.pairing == "halves" else (turning[..., ::2], turning[..., 1::2]), -1
    )


def rounding_of(rotary: Rotary, ids: Tensor) -> Tensor:
    """How far from the truth float32 may turn a unit pair, (batch, 1, sequence, pairs).

    A frequency is a power whose exponent is rounded (relative error ln(base) 2^-24 at most), itself rounded to a
    float32 (2^-23), inverted, scaled and multiplied by the position (2^-24 each, and up to four in a blend). So the
    angle at p is off by p w (ln(base) / 2 + 4) 2^-23. Cosine, sine, products and their sum add four roundings more.
    """
    assert isinstance(rotary.base, (int, float))
    angles = ids[:, None, :, None] * rotary.frequencies[:, None]
    return (angles * (math.log(rotary.base) / 2 + 4) + 4) * 2**-23


def our_turn(rotary: Rotary, x: Tensor, ids: Tensor) -> Tensor:
    """By a range where the ids are one, since a range has a fast path of its own."""
    first = int(ids[0, 0])
    is_range = torch.equal(ids, torch.arange(first, first + ids.shape[1]).expand_as(ids))
    turned: Tensor = rotary(x, first if is_range else situs.Positions.explicit(ids))
    return turned


@each_rotation
@each_place
@pytest.mark.parametrize("precision", ["as released", "in float64"])
def test_rotation_equals_ours(rotation: Rotation, ids: Tensor, precision: str) -> None:
    wide = precision == "in float64"
    with in_float64(rotation.source) if wide else nullcontext():
        x = torch.randn(2, 3, 200, rotation.ours.head_dim)
        theirs = rotation.build()(x, ids)
    ours = our_turn(rotation.ours, x, ids)
    difference = in_pairs(ours - theirs, rotation.ours).norm(dim=-1)
    allowed = WIDE_TOLERANCE if wide else rounding_of(rotation.ours, ids)
    assert (difference <= allowed * in_pairs(x, rotation.ours).norm(dim=-1)).all()
    assert torch.equal(ours[..., rotation.ours.rotary_dim :], x[..., rotation.ours.rotary_dim :])


@each_rotation
@each_place
def test_rotation_in_bfloat16_is_within_one_unit_in_the_last_place_of_the_truth(
    rotation: Rotation, ids: Tensor
) -> None:
    x = torch.randn(2, 3, 200, rotation.ours.head_dim).bfloat16()
    with in_float64(rotation.source):
        truth = rotation.build()(x.double(), ids)
    ours = our_turn(rotation.ours, x, ids)
    assert ours.dtype == torch.bfloat16
    size = in_pairs(truth, rotation.ours).norm(dim=-1, keepdim=True)
    unit = 2.0 ** (size.log2().floor() - 7)  # bfloat16 keeps 8 bits
    assert (in_pairs(ours.double() - truth, rotation.ours).abs() <= unit).all()
